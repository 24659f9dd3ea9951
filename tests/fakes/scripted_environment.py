"""An environment that answers what the test wrote down, and remembers what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from soliton.envs.environment import Message, StepResult
from soliton.types import Clock, Prompt

HANG = "hang"
PROMPT_MESSAGES = (Message("user", "go"),)
GO_ON = StepResult(messages=(Message("tool", "ok"),))
WON = StepResult(reward=1.0, terminated=True)


class ScriptedEnvironment:
    """Args:
    steps: one answer per step: anything to return, an exception to raise, or HANG; the last one repeats.
    opening: the same for `reset`.
    closing: the same for `close`.
    clock, wait_s: each step first sleeps that long.
    deaf: a hanging call ignores its first cancellation.
    """

    def __init__(
        self,
        steps: Sequence[Any],
        *,
        opening: Any = PROMPT_MESSAGES,
        closing: Any = None,
        clock: Clock | None = None,
        wait_s: float = 0.0,
        deaf: bool = False,
    ) -> None:
        self._steps = steps
        self._opening = opening
        self._closing = closing
        self._clock = clock
        self._wait_s = wait_s
        self._deaf = deaf
        self.seed: int | None = None
        self.actions: list[str] = []
        self.step_times: list[float] = []
        self.num_closed = 0

    async def reset(self, prompt: Prompt, seed: int) -> Any:
        self.seed = seed
        return await self._answer(self._opening)

    async def step(self, action: str) -> Any:
        self.actions.append(action)
        if self._clock is not None:
            self.step_times.append(self._clock.now())
            await self._clock.sleep_until(self._clock.now() + self._wait_s)
        return await self._answer(self._steps[min(len(self.actions), len(self._steps)) - 1])

    async def close(self) -> None:
        self.num_closed += 1
        await self._answer(self._closing)

    async def _answer(self, answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        if answer is HANG:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._deaf:
                    raise
                await asyncio.Event().wait()
        return answer
