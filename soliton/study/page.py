"""docs/study.md, written from the results alone: verdicts, then each study with its table and figure.

Every number on the page is computed here; a claim that fails stands there as failing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from soliton.atomic import atomic_file
from soliton.study.figures import draw_study
from soliton.study.found import results_elsewhere, results_of
from soliton.study.outcomes import (
    Quantity,
    StudyResults,
    accuracy_at_end,
    accuracy_before,
    lost,
    median_of_curve,
    number,
    removed_share,
    train_cpu_s,
)
from soliton.study.result import RunResult
from soliton.study.rules import counted, judged, shown
from soliton.study.study import Arm, Study, Verdict

Cell = Callable[[StudyResults, Arm], str]

OPENING = """# The paper's claims, at the scale of two CPU cores

<!-- Written by `soliton study` from docs/study/data. Change the code, not this. -->

`soliton study {command}` makes every run, table, figure and verdict of this page. All runs use the runtime `inline`, so
each can be repeated to the bit on the same kind of processor with the same libraries; another processor rounds
differently, and a run there is another sample. Numbers of the paper are not repeated here: models of 0.3M parameters
on small tasks say nothing about its scores, and may still show whether a mechanism works as claimed.

* **Intervals** are 95 % Student t intervals over seeds. Arms are compared in pairs: all arms of a seed share the warm
  start, the training prompts and the held-out prompts.
* **Equal tokens, equal CPU**: accuracy when as many tokens were trained, or as many seconds of one core used (rollouts,
  learning, value pretraining), as the cheapest arm of that seed used in all; between evaluations linear.
* **Best - end**: the best evaluation minus the last. A run that loses nothing shows 0.03 to 0.05, for the best of
  several noisy evaluations is biased upwards.
* A run that stopped itself counts with the reward of its last batches. Every run that was made is in the tables, and
  each has its file in [study/data](study/data).
"""

ELSEWHERE = """* **On another machine**: the same studies with the same seeds, made there in whole or in part (files in
  [study/elsewhere](study/elsewhere)). Only rounding differs, and it moves some runs as far as another seed would.
