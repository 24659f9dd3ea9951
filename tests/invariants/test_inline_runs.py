"""The promise of the inline runtime: a run is a function of its configuration, whatever interrupts it."""

import signal
from pathlib import Path

import numpy as np
import pytest

from soliton.errors import ConfigError
from soliton.models.critic import critic_manifest
from soliton.runtime.run import refuse_other_config
from soliton.runtime.run_folder import RunFolder
from tests.invariants.calculator_runs import (
    metrics_of,
    result_of,
    run_and_be_killed,
    run_and_be_told_to_end,
    run_here,
    small_run,
    start,
)


def run(run_dir: Path, **changes) -> Path:
    run_here(small_run(run_dir, **changes))
    return run_dir


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "reference")


def test_two_runs_of_one_configuration_end_bit_equal(reference: Path, tmp_path: Path):
    again = run(tmp_path / "again")
    assert result_of(again) == result_of(reference)
    assert metrics_of(again) == metrics_of(reference)


def test_another_seed_or_one_step_less_ends_differently(reference: Path, tmp_path: Path):
    expected = result_of(reference)["weights_sha256"]
    for name, changes in (("seed", {"seed": 1}), ("shorter", {"train": {"steps": 5, "batch_size": 16}})):
        other = result_of(run(tmp_path / name, **changes))["weights_sha256"]
        assert other["actor"] != expected["actor"]
        assert other["critic"] != expected["critic"]


def test_versions_mix_inside_trajectories_and_the_ledger_is_right(reference: Path):
    result = result_of(reference)
    assert result["versions_per_trajectory"]["share_mixed"] >= 0.3
    assert result["versions_per_trajectory"]["share_mixed_turns"] > 0
    ledger = result["ledger"]
    assert ledger["trained"] == 6 * 16
    places = ledger["trained"] + ledger["queued"] + ledger["in_flight"] + ledger["superseded"]
    assert ledger["issued"] == places + sum(ledger["dropped"].values())
    assert result["staleness"]["max"] <= result["staleness"]["bound"]


def test_the_final_critic_lists_what_trained(reference: Path):
    trained = critic_manifest(reference / "final_critic")["trained"]
    assert {"value_head.weight", "backbone.layers.0.mlp.up_proj.weight"} <= set(trained)
    assert not [name for name in trained if "attn" in name or "embed" in name or "norm" in name]


def test_a_run_killed_five_times_ends_bit_equal_to_one_that_was_not(reference: Path, tmp_path: Path):  # fault J6
    run_dir = tmp_path / "killed"
    config = small_run(run_dir)
    rng = np.random.default_rng(20261129)
    kills = [
        f"train.step:{rng.integers(1, 3)}",
        "checkpoint.files_written:1",
        "checkpoint.before_rename:1",
        f"train.step:{rng.integers(3, 5)}",
        "checkpoint.after_rename:1",
    ]
    for i, failpoint in enumerate(kills):
        assert run_and_be_killed(config, failpoint, resume=i > 0) == -signal.SIGKILL, failpoint
    done = start(config, "--resume", str(run_dir))
    assert done.returncode == 0, done.stderr
    assert result_of(run_dir) == result_of(reference)
    assert metrics_of(run_dir) == metrics_of(reference)


def test_sigterm_ends_a_run_at_once_and_the_resumed_one_ends_bit_equal(reference: Path, tmp_path: Path):
    run_dir = tmp_path / "terminated"
    config = small_run(run_dir)
    assert run_and_be_told_to_end(config, after_steps=3) == 143
    assert result_of(run_dir)["exit"] == {"status": "interrupted", "reason": "SIGTERM"}
    run_here(config, resume=True)
    assert result_of(run_dir) == result_of(reference)


def test_a_damaged_checkpoint_is_skipped_and_the_run_still_ends_bit_equal(reference: Path, tmp_path: Path):  # fault J6
    run_dir = tmp_path / "damaged"
    config = small_run(run_dir)
    assert run_and_be_killed(config, "train.step:5", resume=False) == -signal.SIGKILL
    damaged = run_dir / "checkpoints" / "step_4" / "store.msgpack"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    run_here(config, resume=True)
    assert "step_4 is damaged" in (run_dir / "out.txt").read_text()
    assert result_of(run_dir) == result_of(reference)


def test_another_configuration_is_refused_with_the_difference(reference: Path):
    with pytest.raises(ConfigError, match="seed: the run has 0, now given 5"):
        refuse_other_config(RunFolder(reference), small_run(reference, seed=5))
    refuse_other_config(RunFolder(reference), small_run(reference))
