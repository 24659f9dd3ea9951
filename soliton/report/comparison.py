"""Several runs side by side as a Markdown table, from their `summary.json` alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from soliton.errors import ConfigError
from soliton.report.folder import read_summary

Summary = dict[str, Any]


def comparison_table(runs: Sequence[Path]) -> str:
    """One row per run, in the order given; a value that a run does not have (no critic, no evaluation) is a dash.

    Raises:
        ConfigError: no run, or one without a summary (it has not ended).
    """
    if not runs:
        raise ConfigError("no run was given; name at least one run folder")
    rows = [["run", *COLUMNS], ["---", *("---" if name in LEFT_ALIGNED else "---:" for name in COLUMNS)]]
    for run in runs:
        summary = read_summary(run)
        if summary is None:
            if not (run / "config.toml").exists() and not (run / "metrics.jsonl").exists():
                raise ConfigError(f"{run} is no run folder; give the folder that run.dir names")
            raise ConfigError(f"{run} has no summary.json: the run has not ended; resume it first")
        rows.append([run.name, *(cell(summary) for cell in COLUMNS.values())])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _text(key: str) -> Callable[[Summary], str]:
    return lambda summary: str(summary.get(key, "—"))


def _estimate(key: str) -> Callable[[Summary], str]:
    def cell(summary: Summary) -> str:
        value = summary.get(key)
        if value is None:
            return "—"
        return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"

    return cell


def _number(*keys: str) -> Callable[[Summary], str]:
    def cell(summary: Summary) -> str:
        value: Any = summary
        for key in keys:
            value = None if value is None else value.get(key)
        return "—" if value is None else f"{value:.3f}"

    return cell


def _staleness(summary: Summary) -> str:
    value = summary.get("staleness")
    return "—" if value is None or value["mean"] is None else f"{value['mean']:.1f} / {value['max']:.0f}"


def _minutes(summary: Summary) -> str:
    wall_s = summary.get("wall_s")
    return "—" if wall_s is None else f"{wall_s / 60:.1f}"


def _exit(summary: Summary) -> str:
    return str(summary["exit"]["status"])


COLUMNS: dict[str, Callable[[Summary], str]] = {
    "algorithm": _text("algorithm"),
    "seed": _text("seed"),
    "steps": _text("steps"),
    "pass@1 before": _estimate("pass_at_1_before"),
    "pass@1 after": _estimate("pass_at_1_after"),
    "gain": _estimate("pass_at_1_gain"),
    "staleness mean / max": _staleness,
    "trust-mask share": _number("masked_share"),
    "abs log-ratio": _number("log_ratio", "abs_mean"),
    "EV": _number("explained_variance"),
    "minutes": _minutes,
    "exit": _exit,
}
"""Column -> how to read it from a summary. The first column is the folder's name."""

LEFT_ALIGNED = frozenset({"algorithm", "exit"})
