"""What `soliton study` does: plan, run, write the page. Imports no typer, so that a script can call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from soliton.study.execute import Execution
from soliton.study.found import results_of
from soliton.study.one_run import PROGRAM, Program
from soliton.study.origin import machine
from soliton.study.outcomes import StudyResults
from soliton.study.page import write_page
from soliton.study.progress import StudyView
from soliton.study.rules import judged
from soliton.study.schedule import PlannedRun, planned_runs
from soliton.study.study import Study
from soliton.study.sweep import SWEEP, families_of, part_of_the_sweep


def run_studies(
    wanted: Sequence[Study],
    catalogue: Mapping[str, Study],
    *,
    jobs: int,
    out: Path,
    runs: Path,
    view: StudyView,
    only_page: bool = False,
    program: Program = PROGRAM,
) -> tuple[list[str], str]:
    """Make what is missing, then write the page; returns what died, and the verdicts as text.

    The page shows every study of `catalogue` that has results in `out`, whatever was asked for: two commands for two
    studies write one page. Studies asked for with other seeds are shown with those.

    Raises:
        ConfigError: a result is damaged or of other settings, or a configuration is not valid; nothing was run.
    """
    failures: list[str] = []
    if not only_page:
        try:
            for part in _in_order(wanted, catalogue):
                plans = [planned_runs(study, catalogue, out=out, runs=runs) for study in part]
                for warning in filter(None, map(_of_two_machines, plans)):
                    view.warn(warning)
                plan = [run for runs_of_study in plans for run in runs_of_study]
                execution = Execution(plan, jobs, view, program)
                execution.run()
                failures += execution.failures
                if failures and part is not wanted:
                    break
        finally:
            view.close()
    seeds = {study.name: study.seeds for study in wanted}
    shown = [_with_seeds(study, seeds) for study in catalogue.values()]
    write_page(shown, catalogue, out=out, runs=runs, command=wanted[0].name if len(wanted) == 1 else "all")
    return failures, "\n".join(_said(results_of(study, catalogue, out=out, runs=runs)) for study in wanted)


def _in_order(wanted: Sequence[Study], catalogue: Mapping[str, Study]) -> list[Sequence[Study]]:
    """The part of the sweep that the studies need, then the studies."""
    borrowed = [catalogue[arm.of] for study in wanted for arm in study.arms if arm.of]
    families = families_of([*wanted, *borrowed])
    sweep = [part_of_the_sweep(catalogue[SWEEP.name], families)] if families else []
    return [sweep, wanted] if sweep else [wanted]


def _of_two_machines(plan: Sequence[PlannedRun]) -> str | None:
    """What to know before results of this machine join those of another; None where they would not."""
    results = [run.existing() for run in plan]
    elsewhere = sorted({result.machine for result in results if result is not None and result.machine != machine()})
    if not elsewhere or None not in results:
        return None
    folder = plan[0].path.parent
    return (
        f"{folder}: it holds results, or borrows them, of another machine ({'; '.join(elsewhere)}; this one: "
        f"{machine()}). Their CPU seconds do not compare with those of this one, and arms of a seed do not begin from "
        "the same bits. The page will say so; to have all from this machine, move those results away first"
    )


def _with_seeds(study: Study, seeds: Mapping[str, tuple[int, ...]]) -> Study:
    return replace(study, seeds=seeds[study.name]) if study.name in seeds else study


def _said(results: StudyResults) -> str:
    lines = [f"{results.study.name}:"]
    for claim in results.study.claims:
        verdict = judged(claim, results)
        lines.append(f"  {verdict.outcome.upper()}: {claim.text}\n    {verdict.numbers}")
    return "\n".join(lines)
