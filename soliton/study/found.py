"""Which results of a study are there: made here, and made on another machine.

    OUT/study/data/STUDY/ARM-SEED.json              what `soliton study` writes
    OUT/study/elsewhere/NAME/STUDY/ARM-SEED.json    the same from another machine, moved there by hand

Another processor rounds differently, so the same seeds there are another sample: a page that shows one of two samples
would be a selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from soliton.study.outcomes import StudyResults
from soliton.study.result import RunResult
from soliton.study.schedule import PlannedRun, RateUnknownError, planned_runs
from soliton.study.study import Study


def results_of(study: Study, catalogue: Mapping[str, Study], *, out: Path, runs: Path) -> StudyResults:
    """Those results of a study that are there, borrowed ones included, under its own arms' names.

    Before the sweep has been made, none are.

    Raises:
        ConfigError: one is damaged, or of other settings.
    """
    return _read(study, _plan(study, catalogue, out, runs))


def results_elsewhere(study: Study, catalogue: Mapping[str, Study], *, out: Path, runs: Path) -> Sequence[StudyResults]:
    """The same from each other machine that has any of the study's own runs; often none.

    Raises:
        ConfigError: one is damaged, or of other settings.
    """
    plan = _plan(study, catalogue, out, runs)
    data = out / "study" / "data"
    folders = [folder for folder in sorted((out / "study" / "elsewhere").glob("*")) if (folder / study.name).is_dir()]
    moved = ([replace(run, path=folder / run.path.relative_to(data)) for run in plan] for folder in folders)
    return [results for runs_there in moved if (results := _read(study, runs_there)).is_begun]


def _plan(study: Study, catalogue: Mapping[str, Study], out: Path, runs: Path) -> list[PlannedRun]:
    try:
        return planned_runs(study, catalogue, out=out, runs=runs)
    except RateUnknownError:
        return []


def _read(study: Study, plan: Sequence[PlannedRun]) -> StudyResults:
    found: dict[str, dict[int, RunResult]] = {}
    for run in plan:
        result = run.existing()
        if result is not None:
            found.setdefault(run.arm.name, {})[run.seed] = result
    return StudyResults(study, found)
