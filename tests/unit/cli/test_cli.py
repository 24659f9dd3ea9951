"""The command: what it hands on, what it says, how it exits. Training itself is a scripted stand-in."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import soliton
from soliton.cli import app
from soliton.commands.algorithms import first_sentence
from soliton.errors import ConfigError, RunError

RUN = "soliton.runtime.run"


class ScriptedRun:
    """Stands where `run_recipe` is; records the call and ends as told."""

    def __init__(self, ends: int | BaseException = 0):
        self.ends = ends
        self.calls: list[tuple] = []

    def run_recipe(self, recipe, overrides, *, stages, resume, view) -> int:
        self.calls.append((recipe, overrides, stages, resume))
        view.stage("train", 2)
        view.update(2, {"reward/mean": 0.5})
        if isinstance(self.ends, BaseException):
            raise self.ends
        view.finish("pass@1 0.31 -> 0.60")
        return self.ends


def call(monkeypatch: pytest.MonkeyPatch, run: ScriptedRun, *arguments: str):
    module = ModuleType(RUN)
    module.run_recipe = run.run_recipe
    monkeypatch.setitem(sys.modules, RUN, module)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.mark.parametrize(
    ("command", "stages"),
    [("train", None), ("sft", ["sft"]), ("pretrain-value", ["value_pretraining"])],
)
def test_each_command_runs_its_stages_of_the_recipe(monkeypatch, command: str, stages: list[str] | None):
    run = ScriptedRun()
    result = call(monkeypatch, run, command, "recipes/calculator.toml", "train.steps=3", "seed=7")
    assert result.exit_code == 0
    assert run.calls == [(Path("recipes/calculator.toml"), ["train.steps=3", "seed=7"], stages, None)]
    assert "pass@1 0.31 -> 0.60" in result.stdout


def test_train_goes_on_with_a_run_folder(monkeypatch):
    run = ScriptedRun()
    assert call(monkeypatch, run, "train", "r.toml", "--resume", "runs/x").exit_code == 0
    assert run.calls == [(Path("r.toml"), [], None, Path("runs/x"))]


def test_a_run_is_resumed_without_naming_its_recipe(monkeypatch):
    run = ScriptedRun()
    assert call(monkeypatch, run, "train", "--resume", "runs/x").exit_code == 0
    assert call(monkeypatch, run, "train", "local.workers=2", "--resume", "runs/x").exit_code == 0
    assert run.calls == [(None, [], None, Path("runs/x")), (None, ["local.workers=2"], None, Path("runs/x"))]


def test_quiet_leaves_only_the_result(monkeypatch):
    assert call(monkeypatch, ScriptedRun(), "train", "r.toml", "--quiet").stdout == "pass@1 0.31 -> 0.60\n"


def test_a_configuration_error_is_one_message_without_a_traceback_and_exit_code_2(monkeypatch):
    message = "train.batch_size: got 3; allowed is a multiple of [group] 8; use 8"
    result = call(monkeypatch, ScriptedRun(ConfigError(message)), "train", "r.toml")
    assert result.exit_code == 2
    assert f"error: {message}" in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def test_a_run_that_had_to_stop_says_why_and_exits_with_1(monkeypatch):
    result = call(monkeypatch, ScriptedRun(RunError("step 12: loss is nan")), "train", "r.toml")
    assert result.exit_code == 1
    assert "stopped: step 12: loss is nan" in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def test_an_interrupt_exits_with_130(monkeypatch):
    result = call(monkeypatch, ScriptedRun(KeyboardInterrupt()), "train", "r.toml")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (130, "== interrupted")


def test_the_exit_code_of_a_run_is_the_exit_code_of_the_command(monkeypatch):
    assert call(monkeypatch, ScriptedRun(3), "train", "r.toml").exit_code == 3


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch):
    with pytest.raises(AssertionError, match="unreachable"):
        call(monkeypatch, ScriptedRun(AssertionError("unreachable")), "train", "r.toml")


def test_the_version_is_that_of_the_package():
    assert CliRunner().invoke(app, ["--version"]).stdout == f"soliton {soliton.__version__}\n"


@pytest.mark.parametrize("command", ["train", "sft", "pretrain-value", "eval"])
def test_the_help_of_each_command_teaches_with_an_example(command: str):
    shown = CliRunner().invoke(app, [command, "--help"]).stdout
    assert f"soliton {command} recipes/calculator.toml" in shown


def test_the_algorithms_are_listed_with_what_they_are():
    shown = CliRunner().invoke(app, ["algorithms"]).stdout
    for preset in ("sao", "grpo", "grpo-dis", "vapo"):
        assert any(line.startswith(f"{preset} ") for line in shown.splitlines())
    assert "SAO" in shown


def test_the_first_sentence_ends_at_its_full_stop():
    assert (
        first_sentence("SAO, the paper's\nmethod (section 2.1). More.\n\nElse.")
        == "SAO, the paper's method (section 2.1)"
    )
    assert first_sentence("One line.") == "One line"


@pytest.mark.parametrize("start", [[str(Path(sys.executable).with_name("soliton"))], [sys.executable, "-m", "soliton"]])
def test_the_command_and_the_module_start(start: list[str]):
    done = subprocess.run([*start, "--help"], capture_output=True, text=True, check=True)
    assert "recipes/calculator.toml" in done.stdout
