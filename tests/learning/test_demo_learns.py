"""Slow: the demo learns in every seed, and its negative controls do not (minutes each)."""

import json
from pathlib import Path
from typing import Any

import pytest

from soliton.config import load_config
from tests.invariants.calculator_runs import ROOT, WARM_START, run_here

pytestmark = pytest.mark.slow
RECIPE = ROOT / "recipes" / "calculator.toml"


def summary_of(run_dir: Path, *overrides: str) -> dict[str, Any]:
    config = load_config(RECIPE, [f"run.dir={run_dir}", *overrides])
    run_here(config)
    summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_demo_gains_at_least_twenty_points(tmp_path: Path, seed: int):
    summary = summary_of(tmp_path / "run", f"seed={seed}")
    assert 0.25 <= summary["pass_at_1_before"]["mean"] <= 0.40
    assert summary["pass_at_1_gain"]["mean"] >= 0.20
    assert summary["pass_at_1_gain"]["low"] >= 0.10
    assert summary["versions_per_trajectory"]["share_mixed"] >= 0.3
    assert summary["versions_per_trajectory"]["share_mixed_turns"] > 0


@pytest.mark.parametrize("control", ["train.shuffle_rewards=true", "learner.actor_lr=0"])
def test_a_negative_control_gains_nothing(tmp_path: Path, control: str):
    start = [f"init.model={WARM_START}", 'stages=["value_pretraining","train","eval"]']
    # Four times the demo's prompts: with its 256 chance alone has a standard error of 0.025, half of what is allowed.
    summary = summary_of(tmp_path / "run", control, "eval.num_prompts=1024", *start)
    assert abs(summary["pass_at_1_gain"]["mean"]) <= 0.05
