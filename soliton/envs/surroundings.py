"""What a run lends to the environment of an episode: a judge, and the phase that the run is in.

A phase is what changes while a run goes on: whose taste counts, which tools there are. It begins at 1 and moves when
the run says so (`env.shifts`, `soliton shift`). An environment reads it as `self.surroundings.phase`; within one step,
and within `reset`, it does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from soliton.envs.environment import Environment, Message, StepResult
from soliton.envs.judge import Judge, RuleJudge
from soliton.types import Clock, Prompt

PhaseAt = Callable[[float], int]
"""The phase at a time of the clock. A rebuilt episode asks for the same times again, and must be told the same."""


def first_phase(_: float) -> int:
    """The first one, always."""
    return 1


@dataclass
class Surroundings:
    """Lent to one episode.

    Attributes:
        judge: whom the environment asks.
        phase: of the step that is being taken; 1 first.
    """

    judge: Judge = field(default_factory=RuleJudge)
    phase: int = 1


def lend(environment: Environment, surroundings: Surroundings) -> Environment:
    """Give `environment` its surroundings if it has a place for them; returns it."""
    if hasattr(environment, "surroundings"):
        environment.surroundings = surroundings
    return environment


class Phased:
    """An environment whose steps happen in phases: sets the phase before each call and records it in `info`.

    Args:
        environment: has its surroundings.
        surroundings: the same.
        clock: of the episode.
        phase_at: the phase at a time.
    """

    def __init__(self, environment: Environment, surroundings: Surroundings, clock: Clock, phase_at: PhaseAt) -> None:
        self._environment = environment
        self._surroundings = surroundings
        self._clock = clock
        self._phase_at = phase_at

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Start in the phase of now."""
        self._surroundings.phase = self._phase_at(self._clock.now())
        return await self._environment.reset(prompt, seed)

    async def step(self, action: str) -> StepResult:
        """Judge the action in the phase in which it arrives."""
        phase = self._surroundings.phase = self._phase_at(self._clock.now())
        result = await self._environment.step(action)
        return msgspec.structs.replace(result, info={**result.info, "phase": float(phase)})

    async def close(self) -> None:
        """Close the environment."""
        await self._environment.close()
