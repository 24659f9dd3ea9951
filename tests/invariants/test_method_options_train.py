"""The recipes that choose options train as they are written, with rollouts that limits cut; and resume bit-equal."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from soliton.config import load_config
from soliton.runtime import training
from tests.invariants.calculator_runs import ROOT, metrics_of, result_of, run_here, small_run

QUICK = {
    "train": {"steps": 3, "batch_size": 8},
    "rollout": {"max_in_flight": 16},
    "engine": {"num_slots": 8},
    "checkpoint": {"every_steps": 1},
    "limits": {"max_turns": 4},
}


class Interrupted(BaseException):
    """The run ends here."""


def interrupt_after(steps: int) -> Callable[[str], None]:
    """A failpoint that ends the run after a step."""
    seen: list[str] = []

    def reached(name: str) -> None:
        seen.append(name)
        if seen.count("train.step") == steps:
            raise Interrupted

    return reached


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
    assert len(rows) == 3
    assert all(row["actor/grad_norm"] > 0 for row in rows)
    assert sum(row["trajectory/truncated_share"] for row in rows) > 0
    common = {"staleness/waiting_mean", "staleness/token_mean", "time/effective_tokens_per_s", "ratio/effective_share"}
    assert all((reported | common) <= set(row) for row in rows)
    assert all(math.isfinite(value) for row in rows for value in row.values() if isinstance(value, float))


def test_a_run_with_a_reference_policy_interrupted_and_resumed_ends_bit_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # fault J6
    chosen = method_of("calculator-ppo.toml")
    run_here(small_run(tmp_path / "straight", **QUICK, **chosen))
    config = small_run(tmp_path / "interrupted", **QUICK, **chosen)
    with monkeypatch.context() as patch:
        patch.setattr(training, "failpoint", interrupt_after(2))
        with pytest.raises(Interrupted):
            run_here(config)
    run_here(config, resume=True)
    assert result_of(tmp_path / "interrupted") == result_of(tmp_path / "straight")
    assert metrics_of(tmp_path / "interrupted") == metrics_of(tmp_path / "straight")
