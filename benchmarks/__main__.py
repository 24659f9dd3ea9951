"""`python -m benchmarks [NAME...]`: every comparison, as a table and as `build/bench.json`.

Each module's `measure()` gives a flat record of numbers: the ratios that have a bar, and the absolute figures behind
them. A bar that is missed is printed as missed and written as such; the exit code stays 0, because a slow machine is no
mistake of the code.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: see docs/architecture.md

import torch
import transformers
from rich.console import Console
from rich.table import Table

import soliton

MODULES = ("engine", "learner", "gae", "asynchrony", "hub", "store")
OUT = Path("build/bench.json")


@dataclass(frozen=True)
class Bar:
    """What a measured number has to reach."""

    value: float
    better: Literal["higher", "lower"]

    def passes(self, measured: float) -> bool:
        """Whether the number reaches the bar; NaN does not."""
        return measured >= self.value if self.better == "higher" else measured <= self.value

    def __str__(self) -> str:
        return f"{'>=' if self.better == 'higher' else '<='} {self.value:g}"


BARS: Mapping[str, Bar] = {
    "engine_vs_generate": Bar(2.3, "higher"),
    "learner_vs_padded": Bar(2.2, "higher"),
    "sao_vs_grpo_dis_step": Bar(2.6, "lower"),
    "gae_s": Bar(0.25, "lower"),
    "gae_max_error": Bar(1e-5, "lower"),
    "store_open_s": Bar(1.0, "lower"),
    "store_open_after_kill_s": Bar(1.0, "lower"),
    "store_commits_per_s.single": Bar(2000, "higher"),
    "store_commits_per_s.batched": Bar(8000, "higher"),
    "async_speedup.0.ratio_to_bound": Bar(0.9, "higher"),
    "async_speedup.5-500.ratio_to_bound": Bar(0.9, "higher"),
    "async_speedup.50-2000.ratio_to_bound": Bar(0.9, "higher"),
    "async_speedup.0.learner_idle_share": Bar(0.1, "lower"),
    "async_speedup.5-500.hub_core_share": Bar(0.05, "lower"),
}


def machine() -> dict[str, Any]:
    """What a number can only be read with."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = (line.partition(":") for line in info.read_text().splitlines())
        cpu = next((value.strip() for key, _, value in lines if key.strip() == "model name"), cpu)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "omp_threads": int(os.environ["OMP_NUM_THREADS"]),
        "load_1min": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "soliton": soliton.__version__,
        "date_utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def compare(measured: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Name -> {value, bar, better, pass} for every measured number that has a bar."""
    return {
        name: {"value": measured[name], "bar": bar.value, "better": bar.better, "pass": bar.passes(measured[name])}
        for name, bar in BARS.items()
        if name in measured
    }


def show(console: Console, measured: Mapping[str, float], seconds: Mapping[str, float]) -> None:
    """Bars first, then the absolute figures."""
    table = Table(title="Bars", title_justify="left", header_style="bold")
    for column in ("comparison", "measured", "bar", ""):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    for name, bar in BARS.items():
        if name in measured:
            verdict = "[green]pass[/]" if bar.passes(measured[name]) else "[bold red]MISS[/]"
            table.add_row(name, f"{measured[name]:.4g}", str(bar), verdict)
    console.print(table)
    figures = Table(title="Figures behind them", title_justify="left", header_style="bold")
    figures.add_column("figure")
    figures.add_column("value", justify="right")
    for name, value in measured.items():
        if name not in BARS:
            figures.add_row(name, f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}")
    console.print(figures)
    console.print("  ".join(f"{name} {s:.0f} s" for name, s in seconds.items()), style="dim")


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=str(__doc__).partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(MODULES)}; default: all")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(MODULES))
    if unknown:
        parser.error(f"unknown benchmarks {unknown}; there are {list(MODULES)}")
    torch.set_num_threads(1)
    facts, measured, seconds = machine(), {}, {}
    for name in options.names or MODULES:
        start = time.perf_counter()
        measured |= importlib.import_module(f"benchmarks.{name}").measure()
        seconds[name] = time.perf_counter() - start
    show(Console(), measured, seconds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": facts, "bars": compare(measured), "figures": measured, "seconds": seconds}
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    Console().print(f"written to {options.out}", style="dim")


if __name__ == "__main__":
    main()
