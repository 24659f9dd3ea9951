"""The store of one process: dictionaries and heaps on one event loop. Forgets nothing but what its process forgets."""

from __future__ import annotations

from soliton.errors import ConfigError, RunError
from soliton.store.awaiting import AwaitingStore
from soliton.store.changes import Accepted, Dropped, Trained
from soliton.store.config import StoreConfig
from soliton.store.ledger import FinishedAttempts
from soliton.store.snapshot import StoreSnapshot
from soliton.store.store import CommitAck
from soliton.store.versions import VersionTable
from soliton.store.waits import WaitTime
from soliton.store.work import Work
from soliton.types import AttemptId, Clock, Ledger, Publication, Trajectory


class MemoryStore(AwaitingStore):
    """`soliton.store.store.Store` in memory. It remembers the id of every attempt, some 200 bytes each.

    Args:
        config: limits.
        clock: stamps leases and measures waits.
        initial: the policy that sampling starts from; its step is where the learner is. None: the first `finish_step`
            publishes it, and leases wait until then.
    """

    def __init__(self, config: StoreConfig, clock: Clock, initial: Publication | None = None) -> None:
        super().__init__(config, clock, Work(config, VersionTable([] if initial is None else [initial])))
        self._payloads: dict[AttemptId, Trajectory] = {}
        self._finished = FinishedAttempts()
        self._rewards: dict[AttemptId, float] = {}

    def snapshot(self) -> bytes:
        """The store at rest, between two steps. Attempts in flight stay in flight.

        Raises:
            RunError: a batch is taken and not finished; the cursor would not fit the weights.
        """
        work, finished = self._work, self._finished
        if work.book.taken:
            raise RunError(
                f"snapshot while {len(work.book.taken)} trajectories are taken and not trained; call finish_step first"
            )
        waits = (self._admission_wait, self._batch_wait, self._hold_wait)
        return StoreSnapshot(
            group_size=self._config.group_size,
            publications=work.versions.rows,
            next_draw=work.next_draw,
            batches=work.batches,
            num_given_up=work.num_given_up,
            draws=list(work.draws.values()),
            num_issued=finished.num_issued,
            in_flight=list(work.book.in_flight.values()),
            awaiting=list(work.book.awaiting.values()),
            queued=list(work.book.queued.values()),
            payloads=[self._payloads[attempt] for attempt in work.book.queued],
            trained=list(finished.trained),
            superseded=list(finished.superseded),
            dropped={reason.value: list(attempts) for reason, attempts in finished.dropped.items()},
            lengths=work.lengths,
            failed_by_environment=work.book.failed_by_environment,
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
        store = cls(config, clock)
        work = store._work = Work(config, VersionTable(snapshot.publications))
        store._finished = snapshot.finished()
        work.book = snapshot.book()
        work.lengths = snapshot.lengths
        work.draws = {draw.number: draw for draw in snapshot.draws}
        work.next_draw = snapshot.next_draw
        work.batches = snapshot.batches
        work.num_given_up = snapshot.num_given_up
        work.index()
        store._payloads = {payload.attempt: payload for payload in snapshot.payloads}
        waits = [WaitTime(clock, total_s) for total_s in snapshot.wait_s]
        store._admission_wait, store._batch_wait, store._hold_wait = waits
        return store

    @staticmethod
    def ledger_of(data: bytes) -> Ledger:
        """The ledger of a snapshot, without a store.

        Raises:
            RunError: damaged bytes.
        """
        snapshot = StoreSnapshot.decode(data)
        return snapshot.finished().ledger(snapshot.book())

    def _save(self) -> None:
        for change in self._work.drain():
            self._finished.apply(change)
            match change:
                case Accepted(queued, trajectory):
                    self._payloads[queued.attempt] = trajectory
                    if trajectory.awaited is not None and trajectory.awaited.value is not None:
                        self._rewards[queued.attempt] = trajectory.awaited.value
                case Dropped(attempt):
                    del self._payloads[attempt]
                case Trained(taken):
                    del self._payloads[taken.queued.attempt]

    def _payload(self, attempt: AttemptId) -> Trajectory | None:
        return self._payloads[attempt]

    def _finished_ack(self, attempt: AttemptId) -> CommitAck | None:
        return self._finished.ack(attempt)

    def _reward_of(self, attempt: AttemptId) -> float | None:
        return self._rewards.get(attempt)

    def _ledger(self) -> Ledger:
        return self._finished.ledger(self._work.book)
