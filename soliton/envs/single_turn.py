"""One prompt, one completion, plain reward functions with the signature that TRL made common.

    def reward(prompts, completions, **kwargs) -> list[float]

Each call is for one trajectory: `prompts` and `completions` hold one entry each, and every other column of the item
comes as a keyword with a list of one value. A prompt that is text gives completions that are text; a prompt that is a
list of chat messages gives completions that are lists of one assistant message. Functions may be coroutines.

A function that raises, returns None, a number that is not finite or a list of another length is a failure of the
grader: the attempt is dropped and counted under its reason, and never earns 0 for it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from soliton.envs.base import BaseEnvironment
from soliton.envs.environment import Message, StepResult
from soliton.errors import ConfigError, WorldError
from soliton.reasons import DropReason
from soliton.types import Prompt

RewardFunction = Callable[..., Any]


class SingleTurn(BaseEnvironment):
    """An environment made of prompts (`items` or `item`, each with a "prompt") and `rewards`.

    Attributes:
        rewards: functions whose results are summed.
        weights: a factor for each of them; None: 1 each.
    """

    rewards: ClassVar[Sequence[RewardFunction]] = ()
    weights: ClassVar[Sequence[float] | None] = None

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Show the item's prompt: text, or chat messages."""
        del seed
        self.content = prompt.content
        return opening_messages(prompt.content)

    async def step(self, action: str) -> StepResult:
        """Judge the completion.

        Raises:
            WorldError: a function gave no finite number.
        """
        prompt = self.content["prompt"]
        completion: Any = action if isinstance(prompt, str) else [{"role": "assistant", "content": action}]
        columns = {name: [value] for name, value in self.content.items() if name not in ("prompt", "completion")}
        weights = self.weights or [1.0] * len(self.rewards)
        parts = {}
        for function in self.rewards:
            returned = function(**accepted(function, {"prompts": [prompt], "completions": [completion], **columns}))
            parts[name_of(function)] = _checked(await returned if inspect.isawaitable(returned) else returned, function)
        total = math.fsum(weight * part for weight, part in zip(weights, parts.values(), strict=True))
        return StepResult(reward=total, terminated=True, info={f"reward/{name}": part for name, part in parts.items()})

    @classmethod
    def demonstration(cls, prompt: Prompt, rng: np.random.Generator, noise: float) -> list[Message]:
        """The item's own "completion"; there is nothing to spoil in it."""
        del rng, noise
        completion = prompt.content.get("completion")
        if not isinstance(completion, str):
            raise ConfigError(
                f"the item {prompt.content!r} has no text 'completion' to show as a demonstration; add the column, or "
                "leave out the stage 'sft'"
            )
        return [*opening_messages(prompt.content), Message("assistant", completion)]

    @classmethod
    def problems(cls, item: dict[str, Any]) -> list[str]:
        """What keeps this class from judging items such as `item`."""
        problems = []
        if not cls.rewards:
            problems.append("it has no rewards; set rewards = [function, ...]")
        if cls.weights is not None and len(cls.weights) != len(cls.rewards):
            problems.append(f"it has {len(cls.rewards)} rewards and {len(cls.weights)} weights; give one weight each")
        names = [name_of(function) for function in cls.rewards]
        if len(set(names)) < len(names):
            problems.append(f"its rewards are named {names}; give each function a name of its own")
        columns = {"prompts", "completions", *item} - {"prompt", "completion"}
        for function in cls.rewards:
            missing = sorted(_required(function) - columns)
            if missing:
                problems.append(
                    f"{name_of(function)} asks for {', '.join(missing)}, and the items have the columns "
                    f"{', '.join(sorted(item))}; add the column, or give the argument a default (environments "
                    "see text, so there is no completion_ids)"
                )
        return problems


def opening_messages(content: dict[str, Any]) -> tuple[Message, ...]:
    """The messages of an item's "prompt".

    Raises:
        ConfigError: it is neither text nor a list of chat messages.
    """
    prompt = content.get("prompt")
    if isinstance(prompt, str):
        return (Message("user", prompt),)
    is_chat = isinstance(prompt, list) and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in prompt)
    if not is_chat or not prompt:
        raise ConfigError(
            f"the item {content!r} has no 'prompt': give it text, or a list of messages such as "
            "[{'role': 'user', 'content': '2+2'}]"
        )
    return tuple(Message(str(message["role"]), str(message["content"])) for message in prompt)


def name_of(function: RewardFunction) -> str:
    """What a function is called in records and messages."""
    return str(getattr(function, "__name__", type(function).__name__))


def accepted(function: RewardFunction, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns that `function` takes: all with `**kwargs`, else those it names."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return columns
    return {name: value for name, value in columns.items() if name in parameters}


def _required(function: RewardFunction) -> set[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(function).parameters
    return {name for name, p in parameters.items() if p.default is p.empty and p.kind not in kinds}


def _checked(returned: object, function: RewardFunction) -> float:
    is_list = isinstance(returned, Sequence | np.ndarray) and not isinstance(returned, str | bytes)
    if not is_list or len(returned) != 1:  # type: ignore[arg-type]
        raise WorldError(
            DropReason.BAD_REWARD,
            f"{name_of(function)} returned {returned!r} for one completion; it must return a list of one number",
        )
    value = returned[0]  # type: ignore[index]
    if not isinstance(value, Real | np.bool_) or not math.isfinite(value):
        raise WorldError(
            DropReason.BAD_REWARD,
            f"{name_of(function)} returned {value!r}, not a finite number; the attempt is dropped, it does not earn 0",
        )
    return float(value)
