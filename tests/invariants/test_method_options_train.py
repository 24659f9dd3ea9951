"""The recipes that choose options train as they are written, with rollouts that limits cut; and resume bit-equal."""

import math
import signal
from pathlib import Path

import pytest

from soliton.config import load_config
from tests.invariants.calculator_runs import ROOT, metrics_of, result_of, run_and_be_killed, run_here, small_run

QUICK = {
    "train": {"steps": 2, "batch_size": 8},
    "rollout": {"max_in_flight": 16},
    "engine": {"num_slots": 8},
    "checkpoint": {"every_steps": 1},
    "limits": {"max_turns": 4},
}


def method_of(recipe: str) -> dict:
    """Algorithm and `[method]` of a shipped recipe."""
    config = load_config(ROOT / "recipes" / recipe)
    return {"algorithm": config.algorithm, "method": config.method.model_dump(exclude_unset=True)}


@pytest.mark.parametrize(
    ("recipe", "reported"),
    [
        ("calculator-ppo.toml", {"actor/reference_kl", "critic/value_max"}),
        ("calculator-vapo.toml", {"actor/positive_nll", "critic/value_max"}),
        ("calculator-reinforce.toml", {"trajectory/dropped_truncated"}),
    ],
)
def test_a_recipe_with_options_moves_the_policy(recipe: str, reported: set[str], tmp_path: Path):
    run_here(small_run(tmp_path / "run", **QUICK, **method_of(recipe)))
    rows = [row for row in metrics_of(tmp_path / "run") if "actor/loss" in row]
    assert len(rows) == 2
    assert all(row["actor/grad_norm"] > 0 for row in rows)
    assert sum(row["trajectory/truncated_share"] for row in rows) > 0
    common = {"staleness/waiting_mean", "staleness/token_mean", "time/effective_tokens_per_s", "ratio/effective_share"}
    assert all((reported | common) <= set(row) for row in rows)
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))


def test_a_run_with_a_reference_policy_killed_and_resumed_ends_bit_equal(tmp_path: Path):  # fault J6
    chosen = method_of("calculator-ppo.toml")
    run_here(small_run(tmp_path / "straight", **QUICK, **chosen))
    config = small_run(tmp_path / "killed", **QUICK, **chosen)
    assert run_and_be_killed(config, "train.step:1", resume=False) == -signal.SIGKILL
    run_here(config, resume=True)
    assert result_of(tmp_path / "killed") == result_of(tmp_path / "straight")
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "straight")
