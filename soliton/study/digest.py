"""From the folder of a finished run to its `RunResult`: reads the run's own files, rounds, and keeps a few KB."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from soliton.errors import ConfigError
from soliton.report.folder import read_metrics, read_summary
from soliton.study.one_run import COSTS
from soliton.study.result import SCHEMA, RunResult
from soliton.study.schedule import PlannedRun
from soliton.study.study import KEPT_METRICS

MAX_POINTS = 40
"""Most points of a curve."""
STEP = "train/policy_step"
"""What counts as a step: a new policy. Batches without signal make none, and schedules and shifts go by policies."""
LAST_BATCHES = 10
"""Batches at the end over which "last" numbers are means."""

Row = dict[str, Any]


def digest(run: PlannedRun, warm: Path | None, *, commit: str | None, machine: str) -> RunResult:
    """The result of a run that has ended.

    Args:
        run: what was run.
        warm: folder of its warm start, if it has one.
        commit: of the code.
        machine: where it ran.

    Raises:
        ConfigError: the folder holds no run that has ended by itself.
    """
    summary = read_summary(run.folder)
    if summary is None or summary["exit"]["status"] not in ("finished", "stopped"):
        raise ConfigError(f"{run.folder} holds no run that has ended; it has to be made again")
    rows = list(read_metrics(run.folder))
    batches = [row for row in rows if row["stage"] == "train"]
    bins = _bins(batches)
    ends = [int(batches[chosen[-1]][STEP]) for chosen in bins]
    costs = _costs(run.folder)
    names = (*KEPT_METRICS, *run.study.extra_metrics)
    cumulated_tokens = _cumulated([row["tokens/total"] for row in batches])
    cumulated_cpu_s = _cumulated([costs.get(("train", step), 0.0) for step in range(ends[-1] + 1)]) if ends else []
    return RunResult(
        schema=SCHEMA,
        study=run.study.name,
        arm=run.arm.name,
        seed=run.seed,
        settings=run.settings,
        warm_settings=run.warm_settings,
        config_sha256=summary["config_sha256"],
        commit=commit,
        machine=machine,
        status=summary["exit"]["status"],
        reason=summary["exit"]["reason"],
        steps=len(batches),
        uses_pretrained_critic=_has_critic(batches) and run.arm.start == "policy and critic" and warm is not None,
        num_eval_prompts=run.num_eval_prompts,
        evaluations=_evaluations(rows, warm),
        curve_steps=ends,
        curves={name: curve for name in names if (curve := _curve(batches, bins, name)) is not None},
        tokens=[int(cumulated_tokens[chosen[-1]]) for chosen in bins],
        cpu_s=[round(cumulated_cpu_s[step], 2) for step in ends],
        stage_cpu_s=_stage_costs(costs, warm),
        numbers=_numbers(batches),
        held_out={name: points for name in run.study.extra_metrics if (points := _held_out(rows, name))},
    )


def _evaluations(rows: Sequence[Row], warm: Path | None) -> list[tuple[int, float]]:
    """Evaluations during training, after the one of the warm start's policy."""
    found = {int(row[STEP]): float(row["eval/pass_at_1"]) for row in rows if row["stage"] == "eval"}
    summary = read_summary(warm) if warm is not None else None
    before = summary and summary.get("pass_at_1_before")
    if before:
        found[0] = before["mean"]
    return [(step, round(found[step], 4)) for step in sorted(found)]


def _held_out(rows: Sequence[Row], name: str) -> list[tuple[int, float]]:
    """A metric at each evaluation during training that has it."""
    found = [(int(row[STEP]), row.get(name)) for row in rows if row["stage"] == "eval"]
    return [(step, round(value, 4)) for step, value in found if value is not None]


def _costs(folder: Path) -> dict[tuple[str, int], float]:
    """(stage as the run calls it, step) -> seconds of one core; step -1 sums what belongs to no step.

    A step has several lines where batches without signal followed it: they add up. A resumed run begins anew with a
    line of the stage "start": from the first step that it makes on, earlier lines of the stage count no more.
    """
    costs: dict[tuple[str, int], float] = {}
    resumed: set[str] = set()  # stages that this process has gone on with
    path = folder / COSTS
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            cost = json.loads(line)
        except json.JSONDecodeError:
            continue  # torn by a kill
        stage, step = str(cost["stage"]), int(cost["step"])
        if stage == "start":
            resumed.clear()
        elif step >= 0 and stage not in resumed:
            resumed.add(stage)
            costs = {key: cpu_s for key, cpu_s in costs.items() if key[0] != stage or key[1] < step}
        costs[stage, step] = costs.get((stage, step), 0.0) + cost["cpu_s"]
    return costs


def _stage_costs(costs: dict[tuple[str, int], float], warm: Path | None) -> dict[str, float]:
    """Sums over stages; "eval before" counts as "eval"."""
    sums: dict[str, float] = {}
    for prefix, of in (("", costs), ("warm ", _costs(warm) if warm is not None else {})):
        for (stage, _), cpu_s in of.items():
            name = prefix + stage.partition(" ")[0]
            sums[name] = sums.get(name, 0.0) + cpu_s
    return {stage: round(cpu_s, 2) for stage, cpu_s in sums.items()}


def _bins(batches: Sequence[Row]) -> list[list[int]]:
    """Positions of the batches, in at most `MAX_POINTS` bins of as many steps each (the last one may have fewer)."""
    last = int(batches[-1][STEP]) if batches else 0
    size = max(1, math.ceil(last / MAX_POINTS))
    bins: dict[int, list[int]] = {}
    for position, row in enumerate(batches):
        bins.setdefault(max(0, int(row[STEP]) - 1) // size, []).append(position)
    return list(bins.values())


def _curve(rows: Sequence[Row], bins: Sequence[Sequence[int]], name: str) -> list[float | None] | None:
    if not any(row.get(name) is not None for row in rows):
        return None
    return [_rounded(_mean(rows[i].get(name) for i in chosen)) for chosen in bins]


def _has_critic(rows: Sequence[Row]) -> bool:
    return any(row.get("critic/loss") is not None for row in rows)


def _numbers(rows: Sequence[Row]) -> dict[str, float | None]:
    """Whole-run numbers; None where the metric was absent in all batches."""
    last = rows[-LAST_BATCHES:]
    means = {name: _mean(row.get(name) for row in rows) for name in KEPT_METRICS}
    return {
        **{f"mean {name}": _rounded(value) for name, value in means.items() if value is not None},
        **{f"last {name}": _rounded(_mean(row.get(name) for row in last)) for name in ("reward/mean", EV)},
        "max staleness/max": _rounded(max((row["staleness/max"] for row in rows), default=None)),
        "tokens": float(sum(row["tokens/total"] for row in rows)),
        "action tokens": float(sum(row["tokens/action"] for row in rows)),
    }


EV = "critic/explained_var"


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present else None


def _rounded(value: float | None) -> float | None:
    """To four significant digits: a curve is for looking at."""
    return None if value is None else float(f"{value:.4g}")


def _cumulated(values: Sequence[float]) -> list[float]:
    total, sums = 0.0, []
    for value in values:
        total += value
        sums.append(total)
    return sums
