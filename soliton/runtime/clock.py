"""Time. The only module that may ask the operating system for it.

`RealClock` passes by itself. `VirtualClock` passes only when every coroutine waits: it then jumps to the next moment
somebody waits for. Coroutines that wake at the same moment do so in an order drawn from the seed, so that a run is a
pure function of its seed, and no result hides behind an accidental order.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from soliton.errors import RunError

Result = TypeVar("Result")

STUCK_AFTER_S = 60.0
"""Real seconds of waiting for input or output, with no timer pending, after which a virtual run is declared stuck."""


def wall_s() -> float:
    """Real seconds from an arbitrary origin; for measuring durations."""
    return time.perf_counter()


def cpu_s() -> float:
    """Seconds of processor time that this process has used, all threads together; for measuring what work costs."""
    return time.process_time()


def date_s() -> float:
    """Seconds of the machine's date since the epoch, which may jump; only for telling people."""
    return time.time()


def seconds_since_change(path: Path) -> float:
    """Seconds of the machine's date since the file was last written; only for telling people."""
    return time.time() - path.stat().st_mtime


class RealClock:
    """Seconds of the machine's monotonic clock, which no change of the date moves.

    Args:
        origin_s: where its 0 is on the machine's monotonic clock, the same for all processes of a machine (a process
            of a run takes over the controller's); None: now.

    Attributes:
        origin_s: the same.
    """

    def __init__(self, origin_s: float | None = None) -> None:
        self.origin_s = time.monotonic() if origin_s is None else origin_s

    def now(self) -> float:
        """Seconds since the origin."""
        return time.monotonic() - self.origin_s

    async def sleep_until(self, when: float) -> None:
        """Return once `now() >= when`."""
        delay = when - self.now()
        if delay > 0:
            await asyncio.sleep(delay)


class VirtualClock:
    """Seconds that cost nothing.

    Args:
        seed: orders the coroutines that wake at the same moment.
        start: the first value of `now()`; a resumed run goes on where its checkpoint stopped.
        quiet_s: real seconds without input or output before time jumps; above 0 where coroutines speak through sockets,
            whose bytes take a moment to arrive.
    """

    def __init__(self, seed: int, start: float = 0.0, quiet_s: float = 0.0) -> None:
        self._now = start
        self._order = np.random.Generator(np.random.PCG64(seed))
        self._sleepers: list[tuple[float, float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._quiet_s = quiet_s

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    async def sleep_until(self, when: float) -> None:
        """Return once every coroutine waits and nobody waits for an earlier moment; at once if `when` has passed."""
        if when <= self._now:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (when, float(self._order.random()), self._count, future))
        loop.call_at(when, self._wake, when)
        await future

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        """Run `main` to its end under this clock; `asyncio` timeouts inside it are virtual too.

        Raises:
            RunError: nobody can move (every coroutine waits for another one).
        """
        with asyncio.Runner(loop_factory=lambda: _VirtualLoop(self)) as runner:
            return runner.run(main)

    def _wake(self, when: float) -> None:
        self._now = max(self._now, when)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            future = heapq.heappop(self._sleepers)[3]
            if not future.done():
                future.set_result(None)

    def _advance(self, seconds: float) -> None:
        self._now += seconds


class _VirtualLoop(asyncio.SelectorEventLoop):
    """The standard event loop, with time taken from a `VirtualClock` and idle waits turned into jumps."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._virtual.now()


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer, move the clock there. Real input and output still arrive."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._virtual = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout == 0 else self._virtual._quiet_s)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self._virtual._advance(timeout)
            return []
        ready = super().select(STUCK_AFTER_S)
        if not ready:
            raise RunError(
                f"nobody can move at virtual time {self._virtual.now():.3f} s: every coroutine waits for another"
            )
        return ready
