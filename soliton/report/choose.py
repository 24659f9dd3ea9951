"""Which view a run gets: live on a terminal, plain lines without one, alarms and the result under `--quiet`."""

from __future__ import annotations

from rich.console import Console

from soliton.report.live import RichView
from soliton.report.plain import PlainView
from soliton.report.quiet import QuietView
from soliton.report.view import Now, RunView


def make_view(console: Console, quiet: bool, now: Now) -> RunView:
    """The view that fits where `console` writes to.

    Args:
        console: a terminal gets the live view; a file, a pipe or a dumb terminal gets plain lines.
        quiet: only alarms and the result.
        now: real seconds, for the time left and for limiting the rate of drawing.
    """
    if quiet:
        return QuietView(console.file)
    if console.is_terminal and not console.is_dumb_terminal:
        return RichView(console, now)
    return PlainView(console.file, now)
