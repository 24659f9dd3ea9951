"""Simulated tool latency around any environment, in seconds of the clock it is given.

The delay of step n is a pure function of (seed, n): it depends neither on the other episodes nor on when the step is
taken, so an episode rebuilt by replay waits exactly as it did (fault F11). `reset` is not delayed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from soliton.envs.environment import Environment, Message, StepResult
from soliton.types import Clock, Prompt, stable_seed


class LatencyConfig(BaseModel):
    """The distribution of a step's delay.

    Attributes:
        kind: "none"; "fixed" (always `low_s`); "uniform" on [low_s, high_s]; "heavy_tailed", a Pareto law bounded to
            [low_s, high_s].
        low_s, high_s: seconds, >= 0.
        alpha: tail exponent of "heavy_tailed", > 0; smaller is heavier. 0.8 is the prototype's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["none", "fixed", "uniform", "heavy_tailed"] = "none"
    low_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    high_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    alpha: float = Field(default=0.8, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check(self) -> LatencyConfig:
        if self.kind in ("uniform", "heavy_tailed") and self.high_s < self.low_s:
            raise ValueError(f"high_s = {self.high_s} is below low_s = {self.low_s}; raise it")
        if self.kind == "heavy_tailed" and self.low_s == 0:
            raise ValueError("low_s = 0: a heavy-tailed latency needs low_s > 0")
        return self

    def delay_s(self, seed: int, step: int) -> float:
        """The delay of `step` (0 first), pure in (seed, step).

        Heavy-tailed is the inverse of the bounded Pareto law's distribution function,
        `F(x) = (1 - (low/x)^alpha) / (1 - (low/high)^alpha)`.
        """
        if self.kind == "none":
            return 0.0
        if self.kind == "fixed":
            return self.low_s
        u = float(np.random.default_rng(stable_seed(seed, "latency", step)).random())
        if self.kind == "uniform":
            return self.low_s + u * (self.high_s - self.low_s)
        mass = 1.0 - math.pow(self.low_s / self.high_s, self.alpha)
        return min(self.high_s, self.low_s * math.pow(1.0 - u * mass, -1.0 / self.alpha))


class SimulatedLatency:
    """An environment whose every step answers `delay_s` seconds later."""

    def __init__(self, env: Environment, clock: Clock, distribution: LatencyConfig, seed: int) -> None:
        self._env = env
        self._clock = clock
        self._distribution = distribution
        self._seed = seed
        self._steps = 0

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Reset the inner environment, without a delay."""
        self._steps = 0
        return await self._env.reset(prompt, seed)

    async def step(self, action: str) -> StepResult:
        """Wait, then step the inner environment."""
        delay_s = self._distribution.delay_s(self._seed, self._steps)
        self._steps += 1
        await self._clock.sleep_until(self._clock.now() + delay_s)
        return await self._env.step(action)

    async def close(self) -> None:
        """Close the inner environment."""
        await self._env.close()
