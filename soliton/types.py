"""The records that roles exchange. No torch here: the data plane runs on machines without it.

What this module guarantees: a record that exists is valid. `Trajectory` refuses at construction anything that a
learner would later trip over, so that a missing log-prob is an error at the worker and never a 0.0 in a loss.

One trajectory of the calculator task (`3+4*2`), token by token:

    ids    <user> 3 + 4 * 2 <end> <model> | 3 + 4 <end> | <tool> 7 * 2 <end> <model> | = 1 4 <end>
    role    T     O O O O O  T     T      | A A A  A    |  T     O O O  T     T      | A A A  A
    logp    nan ...                       | -.1 ...     |  nan ...                   | -.3 ...
    version -1 ...                        | 7 7 7  8    |  -1 ...                    | 8 8 8  8

The policy changed from version 7 to 8 in the middle of the first turn: that is normal, and each token says so.
"""

from __future__ import annotations

import enum
import hashlib
import math
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from soliton.awaited import AwaitedReward
from soliton.reasons import DropReason, Status, TruncationReason

Int32Array = NDArray[np.int32]
UInt8Array = NDArray[np.uint8]
Float32Array = NDArray[np.float32]

NO_VERSION = -1
"""Version of a token that no policy sampled."""


class Role(enum.IntEnum):
    """Who made a token. Only `ACTION` tokens are trained, valued and counted."""

    TEMPLATE = 0
    """Chat markup that nobody sampled."""
    OBSERVATION = 1
    """Content of a message that the model did not write: prompt, tool output, user turn."""
    ACTION = 2
    """Sampled by the policy, the sampled stop token included."""


_ACTION, _LAST_ROLE = int(Role.ACTION), int(max(Role))


class AttemptId(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """One try of one sample of one draw.

    `draw` is a position in the endless prompt stream, `sample` a member of its group (0 for single rollouts),
    `attempt` the n-th try (0 first). The first accepted commit of (draw, sample) wins.
    """

    draw: int
    sample: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"d{self.draw}s{self.sample}a{self.attempt}"

    def seed(self, run_seed: int, purpose: str) -> int:
        """A 63-bit seed that depends on the run, this attempt and what it is for, and on nothing else (fault F11)."""
        return stable_seed(run_seed, purpose, self.draw, self.sample, self.attempt)


def stable_seed(*parts: int | str) -> int:
    """Hash `parts` to a seed in [0, 2**63). Equal parts give equal seeds on every machine and Python version."""
    text = "/".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


class Prompt(msgspec.Struct, frozen=True):
    """The item attempted.

    Attributes:
        id: stable hash of the content; training and held-out prompts are disjoint by it.
        content: what the environment understands (JSON-like); environments parse it, nobody else does.
    """

    id: str
    content: dict[str, Any]


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn. The recorded log-prob is of the distribution actually sampled from.

    Attributes:
        temperature: > 0 for training data; 0 means greedy and is refused by the learner.
        top_p: nucleus mass in (0, 1]; 1 keeps everything.
        top_k: keep the k likeliest tokens; 0 keeps everything.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 keeps all tokens), got {self.top_k}")


class Times(msgspec.Struct, frozen=True):
    """When and how long, in seconds of the run's clock (virtual under the inline runtime)."""

    issued_s: float
    started_s: float
    finished_s: float
    generating_s: float = 0.0
    """Time spent waiting for the engine, all turns together."""
    tool_wait_s: float = 0.0
    """Time spent waiting for the environment, all turns together."""


_ARRAYS = (
    ("token_ids", np.dtype(np.int32), ""),
    ("roles", np.dtype(np.uint8), "token_ids"),
    ("rollout_logprobs", np.dtype(np.float32), "token_ids"),
    ("versions", np.dtype(np.int32), "token_ids"),
    ("reward_positions", np.dtype(np.int32), ""),
    ("reward_values", np.dtype(np.float32), "reward_positions"),
)
"""Arrays of a trajectory: name, type of the elements, and an array before it that has as many."""


def _freeze_arrays(t: Trajectory) -> None:
    """Make the arrays of `t` what they should be, and what nobody can change; raise if one cannot be."""
    lengths = {"": 0}
    for name, dtype, like in _ARRAYS:
        array = getattr(t, name)
        if not (isinstance(array, np.ndarray) and array.dtype == dtype and isinstance(array.base, bytes)):
            array = np.array(array, dtype=dtype)  # a copy, unless it is a view of bytes, which nobody can change
            array.setflags(write=False)
            msgspec.structs.force_setattr(t, name, array)
        if array.ndim != 1:
            raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
        lengths[name] = len(array)
        if like and len(array) != lengths[like]:
            raise ValueError(f"{name} has {len(array)} entries for {lengths[like]} tokens; there must be one per token")