"""


def write_page(studies: Sequence[Study], catalogue: Mapping[str, Study], *, out: Path, runs: Path, command: str) -> str:
    """Write `OUT/study.md` and the figures of those studies that have results; returns the page.

    Args:
        studies: in the order of the page.
        catalogue: all there are, for borrowed arms.
        out: folder of page, figures and data.
        runs: folder of the runs, as it was given when they were made.
        command: after `soliton study`, as it would be typed.
    """
    all_results = [results_of(study, catalogue, out=out, runs=runs) for study in studies]
    found = [results for results in all_results if results.is_begun]
    elsewhere = {r.study.name: results_elsewhere(r.study, catalogue, out=out, runs=runs) for r in found}
    opening = OPENING.format(command=command) + (ELSEWHERE if any(elsewhere.values()) else "")
    parts = [opening, _verdicts(found, elsewhere)]
    for results in found:
        draw_study(results, out / "study" / f"{results.study.name}.png")
        parts += [section(results), *map(section_elsewhere, elsewhere[results.study.name])]
    page = "\n".join(parts)
    with atomic_file(out / "study.md") as file:
        file.write_text(page, encoding="utf-8")
    return page


def section(results: StudyResults) -> str:
    """One study: question, table, figure, what only it has, every run."""
    study = results.study
    return "\n".join(
        [
            f"## {study.title}\n",
            f"{study.question}\n",
            *_warnings(results),
            *_facts(results),
            "",
            arm_table(results),
            f"![{study.title}](study/{study.name}.png)\n",
            *(f"{make(results)}\n" for make in study.sections),
            _stops(_all_runs(results)),
            _every_run(results),
        ]
    )


def section_elsewhere(results: StudyResults) -> str:
    """The same study from another machine: its tables."""
    return "\n".join(
        [
            f"### On another machine: {results.study.title[0].lower()}{results.study.title[1:]}\n",
            *_warnings(results),
            *_facts(results),
            "",
            arm_table(results),
            _stops(_all_runs(results)),
            _every_run(results),
        ]
    )


def _all_runs(results: StudyResults) -> list[RunResult]:
    return [run for by_seed in results.runs.values() for run in by_seed.values()]


def _warnings(results: StudyResults) -> list[str]:
    warnings = [] if results.is_complete else ["**Incomplete: some runs are still to be made.**\n"]
    if len({run.machine for run in _all_runs(results)}) > 1:
        warnings.append(
            "**Made on more than one machine: CPU seconds do not compare, and arms of a seed did not begin from the "
            "same bits.**\n"
        )
    return warnings


def _facts(results: StudyResults) -> list[str]:
    study, all_runs = results.study, _all_runs(results)
    core_minutes = sum(sum(run.stage_cpu_s.values()) for run in all_runs) / 60
    facts = [
        f"{len(all_runs)} of {len(study.arms) * len(study.seeds)} runs, seeds {', '.join(map(str, study.seeds))}",
        f"recipe `recipes/{study.recipe}`" + "".join(f" `{override}`" for override in study.overrides),
        f"{core_minutes:.0f} core minutes, warm starts counted with each run",
        f"machine: {'; '.join(sorted({run.machine for run in all_runs}))}",
        f"commits: {', '.join(sorted({str(run.commit) for run in all_runs}))}",
    ]
    return [f"* {fact}" for fact in facts]


def arm_table(results: StudyResults) -> str:
    """One row per arm that has a result: means over seeds with their intervals."""
    columns = [name for name in COLUMNS if any(COLUMNS[name](results, arm) != "—" for arm in results.study.arms)]
    rows = [
        [f"`{arm.name}`" + (f" {arm.says}" if arm.says else ""), *(COLUMNS[name](results, arm) for name in columns)]
        for arm in results.study.arms
        if arm.name in results.runs
    ]
    return table(["arm", *columns], rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first column is text, the others numbers."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows]) + "\n"


def _mean(quantity: Quantity) -> Cell:
    return lambda results, arm: shown(results.mean(arm.name, quantity))


def _point(quantity: Quantity, digits: int) -> Cell:
    """Only the mean: for what needs no interval."""

    def cell(results: StudyResults, arm: Arm) -> str:
        value = results.mean(arm.name, quantity)
        return "—" if value is None else f"{value.mean:.{digits}f}"

    return cell


def _against_reference(results: StudyResults, arm: Arm) -> str:
    reference = results.study.reference
    return "—" if arm.name == reference else shown(results.difference(arm.name, reference, accuracy_at_end))


def _lag(results: StudyResults, arm: Arm) -> str:
    mean, largest = (results.mean(arm.name, number(name)) for name in ("mean staleness/mean", "max staleness/max"))
    return "—" if mean is None or largest is None else f"{mean.mean:.1f} / {largest.mean:.0f}"


COLUMNS: dict[str, Cell] = {
    "accuracy before": _point(accuracy_before, 3),
    "at the end": _mean(accuracy_at_end),
    "minus reference (paired)": _against_reference,
    "best - end": _mean(lost),
    "at equal tokens": lambda results, arm: shown(results.mean(arm.name, results.accuracy_at_equal_tokens)),
    "at equal CPU": lambda results, arm: shown(results.mean(arm.name, results.accuracy_at_equal_cpu)),
    "lag mean / max": _lag,
    "tokens without gradient": _point(removed_share, 4),
    "outside the band": _point(number("mean trust_mask/share"), 4),
    "abs log-ratio": _point(number("mean log_ratio/abs_mean"), 3),
    "EV, median": _point(median_of_curve("critic/explained_var"), 3),
    "critic gradient norm": _point(number("mean critic/grad_norm"), 2),
    "CPU s": _point(train_cpu_s, 0),
    "tokens": _point(number("tokens"), 0),
}
"""Column -> its cell; columns that no arm has are left out."""


def _verdicts(found: Sequence[StudyResults], elsewhere: Mapping[str, Sequence[StudyResults]]) -> str:
    """All claims with their verdicts; the same from other machines in a column of its own."""
    found_out = [(results, claim, judged(claim, results)) for results in found for claim in results.study.claims]
    rows = [
        [
            claim.text,
            f"`{results.study.name}`",
            f"**{verdict.outcome}**",
            verdict.numbers,
            "<br>".join(_shown_verdict(judged(claim, other)) for other in elsewhere[results.study.name]) or "—",
        ]
        for results, claim, verdict in found_out
    ]
    head = ["claim of the paper, in our words", "study", "verdict", "numbers", "on another machine"]
    if not any(elsewhere.values()):
        head, rows = head[:-1], [row[:-1] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    verdicts = [verdict for _, _, verdict in found_out]
    return "\n".join(["## Verdicts\n", f"{counted(verdicts)}.\n" if verdicts else "", *lines, ""])


def _shown_verdict(verdict: Verdict) -> str:
    return f"**{verdict.outcome}**: {verdict.numbers}"


def _stops(runs: Sequence[RunResult]) -> str:
    stopped = [run for run in runs if run.status != "finished"]
    lines = [f"* `{run.arm}`, seed {run.seed}, after {run.steps} batches: {run.reason}" for run in stopped]
    return "\n".join(["Runs that stopped themselves:\n", *lines, ""]) if lines else ""


def _every_run(results: StudyResults) -> str:
    seeds = results.study.seeds
    rows = [
        [f"`{arm.name}`", *(_cell(results.by_seed(arm.name, accuracy_at_end).get(seed)) for seed in seeds)]
        for arm in results.study.arms
        if arm.name in results.runs
    ]
    return "Accuracy at the end, every run:\n\n" + table(["arm", *(f"seed {seed}" for seed in seeds)], rows)


def _cell(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}"
