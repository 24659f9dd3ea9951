"""The `calculator` task: reduce a left-to-right chain modulo 100 with a tool, then state the answer.

    user       78-62*3
    assistant  78-62          the first operation
    tool       16*3           computed, and put in its place
    assistant  16*3
    tool       48
    assistant  =48            ends the episode: reward 1 if right, else 0

The tool computes what it is asked, modulo 100, and answers with the expression in which that result stands for the
first operation. It does not check that it was asked the first operation: a slip of the pen (`79-62`) gives a wrong
chain, and nothing but the final answer is judged. An action that is neither an operation nor `=number` ends the
episode with reward 0 and `info["malformed"] = 1`: the model's mistake, not a failure of the world.

This module knows no tokens and no clock. It is a pure function of the prompt and the actions.
"""

from __future__ import annotations

import re

import numpy as np

from soliton.envs.environment import Message, StepResult
from soliton.errors import ConfigError
from soliton.types import Prompt

MODULUS = 100
SLIP_SHARE = 0.8
"""Share of slips among the spoilt turns of a demonstration. The rest are mostly swapped operands, after which the whole
turn reads otherwise; with many of them some seeds learn to copy late or never (docs/lab-notes.md)."""
_CHAIN = re.compile(r"[0-9]{1,2}(?:[-+*][0-9]{1,2})*")
_OPERATION = re.compile(r"([0-9]{1,2})([-+*])([0-9]{1,2})")
_ANSWER = re.compile(r"=([0-9]{1,2})")
_DIGIT = re.compile(r"[0-9]")


def compute(operation: str) -> int | None:
    """The value of `a+b`, `a-b` or `a*b` modulo 100; None if the text is no such operation."""
    match = _OPERATION.fullmatch(operation)
    if match is None:
        return None
    left, right = int(match[1]), int(match[3])
    return {"+": left + right, "-": left - right, "*": left * right}[match[2]] % MODULUS


def reduce_expression(expression: str, value: int) -> str:
    """Put `value` in the place of the first operation (or of the whole, if only a number is left)."""
    match = _OPERATION.match(expression)
    return f"{value}{expression[match.end() :] if match else ''}"


class Calculator:
    """One episode; see the module's docstring for its rules."""

    def __init__(self) -> None:
        self._expression = ""
        self._answer = 0

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Show the chain. `seed` changes nothing: the task has no chance in it.

        Raises:
            ConfigError: the prompt is not one of `soliton.prompts.calculator`.
        """
        del seed
        self._expression, self._answer = _parse(prompt)
        return (Message("user", self._expression),)

    async def step(self, action: str) -> StepResult:
        """Compute an operation, or judge `=number`."""
        if answer := _ANSWER.fullmatch(action):
            return StepResult(reward=float(int(answer[1]) == self._answer), terminated=True)
        value = compute(action)
        if value is None:
            return StepResult(terminated=True, info={"malformed": 1.0})
        self._expression = reduce_expression(self._expression, value)
        return StepResult(messages=(Message("tool", self._expression),))

    async def close(self) -> None:
        """Nothing is held."""


def demonstration(prompt: Prompt, rng: np.random.Generator, noise: float) -> list[Message]:
    """A whole episode, in which each assistant turn is spoilt with probability `noise` in [0, 1].

    A spoilt turn is either a slip (one digit is wrong; usually fatal) or clumsy: swapped operands (fatal for `-`
    only), or one needless `+0` before the answer. So a model that imitates these knows the task and fails often: at
    noise 0.35 the reward is earned by 0.31 of the demonstrations.
    """
    expression, _ = _parse(prompt)
    messages = [Message("user", expression)]
    while True:
        operation = _OPERATION.match(expression)
        action = operation[0] if operation else f"={expression}"
        if rng.random() < noise:
            action = _slip(action, rng) if rng.random() < SLIP_SHARE else _clumsy(action)
        messages.append(Message("assistant", action))
        value = compute(action)
        if value is None:
            return messages
        expression = reduce_expression(expression, value)
        messages.append(Message("tool", expression))


def _slip(action: str, rng: np.random.Generator) -> str:
    places = [match.start() for match in _DIGIT.finditer(action)]
    place = places[int(rng.integers(len(places)))]
    wrong = (int(action[place]) + int(rng.integers(1, 10))) % 10
    return f"{action[:place]}{wrong}{action[place + 1 :]}"


def _clumsy(action: str) -> str:
    operation = _OPERATION.fullmatch(action)
    if operation is None:
        return f"{action[1:]}+0"
    return f"{operation[3]}{operation[2]}{operation[1]}"


def _parse(prompt: Prompt) -> tuple[str, int]:
    expression, answer = prompt.content.get("expression"), prompt.content.get("answer")
    if not isinstance(expression, str) or not _CHAIN.fullmatch(expression) or not isinstance(answer, int):
        raise ConfigError(
            f"prompt {prompt.id} is not for the calculator: content {prompt.content!r}; it needs "
            "'expression' (a chain such as '78-62*3') and 'answer' (an integer): use soliton.prompts.calculator"
        )
    return expression, answer
