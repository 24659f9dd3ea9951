"""An environment for real runs whose episodes fail in every way that one can, chosen by the seed.

One prompt in eight fails whatever is tried.
"""

import asyncio
import math

from soliton.envs.calculator import Calculator
from soliton.envs.environment import Message, StepResult
from soliton.prompts.calculator import CalculatorPrompts
from soliton.types import Prompt

WAYS = ("raises", "hangs", "is late", "says no text", "rewards with nan", "works", "works", "works", "works")


class Hostile(Calculator):
    prompts = CalculatorPrompts

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        self._way = WAYS[seed % len(WAYS)]
        print("an environment may print what it likes")  # noqa: T201
        if int(prompt.id, 16) % 8 == 1:
            raise ConnectionRefusedError("the tool server of this prompt is down")
        return await super().reset(prompt, seed)

    async def step(self, action: str) -> StepResult:
        match self._way:
            case "raises":
                raise ZeroDivisionError("the tool divided by zero")
            case "hangs":
                await asyncio.Event().wait()
            case "is late":
                await asyncio.sleep(2.0)
            case "says no text":
                return StepResult(messages=(Message("tool", 7),))
            case "rewards with nan":
                return StepResult(reward=math.nan, terminated=True)
        return await super().step(action)
