"""Four methods, three seeds, unbounded staleness: `python -m benchmarks.staleness_study` (about an hour on 2 cores).

All methods of a seed start from the same policy and critic. Finished runs are kept, so that an interrupted study goes
on. Writes `table.md` and one picture of curves per method into the output folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soliton.report.comparison import comparison_table
from soliton.report.curve import draw_curves

RECIPE = "recipes/staleness-study.toml"
METHODS = ("sao", "grpo", "grpo-dis", "vapo")


def run(out: Path, name: str, overrides: list[str]) -> Path:
    folder = out / name
    if (folder / "summary.json").exists():
        return folder
    command = [sys.executable, "-m", "soliton.cli", "train", RECIPE, "--quiet", f"run.dir={folder}", *overrides]
    if (folder / "config.toml").exists():
        command += ["--resume", str(folder)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=one_thread, capture_output=True, text=True, check=False)
    print(f"{name}: exit {done.returncode} {done.stdout.strip()[-300:]} {done.stderr.strip()[-300:]}", flush=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    out: Path = arguments.out

    def warm(seed: int) -> Path:
        return run(out, f"warm-{seed}", [f"seed={seed}", 'stages=["sft","value_pretraining"]'])

    def arm(method: str, seed: int) -> Path:
        start = f"init.run={out}/warm-{seed}"
        return run(out, f"{method}-{seed}", [f"seed={seed}", f"algorithm={method}", start])

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(warm, arguments.seeds))
        pairs = [(method, seed) for seed in arguments.seeds for method in METHODS]
        list(pool.map(lambda pair: arm(*pair), pairs))
    arms = {method: [out / f"{method}-{seed}" for seed in arguments.seeds] for method in METHODS}
    table = comparison_table([run for runs in arms.values() for run in runs])
    (out / "table.md").write_text(table)
    for method, runs in arms.items():
        draw_curves(runs, out / f"{method}.png", title=method)
    print(table)


if __name__ == "__main__":
    main()
