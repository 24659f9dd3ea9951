"""A base class for environments of your own: write what the task does, the rest has defaults.

    class GuessNumber(BaseEnvironment):
        @staticmethod
        def item(rng):                       # the prompts: one item from a seeded generator ...
            return {"secret": int(rng.integers(1000))}

        def opening(self):                   # ... shown to the model like this
            return "0-999?"

        def act(self, action):               # one turn
            if action == str(self.content["secret"]):
                return self.end(1.0)
            return self.say("no")

`items()` instead of `item(rng)` returns a finite list. `expert(rng, noise)` returns the next action of a player who
errs with probability `noise`; with it the run can begin with a warm start on demonstrations.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from soliton.awaited import AwaitedReward
from soliton.envs.environment import Message, StepResult
from soliton.envs.surroundings import Surroundings
from soliton.errors import ConfigError
from soliton.types import Prompt

MAX_DEMONSTRATION_TURNS = 200


class BaseEnvironment:
    """An `Environment` whose turns need not wait for anything. Override `step` itself if they do.

    Attributes:
        content: of the prompt, as `item` or `items` made it.
        rng: for chance inside the episode, seeded by it: a rebuilt episode sees the same.
        surroundings: what the run lends: `surroundings.judge`, and `surroundings.phase`, which moves while it goes on.
        phases: how many phases the task has; 1: nothing changes while a run goes on.
        judged: whether it asks a judge; such tasks read `[env.judge]`.
    """

    phases: ClassVar[int] = 1
    judged: ClassVar[bool] = False
    content: dict[str, Any]
    rng: np.random.Generator
    surroundings: Surroundings = Surroundings()

    def opening(self) -> str:
        """What the model sees first; by default the item's "prompt"."""
        if not isinstance(self.content.get("prompt"), str):
            raise ConfigError(
                f"{type(self).__name__} cannot show the item {self.content!r}: it has no text 'prompt'; give it one, "
                "or write opening(self) -> str"
            )
        return str(self.content["prompt"])

    def act(self, action: str) -> StepResult:
        """Answer one action by `self.say(...)` or `self.end(reward)`."""
        raise ConfigError(
            f"{type(self).__name__} has no act(self, action) -> StepResult, so {action!r} cannot be answered; write it"
        )

    def expert(self, rng: np.random.Generator, noise: float) -> str:
        """The next action of a player who errs with probability `noise`; only needed for a warm start."""
        del rng, noise
        raise ConfigError(
            f"{type(self).__name__} has no expert(self, rng, noise) -> str; write it, or leave out the stage 'sft'"
        )

    @staticmethod
    def say(text: str, reward: float = 0.0, role: str = "user", **info: float) -> StepResult:
        """Go on: `text` is what the model sees next. `info` are numbers for the trajectory's record."""
        return StepResult(messages=(Message(role, text),), reward=reward, info=info)

    @staticmethod
    def end(reward: float, **info: float) -> StepResult:
        """The task is over."""
        return StepResult(reward=reward, terminated=True, info=info)

    @staticmethod
    def end_later(
        within_s: float, key: str = "", *, low: float | None = None, high: float | None = None, **info: float
    ) -> StepResult:
        """The task is over and its reward comes from outside, within so many seconds (`AwaitedReward`)."""
        awaited = AwaitedReward(within_s=within_s, key=key, low=low, high=high)
        return StepResult(terminated=True, info=info, awaited=awaited)

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Start with `opening` as the user's message."""
        return self._begin(prompt, seed)

    async def step(self, action: str) -> StepResult:
        """Answer with `act`."""
        return self.act(action)

    async def close(self) -> None:
        """Nothing is held."""

    @classmethod
    def demonstration(cls, prompt: Prompt, rng: np.random.Generator, noise: float) -> list[Message]:
        """A whole episode played by `expert`."""
        environment = cls()
        messages = list(environment._begin(prompt, int(rng.integers(2**62))))
        for _ in range(MAX_DEMONSTRATION_TURNS):
            action = environment.expert(rng, noise)
            messages.append(Message("assistant", action))
            result: object = environment.act(action)
            if not isinstance(result, StepResult):
                raise ConfigError(
                    f"{cls.__name__}.act({action!r}) returned {result!r}; it must return self.say(text) or "
                    "self.end(reward)"
                )
            if result.terminated or result.truncated:
                return messages
            messages += result.messages
        raise ConfigError(
            f"{cls.__name__}.expert has not ended an episode after {MAX_DEMONSTRATION_TURNS} turns of prompt "
            f"{prompt.content!r}; its actions must lead to self.end(...)"
        )

    def _begin(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        self.content = prompt.content
        self.rng = np.random.default_rng(seed)
        return (Message("user", self.opening()),)
