"""`soliton shift`: what it refuses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.config import load_config
from soliton.runtime.phases import RunPhases
from soliton.runtime.run_folder import RunFolder

BAND = "[method]\neps_low = 0.2\neps_high = 0.28\n"


def shift(run: Path, phase: str, code: int) -> str:
    result = CliRunner().invoke(app, ["shift", str(run), phase], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def run_of(tmp_path: Path):
    def make(recipe: str) -> Path:
        (tmp_path / "recipe.toml").write_text(recipe + BAND)
        RunFolder(tmp_path / "run").create(load_config(tmp_path / "recipe.toml").to_toml())
        return tmp_path / "run"

    return make


def test_a_phase_can_be_set_while_the_run_rests_and_set_again(run_of):
    run = run_of('[env]\nname = "style"\n')
    assert shift(run, "2", 0) == f"{run}: phase 2 once it goes on\n"
    shift(run, "1", 0)
    assert [said.phase for said in RunPhases((), RunFolder(run).phases).set_from_outside()] == [2, 1]


def test_phases_that_the_environment_does_not_have_are_refused(run_of):
    assert "PHASE: got 4; the environment of" in shift(run_of('[env]\nname = "style"\n'), "4", 2)


def test_an_environment_without_phases_is_refused(run_of):
    assert "has no phases" in shift(run_of(""), "2", 2)


def test_the_phases_of_a_mixture_are_those_of_the_one_that_has_most(run_of):
    run = run_of('[[env.mix]]\nname = "style"\n[[env.mix]]\nname = "maze"\n')
    assert "phase 3 once it goes on" in shift(run, "3", 0)


def test_an_inline_run_is_refused_with_what_to_do(run_of):
    message = shift(run_of('runtime = "inline"\n[env]\nname = "style"\n'), "2", 2)
    assert "repeats itself to the bit" in message
    assert "env.shifts" in message


def test_a_finished_run_is_refused_with_what_to_do(run_of):
    run = run_of('[env]\nname = "style"\n')
    (run / "summary.json").write_text('{"exit": {"status": "finished", "reason": ""}}')
    assert f"{run} is finished: nothing learns in it any more; start a run from it with init.run={run}" in shift(
        run, "2", 2
    )


def test_what_is_no_run_is_refused(tmp_path: Path):
    assert "holds no run" in shift(tmp_path, "2", 2)
