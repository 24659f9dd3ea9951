"""Reading a run for a person: its trajectories from the store, with what recorded examples add. Imports no torch.

The store (`local` runtime) has every attempt; `examples/` (every runtime) has a few trajectories of some steps with the
learner's view: log-probs of the policy, values, advantages. Writes nothing; works while the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from soliton.errors import ConfigError, RunError
from soliton.learner.examples import Example, StepExamples, read_examples
from soliton.reasons import DropReason, Status
from soliton.runtime.run_folder import START_MODEL, RunFolder
from soliton.store.history import StoredAttempt, Wanted, count_attempts, ledger_at_rest, stored_attempts
from soliton.types import Role, Trajectory

FloatArray = NDArray[np.float32]
ENDINGS = frozenset(Status)
"""How a trajectory ended: only the trajectory itself says so."""


@dataclass(frozen=True)
class Seen:
    """One trajectory as far as it is known.

    Attributes:
        attempt: draw, sample, attempt.
        draw: its number in the prompt stream.
        state: in the store: in_flight, queued, superseded, dropped, trained; "recorded" without a store.
        status, reason: how it ended, or why it was dropped; None while it goes on.
        reward, staleness, batch: None where it has none yet.
        versions: oldest and newest among its sampled tokens.
        num_actions: sampled tokens.
        why: what it was recorded for, if it was.
        read_tokens: makes `tokens`, which takes longer than the rest; None if nothing of it is stored.
    """

    attempt: str
    draw: int
    state: str
    status: str | None
    reason: str | None
    reward: float | None
    staleness: int | None
    batch: int | None
    versions: tuple[int, int] | None
    num_actions: int
    why: tuple[str, ...]
    read_tokens: Callable[[], Tokens] | None

    @property
    def tokens(self) -> Tokens | None:
        """Its tokens; None if nothing of it is stored."""
        return None if self.read_tokens is None else self.read_tokens()


@dataclass(frozen=True)
class Tokens:
    """Its tokens; every array has one entry per token, NaN where there is no number.

    Attributes:
        pieces: text of each.
        roles: `Role` of each.
        versions: -1 where nothing was sampled.
        rollout_logprobs: at sampling.
        policy_logprobs, values, advantages: of the learner, None where the example was not recorded.
        rewards: 0 mostly.
        band: bounds of the ratio, with `policy_logprobs`.
        cut_at: tokens before a gap; None: whole.
    """

    pieces: list[str]
    roles: NDArray[np.uint8]
    versions: NDArray[np.int32]
    rollout_logprobs: FloatArray
    rewards: FloatArray
    policy_logprobs: FloatArray | None = None
    values: FloatArray | None = None
    advantages: FloatArray | None = None
    band: tuple[float, float] | None = None
    cut_at: int | None = None

    @property
    def ratios(self) -> FloatArray | None:
        """exp(policy - rollout log-prob) on sampled tokens."""
        if self.policy_logprobs is None:
            return None
        ratios: FloatArray = np.exp(self.policy_logprobs.astype(np.float64) - self.rollout_logprobs).astype(np.float32)
        return ratios


@dataclass(frozen=True)
class Filters:
    """Which trajectories are wanted; None: any.

    Attributes:
        min_reward, max_reward, min_staleness, max_staleness: inclusive; what has no such number does not match.
        status: of the trajectory; a state of the store counts, too.
        reason: of a truncation, a failure or a drop.
        draw: number in the prompt stream.
    """

    min_reward: float | None = None
    max_reward: float | None = None
    min_staleness: int | None = None
    max_staleness: int | None = None
    status: str | None = None
    reason: str | None = None
    draw: int | None = None

    @property
    def index_decides(self) -> bool:
        """Whether the store's index decides, without any trajectory."""
        return (
            (self.min_reward, self.max_reward) == (None, None)
            and self.status not in ENDINGS
            and (self.reason is None or self.reason in set(DropReason))
        )

    def wanted(self) -> Wanted:
        """As much of it as the store's index can tell."""
        state = "dropped" if self.status == Status.FAILED else None if self.status in ENDINGS else self.status
        return Wanted(
            draw=self.draw,
            state=state,
            reason=self.reason if self.reason in set(DropReason) else None,
            min_staleness=self.min_staleness,
            max_staleness=self.max_staleness,
        )

    def match(self, seen: Seen) -> bool:
        """Whether it is wanted."""
        return (
            _within(seen.reward, self.min_reward, self.max_reward)
            and _within(seen.staleness, self.min_staleness, self.max_staleness)
            and (self.status is None or self.status in (seen.status, seen.state))
            and (self.reason is None or self.reason == seen.reason)
            and (self.draw is None or self.draw == seen.draw)
        )


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


