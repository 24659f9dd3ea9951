"""Where every issued attempt is: in exactly one of a few containers, and each number of the ledger is a length.

Owns attempts, not draws: it neither decides what is issued again nor what is too old. Guarantees: an attempt moves only
along the arrows, is counted once whatever is repeated, and no container has a limit at which it forgets (fault G3).

    issue -> in flight -> queued -> taken -> trained
                |   |         +-> dropped (stale, group_too_small, rolled_back)
                |   +-> superseded
                +-> dropped (every other reason)
"""

from __future__ import annotations

import msgspec

from soliton.errors import RunError
from soliton.store.store import CommitAck
from soliton.types import AttemptId, DropReason, Lease, Ledger, Trajectory

STORE_REASONS = frozenset({DropReason.STALE, DropReason.GROUP_TOO_SMALL, DropReason.ROLLED_BACK})
"""Reasons that only the store gives, to attempts that it had accepted before."""


class Queued(msgspec.Struct, frozen=True, eq=False):
    """An accepted trajectory.

    Attributes:
        committed_s: clock time at which it came.
        versions: the distinct versions of its action tokens, oldest first.
    """

    trajectory: Trajectory
    committed_s: float
    versions: tuple[int, ...]


class AttemptBook:
    """The containers. Attempts that are over are remembered by id, so that a repeated commit finds its answer."""

    def __init__(self) -> None:
        self.num_issued = 0
        self.in_flight: dict[AttemptId, Lease] = {}
        self.queued: dict[AttemptId, Queued] = {}
        self.taken: dict[AttemptId, Queued] = {}
        self.trained: dict[AttemptId, None] = {}
        self.superseded: dict[AttemptId, None] = {}
        self.dropped: dict[DropReason, dict[AttemptId, None]] = {reason: {} for reason in DropReason}

    def issue(self, lease: Lease) -> None:
        """A lease was given."""
        assert lease.attempt not in self.in_flight
        self.num_issued += 1
        self.in_flight[lease.attempt] = lease

    def accept(self, trajectory: Trajectory, committed_s: float) -> None:
        """In flight -> queued."""
        del self.in_flight[trajectory.attempt]
        versions = tuple(sorted(set(trajectory.versions[trajectory.action_mask].tolist())))
        self.queued[trajectory.attempt] = Queued(trajectory, committed_s, versions)

    def fail(self, attempt: AttemptId, reason: DropReason) -> None:
        """In flight -> dropped."""
        del self.in_flight[attempt]
        self.dropped[reason][attempt] = None

    def supersede(self, attempt: AttemptId) -> None:
        """In flight -> superseded: another attempt decided its sample."""
        del self.in_flight[attempt]
        self.superseded[attempt] = None

    def drop(self, attempt: AttemptId, reason: DropReason) -> Trajectory:
        """Queued -> dropped."""
        assert reason in STORE_REASONS
        self.dropped[reason][attempt] = None
        return self.queued.pop(attempt).trajectory

    def take(self, attempt: AttemptId) -> Queued:
        """Queued -> taken."""
        queued = self.queued.pop(attempt)
        self.taken[attempt] = queued
        return queued

    def train(self, attempt: AttemptId) -> None:
        """Taken -> trained."""
        del self.taken[attempt]
        self.trained[attempt] = None

    def ack_again(self, attempt: AttemptId) -> CommitAck:
        """The answer to a commit of an attempt that is no longer in flight: the same as the first time.

        Raises:
            RunError: no such attempt was ever issued.
        """
        if attempt in self.superseded:
            return "superseded"
        for reason, attempts in self.dropped.items():
            if attempt in attempts:
                return "queued" if reason in STORE_REASONS else "dropped"
        if attempt in self.queued or attempt in self.taken or attempt in self.trained:
            return "queued"
        raise RunError(f"commit of {attempt}, which this store never issued; commit only what `lease` gave out")

    def ledger(self) -> Ledger:
        """All numbers; reasons that never occurred are left out."""
        return Ledger(
            issued=self.num_issued,
            trained=len(self.trained),
            queued=len(self.queued) + len(self.taken),
            in_flight=len(self.in_flight),
            superseded=len(self.superseded),
            dropped={reason.value: len(attempts) for reason, attempts in self.dropped.items() if attempts},
        )
