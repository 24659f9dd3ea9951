"""Trackers get every row once, in order, from the file of metrics; one that fails is an alarm and stops nothing."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from soliton.report.trackers import TrackerRun
from soliton.report.trackers.tensorboard import TensorBoardTracker
from soliton.runtime import tracking
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.tracking import Feed, has_unsent_rows, read_tracked, tracked
from tests.invariants.calculator_runs import small_run

Row = tuple[str, int, dict[str, float]]


class ListTracker:
    """Keeps what it gets; raises at a step, if told to."""

    def __init__(self, rows: list[Row], breaks_at: int | None = None) -> None:
        self.rows = rows
        self.breaks_at = breaks_at
        self.is_closed = False

    def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
        if step == self.breaks_at:
            raise ConnectionError("the server is gone")
        self.rows.append((stage, step, dict(metrics)))

    def close(self) -> None:
        self.is_closed = True


class Run:
    """A run folder, trackers by name, and the alarms."""

    def __init__(self, path: Path, **trackers: ListTracker) -> None:
        self.folder = RunFolder(path)
        self.folder.logs.mkdir(parents=True, exist_ok=True)
        self.trackers = trackers
        self.alarms: list[str] = []

    def feed(self, opener=None) -> Feed:
        state = read_tracked(self.folder.tracking)
        run = TrackerRun("soliton", "run", state.run_id, {}, self.folder.logs, 0.0)
        feed = Feed(
            self.folder.metrics,
            self.folder.tracking,
            list(self.trackers),
            run,
            state,
            self.alarms.append,
            opener or (lambda name, _run, _memory: self.trackers[name]),
        )
        self.folder.on_row = feed.poke
        return feed

    def write(self, *steps: int, stage: str = "train") -> None:
        for step in steps:
            self.folder.append_metrics(stage, step, float(step), {"reward/mean": step / 10, "ratio/max": float("nan")})


def test_a_tracker_gets_every_row_once_and_no_undefined_value(tmp_path: Path):
    run = Run(tmp_path, a=ListTracker([]), b=ListTracker([]))
    run.write(1, 2, stage="sft")  # before the feed begins
    feed = run.feed()
    run.write(1, 2, 3)
    feed.close()
    expected = [("sft", 1), ("sft", 2), ("train", 1), ("train", 2), ("train", 3)]
    for tracker in run.trackers.values():
        assert [(stage, step) for stage, step, _ in tracker.rows] == expected
        assert tracker.rows[-1][2] == {"reward/mean": 0.3}
        assert tracker.is_closed
    assert run.alarms == []


def test_a_resumed_run_sends_only_what_is_new_though_its_lines_were_cut_back(tmp_path: Path):
    rows: list[Row] = []
    for steps in ((1, 2, 3, 4), (3, 4, 5)):  # the second time from the checkpoint of step 2
        run = Run(tmp_path, wandb=ListTracker(rows))
        run.folder.truncate_metrics("train", after_step=2)
        feed = run.feed()
        run.write(*steps)
        feed.close()
    assert [step for _, step, _ in rows] == [1, 2, 3, 4, 5]


def test_the_run_id_of_a_resumed_run_is_the_first_one(tmp_path: Path):
    ids, memories = [], []

    def opener(name: str, run: TrackerRun, memory: dict[str, str]) -> ListTracker:
        ids.append(run.run_id)
        memories.append(dict(memory))
        memory["mlflow_run_id"] = "abc"
        return ListTracker([])

    for step in (1, 2):
        run = Run(tmp_path, mlflow=ListTracker([]))
        feed = run.feed(opener)
        run.write(step)
        feed.close()
    assert ids[0] == ids[1]
    assert memories == [{}, {"mlflow_run_id": "abc"}]


def test_a_failing_tracker_is_one_alarm_and_the_others_go_on(tmp_path: Path):
    run = Run(tmp_path, bad=ListTracker([], breaks_at=2), good=ListTracker([]))
    feed = run.feed()
    run.write(1, 2, 3)
    feed.close()
    assert [step for _, step, _ in run.trackers["bad"].rows] == [1]
    assert [step for _, step, _ in run.trackers["good"].rows] == [1, 2, 3]
    assert run.alarms == ["tracker bad gets nothing more in this run: ConnectionError: the server is gone"]


def test_a_tracker_whose_package_is_not_installed_says_how_to_get_it(tmp_path: Path):
    def opener(name: str, run: TrackerRun, memory: dict[str, str]) -> ListTracker:
        raise ModuleNotFoundError("No module named 'trackio'")

    run = Run(tmp_path, trackio=ListTracker([]))
    feed = run.feed(opener)
    run.write(1)
    feed.close()
    assert len(run.alarms) == 1
    assert "pip install 'soliton[trackio]'" in run.alarms[0]


def test_a_tracker_that_hangs_holds_up_neither_rows_nor_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tracking, "CLOSE_WITHIN_S", 0.05)
    release = threading.Event()

    class Hanging(ListTracker):
        def log(self, stage: str, step: int, time_s: float, metrics: Mapping[str, float]) -> None:
            release.wait(10)

    run = Run(tmp_path, slow=Hanging([]))
    feed = run.feed()
    run.write(*range(1, 20))
    feed.close()
    release.set()
    assert ["not done after" in alarm for alarm in run.alarms] == [True]


def test_a_file_of_rows_that_is_replaced_is_read_again_from_its_start(tmp_path: Path):
    run = Run(tmp_path, a=ListTracker([]))
    feed = run.feed()
    run.write(1, 2, stage="sft")
    run.folder.truncate_metrics("value_pretraining", after_step=-1)  # a stage begins: the file is another one
    run.write(1, stage="value_pretraining")
    feed.close()
    assert [(stage, step) for stage, step, _ in run.trackers["a"].rows] == [
        ("sft", 1),
        ("sft", 2),
        ("value_pretraining", 1),
    ]


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """(step, value) of a metric in event files."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, round(event.value, 4)) for event in events.Scalars(name)]


def test_event_files_hold_what_the_file_of_metrics_holds_also_after_a_rollback(tmp_path: Path):
    config = small_run(tmp_path)
    folder = RunFolder(tmp_path)
    folder.logs.mkdir()
    for factor, steps in ((1.0, (1, 2, 3)), (2.0, (2, 3, 4))):
        folder.truncate_metrics("train", after_step=1)
        with tracked(config, folder, pytest.fail, lambda: 0.0):
            for step in steps:
                folder.append_metrics("train", step, float(step), {"reward/mean": factor * step})
    assert scalars(folder.tensorboard, "reward/mean") == [(1, 1.0), (2, 4.0), (3, 6.0), (4, 8.0)]
    assert not has_unsent_rows(config, folder)
    folder.append_metrics("eval", 4, 9.0, {"eval/pass_at_1": 0.5})
    assert has_unsent_rows(config, folder)


def test_an_event_has_the_time_of_its_row(tmp_path: Path):
    tracker = TensorBoardTracker(TrackerRun("p", "n", "id", {}, tmp_path, began_s=1_000.0))
    tracker.log("train", 3, 7.5, {"reward/mean": 0.25})
    tracker.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (event,) = events.Scalars("reward/mean")
    assert (event.step, event.value, event.wall_time) == (3, 0.25, 1_007.5)


def test_a_note_that_cannot_be_read_begins_a_new_one(tmp_path: Path):
    (tmp_path / "tracking.json").write_text('{"run_id": ')
    assert read_tracked(tmp_path / "tracking.json").sent == {}
    assert json.loads('"' + read_tracked(tmp_path / "absent").run_id + '"')
