"""Every preset trains: two inline steps of batch 8 with versions mixed by tool latency, and the two schedules."""

import math

import pytest

from soliton.algorithms.build import PRESETS
from soliton.algorithms.traits import TRAITS
from soliton.config import RunConfig
from tests.invariants.calculator_runs import metrics_of, result_of, run_here, small_run

SMALL = {
    "train": {"steps": 2, "batch_size": 8},
    "rollout": {"max_in_flight": 16},
    "engine": {"num_slots": 8},
    "checkpoint": {"every_steps": 1},
}


def quick_run(path, **changes) -> RunConfig:
    return small_run(path, **{**SMALL, **changes})


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_moves_the_policy(name, tmp_path):
    method = {"group_size": 4} if TRAITS[name].compares else {}
    prompts = {"num_prompts": 4} if TRAITS[name].keeps_prompts else {}
    run_here(quick_run(tmp_path / "run", algorithm=name, method=method, env=prompts))
    rows = [row for row in metrics_of(tmp_path / "run") if "actor/loss" in row]
    assert len(rows) == 2
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))
    assert any(row["actor/grad_norm"] > 0 for row in rows)
    assert all(("critic/loss" in row) == (TRAITS[name].critic is not None) for row in rows)


@pytest.mark.parametrize(("schedule", "bound"), [("synchronous", 0), ("one-step-off", 1)])
def test_a_schedule_bounds_the_staleness_and_waits(schedule, bound, tmp_path):
    config = quick_run(tmp_path / "run", schedule=schedule, train={"steps": 4, "batch_size": 8})
    store = config.store_config()
    assert (store.max_staleness, store.when_too_old) == (bound, "wait")
    run_here(config)
    staleness = [row["staleness/max"] for row in metrics_of(tmp_path / "run") if "staleness/max" in row]
    assert len(staleness) == 4
    assert max(staleness) == bound
    assert "stale" not in result_of(tmp_path / "run").get("dropped", {})
