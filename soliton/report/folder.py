"""Reads what a run folder says: `metrics.jsonl` and `summary.json`. Writes nothing; knows no other file of the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soliton.errors import ConfigError

NOT_METRICS = frozenset({"stage", "step", "time_s"})


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines of `metrics.jsonl`, in order.

    A torn last line (the run was killed while it wrote) is left out; a damaged line anywhere else is an error.

    Raises:
        ConfigError: not a run folder, or a line that is not JSON.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise ConfigError(f"{run} is no run folder: it has no metrics.jsonl; give the folder that run.dir names")
    lines = path.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if i == len(lines) - 1:
                return
            raise ConfigError(f"{path}, line {i + 1} is damaged: {error}") from error
        yield record


def read_series(run: Path, metric: str, stage: str | None = None) -> tuple[list[float], list[float]]:
    """(steps, values) of one metric; lines without it and values that are not finite are left out.

    A run that was resumed reports some steps twice: the later report counts, as it does for the weights.

    Args:
        run: run folder.
        metric: its name in `soliton.metrics`.
        stage: only lines of this stage; None takes all.
    """
    points: dict[float, float] = {}
    for record in read_metrics(run):
        value = record.get(metric)
        if (stage is None or record["stage"] == stage) and isinstance(value, int | float) and math.isfinite(value):
            points[float(record["step"])] = float(value)
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def read_summary(run: Path) -> dict[str, Any] | None:
    """`summary.json`, or None for a run that has not ended."""
    path = run / "summary.json"
    if not path.is_file():
        return None
    summary: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return summary


def is_finished(run: Path) -> bool:
    """Whether the run went to its end."""
    summary = read_summary(run)
    return summary is not None and summary["exit"]["status"] == "finished"