@dataclass(frozen=True)
class Page:
    """A part of the trajectories that are wanted.

    Attributes:
        shown: in order of issue; without a store the recorded examples in order of steps.
        matching: how many are wanted in all; None where the rest would have to be read to know.
    """

    shown: list[Seen]
    matching: int | None


def page_of(folder: RunFolder, filters: Filters, *, skip: int = 0, limit: int = 0) -> Page:
    """What is wanted, without the first `skip`, at most `limit` of them (0: all).

    Reads no more trajectories than it needs: those that are shown, where the store's index alone can filter.

    Raises:
        ConfigError: the run has neither a store nor recorded examples.
        RunError: a stored trajectory is damaged.
    """
    recorded = _recorded(folder.path / "examples")
    if folder.store.exists():
        pieces = _pieces(folder)
        if filters.index_decides:
            rows = islice(_readable(folder.store, filters.wanted(), skip), limit or None)
            shown = [_of_store(attempt, recorded, pieces) for attempt in rows]
            return Page(shown, count_attempts(folder.store, filters.wanted()))
        stored = (_of_store(attempt, recorded, pieces) for attempt in _readable(folder.store, filters.wanted(), 0))
        return _part(filter(filters.match, stored), skip, limit)
    if not recorded:
        raise ConfigError(
            f"{folder.path} has neither a store.sqlite (the `local` runtime writes it) nor recorded examples/; there "
            "are no trajectories to show"
        )
    examples = [seen for example, step in recorded.values() if filters.match(seen := _of_example(example, step))]
    return Page(examples[skip : skip + limit if limit else None], len(examples))


def _part(matching: Iterable[Seen], skip: int, limit: int) -> Page:
    shown: list[Seen] = []
    found = 0
    for seen in matching:
        found += 1
        if found > skip:
            shown.append(seen)
        if limit and len(shown) == limit:
            return Page(shown, None)
    return Page(shown, found)


def _readable(store: Path, wanted: Wanted, skip: int) -> Iterator[StoredAttempt]:
    try:
        yield from stored_attempts(store, wanted, skip=skip)
    except ValueError as error:
        raise RunError(f"{store} cannot be read by this version of Soliton, or is damaged: {error}") from error


def _recorded(folder: Path) -> dict[str, tuple[Example, StepExamples]]:
    """Attempt -> its example; the latest step counts."""
    steps = sorted((read_examples(file) for file in folder.glob("step_*.msgpack")), key=lambda step: step.step)
    return {example.attempt: (example, step) for step in steps for example in step.examples}


def _pieces(folder: RunFolder) -> Callable[[NDArray[np.int32]], list[str]]:
    """Token ids -> text of each, with the run's own tokenizer; `<id>` without one."""
    places = (folder.weights / START_MODEL, folder.final, folder.stages / "sft")
    file = next((place / "tokenizer.json" for place in places if (place / "tokenizer.json").is_file()), None)
    if file is None:
        return lambda ids: [f"<{token}>" for token in ids]
    tokenizer = Tokenizer.from_file(str(file))
    return lambda ids: [tokenizer.decode([int(token)], skip_special_tokens=False) for token in ids]


def _of_store(
    stored: StoredAttempt,
    recorded: dict[str, tuple[Example, StepExamples]],
    pieces: Callable[[NDArray[np.int32]], list[str]],
) -> Seen:
    trajectory, name = stored.trajectory, str(stored.attempt)
    example = recorded.get(name)
    actions = trajectory is not None and trajectory.num_action_tokens > 0
    read_tokens = None
    if example is not None and stored.state == "trained":
        read_tokens = partial(_tokens_of, *example)
    elif trajectory is not None:
        read_tokens = partial(_tokens_of_trajectory, trajectory, pieces)
    failed = trajectory is None or trajectory.status.value == "failed"
    return Seen(
        attempt=name,
        draw=stored.attempt.draw,
        state=stored.state,
        status=None if trajectory is None else trajectory.status.value,
        reason=stored.reason or (None if trajectory is None else trajectory.reason),
        reward=None if trajectory is None or failed else trajectory.total_reward,
        staleness=stored.staleness,
        batch=stored.batch,
        versions=(trajectory.oldest_version, trajectory.newest_version) if trajectory is not None and actions else None,
        num_actions=0 if trajectory is None else trajectory.num_action_tokens,
        why=example[0].why if example is not None and stored.state == "trained" else (),
        read_tokens=read_tokens,
    )


