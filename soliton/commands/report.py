"""`soliton report`: the page of a run, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.arguments import Run
from soliton.commands.exits import exit_codes

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE.html", help="Write it there instead of RUN/report.html.", show_default=False
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Show it in the browser.")]


def report(run: Run, out: Out = None, show: Open = False) -> None:
    """Make report.html of a run that is over, goes on or was killed: one file, no network needed to read it.

    \b
    Examples:
      soliton report runs/calculator --open
      soliton report runs/calculator --out calculator.html
    """
    with exit_codes():
        from soliton.runtime.report import make_report

        page = make_report(run, out)
        typer.echo(f"report: {page}")
        if show:
            typer.launch(str(page))
