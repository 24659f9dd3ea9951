"""`soliton compare`: several runs side by side, as a table and as curves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.arguments import Json, print_json
from soliton.commands.exits import exit_codes

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE.png", help="Where the overlaid curves go.")]
NoCurves = Annotated[bool, typer.Option("--no-curves", help="Only the table.")]
ByRun = Annotated[
    bool, typer.Option("--by-run", help="One colour per run; by default one per algorithm, its runs being its seeds.")
]


def compare(
    runs: Runs,
    out: Out = Path("comparison.png"),
    no_curves: NoCurves = False,
    by_run: ByRun = False,
    as_json: Json = False,
) -> None:
    """Put runs side by side: a Markdown table of their results with intervals, and overlaid curves as a PNG.

    \b
    Examples:
      soliton compare runs/sao-0 runs/sao-1 runs/grpo-0 runs/grpo-1 --out sao-against-grpo.png
      soliton compare runs/* --no-curves
      soliton compare runs/a runs/b --json
    """
    with exit_codes():
        from soliton.report.comparison import comparison_table
        from soliton.report.folder import read_summary

        table = comparison_table(runs)  # refuses what is no run, or has not ended
        drawn = None if no_curves else _draw(runs, out, by_run)
        if as_json:
            print_json({"runs": [{"run": str(run), **(read_summary(run) or {})} for run in runs], "curves": drawn})
            return
        typer.echo(table, nl=False)
        if drawn:
            typer.echo(f"\ncurves: {drawn}")


def _draw(runs: list[Path], out: Path, by_run: bool) -> str:
    from soliton.report.curve import draw_curves

    draw_curves(runs, out, labels=[run.name for run in runs] if by_run else None)
    return str(out)
