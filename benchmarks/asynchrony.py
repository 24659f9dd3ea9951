"""What asynchrony is worth on this machine: `python -m benchmarks asynchrony`.

The demo's loop in real processes (`local` runtime, one worker, one learner), calculator, 64 trajectories per batch,
from the warm start in tests/data, for three tool latencies: none, heavy-tailed 5 to 500 ms, and 50 to 2000 ms.
* sync: staleness bound 0 and one whole batch in flight, so rollouts and training take turns. Same slots, prompts,
  seeds and latency draws.
* async: the demo's staleness bound and episodes in flight.
* train_busy: the same batches replayed from the async run's store by a learner alone.
* engine_busy: the time that a worker alone, without latency and learner, takes to sample the tokens of these batches.
* bound = sync / max(train_busy, engine_busy): the best that any overlap could give. The bar is on ratio / bound.
* learner_idle_share: share of the async steps' time in which the learner waited for a batch.
* hub_core_share: CPU time of the controller's process (store, hub, supervision, metrics) per second of these steps.
Times are of the steps after the first `WARM_UP`, by when every process has begun and the pipeline is full. Medians over
`ROUNDS`; sync is not in ratio / bound, so each of its runs is compared with `PAIRS` async runs and their replays.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from soliton.config import RunConfig, load_config
from soliton.report.quiet import QuietView
from soliton.rollout.worker import Worker
from soliton.runtime.clock import RealClock
from soliton.runtime.replay import replay
from soliton.runtime.setup import initial_model, initial_model_folder, make_setup
from soliton.store.config import StoreConfig
from soliton.store.history import consumed_batches
from soliton.store.memory import MemoryStore
from soliton.types import Publication

ROOT = Path(__file__).parents[1]
LATENCIES = {"0": None, "5-500": (0.005, 0.5), "50-2000": (0.05, 2.0)}
"""Name (milliseconds) -> range in seconds."""
WARM_UP, STEPS, ROUNDS, PAIRS = 4, 20, 3, 2
ENGINE_TRAJECTORIES = 512


def measure() -> dict[str, float]:
    """Flat figures, `async_speedup.<latency in ms>.<what>`."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        rate = statistics.median(_engine_rate(Path(folder) / f"engine-{i}") for i in range(ROUNDS))
        for name, range_s in LATENCIES.items():
            rounds = [
                pair for i in range(ROUNDS) for pair in _round(Path(folder) / f"{name}-{i}", range_s, rate, seed=i)
            ]
            figures |= {f"async_speedup.{name}.{key}": statistics.median(r[key] for r in rounds) for key in rounds[0]}
    return figures


def _round(root: Path, range_s: tuple[float, float] | None, engine_rate: float, seed: int) -> list[dict[str, float]]:
    sync = _config(root / "sync", range_s, seed, ["max_staleness=0", "rollout.max_in_flight=64"])
    sync_s = _window_s(_train(sync)[0])
    overlapped = [_config(root / f"async-{i}", range_s, seed, []) for i in range(PAIRS)]
    return [_compared(config, sync_s, engine_rate) for config in overlapped]


def _compared(overlapped: RunConfig, sync_s: float, engine_rate: float) -> dict[str, float]:
    rows, controller_s = _train(overlapped)
    async_s = _window_s(rows)
    train_busy_s = _replay_s(Path(overlapped.run.dir))
    batches = list(consumed_batches(Path(overlapped.run.dir) / "store.sqlite"))[WARM_UP:]
    tokens = sum(item.trajectory.num_action_tokens for _, items, _ in batches for item in items)
    engine_busy_s = tokens / engine_rate
    bound = sync_s / max(train_busy_s, engine_busy_s)
    return {
        "ratio": sync_s / async_s,
        "bound": bound,
        "ratio_to_bound": sync_s / async_s / bound,
        "sync_s": sync_s,
        "async_s": async_s,
        "train_busy_s": train_busy_s,
        "engine_busy_s": engine_busy_s,
        "tokens": tokens,
        "lag_mean": statistics.fmean(row["staleness/mean"] for row in rows[WARM_UP:]),
        "lag_max": max(row["staleness/max"] for row in rows),
        "dropped": rows[-1]["ledger/dropped"],
        "learner_idle_share": _grown(rows, "wait/batch_s") / async_s,
        "hub_core_share": controller_s / async_s,
    }


