"""Runs whose preferences shift while they go on: repeatable to the bit, shifted and rewarded from outside."""

import json
import runpy
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.store.history import consumed_batches
from tests.invariants.calculator_runs import ROOT, metrics_of, result_of, run_and_be_killed, run_here, small_run
from tests.invariants.local_runs import local_run, running, train_rows

SHIFTING = {"name": "tests.fakes.phasic:Phasic", "shifts": [2, 4]}


def shifting_run(run_dir: Path):
    latency = {"kind": "heavy_tailed", "low_s": 0.05, "high_s": 1.0}
    return small_run(
        run_dir,
        env={**SHIFTING, "latency": latency},
        eval={"num_prompts": 8, "every_steps": 2},
        checkpoint={"every_steps": 1},
        train={"steps": 6, "batch_size": 8},
        rollout={"max_in_flight": 24},
    )


@pytest.fixture(scope="module")
def shifted(tmp_path_factory) -> Path:
    run_dir = tmp_path_factory.mktemp("phases") / "run"
    run_here(shifting_run(run_dir))
    return run_dir


def test_phases_follow_the_schedule_and_what_is_in_flight_is_judged_in_the_phase_of_its_moment(shifted: Path):
    phases = [row["info/phase"] for row in metrics_of(shifted) if row["stage"] == "train"]
    assert phases[:2] == [1.0, 1.0]
    assert phases == sorted(phases)
    assert phases[-1] > 2.0
    assert any(phase != int(phase) for phase in phases)  # a batch of two phases
    held_out = {row["step"]: row["eval/info/phase"] for row in metrics_of(shifted) if row["stage"] == "eval"}
    assert held_out == {2: 2.0, 4: 3.0, 6: 3.0}


def test_a_run_killed_around_its_shifts_ends_bit_equal_to_one_that_was_not(shifted: Path, tmp_path: Path):
    config = shifting_run(tmp_path / "killed")
    kills = ["checkpoint.after_rename:2", "train.step:1", "checkpoint.after_rename:2"]
    for i, failpoint in enumerate(kills):
        assert run_and_be_killed(config, failpoint, resume=i > 0) == -signal.SIGKILL, failpoint
    run_here(config, resume=True)
    assert metrics_of(tmp_path / "killed") == metrics_of(shifted)
    assert result_of(tmp_path / "killed") == result_of(shifted)


def test_a_live_run_is_shifted_by_the_command_and_rewarded_by_its_user(tmp_path: Path):
    user = runpy.run_path(str(ROOT / "recipes" / "style_user.py"))
    run_dir = tmp_path / "live"
    config = local_run(
        run_dir,
        env={"name": "style", "judge": {"kind": "outside", "within_s": 60.0}, "latency": {}},
        limits={"max_turns": 1, "max_tokens": 112, "max_turn_tokens": 24},
        train={"steps": 500, "batch_size": 4},
        eval={"num_prompts": 4, "every_steps": 0},
        rollout={"max_in_flight": 8},
        max_staleness=1,
    )
    over, texts = threading.Event(), []

    def judge(asked) -> float:
        texts.append(asked)
        return float(len(asked["text"]) % 2)

    def give_feedback() -> None:
        while not over.wait(0.05):
            if (run_dir / "hub.json").exists():
                user["give_feedback"](run_dir / "hub.json", judge)

    with running(config) as run:
        threading.Thread(target=give_feedback, daemon=True).start()
        run.until_steps(2)
        done = CliRunner().invoke(app, ["shift", str(run_dir), "3"], catch_exceptions=False)
        assert (done.exit_code, done.stdout) == (0, f"{run_dir}: phase 3 from now on\n")
        doctor = CliRunner().invoke(app, ["doctor", str(run_dir)], catch_exceptions=False)
        assert doctor.exit_code == 0
        assert [name for name in ("learner", "worker-0") if f", {name}: state " not in doctor.stdout] == []
        run.until("phase 3", lambda: train_rows(run_dir)[-1]["info/phase"] == 3.0)
        over.set()
        run.send(signal.SIGTERM)
        assert run.ended() == 143
    rows = train_rows(run_dir)
    assert rows[0]["info/phase"] == 1.0
    assert 0.0 < sum(row["reward/mean"] for row in rows) / len(rows) < 1.0
    assert {asked["criteria"]["style"] for asked in texts} == {"its style is cute", "its style is classical"}
    assert all(topic.isalpha() and count in "12345" for topic, count in (asked["task"].split() for asked in texts))
    batches = list(consumed_batches(run_dir / "store.sqlite"))
    assert {item.trajectory.info["phase"] for _, items, _ in batches for item in items} == {1.0, 3.0}
    assert [shift["phase"] for shift in json.loads((run_dir / "phases.json").read_text())] == [3]
