"""Small real runs of the calculator recipe, from the warm start in tests/data (see its README)."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from soliton.cli import main
from soliton.config import RunConfig, parse_config
from soliton.report.quiet import QuietView
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.staged_run import run_stages

ROOT = Path(__file__).parents[2]
WARM_START = ROOT / "tests" / "data" / "warm_start"


def small_run(run_dir: Path, **changes: Any) -> RunConfig:
    """Six steps of 16 trajectories with tool latency, so that versions mix inside trajectories."""
    data: dict[str, Any] = {
        "stages": ["train"],
        "run": {"dir": str(run_dir)},
        "runtime": "inline",
        "init": {"model": str(WARM_START)},
        "env": {"latency": {"kind": "heavy_tailed", "low_s": 0.05, "high_s": 1.0}},
        "limits": {"max_turns": 10, "max_tokens": 256, "max_turn_tokens": 16},
        "engine": {"num_slots": 16},
        "rollout": {"max_in_flight": 48},
        "inline": {"actor_update_s": 0.1, "critic_updates_s": 0.05},
        "method": {"eps_low": 0.2, "eps_high": 0.28},
        "learner": {"actor_lr": 1e-4, "critic_lr": 1e-3},
        "train": {"steps": 6, "batch_size": 16},
        "checkpoint": {"every_steps": 2},
        "eval": {"num_prompts": 8},
    }
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    return parse_config(data, source="test")


def start(config: RunConfig, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    recipe = Path(config.run.dir).with_suffix(".toml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(config.to_toml())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "soliton.cli", "train", str(recipe), "--quiet", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def run_here(config: RunConfig, *, resume: bool = False) -> None:
    """Run in this process."""
    folder = RunFolder(Path(config.run.dir))
    if not resume:
        folder.create(config.to_toml())
    with (folder.path / "out.txt").open("a") as out:
        run_stages(config, folder, QuietView(out))


def run_and_be_killed(config: RunConfig, failpoint: str, *, resume: bool) -> int | None:
    """Run in a forked process that is killed as by `kill -9` at `failpoint`; returns its exit code."""

    def target() -> None:
        os.environ["SOLITON_FAILPOINT"] = failpoint
        run_here(config, resume=resume)

    child = multiprocessing.get_context("fork").Process(target=target)
    child.start()
    child.join(timeout=300)
    return child.exitcode


def run_and_be_told_to_end(config: RunConfig, after_steps: int) -> int | None:
    """Run the command in a forked process that gets a SIGTERM after some steps; returns its exit code."""
    metrics = Path(config.run.dir) / "metrics.jsonl"
    recipe = Path(config.run.dir).with_suffix(".toml")
    recipe.write_text(config.to_toml())

    def target() -> None:
        sys.argv = ["soliton", "train", str(recipe), "--quiet"]
        main()

    child = multiprocessing.get_context("fork").Process(target=target)
    child.start()
    while child.is_alive() and (not metrics.exists() or len(metrics.read_text().splitlines()) < after_steps):
        time.sleep(0.01)
    child.terminate()
    child.join(timeout=300)
    return child.exitcode


def result_of(run_dir: Path) -> dict[str, Any]:
    """What must not depend on interruptions: everything in the summary but times."""
    summary = json.loads((run_dir / "summary.json").read_text())
    summary.pop("wall_s")
    return summary


def metrics_of(run_dir: Path) -> list[dict[str, Any]]:
    """Every line of metrics.jsonl without its real time."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "time_s"} for row in rows]
