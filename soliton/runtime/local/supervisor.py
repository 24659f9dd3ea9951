"""Keeping one role alive: start it, listen to it, start it again when it dies, give up when that does not help.

run   waits for: an event or the end of the process    unblocked by the process, `stop`
      waits for: the pause before a restart            unblocked by the clock

Progress is a step of a stage that no process of this role had reached before: a learner that goes back to its
checkpoint and dies at the same place again makes none.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable

from soliton.errors import ConfigError, RunError
from soliton.runtime.local.events import STOP, Crash, Evaluated, Event, Fatal, Progress, Stage, Stopped, Update
from soliton.runtime.local.launcher import LocalLauncher, RoleProcess
from soliton.types import Clock

FIRST_PAUSE_S = 0.1
"""Before a second start; doubles with every death in a row."""
LONGEST_PAUSE_S = 3.0
LOG_LINES = 12
"""Lines of a role's log shown with the cause of a crash loop."""

logger = logging.getLogger(__name__)


class Supervisor:
    """One role.

    Args:
        name: of the role.
        launcher: starts it.
        clock: of the run.
        max_restarts: deaths in a row, without progress in between, that are forgiven.
        on_event: told of everything that it says.
        on_death: called after each death that is not its end, right before the next start, when what the dead process
            had asked for is no longer under way.
        on_start: called after each start, when it can be sent commands.
        alarm: told of deaths.
    """

    def __init__(
        self,
        name: str,
        *,
        launcher: LocalLauncher,
        clock: Clock,
        max_restarts: int,
        on_event: Callable[[Event], None],
        on_death: Callable[[], Awaitable[None]],
        alarm: Callable[[str], None],
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._launcher = launcher
        self._clock = clock
        self._max_restarts = max_restarts
        self._on_event = on_event
        self._on_death = on_death
        self._on_start = on_start
        self._alarm = alarm
        self._process: RoleProcess | None = None
        self._deaths = 0
        self._last_words = ""
        self._is_over = False
        self._is_stopping = False
        self._stage = ""
        self._furthest: dict[str, int] = {}

    async def run(self) -> None:
        """Keep it alive until it ends by itself or `stop` is called.

        Raises:
            RunError: it said that the run cannot go on, or it died too often in a row.
            ConfigError: it said that the configuration is wrong.
        """
        while not self._is_over:
            self._process = process = await self._launcher.start(self.name)
            try:
                self._begin(process)
                async for event in process.events():
                    self._listen(event)
                code = await process.wait()
            finally:  # also when this is cancelled: what still runs when the event loop closes complains to the user
                process.kill()
                await process.wait()
            logger.info("%s ended: %s", self.name, "as it was told to" if self._is_over else describe_exit(code))
            if code == 0 or self._is_over or self._is_stopping:
                return
            await self._after_death(code)

    def stop(self) -> None:
        """End it now and do not start it again."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()

    def ask_to_stop(self) -> None:
        """Let it finish its step and end; if it dies instead, or is dead now, it is not started again."""
        self._is_stopping = True
        self.send(STOP)

    def send(self, command: str) -> None:
        """Give it a command; nothing happens while it does not run."""
        if self._process is not None:
            self._process.send(command)

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        if self._process is not None:
            self._process.signal(number)

    def _begin(self, process: RoleProcess) -> None:
        logger.info("%s started: process %d", self.name, process.pid)
        if self._is_over:  # while it was starting
            process.kill()
        if self._is_stopping:
            self.send(STOP)
        self._on_start()

    def _listen(self, event: Event) -> None:
        match event:
            case Fatal(text=text, is_config=is_config):
                raise (ConfigError if is_config else RunError)(text)
            case Crash(text=text):
                self._last_words = text
                logger.error("%s crashed:\n%s", self.name, text)
            case Stage(name=name):
                self._stage = name
            case Update(step=step) if step > self._furthest.get(self._stage, -1):
                self._furthest[self._stage] = step
                self._deaths = 0
            case Progress() | Evaluated():
                self._deaths = 0
            case Stopped():
                self._is_over = True
            case _:
                pass
        self._on_event(event)

    async def _after_death(self, code: int) -> None:
        assert self._process is not None
        self._deaths += 1
        how = describe_exit(code)
        if self._deaths > self._max_restarts:
            raise RunError(
                f"{self.name} died {self._deaths} times in a row without any progress (the last time: {how}). "
                f"Its last words:\n{self._last_words or _tail(self._process)}\n"
                f"The whole log: {self._process.log}. Remove the cause, then go on with --resume"
            )
        self._alarm(
            f"{self.name} died ({how}); starting it again ({self._deaths} of at most {self._max_restarts} in a row)"
        )
        self._last_words = ""
        pause_s = min(FIRST_PAUSE_S * 2 ** (self._deaths - 1), LONGEST_PAUSE_S)
        await self._clock.sleep_until(self._clock.now() + pause_s)
        if self._is_stopping:
            self._is_over = True
        if not self._is_over:
            await self._on_death()


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _tail(process: RoleProcess) -> str:
    lines = process.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(lines) or "(its log is empty)"
