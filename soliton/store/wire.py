"""What hub and client say to each other: paths, headers and the records in the bodies (msgpack, `codec.py`).

A commit's request is the plain list of its trajectories, everything else is one of the records here. An answer with
status 204 means "nothing yet, ask again"; each status of 400 and above carries a `Failure`.
"""

from __future__ import annotations

import re

import msgspec

from soliton.errors import RunError
from soliton.store.store import BatchItem, CommitAck
from soliton.types import AttemptId, Lease, Publication

MEDIA_TYPE = "application/msgpack"
RUN_HEADER = "x-soliton-run"
"""The run id, in requests and answers, so that nobody talks to another run's hub on a reused port (fault K3)."""

LEASE = "/v1/lease"
COMMIT = "/v1/commit"
TAKE = "/v1/take"
FINISH_STEP = "/v1/finish_step"
STATUS = "/v1/status"
REWARD = "/v1/reward"
"""JSON both ways, for graders in any language; everything else is msgpack."""


_ATTEMPT = re.compile(r"d([0-9]{1,18})s([0-9]{1,9})a([0-9]{1,9})")


class LeaseRequest(msgspec.Struct, frozen=True):
    """`Store.lease`, once.

    Attributes:
        limit, holder: as in the protocol.
        wait_s: how long the hub may wait for work before it says "nothing yet".
        client: random name of the asking object; with `slot` it names one of its concurrent calls.
        slot: calls of one client that are under way together have different slots.
        number: counts the calls of a slot that got their answer. The same number again is the same call: what was
            granted to it and not delivered is granted again.
    """

    limit: int
    holder: str
    wait_s: float
    client: str
    slot: int
    number: int


class LeaseAnswer(msgspec.Struct, frozen=True):
    """Empty when the run is over."""

    leases: list[Lease]


class TakeRequest(msgspec.Struct, frozen=True):
    """`Store.take`, once; `wait_s` as for leases."""

    wait_s: float


class TakeAnswer(msgspec.Struct, frozen=True):
    """Empty when the run is over."""

    items: list[BatchItem]


class FinishRequest(msgspec.Struct, frozen=True):
    """`Store.finish_step`."""

    trained: list[AttemptId]
    publication: Publication | None


class RewardRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reward from outside.

    Attributes:
        attempt: id of the attempt, such as "d3s0a0".
        reward: finite, and in the range that the environment allows.
    """

    attempt: str
    reward: float

    def attempt_id(self) -> AttemptId:
        """The attempt named.

        Raises:
            ValueError: that is no id.
        """
        match = _ATTEMPT.fullmatch(self.attempt)
        if match is None:
            raise ValueError(f"attempt: got {self.attempt!r}; an id looks like 'd3s0a0'")
        return AttemptId(*map(int, match.groups()))


class RewardAnswer(msgspec.Struct, frozen=True):
    """What became of a reward: "accepted", "repeated" (the same as before), or "refused" with the reason."""

    result: str
    reason: str = ""


class AwaitingAnswer(msgspec.Struct, frozen=True):
    """One trajectory whose reward is awaited.

    Attributes:
        attempt: its id.
        key: what the environment calls it.
        prompt_id: of its prompt.
        seconds_left: until it is dropped.
        low, high: allowed range; null for no limit.
    """

    attempt: str
    key: str
    prompt_id: str
    seconds_left: float
    low: float | None
    high: float | None


class Done(msgspec.Struct, frozen=True):
    """A call without a result has been carried out."""


class Failure(msgspec.Struct, frozen=True):
    """Why a call failed.

    Attributes:
        kind: class of the store's error, raised again at the client: "ValueError" or "RunError".
        message: its text.
    """

    kind: str
    message: str

    def error(self, where: str = "") -> Exception:
        """The error to raise at the client; `where` says where it came from, if the text does not."""
        text = f"{where}: {self.message}" if where else self.message
        return ValueError(text) if self.kind == "ValueError" else RunError(text)


class CommitAnswer(msgspec.Struct, frozen=True):
    """What became of one trajectory of a commit: acknowledged, refused, or (neither) nothing, for want of room.

    Attributes:
        attempt: whose answer it is.
        ack: the store's answer.
        failure: why the store refused this one.
    """

    attempt: AttemptId
    ack: CommitAck | None = None
    failure: Failure | None = None


class CommitAnswers(msgspec.Struct, frozen=True):
    """One answer per trajectory, in their order.

    Attributes:
        answers: the answers.
        retry_after_s: when to commit those again for which there was no room.
    """

    answers: list[CommitAnswer]
    retry_after_s: float
