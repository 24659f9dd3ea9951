"""Noticing that nothing moves, and saying who waits for whom (fault H1).

run   waits for: the clock    unblocked by itself
"""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from soliton.runtime.local.supervisor import Supervisor
from soliton.types import Clock

LOOKS = 6
"""Looks per watchdog period."""


class Watchdog:
    """Writes the stacks of all processes when a run makes no progress.

    Args:
        clock: of the run.
        after_s: seconds without progress that are too many.
        progress: a value that changes whenever something useful happens.
        roles: the processes that run now.
        why: who waits for what, as text.
        alarm: told once per standstill.
        logs: folder of the logs.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        after_s: float,
        progress: Callable[[], object],
        roles: Callable[[], Iterable[Supervisor]],
        why: Callable[[], Awaitable[str]],
        alarm: Callable[[str], None],
        logs: Path,
    ) -> None:
        self._clock = clock
        self._after_s = after_s
        self._progress = progress
        self._roles = roles
        self._why = why
        self._alarm = alarm
        self._logs = logs

    async def run(self) -> None:
        """Watch until cancelled."""
        seen, since_s, is_told = self._progress(), self._clock.now(), False
        while True:
            await self._clock.sleep_until(self._clock.now() + self._after_s / LOOKS)
            if (now := self._progress()) != seen:
                seen, since_s, is_told = now, self._clock.now(), False
            elif not is_told and self._clock.now() - since_s >= self._after_s:
                is_told = True
                stands_s = self._clock.now() - since_s
                why = await self._why()
                self._alarm(f"no progress for {stands_s:.0f} s. {why}. All stacks are in {self._logs}")
                self._write_stacks()

    def _write_stacks(self) -> None:
        for role in self._roles():
            role.signal(signal.SIGUSR1)
        with (self._logs / "controller-stacks.log").open("a") as file:
            faulthandler.dump_traceback(file, all_threads=True)
