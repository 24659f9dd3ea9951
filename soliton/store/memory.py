"""The store of one process: dictionaries and heaps on one event loop.

Owns waiting: who waits for what, for how long, and who wakes whom; `work.py` decides. Does not know environments,
models or losses, nor who calls it. Guarantees: a batch is whole or absent; nothing handed to the learner is older than
the bound; equal calls in equal order give equal answers.

Loops: `lease` waits for a draw to be trained, given up or offered again; `take` waits for commits. Every call that
changes something wakes everybody, and each waiter looks again. State changes only between two awaits, so that a
cancelled call has done nothing.
"""

from __future__ import annotations

import asyncio

from soliton.errors import ConfigError, RunError
from soliton.store.config import StoreConfig
from soliton.store.snapshot import StoreSnapshot
from soliton.store.store import BatchItem, CommitAck, StoreStatus
from soliton.store.versions import VersionTable
from soliton.store.waits import WaitTime
from soliton.store.work import Work
from soliton.types import AttemptId, Clock, Lease, Ledger, Publication, Trajectory


class MemoryStore:
    """`soliton.store.store.Store` in memory. It remembers the id of every attempt, some 200 bytes each.

    Args:
        config: limits.
        clock: stamps leases and measures waits.
        initial: the policy that sampling starts from; its step is where the learner is.
    """

    def __init__(self, config: StoreConfig, clock: Clock, initial: Publication) -> None:
        self._config = config
        self._clock = clock
        self._work = Work(config, VersionTable([initial]))
        self._changed = asyncio.Event()
        self._closed = False
        self._admission_wait = WaitTime(clock)
        self._batch_wait = WaitTime(clock)
        self._hold_wait = WaitTime(clock)

    # -- the five calls -----------------------------------------------------------------------------------------------

    async def lease(self, limit: int) -> list[Lease]:
        """Up to `limit` attempts, those of the oldest draws first, repeated ones included; see the protocol.

        Raises:
            ValueError: `limit` < 1.
        """
        if limit < 1:
            raise ValueError(f"limit is the number of attempts wanted, at least 1; got {limit}")
        while not self._over:
            if leases := self._work.issue(limit, self._clock.now()):
                return leases
            with self._admission_wait:
                await self._changed.wait()
        return []

    async def commit(self, trajectory: Trajectory) -> CommitAck:
        """Hand in a finished attempt; handing it in again changes nothing and gets the same answer.

        Raises:
            ValueError: it failed for a reason that only a store can give.
            RunError: the attempt was never issued.
        """
        ack = self._work.commit(trajectory, self._clock.now())
        self._wake()
        return ack

    async def take(self) -> list[BatchItem]:
        """One whole batch, oldest version first, then by draw and sample; see the protocol.

        Members that failed for good shrink their group, never the number of groups.

        Raises:
            RunError: the batch before was not finished. Staleness is exact for one batch at a time only.
        """
        while not self._over:
            if self._work.book.taken:
                raise RunError(
                    f"take was called while {len(self._work.book.taken)} trajectories of the last batch are "
                    "unfinished; call finish_step first"
                )
            held = self._work.must_hold()
            if not held:
                batch, dropped = self._work.pop_batch()
                if len(batch) == self._config.draws_per_batch:
                    return self._work.hand_out(batch, self._clock.now())
                self._work.put_back(batch)
                if dropped:
                    self._wake()
                    continue
            with self._hold_wait if held else self._batch_wait:
                await self._changed.wait()
        return []

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """The batch is consumed, and the learner is where `publication` says (where it was, for None).

        Raises:
            RunError: `trained` is not exactly the batch taken, or the publication does not follow the newest one.
                Nothing has changed then.
        """
        self._work.finish(trained, publication)
        self._wake()

    async def status(self) -> StoreStatus:
        """The ledger, the waits and who waits for what."""
        newest = self._work.versions.newest
        return StoreStatus(
            step=newest.step,
            version=newest.version,
            ledger=self._work.book.ledger(),
            admission_wait_s=self._admission_wait.total_s,
            batch_wait_s=self._batch_wait.total_s,
            hold_wait_s=self._hold_wait.total_s,
            dropped_by_length_decile=self._work.lengths.dropped_by_decile(),
            waiting=self._reasons(),
        )

    # -- for the run's owner ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the run: `lease` and `take`, also those that wait now, return []. Commits are still accepted."""
        self._closed = True
        self._wake()

    def publications(self) -> tuple[Publication, ...]:
        """The version table, oldest first."""
        return self._work.versions.rows

    @property
    def newest(self) -> Publication:
        """The policy published last."""
        return self._work.versions.newest

    @property
    def num_given_up(self) -> int:
        """Draws given up: too many failed attempts, or too few valid members."""
        return self._work.num_given_up

    def reissue_lost(self, issued_before_s: float) -> list[AttemptId]:
        """Presume that attempts leased before `issued_before_s` are lost: their samples may be tried again (fault H1).

        They stay in flight. Whichever attempt of a sample is accepted first wins, the others become `superseded`; the
        same if the sample is given up. Being lost does not use up a try.

        Returns:
            The attempts presumed lost by this call.
        """
        lost = self._work.reissue_lost(issued_before_s)
        self._wake()
        return lost

    def snapshot(self) -> bytes:
        """The store at rest, between two steps. Attempts in flight stay in flight.

        Raises:
            RunError: a batch is taken and not finished; the cursor would not fit the weights.
        """
        work = self._work
        if work.book.taken:
            raise RunError(
                f"snapshot while {len(work.book.taken)} trajectories are taken and not trained; call finish_step first"
            )
        waits = (self._admission_wait, self._batch_wait, self._hold_wait)
        return StoreSnapshot(
            group_size=self._config.group_size,
            publications=work.versions.rows,
            next_draw=work.next_draw,
            num_given_up=work.num_given_up,
            draws=list(work.draws.values()),
            num_issued=work.book.num_issued,
            in_flight=list(work.book.in_flight.values()),
            queued=list(work.book.queued.values()),
            trained=list(work.book.trained),
            superseded=list(work.book.superseded),
            dropped={reason.value: list(attempts) for reason, attempts in work.book.dropped.items()},
            lengths=work.lengths,
            wait_s=(waits[0].total_s, waits[1].total_s, waits[2].total_s),
        ).encode()

    @classmethod
    def restore(cls, data: bytes, config: StoreConfig, clock: Clock) -> MemoryStore:
        """The store that `snapshot` wrote, open, as if it had never stopped. Limits may differ from then.

        Raises:
            RunError: damaged bytes.
            ConfigError: another group size; the samples of draws in flight could not be numbered.
        """
        snapshot = StoreSnapshot.decode(data)
        if snapshot.group_size != config.group_size:
            raise ConfigError(
                f"group_size: got {config.group_size}, but the run was started with {snapshot.group_size}; "
                f"resume with {snapshot.group_size} or start a new run"
            )
        store = cls(config, clock, snapshot.publications[0])
        work = Work(config, VersionTable(snapshot.publications))
        work.book = snapshot.book()
        work.lengths = snapshot.lengths
        work.draws = {draw.number: draw for draw in snapshot.draws}
        work.next_draw = snapshot.next_draw
        work.num_given_up = snapshot.num_given_up
        work.index()
        store._work = work
        waits = [WaitTime(clock, total_s) for total_s in snapshot.wait_s]
        store._admission_wait, store._batch_wait, store._hold_wait = waits
        return store

    @staticmethod
    def ledger_of(data: bytes) -> Ledger:
        """The ledger of a snapshot, without a store.

        Raises:
            RunError: damaged bytes.
        """
        return StoreSnapshot.decode(data).book().ledger()

    # -- waiting ------------------------------------------------------------------------------------------------------

    @property
    def _over(self) -> bool:
        return self._closed or self._work.exhausted

    def _wake(self) -> None:
        """Everybody who waits looks again."""
        self._changed.set()
        self._changed.clear()

    def _reasons(self) -> dict[str, str]:
        config, work = self._config, self._work
        reasons: dict[str, str] = {}
        if self._admission_wait.running:
            outstanding = len(work.draws) * config.group_size
            reasons["rollouts"] = f"rollouts wait: {outstanding} of {config.outstanding_limit} outstanding"
            if work.next_draw == config.num_draws:
                reasons["rollouts"] = (
                    f"rollouts wait: no draw is left, {len(work.draws)} unfinished ones may be tried again"
                )
        if self._batch_wait.running:
            unit = "trajectories" if config.group_size == 1 else "groups"
            reasons["learner"] = f"learner waits: {work.num_ready} of {config.draws_per_batch} {unit} ready"
        if self._hold_wait.running and (oldest := work.oldest_pending) is not None:
            attempts = ", ".join(str(attempt) for attempt in oldest.in_flight) or f"draw {oldest.number}"
            reasons["learner"] = f"learner waits: {attempts} would pass max_staleness {config.max_staleness}"
        return reasons
