"""How the command ends: its exit codes, and errors turned into one message and a code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from soliton.errors import ConfigError, Interrupted, RunError

if TYPE_CHECKING:
    from rich.console import Console

    from soliton.report.view import RunView

EXIT_RUN_STOPPED = 1
EXIT_CONFIG = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

EXIT_CODES: dict[int, str] = {
    0: "fine; for `local` runs also after a Ctrl-C that was answered with a checkpoint",
    EXIT_RUN_STOPPED: "the run stopped and says why; `doctor`: it does not run, or the installation lacks something",
    EXIT_CONFIG: "a mistake in the recipe or in the command; nothing was run",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
    EXIT_TERMINATED: "ended by SIGTERM",
}
"""Every exit code that the command chooses. Another one is a mistake of ours and comes with a traceback."""


def epilog() -> str:
    """The exit codes, for `--help`."""
    return "\b\nExit codes:\n" + "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODES.items())


def console() -> Console:
    """Where results go: colours on a terminal, plain text elsewhere."""
    from rich.console import Console as RichConsole

    return RichConsole(highlight=False)


def new_view(quiet: bool) -> RunView:
    """The view of a run on this terminal."""
    from soliton.report import make_view
    from soliton.runtime.clock import wall_s

    return make_view(console(), quiet, wall_s)


@contextmanager
def exit_codes(view: RunView | None = None) -> Iterator[None]:
    """Errors meant for the user become one message and an exit code; the view gives the terminal back first."""
    try:
        yield
    except ConfigError as error:
        _finish(view, "nothing was run")
        _complain("error", str(error))
        raise typer.Exit(EXIT_CONFIG) from None
    except RunError as error:
        _finish(view, "the run stopped")
        _complain("stopped", str(error))
        raise typer.Exit(EXIT_RUN_STOPPED) from None
    except Interrupted as stop:
        _finish(view, f"stopped by {stop}")
        raise typer.Exit(stop.exit_code) from None
    except KeyboardInterrupt:
        _finish(view, "interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _finish(view: RunView | None, verdict: str) -> None:
    if view is not None:
        view.finish(verdict)


def _complain(what: str, message: str) -> None:
    from rich.console import Console as RichConsole
    from rich.markup import escape

    RichConsole(stderr=True, highlight=False).print(f"[bold red]{what}:[/bold red] {escape(message)}", soft_wrap=True)
