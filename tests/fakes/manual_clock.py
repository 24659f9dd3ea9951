"""A clock whose time the test moves, by hand or to the next moment somebody waits for."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable


class ManualClock:
    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    async def sleep_until(self, when: float) -> None:
        if when <= self._now:
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (when, self._count, future))
        await future

    @property
    def next_wake(self) -> float | None:
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    async def advance(self, to: float) -> None:
        """Move to `to`, waking sleepers in order of time, and let everybody react."""
        await settle()
        while (wake := self.next_wake) is not None and wake <= to:
            self._now = max(self._now, wake)
            heapq.heappop(self._sleepers)[2].set_result(None)
            await settle()
        self._now = max(self._now, to)
        await settle()

    async def drive(self, awaitable: Awaitable):
        """The result of `awaitable`, with time moved on whenever everybody waits."""
        task = asyncio.ensure_future(awaitable)
        try:
            while not task.done():
                await settle()
                if not task.done():
                    wake = self.next_wake
                    assert wake is not None, f"nobody can move at {self._now} s"
                    await self.advance(wake)
            return task.result()
        finally:
            task.cancel()


async def settle() -> None:
    """Let every ready coroutine run until all of them wait."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:
        await asyncio.sleep(0)
