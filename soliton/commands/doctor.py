"""`soliton doctor`: what a run is doing, or whether this installation can run at all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.arguments import Json, print_json
from soliton.commands.exits import EXIT_RUN_STOPPED, console, exit_codes

OptionalRun = Annotated[
    Path | None,
    typer.Argument(metavar="[RUN]", help="Folder of a run; without it, this installation.", show_default=False),
]
_STYLES = {"ok": "green", "note": "yellow", "bad": "bold red"}


def doctor(run: OptionalRun = None, as_json: Json = False) -> None:
    """Without RUN: check this installation. With RUN: who waits for whom and since when, processes, last log lines.

    Exit code 0 if the run runs (or nothing is wrong with the installation), else 1.

    \b
    Examples:
      soliton doctor
      soliton doctor runs/calculator
    """
    with exit_codes():
        healthy = _installation(as_json) if run is None else _run(run, as_json)
        raise typer.Exit(0 if healthy else EXIT_RUN_STOPPED)


def _installation(as_json: bool) -> bool:
    from rich.markup import escape

    from soliton.runtime.installation import check_installation

    findings = check_installation(Path.cwd())
    healthy = all(finding.verdict != "bad" for finding in findings)
    if as_json:
        print_json({"healthy": healthy, "findings": [finding.as_data() for finding in findings]})
        return healthy
    out = console()
    for finding in findings:
        style = _STYLES[finding.verdict]
        advice = f"; {finding.advice}" if finding.advice else ""
        out.print(
            f"[{style}]{finding.verdict:<5}[/{style}] {finding.what:<12} {escape(finding.found)}{escape(advice)}",
            soft_wrap=True,
        )
    return healthy


def _run(run: Path, as_json: bool) -> bool:
    from rich.markup import escape

    from soliton.runtime.local.doctor import diagnose

    diagnosis = diagnose(run)
    if as_json:
        print_json({"alive": diagnosis.alive, "lines": list(diagnosis.lines)})
    else:
        for line in diagnosis.lines:
            console().print(escape(line), soft_wrap=True)
    return diagnosis.alive
