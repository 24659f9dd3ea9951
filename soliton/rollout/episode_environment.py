"""One episode's environment behind its deadlines and checks, with its own clock; can be rebuilt by replay.

It owns the environment object. It knows neither tokens nor the engine. Every answer is checked and cleaned before
anybody sees it, and the environment is closed exactly once, also if it was never reset (fault F8).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from soliton.envs.environment import Environment, Message
from soliton.errors import RunError, WorldError
from soliton.reasons import DropReason
from soliton.rollout.checks import checked_messages, checked_step
from soliton.rollout.episode_clock import EpisodeClock
from soliton.rollout.limits import Limits
from soliton.rollout.state import EpisodeState, Pending, Turn
from soliton.rollout.world import Late, World, done_before, end
from soliton.types import AttemptId, Clock, Prompt

T = TypeVar("T")
Info = dict[str, float]
MakeEnvironment = Callable[[Clock, int], Environment]
"""Makes the environment of one episode from the episode's clock and a seed."""

logger = logging.getLogger(__name__)


class OutOfTime(Exception):  # noqa: N818  (a limit, not an error)
    """The episode's time limit passed while it waited for the environment."""


class EpisodeEnvironment:
    """Makes, asks and closes one environment.

    Args:
        attempt: for messages.
        make: called once, by `reset` or `rebuild`.
        prompt, seed: of the episode.
        world: through which it is asked.
        clock: of the run.
        limits: see `Limits`.
    """

    def __init__(
        self,
        attempt: AttemptId,
        make: MakeEnvironment,
        prompt: Prompt,
        seed: int,
        world: World,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._attempt = attempt
        self._make = make
        self._prompt = prompt
        self._seed = seed
        self._world = world
        self._run_clock = clock
        self._clock = EpisodeClock(clock)
        self._limits = limits
        self._environment: Environment | None = None
        self.time_limit_at_s: float | None = None

    async def reset(self) -> tuple[tuple[Message, ...], Info]:
        """Make the environment and start it; returns the first messages and how many were cut or cleaned.

        Raises:
            WorldError: it failed, was late, or its messages are no messages.
            OutOfTime: the time limit passed.
            Parked: the world was interrupted.
        """

        async def make_and_reset() -> object:
            self._environment = self._make(self._clock, self._seed)
            return await self._environment.reset(self._prompt, self._seed)

        return self._checked(await self._ask(make_and_reset, self._run_clock.now()))

    async def step(self, pending: Pending) -> tuple[Turn, Info]:
        """Take one step; raises as `reset` does, and WorldError for a reward that is not a finite number."""
        turn, info = await self._step(pending, pending.began_s)
        self._clock.catch_up()
        return turn, info

    async def rebuild(self, state: EpisodeState) -> None:
        """Reset, and replay the recorded turns on their own times; a pending step is left to `step`.

        Raises:
            RunError: an answer differs from its record: names the turn, what was expected and what came.
            WorldError, OutOfTime, Parked: as `reset`.
        """
        assert state.started_s is not None
        self._clock.rewind(state.started_s)
        opening, _ = await self.reset()
        self._compare("opening", state.opening, opening)
        for number, expected in enumerate(state.turns):
            self._clock.rewind(expected.began_s)
            again, _ = await self._step(Pending(expected.action, expected.began_s), self._run_clock.now())
            self._compare(f"turn {number}", expected, again)
        if state.pending is None:
            self._clock.catch_up()
        else:
            self._clock.rewind(state.pending.began_s)

    async def close(self) -> None:
        """Close the environment, if there is one. A failure to close is reported and changes no trajectory."""
        if self._environment is None:
            return
        task = asyncio.ensure_future(self._environment.close())
        timeout_s = self._limits.step_timeout_s
        await done_before(task, self._run_clock, None if timeout_s is None else self._run_clock.now() + timeout_s)
        error = None if not task.done() or task.cancelled() else task.exception()
        if not task.done() or task.cancelled() or error is not None:
            logger.error("attempt %s: closing the environment failed: %r", self._attempt, error or task, exc_info=error)
        await end(task, self._run_clock)

    async def _step(self, pending: Pending, asked_s: float) -> tuple[Turn, Info]:
        environment = self._environment
        assert environment is not None
        result = checked_step(await self._ask(lambda: environment.step(pending.action), asked_s))
        messages, counts = self._checked(result.messages)
        turn = Turn(
            action=pending.action,
            began_s=pending.began_s,
            messages=messages,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            awaited=result.awaited,
        )
        return turn, {**result.info, **counts}

    async def _ask(self, call: Callable[[], Coroutine[Any, Any, T]], asked_s: float) -> T:
        timeout_s = self._limits.step_timeout_s
        timeout_at_s = None if timeout_s is None else asked_s + timeout_s
        deadlines = [at_s for at_s in (timeout_at_s, self.time_limit_at_s) if at_s is not None]
        try:
            return await self._world.ask(call, DropReason.ENV_ERROR, deadline_s=min(deadlines, default=None))
        except Late:
            if self.time_limit_at_s is not None and self._run_clock.now() >= self.time_limit_at_s:
                raise OutOfTime from None
            raise WorldError(DropReason.ENV_TIMEOUT, f"no answer from the environment within {timeout_s} s") from None

    def _checked(self, messages: object) -> tuple[tuple[Message, ...], Info]:
        checked = checked_messages(messages, self._limits.max_observation_chars)
        counts = {"observations_cut": checked.num_cut, "observations_cleaned": checked.num_cleaned}
        return checked.messages, {name: float(count) for name, count in counts.items() if count}

    def _compare(self, what: str, expected: object, got: object) -> None:
        if expected != got:
            raise RunError(
                f"attempt {self._attempt}, {what}: the rebuilt environment differs from its record; expected "
                f"{expected}, got {got}. An environment must be a pure function of prompt, seed and actions"
            )
