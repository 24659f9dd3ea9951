"""A few trajectories of a step, token by token, kept for a reader: which ones, and how they lie in a file.

Owns the choice and the record. Imports no torch, so that a report is made without it. Guarantees: the choice is a
function of the step and a seed; a file has a bounded size, whatever the length of trajectories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from soliton.errors import ConfigError
from soliton.types import Float32Array, Trajectory

SCHEMA = 1
NUM_RANDOM = 2
Pieces = Callable[[Sequence[int]], list[str]]
"""Token ids -> the text of each."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory as its step saw it. Arrays are little-endian bytes with one entry per kept token.

    Attributes:
        attempt, prompt_id, status, reason: as on the trajectory.
        reward: total.
        staleness: learner steps, when consumed.
        outside: action tokens outside the trust band; None if the actor was not run (the critic's warm-up).
        why: what it was chosen for: best, worst, most stale, most masked, random.
        num_tokens: of the whole trajectory.
        cut_at: kept tokens before the gap, where the middle of a long trajectory was left out; None if nothing was.
        pieces: text of each token.
        roles: uint8, `soliton.types.Role`.
        versions: int32, -1 where nothing was sampled.
        rewards: float32.
        rollout_logprobs: float32, at sampling; NaN where nothing was sampled.
        policy_logprobs: float32, of the policy before the step's update; None as for `outside`.
        sides: int8, -1 at or under the band's lower bound, 1 at or over the upper one, else 0; None as for `outside`.
        values: float32, V of the prefix before the token, before the fit; None without a critic.
        advantages: float32.
    """

    attempt: str
    prompt_id: str
    status: str
    reason: str | None
    reward: float
    staleness: int
    outside: int | None
    why: tuple[str, ...]
    num_tokens: int
    cut_at: int | None
    pieces: list[str]
    roles: bytes
    versions: bytes
    rewards: bytes
    rollout_logprobs: bytes
    policy_logprobs: bytes | None
    sides: bytes | None
    values: bytes | None
    advantages: bytes


class StepExamples(msgspec.Struct, frozen=True, kw_only=True):
    """What `examples/step_N.msgpack` holds.

    Attributes:
        step: batches consumed, this one included; the `step` of its line in metrics.jsonl.
        band: bounds of the ratio, open.
    """

    schema: int
    step: int
    band: tuple[float, float]
    examples: list[Example]


@dataclass(frozen=True)
class StepArrays:
    """A step of S trajectories with T tokens between them, as arrays.

    Attributes:
        trajectories: in packed order.
        staleness: of each.
        policy_logprobs, sides, values, advantages: as in `Example`, over all T tokens.
    """

    trajectories: Sequence[Trajectory]
    staleness: Sequence[int]
    policy_logprobs: Float32Array | None
    sides: NDArray[np.int8] | None
    values: Float32Array | None
    advantages: Float32Array


def examples_of(step: StepArrays, *, seed: int, pieces: Pieces, max_tokens: int) -> list[Example]:
    """The chosen trajectories of a step.

    Args:
        step: all of it.
        seed: of the random ones, and of the choice among equals.
        pieces: token ids -> text of each.
        max_tokens: kept of one trajectory; of a longer one the middle is left out.
    """
    starts = np.concatenate([[0], np.cumsum([len(t.token_ids) for t in step.trajectories])])
    spans = [slice(int(a), int(b)) for a, b in pairwise(starts)]
    outside = None if step.sides is None else [int(np.count_nonzero(step.sides[span])) for span in spans]
    share = (
        None if outside is None else [n / t.num_action_tokens for n, t in zip(outside, step.trajectories, strict=True)]
    )
    chosen = choose([t.total_reward for t in step.trajectories], step.staleness, share, seed)
    return [
        _example(step, i, spans[i], why, None if outside is None else outside[i], pieces, max_tokens)
        for i, why in chosen.items()
    ]


def choose(
    rewards: Sequence[float], staleness: Sequence[int], outside_share: Sequence[float] | None, seed: int
) -> dict[int, tuple[str, ...]]:
    """Index of each chosen trajectory -> what it was chosen for.

    Best and worst by reward; most stale and most masked unless nothing is; `NUM_RANDOM` of the others. Equals are
    decided by the seed.
    """
    rng = np.random.default_rng(seed)
    order = [int(i) for i in rng.permutation(len(rewards))]
    wanted: dict[str, int] = {"best": max(order, key=lambda i: rewards[i])}
    wanted["worst"] = min(reversed(order), key=lambda i: rewards[i])  # reversed: not the best again among equals
    for name, numbers in (("most stale", staleness), ("most masked", outside_share or [0.0] * len(order))):
        if max(numbers) > 0:
            wanted[name] = max(order, key=lambda i: numbers[i])
    chosen: dict[int, tuple[str, ...]] = {}
    for name, i in wanted.items():
        chosen[i] = (*chosen.get(i, ()), name)
    others = [i for i in order if i not in chosen]
    return chosen | dict.fromkeys(others[:NUM_RANDOM], ("random",))


def _example(
    step: StepArrays, i: int, span: slice, why: tuple[str, ...], outside: int | None, pieces: Pieces, max_tokens: int
) -> Example:
    trajectory = step.trajectories[i]
    length = len(trajectory.token_ids)
    kept = np.arange(length)
    if length > max_tokens:
        kept = np.concatenate([kept[: max_tokens // 2], kept[length - (max_tokens - max_tokens // 2) :]])

    def column(array: NDArray[np.generic] | None, dtype: str) -> bytes | None:
        return None if array is None else array[span][kept].astype(dtype).tobytes()

    def own(array: NDArray[np.generic], dtype: str) -> bytes:
        return array[kept].astype(dtype).tobytes()

    rewards = np.zeros(length, dtype=np.float32)
    np.add.at(rewards, trajectory.reward_positions, trajectory.reward_values)
    return Example(
        attempt=str(trajectory.attempt),
        prompt_id=trajectory.prompt_id,
        status=trajectory.status.value,
        reason=trajectory.reason,
        reward=trajectory.total_reward,
        staleness=step.staleness[i],
        outside=outside,
        why=why,
        num_tokens=length,
        cut_at=max_tokens // 2 if length > max_tokens else None,
        pieces=pieces([int(token) for token in trajectory.token_ids[kept]]),
        roles=own(trajectory.roles, "u1"),
        versions=own(trajectory.versions, "<i4"),
        rewards=own(rewards, "<f4"),
        rollout_logprobs=own(trajectory.rollout_logprobs, "<f4"),
        policy_logprobs=column(step.policy_logprobs, "<f4"),
        sides=column(step.sides, "i1"),
        values=column(step.values, "<f4"),
        advantages=column(step.advantages, "<f4") or b"",
    )


def read_examples(path: Path) -> StepExamples:
    """A file of examples.

    Raises:
        ConfigError: it is damaged, or of another version of this software.
    """
    try:
        examples = msgspec.msgpack.decode(path.read_bytes(), type=StepExamples)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no file of recorded examples: {error}; remove it") from error
    if examples.schema != SCHEMA:
        raise ConfigError(f"{path} has schema {examples.schema}, this version reads {SCHEMA}; remove it")
    return examples
