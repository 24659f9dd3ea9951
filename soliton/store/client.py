"""A store that is elsewhere: the five calls, sent to a hub over HTTP.

Owns what travels together and which call an answer belongs to; `connection.py` owns patience. Does not know what the
store decides. Guarantees: an answer is for exactly what was asked; every call may be repeated, and a lost answer or a
cancelled call loses nothing: leases granted to it go to the holder's next call, a batch comes again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from functools import partial

import msgspec

from soliton.errors import RunError
from soliton.store import wire
from soliton.store.codec import encode_trajectory
from soliton.store.connection import HubConnection, NotNow
from soliton.store.limits import ClientLimits
from soliton.store.store import BatchItem, CommitAck, StoreStatus
from soliton.types import AttemptId, Clock, Lease, Publication, Trajectory


class _Commit(msgspec.Struct, eq=False):
    """A trajectory on its way."""

    attempt: AttemptId
    data: bytes
    ack: asyncio.Future[CommitAck]


class _Slot(msgspec.Struct):
    """See `wire.LeaseRequest`."""

    index: int
    number: int = 0


class HubStore:
    """`soliton.store.store.Store` over HTTP, on one event loop. `async with` closes it.

    Args:
        url: `http://HOST:PORT` of the hub.
        token: of the run.
        run_id: of the run.
        holder: who leases, if a call does not say.
        clock: real time.
        limits: patience and sizes.
    """

    def __init__(
        self, url: str, token: str, run_id: str, holder: str, clock: Clock, limits: ClientLimits | None = None
    ) -> None:
        self._limits = limits or ClientLimits()
        self._connection = HubConnection(url, token, run_id, holder, clock, self._limits)
        self._url = url
        self._holder = holder
        self._client = secrets.token_hex(8)
        self._free_slots: dict[str, list[_Slot]] = {}
        self._num_slots = 0
        self._spare: dict[str, list[Lease]] = {}
        self._commits: deque[_Commit] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._later: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HubStore:
        """The store itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """As `aclose`."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; commits under way are cancelled."""
        tasks = [*self._senders, *self._later]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connection.aclose()

    # -- the five calls: as the protocol says, and each raises HubGoneError when nobody answers -----------------------

    async def lease(self, limit: int, holder: str = "") -> list[Lease]:
        """Up to `limit` attempts to run now; [] when the run is over.

        Raises:
            ValueError: `limit` < 1.
            RunError: refused.
        """
        if limit < 1:
            raise ValueError(f"limit is the number of attempts wanted, at least 1; got {limit}")
        holder = holder or self._holder
        spare = self._spare.setdefault(holder, [])
        if spare:
            leases, spare[:] = spare[:limit], spare[limit:]
            return leases
        free = self._free_slots.setdefault(holder, [])
        slot = free.pop() if free else self._new_slot()
        try:
            leases = await self._lease(limit, holder, slot)
            slot.number += 1
        finally:
            free.append(slot)
        spare.extend(leases[limit:])  # an earlier call that was cancelled had asked for more
        return leases[:limit]

    async def commit(self, trajectory: Trajectory) -> CommitAck:
        """Hand in a finished attempt; waits for as long as the store has no room.

        Raises:
            ValueError: the store cannot accept it, or it is too large to send.
            RunError: refused.
        """
        data = encode_trajectory(trajectory)
        if len(data) + 8 > self._limits.max_body_bytes:
            raise ValueError(
                f"trajectory {trajectory.attempt} is {len(data)} bytes, a commit takes {self._limits.max_body_bytes}; "
                "lower the token limit of episodes or raise the hub's limit"
            )
        commit = _Commit(trajectory.attempt, data, asyncio.get_running_loop().create_future())
        self._commits.append(commit)
        self._start_sending()
        return await commit.ack

    async def take(self) -> list[BatchItem]:
        """One full batch; [] when the run is over.

        Raises:
            RunError: refused.
        """
        answer = await self._connection.ask(wire.TAKE, wire.TakeAnswer, wire.TakeRequest, self._limits.long_poll_s)
        return answer.items

    async def take_ready(self) -> list[BatchItem] | None:
        """As `take`, without waiting: None if no full batch is ready, or the hub cannot answer now.

        Raises:
            RunError: refused.
        """
        answer = await self._connection.ask_once(wire.TAKE, wire.TakeAnswer, wire.TakeRequest)
        return answer.items if isinstance(answer, wire.TakeAnswer) else None

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """The learner is done with a batch.

        Raises:
            RunError: refused; nothing has changed then.
        """
        await self._connection.ask(
            wire.FINISH_STEP, wire.Done, lambda _: wire.FinishRequest(trained=trained, publication=publication)
        )

    async def status(self) -> StoreStatus:
        """The ledger and the waits.

        Raises:
            RunError: refused.
        """
        return await self._connection.ask(wire.STATUS, StoreStatus)

    # -- leases -------------------------------------------------------------------------------------------------------

    def _new_slot(self) -> _Slot:
        self._num_slots += 1
        return _Slot(self._num_slots)

    async def _lease(self, limit: int, holder: str, slot: _Slot) -> list[Lease]:
        def request(wait_s: float) -> wire.LeaseRequest:
            return wire.LeaseRequest(limit, holder, wait_s, self._client, slot.index, slot.number)

        answer = await self._connection.ask(wire.LEASE, wire.LeaseAnswer, request, self._limits.long_poll_s)
        strangers = {lease.holder for lease in answer.leases} - {holder}
        if strangers:
            raise RunError(f"{self._url} answered {holder!r} with leases of {sorted(strangers)}")
        return answer.leases

    # -- commits ------------------------------------------------------------------------------------------------------

    def _start_sending(self) -> None:
        if len(self._senders) < self._limits.max_commit_requests:
            self._senders.add(asyncio.create_task(self._send_commits()))

    async def _send_commits(self) -> None:
        """Send what is there, then what came meanwhile, until nothing is left."""
        batch: list[_Commit] = []
        try:
            while self._commits:
                await self._gather()
                batch = self._next_batch()
                if batch:
                    await self._send(batch)
                batch = []
        finally:
            for commit in (*batch, *self._commits):  # nothing is left unless this was cancelled: nobody waits for ever
                commit.ack.cancel()
            task = asyncio.current_task()
            assert task is not None
            self._senders.discard(task)

    async def _send(self, batch: list[_Commit]) -> None:
        try:
            answer = await self._connection.ask_once(wire.COMMIT, wire.CommitAnswers, partial(_body, batch))
            if isinstance(answer, NotNow):
                self._send_later(batch, answer.retry_after_s)
            elif answer is None:
                raise RunError(f"{self._url} answered a commit with nothing; it is not a hub")
            else:
                self._settle(batch, answer)
        except (RunError, ValueError) as error:
            for commit in batch:
                if not commit.ack.done():
                    commit.ack.set_exception(error)

    async def _gather(self) -> None:
        """Let others join: a request costs the hub as much as writing four trajectories."""
        if self._limits.gather_s > 0 and len(self._commits) < self._limits.max_batch:
            await self._connection.sleep(self._limits.gather_s)

    def _send_later(self, commits: list[_Commit], retry_after_s: float) -> None:
        """Commits for which there is no room wait apart; others, which may need none, go on."""

        async def later() -> None:
            try:
                await self._connection.sleep(retry_after_s)
            except asyncio.CancelledError:
                for commit in commits:
                    commit.ack.cancel()
                raise
            self._commits.extend(commits)
            self._start_sending()

        task = asyncio.create_task(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _next_batch(self) -> list[_Commit]:
        batch: list[_Commit] = []
        size = 8
        while self._commits and len(batch) < self._limits.max_batch:
            commit = self._commits[0]
            if commit.ack.done():  # its caller has given up
                self._commits.popleft()
                continue
            size += len(commit.data)
            if batch and size > self._limits.max_body_bytes:
                break
            batch.append(self._commits.popleft())
        return batch

    def _settle(self, batch: list[_Commit], answer: wire.CommitAnswers) -> None:
        """Each caller its own answer; those without one come again."""
        if [each.attempt for each in answer.answers] != [commit.attempt for commit in batch]:  # fault L5
            raise RunError(
                f"{self._url} answered a commit of {', '.join(str(commit.attempt) for commit in batch[:3])} ... with "
                f"answers for {', '.join(str(each.attempt) for each in answer.answers[:3])} ...; it is not a hub"
            )
        again = []
        for commit, each in zip(batch, answer.answers, strict=True):
            if commit.ack.done():
                continue
            if each.failure is not None:
                commit.ack.set_exception(each.failure.error())
            elif each.ack is not None:
                commit.ack.set_result(each.ack)
            else:
                again.append(commit)
        if again:
            self._send_later(again, answer.retry_after_s)


def _body(batch: list[_Commit], _: float) -> list[msgspec.Raw]:
    return [msgspec.Raw(commit.data) for commit in batch]
