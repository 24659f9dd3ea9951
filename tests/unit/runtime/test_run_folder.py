import json
import math
import os

import pytest

from soliton.errors import ConfigError
from soliton.runtime.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.create("seed = 0\n")
    return made


def test_a_folder_that_holds_a_run_is_refused(folder: RunFolder):
    with pytest.raises(ConfigError, match=r"already holds a run.*--resume"):
        RunFolder(folder.path).create("seed = 1\n")
    assert folder.config.read_text() == "seed = 0\n"


def test_a_metric_that_is_nan_is_null_and_never_zero(folder: RunFolder):
    folder.append_metrics("train", 1, 0.5, {"critic/explained_var": math.nan, "reward/mean": 0.25})
    row = json.loads(folder.metrics.read_text())
    assert row == {"stage": "train", "step": 1, "time_s": 0.5, "critic/explained_var": None, "reward/mean": 0.25}


def test_a_resumed_stage_forgets_what_it_will_write_again(folder: RunFolder):
    for stage, step in [("sft", 1), ("sft", 2), ("train", 1), ("train", 2), ("train", 3), ("eval", 3)]:
        folder.append_metrics(stage, step, 0.0, {"x": float(step)})
    folder.truncate_metrics("train", "eval", after_step=2)
    assert [(r["stage"], r["step"]) for r in folder.read_all_metrics()] == [
        ("sft", 1),
        ("sft", 2),
        ("train", 1),
        ("train", 2),
    ]


def test_an_evaluation_that_ended_late_is_kept_with_the_steps_before_it(folder: RunFolder):
    for stage, step in [("train", 1), ("train", 2), ("train", 3), ("eval", 2), ("train", 4), ("eval", 4)]:
        folder.append_metrics(stage, step, 0.0, {"x": float(step)})
    folder.truncate_metrics("train", "eval", after_step=2)
    assert [(r["stage"], r["step"]) for r in folder.read_all_metrics()] == [("train", 1), ("train", 2), ("eval", 2)]


def test_a_folder_in_use_is_refused_with_its_process(folder: RunFolder):  # fault K3
    with folder.lock():
        for enter in (lambda: RunFolder(folder.path).create("seed = 1"), RunFolder(folder.path).lock().__enter__):
            with pytest.raises(ConfigError, match=rf"a run is going on in .* \(process {os.getpid()}\)"):
                enter()


def test_a_line_torn_by_a_kill_is_left_out_and_the_next_resume_removes_it(folder: RunFolder):  # fault J6
    folder.append_metrics("train", 1, 0.0, {"x": 1.0})
    with folder.metrics.open("a") as file:
        file.write('{"stage": "train", "step": 2, "ti')
    assert [row["step"] for row in folder.read_metrics("train")] == [1]
    folder.truncate_metrics("train", after_step=1)
    folder.append_metrics("train", 2, 0.0, {"x": 2.0})
    assert [row["step"] for row in folder.read_metrics("train")] == [1, 2]


def refused(folder: RunFolder, status: str = "stopped") -> None:
    """Leave what a run leaves that is refused when its environment is looked at."""
    folder.summary.write_text(json.dumps({"exit": {"status": status, "reason": "env.name: no such class"}}))
    folder.store.write_bytes(b"of another prompt stream")


def test_a_folder_of_a_run_that_was_refused_before_anything_ran_is_used_again(folder: RunFolder):
    refused(folder)
    folder.create("seed = 1\n")
    assert folder.config.read_text() == "seed = 1\n"
    assert not folder.summary.exists()
    assert not folder.store.exists()


@pytest.mark.parametrize("result", ["metrics.jsonl", "stages/sft", "evals/before.json", "weights"])
def test_a_folder_with_any_result_is_never_used_again(folder: RunFolder, result: str):
    refused(folder)
    (folder.path / result).write_text("")
    with pytest.raises(ConfigError, match="already holds a run"):
        folder.create("seed = 1\n")


def test_the_folder_of_a_finished_run_is_never_used_again(folder: RunFolder):
    refused(folder, status="finished")
    with pytest.raises(ConfigError, match="already holds a run"):
        folder.create("seed = 1\n")


def test_a_folder_that_cannot_be_made_is_refused_with_the_cause(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"run\.dir: .*/file/run cannot be made or written to .*Not a directory"):
        RunFolder(tmp_path / "file" / "run").create("seed = 0\n")
