"""The run folder: where each file of a run is, and how metrics are appended.

config.toml       resolved configuration; `soliton train config.toml` repeats the run
metrics.jsonl     one line per step of each stage
summary.json      result of the run; `curves.png` its curves
stages/           what finished stages left: `sft` (a Hugging Face folder), `value_pretraining` (a critic)
evals/            per-prompt results of each evaluation
checkpoints/      `step_N`
final/            the trained policy as a Hugging Face folder; `final_critic/` its critic
logs/             what the run said
"""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

from soliton.errors import ConfigError
from soliton.report.folder import read_metrics


class RunFolder:
    """Paths and appenders of one run.

    Args:
        path: the folder; made if absent.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.metrics = path / "metrics.jsonl"
        self.summary = path / "summary.json"
        self.stages = path / "stages"
        self.evals = path / "evals"
        self.checkpoints = path / "checkpoints"
        self.final = path / "final"
        self.final_critic = path / "final_critic"
        self.logs = path / "logs"

    def create(self, config_toml: str) -> None:
        """Make the folder of a new run.

        Raises:
            ConfigError: a run is already there.
        """
        if self.config.exists():
            raise ConfigError(
                f"run.dir: {self.path} already holds a run; choose another run.dir, go on with `--resume {self.path}`, "
                "or remove the folder"
            )
        for folder in (self.path, self.stages, self.evals, self.checkpoints, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text(config_toml)

    def log_to_file(self) -> logging.Handler:
        """Send every log record of the package to `logs/run.log`; returns the handler to remove at the end."""
        handler = logging.FileHandler(self.logs / "run.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("soliton")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        return handler

    def append_metrics(self, stage: str, step: int, time_s: float, metrics: dict[str, float]) -> None:
        """Add one line. NaN is written as null: absent, never 0."""
        numbers = {name: None if math.isnan(value) else value for name, value in metrics.items()}
        with self.metrics.open("a") as file:
            file.write(json.dumps({"stage": stage, "step": step, "time_s": round(time_s, 3), **numbers}) + "\n")

    def read_metrics(self, stage: str) -> list[dict[str, Any]]:
        """All lines of one stage, in order; a line torn by a kill is left out."""
        return [row for row in self.read_all_metrics() if row["stage"] == stage]

    def truncate_metrics(self, stage: str, after_step: int) -> None:
        """Forget the lines of `stage` beyond `after_step` and all after them: a resumed run writes them again."""
        kept: list[dict[str, Any]] = []
        for row in self.read_all_metrics():
            if row["stage"] == stage and row["step"] > after_step:
                break
            kept.append(row)
        partial = self.metrics.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in kept))
        partial.replace(self.metrics)

    def read_all_metrics(self) -> list[dict[str, Any]]:
        """All lines, in order."""
        return list(read_metrics(self.path)) if self.metrics.exists() else []