class Trajectory(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A finished attempt, verbatim: what was sampled is stored as sampled and never re-tokenised.

    Arrays hold one entry per token (T tokens); `None` is used for nothing here except an absent `reason`.

    Attributes:
        attempt: which try of which draw this is.
        prompt_id: `Prompt.id`.
        status, reason: how it ended; `reason` is a `TruncationReason`, a `DropReason`, or None if terminated.
        token_ids: int32 [T].
        roles: uint8 [T] of `Role`.
        rollout_logprobs: float32 [T], recorded at sampling; NaN (absent, never 0.0) where nothing was sampled.
        versions: int32 [T], policy version per sampled token; -1 where nothing was sampled.
        reward_positions: int32 [R], token index of each reward. An environment's reward sits on the last token of
            the action that earned it.
        reward_values: float32 [R], finite.
        times: see `Times`.
        sampling: how its tokens were drawn.
        sandbox: isolation level of the tools it ran ("none" if it ran no foreign code).
        info: numbers the environment reported, kept for metrics.
        awaited: the reward that comes later, or has come; None if all of it was known when the episode ended.

    Raises:
        ValueError: any violation, with the token index and the value.
    """

    attempt: AttemptId
    prompt_id: str
    status: Status
    reason: str | None = None
    token_ids: Int32Array
    roles: UInt8Array
    rollout_logprobs: Float32Array
    versions: Int32Array
    reward_positions: Int32Array
    reward_values: Float32Array
    times: Times
    sampling: Sampling = Sampling()
    sandbox: str = "none"
    info: dict[str, float] = {}
    awaited: AwaitedReward | None = None

    def __post_init__(self) -> None:
        _freeze_arrays(self)
        _check_reason(self.status, self.reason)
        _check_tokens(self)
        _check_rewards(self)

    @property
    def action_mask(self) -> NDArray[np.bool_]:
        """Boolean [T]: the model sampled this token (a fact; what to trust is the learner's decision)."""
        mask: NDArray[np.bool_] = self.roles == _ACTION
        return mask

    @property
    def num_action_tokens(self) -> int:
        """How many tokens were sampled. Not the span from the first to the last of them (fault B5)."""
        return self.roles.tobytes().count(_ACTION)

    @property
    def total_reward(self) -> float:
        """Sum of all rewards."""
        return float(self.reward_values.sum())

    @property
    def oldest_version(self) -> int:
        """The oldest policy version among the sampled tokens."""
        return int(self.versions[self.action_mask].min())

    @property
    def newest_version(self) -> int:
        """The newest policy version among the sampled tokens."""
        return int(self.versions[self.action_mask].max())


_ALLOWED_REASONS: dict[Status, list[str]] = {
    Status.TERMINATED: [],
    Status.TRUNCATED: [reason.value for reason in TruncationReason],
    Status.FAILED: [reason.value for reason in DropReason],
}


def _check_reason(status: Status, reason: str | None) -> None:
    allowed = _ALLOWED_REASONS[status]
    if (reason is None) != (not allowed) or (reason is not None and reason not in allowed):
        raise ValueError(f"status {status.value!r} with reason {reason!r}; allowed reasons: {allowed or None}")


_SAMPLED_OR_BROKEN = bytes(2 if value > _LAST_ROLE else value == _ACTION for value in range(256))
"""Per value of `roles`: 1 for a sampled token, 0 for another one, 2 for no role at all."""
_ZERO_FLOAT, _ZERO_INT = np.zeros((), np.float32), np.zeros((), np.int32)
"""Zeros, as arrays: numpy compares them faster than numbers of Python."""


def _check_tokens(t: Trajectory) -> None:
    """Raise at the first fault of a token. Servers check every trajectory, so that the usual case takes few passes."""
    sampled = t.roles.tobytes().translate(_SAMPLED_OR_BROKEN)
    if sampled and not _tokens_are_valid(t, sampled):
        _raise_for_token(t, t.action_mask)
    if t.status is not Status.FAILED and b"\x01" not in sampled:
        raise ValueError("no action token: a trajectory without a sampled token is 'failed' with reason 'no_action'")


def _tokens_are_valid(t: Trajectory, sampled: bytes) -> bool:
    """Whether `_raise_for_token` would find nothing, for at least one token; masks are compared as bytes."""
    logprobs, versions = t.rollout_logprobs, t.versions
    return bool(
        b"\x02" not in sampled
        and np.isfinite(logprobs).tobytes() == sampled
        and (logprobs <= _ZERO_FLOAT).tobytes() == sampled
        and (~np.isnan(logprobs)).tobytes() == sampled
        and (versions >= _ZERO_INT).tobytes() == sampled
        and np.minimum.reduce(versions) >= NO_VERSION
        and np.minimum.reduce(t.token_ids) >= 0
    )


def _raise_for_token(t: Trajectory, actions: NDArray[np.bool_]) -> None:
    if t.token_ids.min() < 0:
        raise ValueError(f"token_ids[{int(t.token_ids.argmin())}] = {int(t.token_ids.min())}; ids are >= 0")
    if t.roles.max() > _LAST_ROLE:
        raise ValueError(f"roles[{int(t.roles.argmax())}] = {int(t.roles.max())}; roles are {[r.value for r in Role]}")
    logprobs = t.rollout_logprobs
    bad = actions & ~(np.isfinite(logprobs) & (logprobs <= 0))
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"rollout_logprobs[{i}] = {logprobs[i]} on an action token; it must be finite and <= 0")
    bad = ~actions & ~np.isnan(logprobs)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"rollout_logprobs[{i}] = {logprobs[i]} on a token nobody sampled; absent is NaN")
    bad = actions & (t.versions < 0)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"versions[{i}] = {t.versions[i]} on an action token; versions are >= 0")
    bad = ~actions & (t.versions != NO_VERSION)
    assert bad.any()  # the last rule that is left
    i = int(bad.argmax())
    raise ValueError(f"versions[{i}] = {t.versions[i]} on a token nobody sampled; it must be {NO_VERSION}")


