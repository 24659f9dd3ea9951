"""`soliton study`: the paper's claims at small scale, from runs to tables, figures and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.exits import EXIT_RUN_STOPPED, console, exit_codes

Name = Annotated[str, typer.Argument(metavar="STUDY", help="main, ablations, ..., or all.", show_default=False)]
Seeds = Annotated[
    int | None, typer.Option("--seeds", metavar="N", help="The first N seeds, from 0; by default those of the study.")
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes at once, one thread each.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Where study.md, its figures and data go.  [default: docs]"),
]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run folders go.")]
Quick = Annotated[bool, typer.Option("--quick", help="Ten minutes instead of hours: only what is robust.")]
PageOnly = Annotated[bool, typer.Option("--page", help="Run nothing: write the page again from the results.")]


def study(
    name: Name,
    seeds: Seeds = None,
    jobs: Jobs = 2,
    out: Out = None,
    runs: Runs = Path("runs/study"),
    quick: Quick = False,
    page: PageOnly = False,
) -> None:
    """Repeat a study of the paper's claims: runs, one table and one figure, a verdict for each claim.

    Finished runs are kept as small JSON files in DIR/study/data and never made again; interrupt it when you like and
    give the same command again. `study all` takes hours.

    \b
    Examples:
      soliton study main
      soliton study main --quick
      soliton study ablations --seeds 3 --out /tmp/ablations
      soliton study all --page
    """
    with exit_codes():
        from soliton.runtime.clock import wall_s
        from soliton.study.catalogue import QUICK, STUDIES
        from soliton.study.command import run_studies
        from soliton.study.progress import make_study_view
        from soliton.study.study import chosen

        studies = {**STUDIES, QUICK.name: QUICK}
        wanted = chosen(STUDIES, name, seeds)
        if quick:
            wanted = chosen(studies, QUICK.name, seeds)
        target = out if out is not None else Path("runs/study-quick" if quick else "docs")
        view = make_study_view(console(), wall_s)
        failures, said = run_studies(wanted, studies, jobs=jobs, out=target, runs=runs, view=view, only_page=page)
        typer.echo(said)
        if failures:
            typer.echo("\n".join(["", *failures]), err=True)
            raise typer.Exit(EXIT_RUN_STOPPED)
