"""The run folder: where each file of a run is, and how metrics are appended.

config.toml       resolved configuration; `soliton train config.toml` repeats the run
metrics.jsonl     one line per step of each stage
summary.json      result of the run; `curves.png` its curves
stages/           what finished stages left: `sft` (a Hugging Face folder), `value_pretraining` (a critic)
evals/            per-prompt results of each evaluation
checkpoints/      `step_N`
weights/          published versions (`v_N`), and what training started from (`model`, `critic`); `local` runtime
store.sqlite      every attempt, `store.payloads` their trajectories; `local` runtime
final/            the trained policy as a Hugging Face folder; `final_critic/` its critic
examples/         a few trajectories of some steps, token by token (`step_N.msgpack`)
report.html       what a person reads: result, curves, examples
logs/             what the run said, and each of its processes; `tensorboard/` its curves
lock, roles.lock  who owns the folder, and whether processes of the `local` runtime are alive
hub.json          while it runs: where its hub answers (with its token: mode 0600)
phases.json       phases that were set from outside (`soliton shift`)
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from soliton.atomic import atomic_file
from soliton.errors import ConfigError
from soliton.report.folder import read_metrics
from soliton.runtime.clock import wall_s

START_MODEL = "model"
"""Folder below `weights/`: the policy that training starts from, in Hugging Face form."""
START_CRITIC = "critic"
"""Folder below `weights/`: its critic, if the method has one."""


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
        self.weights = path / "weights"
        self.store = path / "store.sqlite"
        self.connection = path / "hub.json"
        self.phases = path / "phases.json"
        self.examples = path / "examples"
        self.report = path / "report.html"
        self.tensorboard = self.logs / "tensorboard"
        self.tracking = self.logs / "tracking.json"
        self.on_row: Callable[[], None] = lambda: None
        """Called after each line of metrics."""
        self._unwritten = ""

    def create(self, config_toml: str) -> None:
        """Make the folder of a new run.

        Raises:
            ConfigError: a run is already there, or going on there; or the folder cannot be made.
        """
        if self.config.exists():
            with self.lock():
                if not self.was_refused():
                    raise ConfigError(
                        f"run.dir: {self.path} already holds a run; choose another run.dir, go on with "
                        f"`--resume {self.path}`, or remove the folder"
                    )
                for leftover in (self.summary, self.report, *self.path.glob("store.*")):
                    leftover.unlink(missing_ok=True)
        try:
            for folder in (self.path, self.stages, self.evals, self.checkpoints, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            self.config.write_text(config_toml)
        except OSError as error:
            raise ConfigError(
                f"run.dir: {self.path} cannot be made or written to ({error}); choose a folder that can"
            ) from error

    def was_refused(self) -> bool:
        """Whether a run ended here before anything ran: once the mistake is mended, the folder may be used again."""
        try:
            status = json.loads(self.summary.read_bytes())["exit"]["status"]
        except (OSError, ValueError, KeyError):
            return False
        results = [self.metrics, self.weights, *self.stages.glob("*"), *self.evals.glob("*")]
        return status != "finished" and not any(result.exists() for result in results)

    def write_config(self, config_toml: str) -> None:
        """Replace the configuration by another one of the same identity: that of a resumed run."""
        with atomic_file(self.config) as file:
            file.write_text(config_toml)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends.

        Raises:
            ConfigError: another process runs in it.
        """
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise ConfigError(
                    f"run.dir: a run is going on in {self.path} (process {file.read().strip() or 'unknown'}); wait for "
                    "it, stop it, or choose another run.dir"
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def stopwatch(self) -> Callable[[], float]:
        """Real seconds of this run, those before an interruption included."""
        earlier = max((row["time_s"] for row in self.read_all_metrics()), default=0.0)
        begun = wall_s()
        return lambda: earlier + wall_s() - begun

    def log_to_file(self) -> logging.Handler:
        """Send every log record of the package to `logs/run.log`; returns the handler to remove at the end."""
        handler = logging.FileHandler(self.logs / "run.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("soliton")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        return handler

    def append_metrics(self, stage: str, step: int, time_s: float, metrics: dict[str, float]) -> None:
        """Add one line. NaN is written as null: absent, never 0. On a full disk it waits for the next call."""
        numbers = {name: None if math.isnan(value) else value for name, value in metrics.items()}
        self._unwritten += json.dumps({"stage": stage, "step": step, "time_s": round(time_s, 3), **numbers}) + "\n"
        with self.metrics.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                file.write(self._unwritten.encode())
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                file.truncate(end)  # the disk is full: this line is written together with the next one
            else:
                self._unwritten = ""
        self.on_row()

    def read_metrics(self, stage: str) -> list[dict[str, Any]]:
        """All lines of one stage, in order; a line torn by a kill is left out."""
        return [row for row in self.read_all_metrics() if row["stage"] == stage]

    def truncate_metrics(self, *stages: str, after_step: int) -> None:
        """Forget the lines of `stages` beyond `after_step`: a resumed run writes them again."""
        rows = self.read_all_metrics()
        kept = [row for row in rows if row["stage"] not in stages or row["step"] <= after_step]
        with atomic_file(self.metrics) as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def read_all_metrics(self) -> list[dict[str, Any]]:
        """All lines, in order."""
        return list(read_metrics(self.path)) if self.metrics.exists() else []
