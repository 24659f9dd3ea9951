"""`summary.json`: the result of a run in one file, computed from its metrics and its last state."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec

from soliton.atomic import atomic_file
from soliton.config import RunConfig
from soliton.evals.statistics import Estimate
from soliton.types import Ledger

SCHEMA = 1
LAST_STEPS = 20
"""Steps at the end of a run over which explained variance is averaged."""

Row = dict[str, Any]


def identity_of(config: RunConfig) -> dict[str, Any]:
    """What tells which run a summary is of."""
    return {
        "schema": SCHEMA,
        "seed": config.seed,
        "algorithm": config.algorithm,
        "config_sha256": config.sha256(),
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`, whole or not at all."""
    with atomic_file(path) as file:
        file.write_text(json.dumps(summary, indent=1) + "\n")


def train_summary(rows: list[Row], ledger: Ledger, config: RunConfig) -> dict[str, Any]:
    """What the training stage says of itself, from its rows of metrics.jsonl.

    Args:
        rows: one per batch, in order.
        ledger: at the end.
        config: of the run.
    """
    return {
        "ledger": msgspec.to_builtins(ledger),
        "staleness": {
            "mean": _mean(rows, "staleness/mean"),
            "max": _max(rows, "staleness/max"),
            "bound": config.staleness_bound,
        },
        "versions_per_trajectory": {
            "mean": _mean(rows, "versions/mean"),
            "max": _max(rows, "versions/max"),
            "share_mixed": _mean(rows, "versions/share_mixed"),
            "share_mixed_turns": _mean(rows, "versions/share_mixed_turns"),
        },
        "steps": int(rows[-1]["train/policy_step"]) if rows else 0,
        "batches": len(rows),
        "trained_tokens": int(sum(row["tokens/action"] for row in rows)),
        "masked_share": _token_mean(rows, "trust_mask/share"),
        "log_ratio": {
            "mean": _token_mean(rows, "log_ratio/mean"),
            "abs_mean": _token_mean(rows, "log_ratio/abs_mean"),
        },
        "explained_variance": _mean(rows[-LAST_STEPS:], "critic/explained_var"),
        "idle_share": _idle_share(rows),
    }


def estimate_or_none(estimate: Estimate | None) -> dict[str, Any] | None:
    """An estimate as `{mean, low, high, n}`; None where it was not measured."""
    return None if estimate is None else msgspec.to_builtins(estimate)


def _idle_share(rows: list[Row]) -> dict[str, float | None]:
    """Share of the clock's time in which the learner waited for a batch, and rollouts for admission."""
    total = _grown(rows, "time/clock_s")
    if not total:
        return {"learner": None, "rollouts": None}
    return {
        "learner": (_grown(rows, "wait/batch_s") + _grown(rows, "wait/hold_s")) / total,
        "rollouts": _grown(rows, "wait/admission_s") / total,
    }


def _grown(rows: list[Row], name: str) -> float:
    """Sum of the increments of a counter that begins again at 0 when its process does."""
    before, total = 0.0, 0.0
    for row in rows:
        total += row[name] - before if row[name] >= before else row[name]
        before = row[name]
    return total


def _present(rows: list[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


def _mean(rows: list[Row], name: str) -> float | None:
    values = _present(rows, name)
    return math.fsum(values) / len(values) if values else None


def _max(rows: list[Row], name: str) -> float | None:
    return max(_present(rows, name), default=None)


def _token_mean(rows: list[Row], name: str) -> float | None:
    """Mean over action tokens of a per-batch token mean."""
    weighted = [(row[name], row["tokens/action"]) for row in rows if row.get(name) is not None]
    total = sum(tokens for _, tokens in weighted)
    return math.fsum(value * tokens for value, tokens in weighted) / total if total else None
