"""Several tasks in one run: the draw decides which one it is, by whole-number weights.

Draws come in blocks of `sum(weights)`; each block holds every task as often as its weight says, in a seeded order of
its own. So the shares are exact, which task a draw attempts is a pure function of seed and draw, and each task's own
prompts are drawn one after the other: a finite list is still visited evenly.

A prompt of the mixture is `{"environment": name, "item": content}` with the id `name/id`: whoever sees a trajectory
knows its environment from its `prompt_id`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean

import numpy as np

from soliton.envs.environment import Environment, Message, StepResult
from soliton.envs.surroundings import Surroundings, lend
from soliton.errors import ConfigError
from soliton.evals.evaluation import Evaluation
from soliton.evals.statistics import Estimate, wilson
from soliton.prompts.stream import PromptStream
from soliton.runtime.task import Task
from soliton.store.store import BatchItem
from soliton.types import Prompt, Trajectory, stable_seed


def environment_of(prompt_id: str) -> str | None:
    """The environment's name in the id of a prompt of a mixture; None for any other prompt."""
    name, separator, _ = prompt_id.rpartition("/")
    return name if separator else None


def environment_metrics(items: Sequence[BatchItem]) -> dict[str, float]:
    """Rewards and lengths of a batch by environment, under `env/NAME/...`; {} without a mixture."""
    by_name: dict[str, list[Trajectory]] = {}
    for item in items:
        name = environment_of(item.trajectory.prompt_id)
        if name is not None:
            by_name.setdefault(name, []).append(item.trajectory)
    metrics: dict[str, float] = {}
    for name, trajectories in sorted(by_name.items()):
        metrics[f"env/{name}/reward/mean"] = fmean(t.total_reward for t in trajectories)
        metrics[f"env/{name}/trajectory/length_mean"] = fmean(len(t.token_ids) for t in trajectories)
        metrics[f"env/{name}/trajectory/count"] = float(len(trajectories))
    return metrics


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """pass@1 of all prompts together and of each environment, and what environments report, as in metrics.jsonl."""
    by_name = pass_at_1_by_environment(evaluation)
    return {
        "eval/pass_at_1": evaluation.pass_at_1().mean,
        **{f"env/{name}/eval/pass_at_1": estimate.mean for name, estimate in by_name.items()},
        **{f"eval/info/{name}": value for name, value in evaluation.info.items()},
    }


def pass_at_1_by_environment(evaluation: Evaluation) -> dict[str, Estimate]:
    """pass@1 of each environment of a mixture; {} without one."""
    solved: dict[str, list[float]] = {}
    for prompt_id, value in zip(evaluation.prompt_ids, evaluation.solved, strict=True):
        name = environment_of(prompt_id)
        if name is not None:
            solved.setdefault(name, []).append(value)
    return {name: wilson(round(sum(values)), len(values)) for name, values in sorted(solved.items())}


def mixed_task(tasks: Mapping[str, Task], weights: Mapping[str, int], sizes: Mapping[str, int | None]) -> Task:
    """One task made of several.

    Args:
        tasks: by name.
        weights: draws of each in a block, >= 1.
        sizes: `num_prompts` of each.
    """

    def make_prompts(*, seed: int, num_prompts: int | None) -> PromptStream:
        del num_prompts  # each has its own
        streams = {
            name: task.make_prompts(seed=stable_seed(seed, "environment", name), num_prompts=sizes[name])
            for name, task in tasks.items()
        }
        return MixedPrompts(streams, weights, seed)

    def demonstrate(prompt: Prompt, rng: np.random.Generator, noise: float) -> list[Message]:
        name, inner = unwrapped(prompt)
        expert = tasks[name].demonstrate
        if expert is None:
            raise ConfigError(f"stages: 'sft' needs demonstrations of every environment, and {name!r} has no expert")
        return expert(inner, rng, noise)

    return Task(
        lambda: MixedEnvironment(tasks),
        make_prompts,
        demonstrate,
        phases=max(task.phases for task in tasks.values()),
        judged=any(task.judged for task in tasks.values()),
    )


class MixedPrompts:
    """A `PromptStream` over several; see the module's docstring."""

    def __init__(self, streams: Mapping[str, PromptStream], weights: Mapping[str, int], seed: int) -> None:
        self._streams = streams
        self._weights = weights
        self._seed = seed
        self._block = [name for name, weight in weights.items() for _ in range(weight)]
        self._order = lru_cache(maxsize=4)(self._shuffled)

    @property
    def num_draws(self) -> int | None:
        """None: no stream of a mixture ends."""
        return None

    def at(self, draw: int) -> Prompt:
        """The training prompt of `draw`; see `PromptStream.at`."""
        if draw < 0:
            raise ValueError(f"draw {draw} does not exist; draws are >= 0")
        block, place = divmod(draw, len(self._block))
        order = self._order(block)
        name = order[place]
        return wrapped(name, self._streams[name].at(block * self._weights[name] + order[:place].count(name)))

    def held_out(self, n: int, seed: int) -> list[Prompt]:
        """`n` held-out prompts, shared out by weight, each environment's together."""
        total, given, prompts = len(self._block), 0, []
        up_to = 0
        for name, weight in self._weights.items():
            up_to += weight
            share = n * up_to // total - given
            given += share
            prompts += [wrapped(name, prompt) for prompt in self._streams[name].held_out(share, seed)]
        return prompts

    def _shuffled(self, block: int) -> list[str]:
        rng = np.random.default_rng(stable_seed(self._seed, "mixture", block))
        return [self._block[i] for i in rng.permutation(len(self._block)).tolist()]


class MixedEnvironment:
    """One episode of whichever environment its prompt names."""

    surroundings = Surroundings()

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._environment: Environment | None = None

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Make the environment and start it."""
        name, inner = unwrapped(prompt)
        self._environment = lend(self._tasks[name].make_environment(), self.surroundings)
        return await self._environment.reset(inner, seed)

    async def step(self, action: str) -> StepResult:
        """Its answer."""
        assert self._environment is not None, "step before reset"
        return await self._environment.step(action)

    async def close(self) -> None:
        """Close it, if it was made."""
        if self._environment is not None:
            await self._environment.close()


def wrapped(name: str, prompt: Prompt) -> Prompt:
    """The prompt as the mixture shows it."""
    return Prompt(id=f"{name}/{prompt.id}", content={"environment": name, "item": prompt.content})


def unwrapped(prompt: Prompt) -> tuple[str, Prompt]:
    """The environment's name, and the prompt as that environment knows it."""
    name = environment_of(prompt.id)
    assert name is not None, prompt.id
    return name, Prompt(id=prompt.id[len(name) + 1 :], content=prompt.content["item"])