def _check_rewards(t: Trajectory) -> None:
    if not all(map(math.isfinite, t.reward_values.tolist())):
        i = int((~np.isfinite(t.reward_values)).argmax())
        raise ValueError(f"reward_values[{i}] = {t.reward_values[i]}; rewards are finite")
    for i, position in enumerate(t.reward_positions.tolist()):
        if not 0 <= position < len(t.token_ids):
            raise ValueError(f"reward_positions[{i}] = {position} is outside the {len(t.token_ids)} tokens")
    if t.status is Status.FAILED and len(t.reward_values):
        raise ValueError("a failed trajectory carries no reward: a failure of the world is a reason, never a reward")
    if t.awaited is not None and t.status is Status.TRUNCATED:
        raise ValueError("a truncated trajectory awaits no reward: only an episode that ended by itself may")


class Publication(msgspec.Struct, frozen=True):
    """One row of the version table: a policy that engines may sample from.

    Attributes:
        version: number of the publication, never reused in a lineage; 0 is the initial policy.
        parent: the version it was trained from; -1 for the initial policy.
        step: learner step that made it (number of actor updates behind it).
        sha256: `soliton.weights.weights_sha256` of the published form.
    """

    version: int
    parent: int
    step: int
    sha256: str


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to try an attempt.

    Attributes:
        attempt: what to try.
        issued_s: clock time of the lease.
        version: newest published version at that moment: no token of the attempt can be older.
        holder: who asked for it (a worker's name), so that the work of a dead worker is known; "" if nobody said.
    """

    attempt: AttemptId
    issued_s: float
    version: int
    holder: str = ""


class Ledger(msgspec.Struct, frozen=True):
    """Where every issued attempt is. Each number comes from its own query, none by subtraction."""

    issued: int
    trained: int
    queued: int
    in_flight: int
    superseded: int
    dropped: dict[str, int]

    @property
    def balance(self) -> int:
        """Issued minus everything accounted for; 0 in a healthy run."""
        return self.issued - self.trained - self.queued - self.in_flight - self.superseded - sum(self.dropped.values())


class Clock(Protocol):
    """Time as roles see it: real seconds, or virtual ones that pass only when everybody waits."""

    def now(self) -> float:
        """Seconds since the run's origin; never goes back."""
        ...

    async def sleep_until(self, when: float) -> None:
        """Return once `now() >= when`; at once if that is already so."""
        ...
