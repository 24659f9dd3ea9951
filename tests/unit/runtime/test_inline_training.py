"""The training stage around its segments: what is recorded when, and what a kill in between leaves."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from soliton.report.quiet import QuietView
from soliton.runtime import checkpoint as checkpoint_module
from soliton.runtime import inline_training as training_module
from soliton.runtime.inline import Boundary
from soliton.runtime.inline_training import InlineTraining
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.training import TrainingStage
from tests.invariants.calculator_runs import small_run


class ScriptedSegment:
    """Publishes every step that it is asked for."""

    def __init__(self, _setup, _learner, start: Boundary, on_step) -> None:
        self._start = start
        self._on_step = on_step

    def run(self, until_step: int) -> Boundary:
        for step in range(self._start.step + 1, until_step + 1):
            self._on_step(step, step, {"reward/mean": 0.5})
        return Boundary(step=until_step, batches=until_step, now_s=0.0, store=b"", episodes=())


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    start = Boundary(step=0, batches=0, now_s=0.0, store=b"", episodes=())
    monkeypatch.setattr(training_module, "InlineSegment", ScriptedSegment)
    monkeypatch.setattr(training_module, "first_boundary", lambda *_: start)
    config = small_run(tmp_path / "run", eval={"every_steps": 2})
    folder = RunFolder(tmp_path / "run")
    folder.create(config.to_toml())
    learner = SimpleNamespace(state=lambda: ({}, {}), load_state=lambda *_: None)

    def run() -> list[tuple[str, int]]:
        view = QuietView(io.StringIO())
        setup = SimpleNamespace(config=config)
        held_out = {"eval/pass_at_1": 0.25}
        InlineTraining(TrainingStage(setup, learner, folder, view, lambda: 0.0, evaluate=lambda step: held_out)).run()
        return [(row["stage"], row["step"]) for row in folder.read_all_metrics()]

    return run


@pytest.mark.parametrize("place", ["checkpoint.files_written", "checkpoint.before_rename", "checkpoint.after_rename"])
def test_an_evaluation_at_a_checkpoint_survives_a_kill_beside_it(train, monkeypatch, place: str):  # fault J6
    def dies(name: str) -> None:
        if name == place:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint_module, "failpoint", dies)
    with pytest.raises(KeyboardInterrupt):
        train()
    monkeypatch.setattr(checkpoint_module, "failpoint", lambda _: None)
    rows = train()
    assert rows == [row for step in (2, 4, 6) for row in (("train", step - 1), ("train", step), ("eval", step))]
