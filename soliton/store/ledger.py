"""Where every issued attempt is: in exactly one of a few containers, and each number of the ledger is a length.

Owns attempts, not draws: it neither decides what is issued again nor what is too old. Guarantees: an attempt moves only
along the arrows, is counted once whatever is repeated, and no container has a limit at which it forgets (fault G3).

    issue -> in flight -> queued -> taken -> trained
                |   |         +-> dropped (stale, group_too_small, rolled_back, damaged)
                |   +-> superseded
                +-> dropped (every other reason)
"""

from __future__ import annotations

from soliton.reasons import DropReason, Status
from soliton.store.changes import (
    Accepted,
    Change,
    Dropped,
    Failed,
    Issued,
    Queued,
    RewardAwaited,
    Superseded,
    Taken,
    Trained,
    index_record,
)
from soliton.store.rewards import awaits_reward
from soliton.store.store import CommitAck
from soliton.types import AttemptId, Lease, Ledger, Trajectory

STORE_REASONS = frozenset(
    {
        DropReason.STALE,
        DropReason.GROUP_TOO_SMALL,
        DropReason.ROLLED_BACK,
        DropReason.DAMAGED,
        DropReason.REWARD_TIMEOUT,
    }
)
"""Reasons that only the store gives, to attempts that it had accepted before."""

BLAMELESS_REASONS = frozenset({DropReason.ROLLED_BACK, DropReason.DAMAGED})
"""Reasons to drop an attempt that use up no try: nothing speaks against the next one."""


def failure(trajectory: Trajectory) -> DropReason | None:
    """Why a worker could not finish an attempt; None if it did.

    Raises:
        ValueError: a reason that only a store can give.
    """
    if trajectory.status is not Status.FAILED:
        return None
    assert trajectory.reason is not None
    reason = DropReason(trajectory.reason)
    if reason in STORE_REASONS:
        raise ValueError(
            f"{trajectory.attempt} failed with reason {reason.value!r}, which only a store gives; "
            f"a worker's reasons are {sorted(r.value for r in DropReason if r not in STORE_REASONS)}"
        )
    return reason


class AttemptBook:
    """The attempts that are not over. What is over leaves through `changes` and is remembered by the store.

    Attributes:
        awaiting: those in flight that were handed in and whose reward is to come, with their deadline.
        changes: what happened since somebody last emptied it.
        failed_by_environment: attempts that failed since this book began, by the environment that a mixture's prompt
            id begins with (`environment/id`).
        queued_bytes: payload of what is queued or taken.
    """

    def __init__(self) -> None:
        self.in_flight: dict[AttemptId, Lease] = {}
        self.awaiting: dict[AttemptId, tuple[Trajectory, float]] = {}
        self.queued: dict[AttemptId, Queued] = {}
        self.taken: dict[AttemptId, Taken] = {}
        self.queued_bytes = 0
        self.failed_by_environment: dict[str, int] = {}
        self.changes: list[Change] = []

    def issue(self, lease: Lease) -> None:
        """A lease was given."""
        assert lease.attempt not in self.in_flight
        self.in_flight[lease.attempt] = lease
        self.changes.append(Issued(lease))

    def await_reward(self, trajectory: Trajectory, committed_s: float) -> None:
        """In flight -> in flight, handed in. The first time counts."""
        assert trajectory.awaited is not None
        if trajectory.attempt in self.awaiting:
            return
        self.awaiting[trajectory.attempt] = trajectory, committed_s + trajectory.awaited.within_s
        self.changes.append(RewardAwaited(trajectory, committed_s))

    def accept(self, trajectory: Trajectory, committed_s: float) -> Queued:
        """In flight -> queued."""
        assert not awaits_reward(trajectory)
        self._land(trajectory.attempt)
        queued = index_record(trajectory, committed_s)
        self.put(queued)
        self.changes.append(Accepted(queued, trajectory))
        return queued

    def put(self, queued: Queued) -> None:
        """Into the queue, unannounced: what was loaded, or undone."""
        self.queued[queued.attempt] = queued
        self.queued_bytes += queued.num_bytes

    def fail(self, trajectory: Trajectory, reason: DropReason, committed_s: float) -> None:
        """In flight -> dropped."""
        self._land(trajectory.attempt)
        environment, separator, _ = trajectory.prompt_id.rpartition("/")
        if separator:
            self.failed_by_environment[environment] = self.failed_by_environment.get(environment, 0) + 1
        self.changes.append(Failed(trajectory, reason, committed_s))

    def supersede(self, attempt: AttemptId) -> None:
        """In flight -> superseded: another attempt decided its sample."""
        self._land(attempt)
        self.changes.append(Superseded(attempt))

    def _land(self, attempt: AttemptId) -> None:
        del self.in_flight[attempt]
        self.awaiting.pop(attempt, None)

    def drop(self, attempt: AttemptId, reason: DropReason) -> Queued:
        """Queued -> dropped."""
        assert reason in STORE_REASONS
        queued = self.queued.pop(attempt)
        self.queued_bytes -= queued.num_bytes
        self.changes.append(Dropped(attempt, reason))
        return queued

    def take(self, taken: Taken) -> None:
        """Queued -> taken. Unannounced: a batch that nobody finishes is still queued."""
        del self.queued[taken.queued.attempt]
        self.taken[taken.queued.attempt] = taken

    def give_back(self) -> None:
        """All taken -> queued: their learner is gone."""
        for taken in self.taken.values():
            self.queued[taken.queued.attempt] = taken.queued
        self.taken.clear()

    def train(self, attempt: AttemptId, batch: int, position: int) -> None:
        """Taken -> trained."""
        taken = self.taken.pop(attempt)
        self.queued_bytes -= taken.queued.num_bytes
        self.changes.append(Trained(taken, batch, position))


class FinishedAttempts:
    """The attempts that are over, by id, so that a repeated commit finds its answer; some 200 bytes each."""

    def __init__(self) -> None:
        self.num_issued = 0
        self.trained: dict[AttemptId, None] = {}
        self.superseded: dict[AttemptId, None] = {}
        self.dropped: dict[DropReason, dict[AttemptId, None]] = {reason: {} for reason in DropReason}

    def apply(self, change: Change) -> None:
        """Remember what `change` finished."""
        match change:
            case Issued():
                self.num_issued += 1
            case Trained(taken):
                self.trained[taken.queued.attempt] = None
            case Superseded(attempt):
                self.superseded[attempt] = None
            case Dropped(attempt, reason):
                self.dropped[reason][attempt] = None
            case Failed(trajectory, reason):
                self.dropped[reason][trajectory.attempt] = None

    def ack(self, attempt: AttemptId) -> CommitAck | None:
        """The answer to a commit of an attempt that is over: the same as the first time. None: not among them."""
        if attempt in self.superseded:
            return "superseded"
        if attempt in self.trained:
            return "queued"
        for reason, attempts in self.dropped.items():
            if attempt in attempts:
                return "queued" if reason in STORE_REASONS else "dropped"
        return None

    def ledger(self, book: AttemptBook) -> Ledger:
        """All numbers; reasons that never occurred are left out."""
        return Ledger(
            issued=self.num_issued,
            trained=len(self.trained),
            queued=len(book.queued) + len(book.taken),
            in_flight=len(book.in_flight),
            superseded=len(self.superseded),
            dropped={reason.value: len(attempts) for reason, attempts in self.dropped.items() if attempts},
        )
