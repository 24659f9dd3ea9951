"""The one boundary between an episode and the world: every environment and engine call goes through `World.ask`.

It guarantees that a call ends as a result, as a `WorldError` with a reason the ledger knows, as `Late` or as `Parked`;
mistakes of the user and of the run (`ConfigError`, `RunError`) pass unchanged. It does not know what is asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from soliton.errors import ConfigError, RunError, WorldError
from soliton.reasons import DropReason
from soliton.types import Clock

T = TypeVar("T")
logger = logging.getLogger(__name__)

GRACE_S = 30.0
"""Seconds of the clock that a cancelled or aborted call gets to end before it is left behind."""

WORLD_REASONS = frozenset(
    {
        DropReason.ENV_ERROR,
        DropReason.ENV_TIMEOUT,
        DropReason.BAD_OBSERVATION,
        DropReason.BAD_REWARD,
        DropReason.ENGINE_ERROR,
        DropReason.BAD_LOGPROB,
        DropReason.JUDGE_UNAVAILABLE,
        DropReason.BAD_VERDICT,
    }
)
"""Reasons that the world may give for itself; any other one counts as the reason of whoever was asked."""


class Parked(Exception):  # noqa: N818  (not an error: the episode goes on elsewhere)
    """The episode was parked while, or before, the world was asked."""


class Late(Exception):  # noqa: N818  (not an error: its meaning depends on which deadline passed)
    """The deadline of a call passed."""


class World:
    """Asks one call at a time, and can be interrupted for good.

    Args:
        clock: of the run; deadlines are its times.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stop_call: Callable[[], Awaitable[None]] | None = None
        self.is_interrupted = False

    async def interrupt(self) -> None:
        """Stop the call in progress, if any; every later one raises `Parked`."""
        self.is_interrupted = True
        if self._stop_call is not None:
            await self._stop_call()

    async def ask(
        self,
        call: Callable[[], Coroutine[Any, Any, T]],
        blame: DropReason,
        *,
        deadline_s: float | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Make `call` and wait for its result.

        Args:
            call: makes the coroutine; what it raises on the way is the world's failure, too.
            blame: the reason of a failure that names none.
            deadline_s: clock time after which the call is cancelled; None waits for ever. A tie counts as in time.
            stop: how to interrupt the call so that it still returns; None cancels it, and `ask` raises `Parked`.

        Raises:
            WorldError: the call failed.
            Late: the deadline passed.
            Parked: interrupted.
        """
        task = asyncio.ensure_future(self._unless_interrupted(call))
        self._stop_call = stop or (lambda: _cancel(task))
        try:
            if not await done_before(task, self._clock, deadline_s):
                raise Late
            return self._result(task, blame)
        finally:
            self._stop_call = None
            await end(task, self._clock)

    async def _unless_interrupted(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # Checked inside the task: an interruption may come after the task was made and before it runs.
        if self.is_interrupted:
            raise Parked
        return await call()

    def _result(self, task: asyncio.Task[T], blame: DropReason) -> T:
        try:
            return task.result()
        except (Parked, RunError, ConfigError):
            raise
        except WorldError as error:
            if error.reason in WORLD_REASONS:
                raise
            raise WorldError(blame, str(error)) from error
        except asyncio.CancelledError:
            if self.is_interrupted:
                raise Parked from None
            raise WorldError(blame, "the call cancelled itself") from None
        except Exception as error:
            raise WorldError(blame, f"{type(error).__name__}: {error}") from error


async def done_before(task: asyncio.Task[T], clock: Clock, deadline_s: float | None) -> bool:
    """Wait until `task` is done (True; ties included) or the clock shows `deadline_s` (False; None: never).

    The task itself is left alone: neither its result nor its error is taken, and it is not cancelled.
    """
    if deadline_s is None:
        await asyncio.wait([task])
        return True
    timer = asyncio.ensure_future(clock.sleep_until(deadline_s))
    try:
        await asyncio.wait([task, timer], return_when=asyncio.FIRST_COMPLETED)
        return task.done()
    finally:
        timer.cancel()


async def end(task: asyncio.Task[T], clock: Clock) -> None:
    """Cancel `task` if it still runs, and see to it that it ends; one that will not is left behind and reported."""
    if task.done():
        return
    task.cancel()
    if not await done_before(task, clock, clock.now() + GRACE_S):
        logger.error("a call ignores its cancellation for %g s and is left behind: %r", GRACE_S, task)
    elif not task.cancelled() and (error := task.exception()) is not None:
        logger.warning("a cancelled call failed: %r", error, exc_info=error)


async def _cancel(task: asyncio.Task[T]) -> None:
    task.cancel()
