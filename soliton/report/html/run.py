"""What a run folder holds, read once: rows by stage (a step that was made twice counts once), summary, examples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soliton.errors import ConfigError
from soliton.learner.examples import StepExamples, read_examples
from soliton.report.folder import NOT_METRICS, read_metrics, read_summary

Row = dict[str, Any]
LOG_LINES = 40


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder tells it.

    Attributes:
        name: of the folder.
        stages: stage -> rows in the order of their steps.
        summary: of an ended run; {} while there is none.
        examples: recorded steps, in order.
        unreadable: what could not be read, for the reader of the report.
        warnings: last warnings and errors of `logs/run.log`.
    """

    name: str
    stages: dict[str, list[Row]]
    summary: dict[str, Any]
    examples: list[StepExamples]
    unreadable: list[str]
    warnings: list[str]

    @property
    def train(self) -> list[Row]:
        """Rows of the training stage."""
        return self.stages.get("train", [])

    def series(self, stage: str, metric: str) -> tuple[list[float], list[float]]:
        """(steps, values) of a metric; rows without it, or with a value that is not finite, are left out."""
        points = [(float(row["step"]), row.get(metric)) for row in self.stages.get(stage, [])]
        finite = [(x, float(y)) for x, y in points if isinstance(y, int | float) and math.isfinite(y)]
        return [x for x, _ in finite], [y for _, y in finite]

    def names(self, stage: str) -> list[str]:
        """Metrics of a stage, in the order in which they appear."""
        found: dict[str, None] = {}
        for row in self.stages.get(stage, []):
            found |= dict.fromkeys(name for name in row if name not in NOT_METRICS)
        return list(found)


def read_run(run: Path) -> RunRecord:
    """Read the folder of a run that is over, goes on, or was killed.

    Raises:
        ConfigError: it is no run folder.
    """
    if not (run / "config.toml").is_file() and not (run / "metrics.jsonl").is_file():
        raise ConfigError(f"{run} is no run folder: it has neither config.toml nor metrics.jsonl")
    unreadable: list[str] = []
    rows: dict[str, dict[float, Row]] = {}
    for row in _rows(run, unreadable):
        rows.setdefault(str(row.get("stage")), {})[float(row.get("step", 0))] = row
    examples = sorted(_examples(run / "examples", unreadable), key=lambda step: step.step)
    try:
        summary = read_summary(run) or {}
    except ValueError as error:
        unreadable.append(f"summary.json: {error}")
        summary = {}
    return RunRecord(
        name=run.resolve().name,
        stages={stage: [by_step[step] for step in sorted(by_step)] for stage, by_step in rows.items()},
        summary=summary,
        examples=examples,
        unreadable=unreadable,
        warnings=_warnings(run / "logs" / "run.log"),
    )


def _rows(run: Path, unreadable: list[str]) -> Iterator[Row]:
    if not (run / "metrics.jsonl").is_file():
        return
    try:
        yield from read_metrics(run)
    except ConfigError as error:
        unreadable.append(str(error))


def _examples(folder: Path, unreadable: list[str]) -> Iterator[StepExamples]:
    for file in folder.glob("step_*.msgpack"):
        try:
            yield read_examples(file)
        except ConfigError as error:
            unreadable.append(str(error))


def _warnings(log: Path) -> list[str]:
    if not log.is_file():
        return []
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if " WARNING " in line or " ERROR " in line][-LOG_LINES:]
