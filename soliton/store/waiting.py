"""What all stores share: who waits for what, for how long, and who wakes whom.

`work.py` decides, a subclass keeps payloads and makes changes last; this class does the five calls between them. Does
not know environments, models or losses, nor who calls it. Guarantees: a batch is whole or absent; nothing handed to the
learner is older than the bound; equal calls in equal order give equal answers; every call may be repeated.

Loops: `lease` waits for the first policy and for a draw to be trained, given up or offered again; `commit` waits for
room; `take` waits for commits. Every call that changes something wakes everybody, and each waiter looks again. State
changes only between two awaits, so that a cancelled call has done nothing.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Sequence

from soliton.errors import RunError
from soliton.store.config import StoreConfig
from soliton.store.groups import Draw
from soliton.store.ledger import failure
from soliton.store.store import BatchItem, CommitAck, StoreStatus, Waiting
from soliton.store.waits import WaitTime
from soliton.store.work import Work
from soliton.types import NO_VERSION, AttemptId, Clock, Lease, Ledger, Publication, Trajectory


class WaitingStore(abc.ABC):
    """`soliton.store.store.Store` over a `Work`.

    Args:
        config: limits.
        clock: stamps leases and measures waits.
        work: what was decided so far.
    """

    def __init__(self, config: StoreConfig, clock: Clock, work: Work) -> None:
        self._config = config
        self._clock = clock
        self._work = work
        self._changed = asyncio.Event()
        self._closed = False
        self._handed: dict[AttemptId, Trajectory] = {}
        self._admission_wait = WaitTime(clock)
        self._batch_wait = WaitTime(clock)
        self._hold_wait = WaitTime(clock)

    # -- what a subclass keeps ----------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _save(self) -> None:
        """Make all changes so far last, those of an earlier call that could not be saved included."""

    @abc.abstractmethod
    def _payload(self, attempt: AttemptId) -> Trajectory | None:
        """The trajectory of a queued or taken attempt; None if its bytes are damaged."""

    @abc.abstractmethod
    def _finished_ack(self, attempt: AttemptId) -> CommitAck | None:
        """The answer that a commit of an attempt that is over has got; None if it was never issued."""

    @abc.abstractmethod
    def _ledger(self) -> Ledger:
        """Where every attempt is."""

    @abc.abstractmethod
    def _expire_rewards(self) -> None:
        """Drop what has waited for its reward past the deadline."""

    # -- the five calls -----------------------------------------------------------------------------------------------

    async def lease(self, limit: int, holder: str = "") -> list[Lease]:
        """Up to `limit` attempts, those of the oldest draws first, repeated ones included; see the protocol.

        Raises:
            ValueError: `limit` < 1.
        """
        if limit < 1:
            raise ValueError(f"limit is the number of attempts wanted, at least 1; got {limit}")
        leases = self._try_lease(limit, holder)
        if leases is None:
            with self._admission_wait:
                while leases is None:
                    await self._change()
                    leases = self._try_lease(limit, holder)
        return leases

    async def commit(self, trajectory: Trajectory) -> CommitAck:
        """Hand in a finished attempt; handing it in again changes nothing and gets the same answer.

        Waits while there is no room for what it would queue.

        Raises:
            ValueError: it failed for a reason that only a store can give.
            RunError: the attempt was never issued.
        """
        if self.must_wait(trajectory):
            with self._admission_wait:
                while self.must_wait(trajectory):
                    await self._change()
        return self.commit_many([trajectory])[0]

    async def take(self) -> list[BatchItem]:
        """One whole batch, oldest version first, then by draw and sample; see the protocol.

        Members that failed for good shrink their group, never the number of groups.
        """
        items = self._try_take()
        while items is None:
            held = self._work.must_hold()
            with self._hold_wait if held else self._batch_wait:
                while items is None and self._work.must_hold() == held:
                    await self._change()
                    items = self._try_take()
        return items

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """The batch is consumed, and the learner is where `publication` says (where it was, for None).

        Raises:
            RunError: `trained` is not exactly the batch taken, or the publication does not follow the newest one.
                Nothing has changed then.
        """
        self._save()
        self._work.finish(trained, publication)
        if not self._work.book.taken:
            self._handed = {}
        self._save()
        self._wake()

    async def status(self) -> StoreStatus:
        """The ledger, the waits and who waits for what."""
        self._expire_rewards()
        work = self._work
        empty = work.versions.is_empty
        return StoreStatus(
            step=0 if empty else work.versions.newest.step,
            version=NO_VERSION if empty else work.versions.newest.version,
            batches=work.batches,
            ledger=self._ledger(),
            admission_wait_s=self._admission_wait.total_s,
            batch_wait_s=self._batch_wait.total_s,
            hold_wait_s=self._hold_wait.total_s,
            dropped_by_length_decile=work.lengths.dropped_by_decile(),
            num_given_up=work.num_given_up,
            queued_bytes=work.book.queued_bytes,
            waiting=self._waiting(),
            failed_by_environment=dict(work.book.failed_by_environment),
        )

    # -- for the run's owner ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the run: `lease` and `take`, also those that wait now, return []. Commits are still accepted."""
        self._closed = True
        self._wake()

    def commit_many(
        self,
        trajectories: Sequence[Trajectory],
        encoded: Sequence[bytes] = (),  # noqa: ARG002  (for a store that writes bytes)
    ) -> list[CommitAck]:
        """Several commits at once, whether there is room or not; all of them or, if one is refused, none.

        Args:
            trajectories: what is handed in.
            encoded: if they came as bytes, those of each, which a store that writes bytes may write as they are.

        Raises:
            ValueError, RunError: as `commit`.
        """
        self._save()
        in_flight = self._work.book.in_flight
        for trajectory in trajectories:
            failure(trajectory)
            if trajectory.attempt not in in_flight:
                self._ack_again(trajectory.attempt)
        acks = []
        for trajectory in trajectories:
            if trajectory.attempt in in_flight:
                acks.append(self._work.commit(trajectory, self._clock.now()))
            else:
                self._save()  # an attempt may come twice in one call
                acks.append(self._ack_again(trajectory.attempt))
        self._save()
        self._wake()
        return acks

    @property
    def has_room(self) -> bool:
        """Whether commits are accepted at once; false at `max_queued_bytes` while a full batch is ready."""
        return self._work.has_room

    def must_wait(self, trajectory: Trajectory) -> bool:
        """Whether a commit would wait now: it would queue something for which there is no room."""
        if self._closed or self._work.has_room or trajectory.attempt not in self._work.book.in_flight:
            return False
        return failure(trajectory) is None

    def publications(self) -> tuple[Publication, ...]:
        """The version table of this lineage, oldest first."""
        return self._work.versions.rows

    @property
    def newest(self) -> Publication:
        """The policy published last.

        Raises:
            RunError: none was.
        """
        if self._work.versions.is_empty:
            raise RunError("no policy has been published yet")
        return self._work.versions.newest

    @property
    def next_version(self) -> int:
        """The lowest number that no publication ever had, those rolled back included."""
        return self._work.versions.next_version

    @property
    def batches(self) -> int:
        """Batches consumed in this lineage."""
        return self._work.batches

    @property
    def num_given_up(self) -> int:
        """Draws given up: too many failed attempts, or too few valid members."""
        return self._work.num_given_up

    def lose(self, holder: str | None) -> list[AttemptId]:
        """Presume that the attempts of a dead worker (None: of all) are lost: their samples may be tried again.

        They stay in flight. Whichever attempt of a sample is accepted first wins, the others become `superseded`; the
        same if the sample is given up. Being lost does not use up a try (fault H1).

        Returns:
            The attempts presumed lost by this call.
        """
        lost = self._work.lose(lambda lease: holder is None or lease.holder == holder)
        self._wake()
        return lost

    def reissue_lost(self, issued_before_s: float) -> list[AttemptId]:
        """Presume, as `lose` does, that attempts leased before `issued_before_s` are lost."""
        lost = self._work.lose(lambda lease: lease.issued_s < issued_before_s)
        self._wake()
        return lost

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _try_lease(self, limit: int, holder: str) -> list[Lease] | None:
        """None: it has to wait."""
        if self._closed or self._work.exhausted:
            return []
        self._save()
        self._expire_rewards()
        leases = self._work.issue(limit, self._clock.now(), holder)
        if not leases:
            return None
        self._save_leases(leases)
        return leases

    def _save_leases(self, leases: list[Lease]) -> None:
        """Nobody will hear of leases that cannot be saved, so their attempts are lost."""
        try:
            self._save()
        except RunError:
            unheard = {lease.attempt for lease in leases}
            self._work.lose(lambda lease: lease.attempt in unheard)
            raise

    def _ack_again(self, attempt: AttemptId) -> CommitAck:
        return self._finished_or_refuse(attempt, f"commit of {attempt}")

    def _finished_or_refuse(self, attempt: AttemptId, what: str) -> CommitAck:
        if attempt in self._work.book.queued or attempt in self._work.book.taken:
            return "queued"
        ack = self._finished_ack(attempt)
        if ack is None:
            raise RunError(f"{what}, which this store never issued; name only what `lease` gave out")
        return ack

    def _try_take(self) -> list[BatchItem] | None:
        """None: it has to wait."""
        if self._closed:
            return []
        self._save()
        self._expire_rewards()
        work = self._work
        while not work.book.taken:
            if work.exhausted:
                return []
            if work.must_hold():
                return None
            batch, dropped = work.pop_batch()
            if len(batch) == self._config.draws_per_batch and self._load(batch):
                work.hand_out(batch, self._clock.now())
                self._save()
                break
            if len(batch) < self._config.draws_per_batch:
                work.put_back(batch)
                if not dropped:
                    return None
            self._save()
            self._wake()
        return [
            BatchItem(self._handed[attempt], taken.staleness, taken.min_trusted_version, taken.queued_s)
            for attempt, taken in work.book.taken.items()
        ]

    def _load(self, batch: list[Draw]) -> bool:
        """Read the payloads of a batch; if some are damaged, drop those, put the other draws back and return False."""
        self._handed = {}
        damaged: dict[int, list[AttemptId]] = {}
        for draw in batch:
            for attempt in draw.accepted:
                trajectory = self._payload(attempt)
                if trajectory is None:
                    damaged.setdefault(draw.number, []).append(attempt)
                else:
                    self._handed[attempt] = trajectory
        if damaged:
            self._work.put_back([draw for draw in batch if draw.number not in damaged])
            for draw in batch:
                if draw.number in damaged:
                    self._work.drop_damaged(draw, damaged[draw.number])
        return not damaged

    async def _change(self) -> None:
        """Wait until something changes, or until the deadline of an awaited reward."""
        deadlines = [deadline_s for _, deadline_s in self._work.book.awaiting.values()]
        if not deadlines:
            await self._changed.wait()
            return
        waits = [
            asyncio.ensure_future(self._changed.wait()),
            asyncio.ensure_future(self._clock.sleep_until(min(deadlines))),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _wake(self) -> None:
        """Everybody who waits looks again."""
        self._changed.set()
        self._changed.clear()

    # -- who waits ----------------------------------------------------------------------------------------------------

    def _waiting(self) -> dict[str, Waiting]:
        waiting: dict[str, Waiting] = {}
        if self._admission_wait.running:
            waiting["rollouts"] = Waiting(f"rollouts wait: {self._rollouts_wait_for()}", self._admission_wait.for_s)
        for wait in (self._batch_wait, self._hold_wait):
            if wait.running:
                waiting["learner"] = Waiting(f"learner waits: {self._learner_waits_for()}", wait.for_s)
        return waiting

    def _rollouts_wait_for(self) -> str:
        config, work = self._config, self._work
        if work.versions.is_empty:
            return "no policy has been published yet"
        if not work.has_room:
            return f"{work.book.queued_bytes:,} of {config.max_queued_bytes:,} bytes queued, and a full batch is ready"
        if work.next_draw == config.num_draws:
            return f"no draw is left, {len(work.draws)} unfinished ones may be tried again"
        return f"{len(work.draws) * config.group_size} of {config.outstanding_limit} outstanding"

    def _learner_waits_for(self) -> str:
        config, work = self._config, self._work
        oldest = work.oldest_pending
        if self._hold_wait.running and oldest is not None:
            attempts = ", ".join(str(attempt) for attempt in oldest.in_flight) or f"draw {oldest.number}"
            return f"{attempts} would pass max_staleness {config.max_staleness}"
        unit = "trajectories" if config.group_size == 1 else "groups"
        awaiting = f", {len(work.book.awaiting)} await their reward" if work.book.awaiting else ""
        return f"{work.num_ready} of {config.draws_per_batch} {unit} ready{awaiting}"
