"""Leaves the files of a run without training.

Accuracy rises by 0.2 with every evaluation; under algorithm=grpo the last one falls to 0.1. A file `die` in the folder
makes it die once, `stop` makes the run stop itself, `hang` makes it hang.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

STEPS = 6


def make_run(folder: Path, recipe: Path, overrides: Sequence[str], out: IO[str]) -> int:
    """What a `Program` does."""
    del recipe
    settings = dict(override.partition("=")[::2] for override in overrides)
    algorithm, seed = settings.get("algorithm", "sao"), int(settings["seed"])
    if (folder / "die").exists():
        (folder / "die").unlink()
        raise OSError("killed by the test")
    if (folder / "hang").exists():
        time.sleep(600)
    stopped = (folder / "stop").exists()
    rows, costs = [], [{"stage": "start", "step": -1, "cpu_s": 2.0}]
    for step in range(1, STEPS + 1):
        out.write(json.dumps({"stage": "train", "step": step, "total": STEPS}) + "\n")
        rows.append(
            {
                "stage": "train",
                "step": step,
                "time_s": 1.0,
                "train/policy_step": float(step),
                "reward/mean": 0.1 * step,
                "staleness/mean": 7.0 if algorithm == "sao" else 17.0,
                "staleness/max": 40.0,
                "tokens/total": 1000.0,
                "tokens/action": 300.0,
                "actor/signal_share": 1.0 if algorithm in ("grpo", "vapo") else 0.97,
                **({"critic/loss": 0.1, "critic/explained_var": 0.4} if algorithm == "sao" else {}),
            }
        )
        costs.append({"stage": "train", "step": step, "cpu_s": 3.0 if algorithm == "sao" else 1.0})
        if step % 2 == 0:
            accuracy = 0.1 if algorithm == "grpo" and step == STEPS else 0.2 + 0.1 * step + 0.01 * seed
            held_out = {"eval/pass_at_1": accuracy, "eval/info/cute": 0.5, "train/policy_step": float(step)}
            rows.append({"stage": "eval", "step": step, "time_s": 1.0, **held_out})
    ending = {"status": "stopped", "reason": "no signal"} if stopped else {"status": "finished", "reason": None}
    summary = {"config_sha256": "abc", "pass_at_1_before": {"mean": 0.2 + 0.01 * seed}, "exit": ending}
    (folder / "cpu.jsonl").write_text("".join(json.dumps(cost) + "\n" for cost in costs))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps(summary))
    return 3 if stopped else 0
