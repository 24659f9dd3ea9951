"""`summary.json`: the result of a run in one file, computed from its metrics and its last state."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from soliton.config import RunConfig
from soliton.evals.statistics import Estimate
from soliton.types import Ledger

SCHEMA = 1
LAST_STEPS = 20
"""Steps at the end of a run over which explained variance is averaged."""

Row = dict[str, Any]


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
            "bound": config.max_staleness,
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
    if not rows or not rows[-1]["time/virtual_s"]:
        return {"learner": None, "rollouts": None}
    last = rows[-1]
    return {
        "learner": (last["wait/batch_s"] + last["wait/hold_s"]) / last["time/virtual_s"],
        "rollouts": last["wait/admission_s"] / last["time/virtual_s"],
    }


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
