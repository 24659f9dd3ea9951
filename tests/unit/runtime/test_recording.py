"""Examples of a real run: which steps are kept, that training is the same to the bit, what a failure costs."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from soliton.learner.examples import read_examples
from soliton.report.html.run import read_run
from soliton.runtime.recording import ExampleRecorder
from soliton.runtime.report import make_report
from tests.invariants.calculator_runs import result_of, run_here, small_run

SMALL = {"steps": 4, "batch_size": 8}
SHARE_SPENT: list[float] = []
"""Of the whole run's processor time, in `ExampleRecorder`."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps; the first, the third and the last one kept, and the time measured that it took."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    spent: list[float] = []
    call = ExampleRecorder.__call__

    def timed(self: ExampleRecorder, record: object) -> None:
        begun = time.thread_time()
        call(self, record)  # type: ignore[arg-type]
        spent.append(time.thread_time() - begun)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExampleRecorder, "__call__", timed)
        begun = time.process_time()
        run_here(small_run(folder, train=SMALL, report={"examples_every_steps": 3}))
        SHARE_SPENT.append(sum(spent) / (time.process_time() - begun))
    assert len(spent) == 4
    return folder


def kept_steps(run: Path) -> list[int]:
    return [step.step for step in read_run(run).examples]


def test_the_first_the_last_and_every_nth_step_are_kept(run: Path):
    assert kept_steps(run) == [1, 3, 4]


def test_recording_changes_no_bit_of_the_training(run: Path, tmp_path: Path):
    run_here(small_run(tmp_path / "run", train=SMALL, report={"examples_every_steps": 0}))
    assert kept_steps(tmp_path / "run") == []
    assert result_of(tmp_path / "run") == result_of(run)


def test_what_is_kept_is_what_was_trained_on(run: Path):
    rows = {row["step"]: row for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}
    first = read_examples(run / "examples" / "step_1.msgpack")
    for example in first.examples:
        roles = np.frombuffer(example.roles, "u1")
        then, now = np.frombuffer(example.rollout_logprobs, "<f4"), np.frombuffer(example.policy_logprobs, "<f4")
        assert np.isnan(then[roles != 2]).all()
        assert np.abs(then - now)[roles == 2].max() < 1e-4  # step 1 trains on its own policy's data
        assert "".join(example.pieces).startswith("<user>")
        assert np.abs(np.frombuffer(example.advantages, "<f4")[roles != 2]).max() == 0
    last = read_examples(run / "examples" / "step_4.msgpack")
    assert max(example.staleness for example in last.examples) == rows[4]["staleness/max"]
    assert any(example.outside for example in last.examples) or rows[4]["trust_mask/share"] == 0


def test_the_sides_of_the_band_add_up_by_sign(run: Path):
    for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        for side in ("low", "high"):
            signed = row[f"trust_mask/share_{side}_positive"] + row[f"trust_mask/share_{side}_negative"]
            assert signed <= row[f"trust_mask/share_{side}"] + 1e-9


def test_the_report_of_a_real_run_shows_its_examples_and_its_configuration(run: Path):
    text = make_report(run).read_text()
    assert "Training reward" in text
    assert '"step":3' in text
    assert "examples_every_steps" in text


def test_a_step_that_is_made_again_removes_what_lay_beyond_it(run: Path, tmp_path: Path):
    for step in (1, 2, 5, 9):
        (tmp_path / f"step_{step}.msgpack").write_bytes(b"old")
    recorder = ExampleRecorder(small_run(tmp_path), None, tmp_path, pytest.fail)  # type: ignore[arg-type]
    recorder._forget_from(3)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["step_1.msgpack", "step_2.msgpack"]


def test_a_full_disk_is_one_alarm_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    alarms: list[str] = []
    recorder = ExampleRecorder(small_run(tmp_path), None, tmp_path, alarms.append)  # type: ignore[arg-type]
    monkeypatch.setattr(recorder, "_write", full)
    for step in (1, 2, 3):
        recorder(SimpleNamespace(step=step, actor_updates=step))  # type: ignore[arg-type]
    assert alarms == ["the examples of step 1 were not kept: [Errno 28] No space left on device"]


def test_recording_costs_less_than_two_percent_of_a_run(run: Path):
    assert SHARE_SPENT[0] < 0.02  # though three of four steps are kept; by default it is one in twenty of a long run


def test_a_file_is_small(run: Path):
    for file in (run / "examples").iterdir():
        assert file.stat().st_size < 40_000
        assert msgspec.msgpack.decode(file.read_bytes())["schema"] == 1
