"""Each tracker calls its package as the package documents it: against fakes of that surface, and against the package
where it is installed (offline)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from soliton.report.trackers import TrackerRun, open_tracker

CONFIG = {"seed": 3, "train": {"steps": 5}}


def run_of(folder: Path) -> TrackerRun:
    return TrackerRun("project", "name", "0123456789abcdef", CONFIG, folder, began_s=100.0)


class Calls:
    """Any method of it is called and noted."""

    def __init__(self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]], answers: dict[str, Any] | None = None):
        self.calls = calls
        self.answers = answers or {}

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments, named))
            return self.answers.get(name)

        return call


def install(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module of that name for this test, and our module that imports it anew."""
    module = ModuleType(name)
    for member, value in members.items():
        setattr(module, member, value)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, f"soliton.report.trackers.{name.split('.', maxsplit=1)[0]}", raising=False)


def test_wandb_gets_one_run_that_a_resume_goes_on_with_and_steps_per_stage(monkeypatch, tmp_path: Path):
    calls: list[Any] = []
    run = Calls(calls)
    install(monkeypatch, "wandb", init=Calls(calls, {"init": run}).init)
    tracker = open_tracker("wandb", run_of(tmp_path / "wandb"), {})
    tracker.log("sft", 1, 0.5, {"sft/loss": 2.0})
    tracker.log("train", 1, 1.0, {"reward/mean": 0.5})
    tracker.log("train", 2, 2.0, {"reward/mean": 0.6})
    tracker.close()
    name, _, named = calls[0]
    assert name == "init"
    assert named["id"] == "0123456789abcdef"
    assert named["resume"] == "allow"
    assert (named["project"], named["name"], named["config"]) == ("project", "name", CONFIG)
    assert [arguments[0] for name, arguments, _ in calls if name == "log"] == [
        {"sft/loss": 2.0, "sft/step": 1, "time/elapsed_s": 0.5},
        {"reward/mean": 0.5, "train/step": 1, "time/elapsed_s": 1.0},
        {"reward/mean": 0.6, "train/step": 2, "time/elapsed_s": 2.0},
    ]
    defined = {arguments[0]: named["step_metric"] for name, arguments, named in calls if name == "define_metric"}
    assert defined == {"sft/loss": "sft/step", "reward/mean": "train/step"}
    assert calls[-1][0] == "finish"


def test_trackio_gets_one_run_that_a_resume_goes_on_with(monkeypatch, tmp_path: Path):
    calls: list[Any] = []
    run = Calls(calls)
    install(monkeypatch, "trackio", init=Calls(calls, {"init": run}).init)
    tracker = open_tracker("trackio", run_of(tmp_path), {})
    tracker.log("train", 4, 1.0, {"reward/mean": 0.5})
    tracker.close()
    assert calls == [
        ("init", (), {"project": "project", "name": "name-012345", "config": CONFIG, "resume": "allow"}),
        ("log", ({"reward/mean": 0.5},), {"step": 4}),
        ("finish", (), {}),
    ]


class Entity:
    """`mlflow.entities.Metric` and `Param`: what they were made of."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and self.arguments == other.arguments

    __hash__ = None  # type: ignore[assignment]


def test_mlflow_gets_one_run_that_a_resume_goes_on_with_and_its_parameters_once(monkeypatch, tmp_path: Path):
    calls: list[Any] = []
    made = ModuleType("run")
    made.info = ModuleType("info")  # type: ignore[attr-defined]
    made.info.run_id = "r1"  # type: ignore[attr-defined]
    answers = {"create_experiment": "7", "create_run": made}
    install(monkeypatch, "mlflow")
    install(monkeypatch, "mlflow.entities", Metric=Entity, Param=Entity)
    install(monkeypatch, "mlflow.tracking", MlflowClient=lambda: Calls(calls, answers))
    memory: dict[str, str] = {}
    for step in (1, 2):
        tracker = open_tracker("mlflow", run_of(tmp_path), memory)
        tracker.log("train", step, 0.25, {"reward/mean": 0.5})
        tracker.close()
    assert memory == {"mlflow_run_id": "r1"}
    assert [name for name, _, _ in calls] == [
        "get_experiment_by_name",
        "create_experiment",
        "create_run",
        "log_batch",
        "log_batch",
        "set_terminated",
        "log_batch",
        "set_terminated",
    ]
    assert calls[2][1:] == (("7",), {"run_name": "name", "tags": {"soliton.run_id": "0123456789abcdef"}})
    assert calls[3][2] == {"params": [Entity("seed", "3"), Entity("train.steps", "5")]}
    assert calls[4] == ("log_batch", ("r1",), {"metrics": [Entity("reward/mean", 0.5, 100_250, 1)]})


def installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=installed(name)) for name in ("wandb", "trackio", "mlflow")],
)
def test_the_installed_package_takes_rows_offline_and_goes_on_with_its_run(name: str, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    memory: dict[str, str] = {}
    for step in (1, 2):
        tracker = open_tracker(name, run_of(tmp_path / name), memory)
        tracker.log("train", step, float(step), {"reward/mean": 0.5})
        tracker.close()
