"""What a study shows while it runs: what is done, what runs now and how far it is, how long it will take.

On a terminal a frame that stays in place, elsewhere a line for each run that begins or ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from soliton.report.view import Now, duration

FRAMES_PER_S = 2.0


class StudyView(Protocol):
    """What a study tells its spectator; called from several threads."""

    def plan(self, runs: Sequence[str], jobs: int) -> None:
        """These runs will be made, so many at once."""
        ...

    def warn(self, text: str) -> None:
        """Something to know before the runs begin."""
        ...

    def started(self, name: str) -> None:
        """A process begins."""
        ...

    def moved(self, name: str, stage: str, step: int, total: int | None) -> None:
        """A process is at `step` of `total` of a stage."""
        ...

    def ended(self, name: str, how: str) -> None:
        """A process has ended."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


@dataclass
class Running:
    """A process under way.

    Attributes:
        begun_s: when it began.
        stage, step, total: where it is.
    """

    begun_s: float
    stage: str = "start"
    step: int = 0
    total: int | None = None

    @property
    def share(self) -> float:
        """Share of the training stage that is done; 0 before it."""
        return self.step / self.total if self.stage == "train" and self.total else 0.0


@dataclass
class StudyProgress:
    """What is known of a study under way.

    Attributes:
        now: real seconds.
        planned: runs to make; warm starts come on top.
        jobs: processes at once.
        running: by name.
        took_s: seconds of the planned runs that have ended.
    """

    now: Now
    planned: tuple[str, ...] = ()
    jobs: int = 1
    running: dict[str, Running] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)

    def plan(self, runs: Sequence[str], jobs: int) -> None:
        """Begin anew: these runs, so many at once."""
        self.planned, self.jobs = tuple(runs), jobs
        self.took_s.clear()

    def end(self, name: str) -> float:
        """A process has ended; returns how long it took."""
        seconds = self.now() - self.running.pop(name).begun_s
        if name in self.planned:
            self.took_s.append(seconds)
        return seconds

    def time_left_s(self) -> float | None:
        """From the mean of the runs that have ended; None before the first one has."""
        if not self.took_s:
            return None
        each_s = sum(self.took_s) / len(self.took_s)
        under_way = sum(running.share for name, running in self.running.items() if name in self.planned)
        left = len(self.planned) - len(self.took_s) - under_way
        return max(0.0, left * each_s / self.jobs)

    def counted(self) -> str:
        """`12 of 40 runs, 0:31:20 left`."""
        left = self.time_left_s()
        text = f"{len(self.took_s)} of {len(self.planned)} runs"
        return text if left is None else f"{text}, {duration(left)} left"


class PlainStudyView:
    """One line per run that begins or ends; never a control character.

    Args:
        out: where lines go.
        now: real seconds.
    """

    def __init__(self, out: IO[str], now: Now) -> None:
        self._out = out
        self._progress = StudyProgress(now)

    def plan(self, runs: Sequence[str], jobs: int) -> None:
        """Say how much there is to do."""
        self._progress.plan(runs, jobs)
        self._line(f"== {len(runs)} runs to make, {jobs} at once")

    def warn(self, text: str) -> None:
        """Say so."""
        self._line(f"!! {text}")

    def started(self, name: str) -> None:
        """Say so."""
        self._progress.running[name] = Running(self._progress.now())
        self._line(f"   {name} begins")

    def moved(self, name: str, stage: str, step: int, total: int | None) -> None:
        """Remember; a log file needs no line per step."""
        running = self._progress.running[name]
        running.stage, running.step, running.total = stage, step, total

    def ended(self, name: str, how: str) -> None:
        """Say how, and what is left."""
        seconds = self._progress.end(name)
        self._line(f"   {name} {how} after {duration(seconds)}; {self._progress.counted()}")

    def close(self) -> None:
        """Nothing is held."""

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class RichStudyView:
    """A frame that stays in place; what ended scrolls above it.

    Args:
        console: a terminal.
        now: real seconds.
    """

    def __init__(self, console: Console, now: Now) -> None:
        self._console = console
        self._progress = StudyProgress(now)
        self._live = Live(console=console, refresh_per_second=FRAMES_PER_S, get_renderable=self._frame)

    def plan(self, runs: Sequence[str], jobs: int) -> None:
        """Draw the first frame."""
        self._progress.plan(runs, jobs)
        self._live.start()

    def warn(self, text: str) -> None:
        """Print it above the frame."""
        self._console.print(Text(text, style="yellow"))

    def started(self, name: str) -> None:
        """Add a row."""
        self._progress.running[name] = Running(self._progress.now())

    def moved(self, name: str, stage: str, step: int, total: int | None) -> None:
        """Move its bar."""
        running = self._progress.running[name]
        running.stage, running.step, running.total = stage, step, total

    def ended(self, name: str, how: str) -> None:
        """Take the row away, print a line."""
        seconds = self._progress.end(name)
        self._console.print(Text(f"{name} {how} after {duration(seconds)}", style="" if how == "done" else "bold red"))

    def close(self) -> None:
        """Give the terminal back."""
        if self._live.is_started:
            self._live.stop()

    def _frame(self) -> RenderableType:
        progress = self._progress
        table = Table.grid(padding=(0, 1))
        for name, running in sorted(progress.running.items()):
            bar = ProgressBar(total=running.total or 1, completed=running.step, width=24, complete_style="cyan")
            count = f"{running.step}/{running.total}" if running.total is not None else str(running.step)
            elapsed = duration(progress.now() - running.begun_s)
            table.add_row(Text(name), Text(running.stage, style="dim"), bar, Text(count), Text(elapsed, style="dim"))
        overall = ProgressBar(total=max(1, len(progress.planned)), completed=len(progress.took_s), width=24)
        head = Table.grid(padding=(0, 1))
        head.add_row(overall, Text(progress.counted(), style="bold"))
        return Panel(Group(head, table), title="soliton study", title_align="left", border_style="cyan")


def make_study_view(console: Console, now: Now) -> StudyView:
    """The view that fits where `console` writes to."""
    if console.is_terminal and not console.is_dumb_terminal:
        return RichStudyView(console, now)
    return PlainStudyView(console.file, now)
