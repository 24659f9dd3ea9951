"""Every preset trains, inline with versions mixed by tool latency and some in processes; and the two schedules."""

import math
from pathlib import Path
from typing import Any

import pytest

from soliton.algorithms.build import PRESETS
from soliton.algorithms.traits import TRAITS
from soliton.config import RunConfig
from tests.invariants.calculator_runs import metrics_of, result_of, run_here, small_run
from tests.invariants.local_runs import assert_ended_well, local_run, running, train_rows

SMALL = {
    "train": {"steps": 3, "batch_size": 8},
    "rollout": {"max_in_flight": 16},
    "engine": {"num_slots": 8},
    "checkpoint": {"every_steps": 2},
}


def quick_run(path, **changes) -> RunConfig:
    return small_run(path, **{**SMALL, **changes})


def needs(name: str) -> dict[str, Any]:
    """What a preset wants in a recipe of batches of 8: groups of 4, or prompts that come back."""
    method = {"group_size": 4} if TRAITS[name].compares else {}
    return {"algorithm": name, "method": method} | ({"env": {"num_prompts": 4}} if TRAITS[name].keeps_prompts else {})


def assert_it_learned(name: str, rows: list[dict[str, Any]], steps: int) -> None:
    """The actor moved, every number is one, and there is a critic exactly where the method has one."""
    rows = [row for row in rows if "actor/loss" in row]
    assert len(rows) >= steps  # a batch of groups that each earned the same moves no actor
    assert rows[-1]["train/policy_step"] == steps
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))
    assert any(row["actor/grad_norm"] > 0 for row in rows)
    assert all(("critic/loss" in row) == (TRAITS[name].critic is not None) for row in rows)


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_moves_the_policy(name: str, tmp_path: Path):
    run_here(quick_run(tmp_path / "run", **needs(name)))
    assert_it_learned(name, metrics_of(tmp_path / "run"), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_trains_for_twenty_steps(name: str, tmp_path: Path):
    run_here(quick_run(tmp_path / "run", train={"steps": 20, "batch_size": 8}, **needs(name)))
    assert_it_learned(name, metrics_of(tmp_path / "run"), 20)
    summary = result_of(tmp_path / "run")
    assert summary["ledger"]["trained"] == 8 * summary["batches"]


IN_PROCESSES = ("sao", "grpo", "vapo", "spo")
"""SAO; groups; a clip against the latest policy; a tracker in the checkpoint, and prompts that come back."""


@pytest.mark.parametrize("name", IN_PROCESSES)
def test_a_preset_moves_the_policy_in_processes(name: str, tmp_path: Path):
    chosen = needs(name)
    env = {"latency": {"kind": "none"}} | chosen.pop("env", {})
    quick = {"train": {"steps": 3, "batch_size": 8}, "eval": {"num_prompts": 4, "every_steps": 0}}
    config = local_run(tmp_path / "run", env=env, **quick, **chosen)
    with running(config) as run:
        assert run.ended() == 0, run.text()
    assert_it_learned(name, train_rows(tmp_path / "run"), 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_PROCESSES)
def test_a_preset_trains_for_twenty_steps_in_processes(name: str, tmp_path: Path):
    latency = {"kind": "heavy_tailed", "low_s": 0.02, "high_s": 0.3}
    chosen = needs(name)
    env = {"latency": latency} | chosen.pop("env", {})
    config = local_run(tmp_path / "run", train={"steps": 20, "batch_size": 8}, env=env, **chosen)
    with running(config) as run:
        assert run.ended() == 0, run.text()
    assert_it_learned(name, train_rows(tmp_path / "run"), 20)
    assert_ended_well(config)


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