def _config(run_dir: Path, range_s: tuple[float, float] | None, seed: int, changes: list[str]) -> RunConfig:
    latency = "{}" if range_s is None else f'{{kind="heavy_tailed", low_s={range_s[0]}, high_s={range_s[1]}}}'
    return load_config(
        ROOT / "recipes" / "calculator.toml",
        [
            'stages=["train"]',
            f"init.model={ROOT / 'tests' / 'data' / 'warm_start'}",
            f"run.dir={run_dir}",
            f"env.latency={latency}",
            f"train.steps={STEPS}",
            f"seed={seed}",
            "report.examples_every_steps=5",  # as often as in the demo, not in every step of so few
            *changes,
        ],
    )


def _train(config: RunConfig) -> tuple[list[dict[str, Any]], float]:
    """Run it by the command; returns the rows of its steps, and the controller's CPU seconds after the warm-up."""
    run_dir = Path(config.run.dir)
    recipe = run_dir.with_suffix(".toml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(config.to_toml())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "soliton", "train", str(recipe), "--quiet"]
    cpu_s: dict[int, float] = {}
    """Steps done -> CPU seconds of the controller when that was first seen."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            cpu_s.setdefault(_num_rows(run_dir), _cpu_s(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    # Up to the last step, not to the end: what follows (checkpoint, report) is no work of the hub.
    return _rows(run_dir), cpu_s[max(cpu_s)] - min(cpu_s[step] for step in cpu_s if step >= WARM_UP)


def _num_rows(run_dir: Path) -> int:
    """Rows so far. Parses none of them: that took up to a twentieth of a core from the run that is measured."""
    metrics = run_dir / "metrics.jsonl"
    return metrics.read_bytes().count(b'"stage": "train"') if metrics.exists() else 0


def _rows(run_dir: Path) -> list[dict[str, Any]]:
    metrics = run_dir / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
    return [row for row in (json.loads(line) for line in lines if line.endswith("\n")) if row["stage"] == "train"]


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _grown(rows: list[dict[str, Any]], name: str) -> float:
    return float(rows[-1][name] - rows[WARM_UP - 1][name])


def _window_s(rows: list[dict[str, Any]]) -> float:
    return float(rows[-1]["time_s"] - rows[WARM_UP - 1]["time_s"])


class _Stopwatch(QuietView):
    """Notes when each batch of a replay is done."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.times: list[float] = []

    def update(self, step: int, metrics: dict[str, float]) -> None:  # noqa: ARG002
        self.times.append(time.perf_counter())


def _replay_s(run_dir: Path) -> float:
    watch = _Stopwatch()
    replay(run_dir, watch)
    return watch.times[-1] - watch.times[WARM_UP - 1]


def _engine_rate(run_dir: Path) -> float:
    """Sampled tokens per second of a worker alone: full slots, no latency, a store that wants everything."""
    config = _config(run_dir, None, 0, [])
    folder = initial_model_folder(config)
    setup = make_setup(config, folder)
    engine = setup.new_engine(initial_model(config, setup, folder), version=0)
    clock = RealClock()
    store = MemoryStore(
        StoreConfig(batch_size=64, max_staleness=None, max_outstanding=10**6),
        clock,
        Publication(version=0, parent=-1, step=0, sha256=""),
    )
    worker = Worker(
        store=store,
        engine=engine,
        prompts=setup.prompts,
        make_environment=setup.environment_factory(config.env.latency),
        renderer=setup.renderer,
        clock=clock,
        limits=config.limits,
        sampling=config.sampling.record(),
        run_seed=0,
        max_episodes=config.rollout.max_in_flight,
    )

    async def sample() -> float:
        pump = asyncio.create_task(engine.run(clock, 0.0))
        rollouts = asyncio.create_task(worker.run())
        marks = []
        for goal in (ENGINE_TRAJECTORIES // 2, 2 * ENGINE_TRAJECTORIES):
            while (await store.status()).ledger.queued < goal:
                await clock.sleep_until(clock.now() + 0.02)
            marks.append((clock.now(), engine.tokens_sampled))
        for task in (pump, rollouts):
            task.cancel()
        await asyncio.gather(pump, rollouts, return_exceptions=True)
        (start_s, before), (end_s, after) = marks
        return (after - before) / (end_s - start_s)

    return asyncio.run(sample())
