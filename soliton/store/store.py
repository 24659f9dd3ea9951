"""The store protocol: five calls between the roles that make data and the role that learns.

The store is the only owner of work: what is issued, where it is, what was trained. A worker leases and commits, the
learner takes and finishes steps; neither knows the other.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from soliton.types import AttemptId, Lease, Ledger, Publication, Trajectory

CommitAck = Literal["queued", "superseded", "dropped"]


class BatchItem(msgspec.Struct, frozen=True, eq=False):
    """A consumed trajectory.

    Attributes:
        trajectory: as committed.
        staleness: learner step now minus step of its oldest action-token version; queue time included.
        min_trusted_version: action tokens of an older version are left out of the actor loss (the denominator keeps
            them); 0 unless `when_too_old = "mask_tokens"`.
        queued_s: seconds between commit and consumption.
    """

    trajectory: Trajectory
    staleness: int
    min_trusted_version: int
    queued_s: float


class Waiting(msgspec.Struct, frozen=True):
    """Somebody who cannot go on.

    Attributes:
        reason: what for, with numbers.
        for_s: seconds since this wait began.
    """

    reason: str
    for_s: float


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows, for metrics, alarms and `why am I blocked`.

    Attributes:
        step: learner steps published so far.
        version: newest published version; -1 before the first one.
        batches: batches consumed, those included that moved only the critic.
        ledger: where every issued attempt is.
        admission_wait_s: time in which at least one lease call waited at the admission limit.
        batch_wait_s: time in which `take` waited for a full batch.
        hold_wait_s: time in which `take` waited for an old trajectory (`when_too_old = "wait"`).
        dropped_by_length_decile: attempts dropped as stale, by decile of their length among all committed (10 counts);
            a rising tail is a length bias.
        num_given_up: draws given up: too many failed attempts, or too few valid members.
        queued_bytes: payload bytes of the trajectories queued.
        failed_by_environment: attempts that the world failed in this start of the store, by environment of a mixture.
        waiting: role ("rollouts", "learner") -> what it waits for, for each that is blocked right now.
    """

    step: int
    version: int
    batches: int
    ledger: Ledger
    admission_wait_s: float
    batch_wait_s: float
    hold_wait_s: float
    dropped_by_length_decile: tuple[int, ...]
    num_given_up: int
    queued_bytes: int
    waiting: dict[str, Waiting]
    failed_by_environment: dict[str, int] = {}


class Store(Protocol):
    """Execution is at-least-once, consumption exactly once. Every call may be repeated after a lost answer."""

    async def lease(self, limit: int, holder: str = "") -> list[Lease]:
        """Up to `limit` attempts to run now; waits for the first policy, and at the admission limit.

        An empty list means that the run is over: no draw is left, or `close` was called.
        """
        ...

    async def commit(self, trajectory: Trajectory) -> CommitAck:
        """Hand in a finished attempt, failed ones included.

        The first accepted commit of (draw, sample) wins; a later one is acknowledged and counted `superseded`. A
        failed one is counted under its reason and its draw is issued again, up to the limit of attempts.
        """
        ...

    async def take(self) -> list[BatchItem]:
        """One full batch for the learner, oldest version first; waits until it is full. [] when the run is over.

        Staleness is checked here. Taken trajectories count as queued until `finish_step`; until then another call
        gives the same batch again.
        """
        ...

    async def finish_step(self, trained: list[AttemptId], publication: Publication | None) -> None:
        """The learner is done with a batch; `publication` is None where the actor did not move.

        Without a batch (`trained` empty) it publishes the first policy, or the newest one again under a new version
        (same step, same hash): what a resumed learner does. It holds no batch then; one that was taken is given back.
        Repeating the last call changes nothing.
        """
        ...

    async def status(self) -> StoreStatus:
        """The ledger and the waits."""
        ...
