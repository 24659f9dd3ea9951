"""The view without a terminal: one line every two seconds, so that a log file stays readable."""

from __future__ import annotations

from typing import IO

from soliton.report.view import SHOWN_METRICS, Now, RunProgress, StageProgress, duration, number, waits_text

LINE_EVERY_S = 2.0


class PlainView:
    """Prints plain lines; never a control character.

    Args:
        out: where lines go; flushed after each, so that `tail -f` shows them.
        now: real seconds.
        line_every_s: least time between two progress lines of one stage. Stage changes, notes, alarms and the last
            step are always printed.
    """

    def __init__(self, out: IO[str], now: Now, line_every_s: float = LINE_EVERY_S) -> None:
        self._out = out
        self._progress = RunProgress(now)
        self._line_every_s = line_every_s
        self._line_at_s = float("-inf")
        self._finished = False

    def stage(self, name: str, total: int | None) -> None:
        """Announce the stage."""
        self._end_stage()
        self._progress.begin(name, total)
        self._line_at_s = float("-inf")
        self._line(f"== {name}" + (f" ({total} steps)" if total is not None else ""))

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Print the first step, the last one, and one line every `line_every_s` between them."""
        self._progress.update(step, metrics)
        stage = self._progress.current
        assert stage is not None
        now_s = self._progress.now()
        if now_s - self._line_at_s < self._line_every_s and step != stage.total:
            return
        self._line_at_s = now_s
        self._line(_progress_line(stage, now_s))

    def note(self, text: str) -> None:
        """Print the note."""
        self._line(f"   {text}")

    def alarm(self, text: str) -> None:
        """Print the alarm so that `grep ALARM` finds it."""
        self._line(f"ALARM {text}")

    def finish(self, text: str) -> None:
        """Print the result."""
        if self._finished:
            return
        self._end_stage()
        self._line(f"== {text}")
        self._finished = True

    def _end_stage(self) -> None:
        stage = self._progress.current
        if stage is not None and stage.ended_s is None:
            self._progress.end()
            self._line(f"   {stage.name} took {duration(stage.elapsed_s(self._progress.now()))}")

    def _line(self, text: str) -> None:
        if not self._finished:
            print(text, file=self._out, flush=True)


def _progress_line(stage: StageProgress, now_s: float) -> str:
    parts = [f"{stage.name} {stage.step}" + (f"/{stage.total}" if stage.total is not None else "")]
    for label in SHOWN_METRICS:
        shown = stage.shown(label)
        if shown is not None:
            parts.append(f"{label} {number(shown[1], label)}")
    if waits := waits_text(stage):
        parts.append(f"waiting: {waits}")
    left = stage.time_left_s(now_s)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return "   " + "  ".join(parts)
