"""The view of `--quiet`: alarms and the result, nothing else."""

from __future__ import annotations

from typing import IO


class QuietView:
    """Prints alarms and the last line; an alarm is never silent."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._finished = False

    def stage(self, name: str, total: int | None) -> None:
        """Say nothing."""

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def alarm(self, text: str) -> None:
        """Print the alarm."""
        self._line(f"ALARM {text}")

    def finish(self, text: str) -> None:
        """Print the result."""
        self._line(text)
        self._finished = True

    def _line(self, text: str) -> None:
        if not self._finished:
            print(text, file=self._out, flush=True)
