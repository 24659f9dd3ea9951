"""The live view on a terminal: stages with their bars, the numbers that matter and their curves, who waits, alarms.

It redraws at most `FRAMES_PER_S` times a second and only when told something: no thread competes with the run for
the two cores of a laptop. It fits into 80 columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from soliton.report.view import SHOWN_METRICS, Now, RunProgress, StageProgress, duration, number, waits_text

FRAMES_PER_S = 4.0
MESSAGES_SHOWN = 4
CURVE_WIDTH = 40
BAR_WIDTH = 22
BLOCKS = "▁▂▃▄▅▆▇█"
CURVES = ("reward", "pass@1", "trust-mask share", "EV", "entropy", "loss")
"""Labels that are drawn as a curve once they have two points, at most `CURVES_SHOWN` of them."""
CURVES_SHOWN = 4


class RichView:
    """Draws a frame that stays in place; notes and alarms scroll above it.

    Args:
        console: a terminal.
        now: real seconds.
    """

    def __init__(self, console: Console, now: Now) -> None:
        self._console = console
        self._progress = RunProgress(now)
        self._alarms: deque[str] = deque(maxlen=MESSAGES_SHOWN)
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._drawn_at_s = float("-inf")
        self._finished = False

    def stage(self, name: str, total: int | None) -> None:
        """Add the stage and draw."""
        self._progress.begin(name, total)
        self._draw(force=True)

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Take the numbers; draw if the last frame is old enough."""
        self._progress.update(step, metrics)
        stage = self._progress.current
        assert stage is not None
        self._draw(force=step == stage.total)

    def note(self, text: str) -> None:
        """Print above the frame."""
        if not self._finished:
            self._console.print(Text(text, style="dim"))

    def alarm(self, text: str) -> None:
        """Print above the frame and keep it in sight inside the frame."""
        if not self._finished:
            self._console.print(Text(f"! {text}", style="bold red"))
            self._alarms.append(text)
            self._draw(force=True)

    def finish(self, text: str) -> None:
        """Draw the last frame, give the terminal back, print the result."""
        if self._finished:
            return
        self._finished = True
        self._progress.end()
        if self._live.is_started:
            self._live.update(self._frame(), refresh=True)
            self._live.stop()
        self._console.print(Text(text, style="bold"))

    def _draw(self, *, force: bool) -> None:
        now_s = self._progress.now()
        if self._finished or (not force and now_s - self._drawn_at_s < 1 / FRAMES_PER_S):
            return
        self._drawn_at_s = now_s
        if not self._live.is_started:
            self._live.start()
        self._live.update(self._frame(), refresh=True)

    def _frame(self) -> RenderableType:
        now_s = self._progress.now()
        parts: list[RenderableType] = [_stages(self._progress.stages, now_s)]
        if self._progress.current is not None:
            parts += [Text(), *_numbers(self._progress.current)]
        parts += [Text(f"! {alarm}", style="red", overflow="ellipsis", no_wrap=True) for alarm in self._alarms]
        return Panel(Group(*parts), title="soliton", title_align="left", border_style="cyan", width=self._width)

    @property
    def _width(self) -> int:
        return min(self._console.width, 100)


def _stages(stages: list[StageProgress], now_s: float) -> Table:
    table = Table.grid(padding=(0, 1), expand=False)
    for stage in stages:
        running = stage.ended_s is None
        mark = Text("›", style="bold cyan") if running else Text("✓", style="green")
        name = Text(stage.name, style="bold" if running else "", overflow="ellipsis", no_wrap=True)
        count = f"{stage.step}/{stage.total}" if stage.total is not None else str(stage.step)
        bar = ProgressBar(
            total=stage.total or 1,
            completed=stage.step if stage.total else float(not running),
            width=BAR_WIDTH,
            complete_style="cyan",
            finished_style="green",
        )
        left = stage.time_left_s(now_s)
        time = f"{duration(left)} left" if left is not None else duration(stage.elapsed_s(now_s))
        table.add_row(mark, name, bar, Text(count, justify="right"), Text(time, style="dim", no_wrap=True))
    return table


def _numbers(stage: StageProgress) -> list[RenderableType]:
    cells: list[Text] = []
    for label in SHOWN_METRICS:
        shown = stage.shown(label)
        if shown is not None:
            cells.append(Text.assemble((f"{label} ", "dim"), (number(shown[1], label), "bold")))
    table = Table.grid(padding=(0, 3))
    for row in range(0, len(cells), 3):
        table.add_row(*cells[row : row + 3])
    if waits := waits_text(stage):
        waiting = Text.assemble(("waiting ", "dim"), (waits, "bold"), no_wrap=True, overflow="ellipsis")
        return [table, waiting, _curves(stage)]
    return [table, _curves(stage)]


def _curves(stage: StageProgress) -> Table:
    table = Table.grid(padding=(0, 1))
    for label in CURVES:
        shown = stage.shown(label)
        points = list(stage.history.get(shown[0], ())) if shown is not None else []
        if len(points) > 1 and table.row_count < CURVES_SHOWN:
            ends = f"{number(min(points), label)} .. {number(max(points), label)}"
            line = Text(sparkline(points, CURVE_WIDTH), style="cyan", no_wrap=True)
            table.add_row(Text(label, style="dim", no_wrap=True), line, Text(ends, style="dim", no_wrap=True))
    return table


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw finite values as at most `width` block characters, each the mean of its share of the values.

    The lowest mean is the lowest block and the highest the highest; equal values are all drawn in the middle.
    """
    columns = min(width, len(values))
    edges = [round(i * len(values) / columns) for i in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    if high <= low:
        return BLOCKS[len(BLOCKS) // 2] * columns
    return "".join(BLOCKS[round((m - low) / (high - low) * (len(BLOCKS) - 1))] for m in means)
