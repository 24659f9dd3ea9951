"""The `local` runtime with tasks of other kinds: several environments, one of them a reward function that fails."""

import json
from pathlib import Path

import pytest

from soliton.store.history import ledger_at_rest
from tests.invariants.local_runs import assert_nobody_is_left, local_run, rows, running, summary_of, train_rows

GRADER = """
calls = 0

def correct(completions, answer, **kwargs):
    global calls
    calls += 1
    if calls % 5 == 0:
        return [float("nan")]
    return [float(text == right) for text, right in zip(completions, answer)]
"""
NAMES = ("calculator", "sums:correct")


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """A grader beside its rows; the model answers a sum as it answers the calculator."""
    (tmp_path / "sums.py").write_text(GRADER)
    numbers = [(a, b) for a in range(10, 20) for b in range(10, 20)]
    lines = [json.dumps({"prompt": f"{a}+{b}", "answer": f"{a}+{b}"}) for a, b in numbers]
    (tmp_path / "sums.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_a_mixture_with_a_failing_grader_trains_and_is_evaluated_by_environment(sums: Path):
    mix = [{"name": NAMES[0], "weight": 1}, {"name": NAMES[1], "weight": 1, "prompts": "sums.jsonl"}]
    latency = {"kind": "heavy_tailed", "low_s": 0.02, "high_s": 0.3}
    config = local_run(sums / "run", env={"mix": mix, "latency": latency}, train={"steps": 4, "batch_size": 8})
    with running(config, cwd=sums) as run:
        assert run.ended() == 0, run.text()
    assert_nobody_is_left(run.run_dir)
    ledger = ledger_at_rest(run.run_dir / "store.sqlite")
    trajectories = 4 * config.train.batch_size
    assert (ledger.balance, ledger.trained) == (0, trajectories)
    assert ledger.dropped["bad_reward"] > 0
    trained = train_rows(run.run_dir)
    counts = [sum(row.get(f"env/{name}/trajectory/count", 0) for row in trained) for name in NAMES]
    assert sum(counts) == trajectories
    assert min(counts) > 0
    assert trained[-1]["env/sums:correct/failed"] > 0
    assert trained[-1].get("env/calculator/failed", 0) == 0
    evaluated = rows(run.run_dir, "eval")
    assert [row["step"] for row in evaluated] == [2, 4]
    for row in evaluated:  # half of the held-out prompts are of each
        parts = [row[f"env/{name}/eval/pass_at_1"] for name in NAMES]
        assert sum(parts) / 2 == pytest.approx(row["eval/pass_at_1"])


@pytest.mark.slow
def test_a_grader_alone_trains_in_processes(sums: Path):
    env = {"name": NAMES[1], "prompts": "sums.jsonl"}
    config = local_run(sums / "run", env=env, stages=["train", "eval"], local={"workers": 2})
    with running(config, cwd=sums) as run:
        assert run.ended() == 0, run.text()
    assert summary_of(run.run_dir)["pass_at_1_after"]["n"] == 8
    assert ledger_at_rest(run.run_dir / "store.sqlite").trained == 64
    assert any(row["reward/mean"] > 0 for row in train_rows(run.run_dir))