def _tokens_of_trajectory(trajectory: Trajectory, pieces: Callable[[NDArray[np.int32]], list[str]]) -> Tokens:
    rewards = np.zeros(len(trajectory.token_ids), dtype=np.float32)
    np.add.at(rewards, trajectory.reward_positions, trajectory.reward_values)
    return Tokens(
        pieces=pieces(trajectory.token_ids),
        roles=trajectory.roles,
        versions=trajectory.versions,
        rollout_logprobs=trajectory.rollout_logprobs,
        rewards=rewards,
    )


def _of_example(example: Example, step: StepExamples) -> Seen:
    tokens = _tokens_of(example, step)
    sampled = tokens.versions[tokens.roles == Role.ACTION]
    return Seen(
        attempt=example.attempt,
        draw=int(example.attempt[1:].partition("s")[0]),
        state="recorded",
        status=example.status,
        reason=example.reason,
        reward=example.reward,
        staleness=example.staleness,
        batch=step.step - 1,
        versions=(int(sampled.min()), int(sampled.max())) if len(sampled) else None,
        num_actions=len(sampled),
        why=example.why,
        read_tokens=lambda: tokens,
    )


def _tokens_of(example: Example, step: StepExamples) -> Tokens:
    def floats(data: bytes | None) -> FloatArray | None:
        return None if data is None else np.frombuffer(data, dtype="<f4")

    roles = np.frombuffer(example.roles, dtype="u1")
    absent: FloatArray = np.full(len(roles), np.nan, dtype=np.float32)
    logprobs, rewards = floats(example.rollout_logprobs), floats(example.rewards)
    return Tokens(
        pieces=example.pieces,
        roles=roles,
        versions=np.frombuffer(example.versions, dtype="<i4"),
        rollout_logprobs=absent if logprobs is None else logprobs,
        rewards=absent if rewards is None else rewards,
        policy_logprobs=floats(example.policy_logprobs),
        values=floats(example.values),
        advantages=floats(example.advantages),
        band=step.band,
        cut_at=example.cut_at,
    )


def overview(folder: RunFolder, summary: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The run in a few lines: what -> value."""
    rows = folder.read_metrics("train")
    lines = [("run", str(folder.path))]
    if summary is not None:
        ending = summary.get("exit") or {}
        reason = f" ({ending['reason']})" if ending.get("reason") else ""
        lines.append(("end", f"{ending.get('status', 'unknown')}{reason}, {summary.get('wall_s', 0):.0f} s"))
        lines.append(("algorithm, seed", f"{summary.get('algorithm')}, {summary.get('seed')}"))
        for name in ("before", "after", "gain"):
            if estimate := summary.get(f"pass_at_1_{name}"):
                interval = f"[{estimate['low']:.3f}, {estimate['high']:.3f}]"
                lines.append((f"pass@1 {name}", f"{estimate['mean']:.3f} {interval} (n={estimate['n']})"))
    else:
        lines.append(("end", "not yet: it goes on, or was killed (`soliton doctor` says which)"))
    if rows:
        last = rows[-1]
        shown = ("reward/mean", "staleness/mean", "trust_mask/share", "critic/explained_var")
        numbers = ", ".join(f"{name} {last[name]:.3f}" for name in shown if last.get(name) is not None)
        lines.append((f"step {last['step']}", numbers))
    if folder.store.exists():
        ledger = ledger_at_rest(folder.store)
        dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(ledger.dropped.items())) or "none"
        lines.append(
            (
                "ledger",
                f"{ledger.issued} issued = {ledger.trained} trained + {ledger.queued} queued + {ledger.in_flight} in "
                f"flight + {ledger.superseded} superseded + {sum(ledger.dropped.values())} dropped ({dropped})",
            )
        )
    return lines
