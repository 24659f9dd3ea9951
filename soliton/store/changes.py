"""What a call changed, as records. `Work` decides and says so here; each store makes it last in its own way.

Guarantees: replaying the records of all calls in order gives the same state of every attempt, draw and version.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from soliton.reasons import DropReason
from soliton.types import AttemptId, Lease, Publication, Trajectory

DrawState = Literal["open", "trained", "given_up"]


BYTES_PER_TOKEN, BYTES_PER_REWARD = 13, 8
"""What the arrays of a trajectory take."""


class Queued(msgspec.Struct, frozen=True, gc=False):
    """What is decided on of an accepted trajectory. Its tokens are the store's business (`payload`).

    Attributes:
        committed_s: clock time at which it came.
        versions: the distinct versions of its action tokens, oldest first.
        num_action_tokens: its length.
        num_bytes: what its tokens take.
    """

    attempt: AttemptId
    committed_s: float
    versions: tuple[int, ...]
    num_action_tokens: int
    num_bytes: int


class Taken(msgspec.Struct, frozen=True):
    """A queued trajectory in the learner's hands; the fields of `BatchItem`."""

    queued: Queued
    staleness: int
    min_trusted_version: int
    queued_s: float


class Issued(msgspec.Struct, frozen=True):
    """A lease was given."""

    lease: Lease


class Accepted(msgspec.Struct, frozen=True):
    """In flight -> queued."""

    queued: Queued
    trajectory: Trajectory


class Failed(msgspec.Struct, frozen=True):
    """In flight -> dropped, for a reason of the world."""

    trajectory: Trajectory
    reason: DropReason
    committed_s: float


class RewardAwaited(msgspec.Struct, frozen=True):
    """Handed in, and still in flight: its reward is to come from outside."""

    trajectory: Trajectory
    committed_s: float


class Superseded(msgspec.Struct, frozen=True):
    """In flight -> superseded: another attempt decided its sample."""

    attempt: AttemptId


class Dropped(msgspec.Struct, frozen=True):
    """Queued -> dropped, for a reason of the store."""

    attempt: AttemptId
    reason: DropReason


class Trained(msgspec.Struct, frozen=True):
    """Taken -> trained, as the n-th of a batch."""

    taken: Taken
    batch: int
    position: int


class DrawMoved(msgspec.Struct, frozen=True):
    """A draw was admitted or reopened ("open"), trained, or given up."""

    number: int
    state: DrawState


class Published(msgspec.Struct, frozen=True):
    """A row of the version table."""

    publication: Publication


class BatchFinished(msgspec.Struct, frozen=True):
    """The learner is done with a batch; `version` is what it published, if the actor moved."""

    number: int
    version: int | None


class Rewound(msgspec.Struct, frozen=True):
    """Batches after `batches` and publications after `version` are undone; what they trained is queued again."""

    batches: int
    version: int


Change = (
    Issued
    | RewardAwaited
    | Accepted
    | Failed
    | Superseded
    | Dropped
    | Trained
    | DrawMoved
    | Published
    | BatchFinished
    | Rewound
)


def index_record(trajectory: Trajectory, committed_s: float) -> Queued:
    """What is decided on of `trajectory`."""
    versions = trajectory.versions
    # What nobody sampled has version -1: the largest number without a sign, the smallest with one.
    oldest, newest = int(np.minimum.reduce(versions.view(np.uint32))), int(np.maximum.reduce(versions))
    return Queued(
        attempt=trajectory.attempt,
        committed_s=committed_s,
        versions=(oldest,) if oldest == newest else tuple(np.unique(versions[versions >= 0]).tolist()),
        num_action_tokens=trajectory.num_action_tokens,
        num_bytes=BYTES_PER_TOKEN * len(versions) + BYTES_PER_REWARD * len(trajectory.reward_values),
    )
