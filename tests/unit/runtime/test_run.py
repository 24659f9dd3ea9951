"""How a run ends that does not finish."""

import io
import json
import os
import signal
from pathlib import Path

import pytest

from soliton.config import load_config
from soliton.errors import ConfigError, Interrupted, RunError
from soliton.report.plain import PlainView
from soliton.report.quiet import QuietView
from soliton.runtime import run as run_module
from soliton.runtime.run import run_recipe
from tests.invariants.calculator_runs import small_run


def recipe_in(tmp_path: Path) -> Path:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(small_run(tmp_path / "run", seed=7).to_toml())
    return recipe


def test_sigterm_ends_a_run_like_ctrl_c_with_a_code_of_its_own(tmp_path: Path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)

    def ends(*_: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception as error:  # what code of an environment may do
            raise AssertionError("swallowed") from error
        return 0

    monkeypatch.setattr(run_module, "_run", ends)
    with pytest.raises(Interrupted) as stop:
        run_recipe(recipe_in(tmp_path), [], stages=None, resume=None, view=QuietView(io.StringIO()))
    assert stop.value.exit_code == 143
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["exit"] == {"status": "interrupted", "reason": "SIGTERM"}
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_resumed_run_keeps_the_keys_that_may_change(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(run_module, "_run", lambda *_: 0)
    recipe, run_dir, view = recipe_in(tmp_path), tmp_path / "run", QuietView(io.StringIO())
    run_recipe(recipe, [], stages=None, resume=None, view=view)
    run_recipe(recipe, ["local.workers=3"], stages=None, resume=run_dir, view=view)
    assert load_config(run_dir / "config.toml").local.workers == 3
    with pytest.raises(ConfigError, match="algorithm: the run has 'sao', now given 'vapo'"):
        run_recipe(recipe, ["algorithm=vapo"], stages=None, resume=run_dir, view=view)
    with pytest.raises(ConfigError, match=r"init\.model: the run has .*, now given 'another'"):
        run_recipe(recipe, ["init.model=another"], stages=None, resume=run_dir, view=view)
    with pytest.raises(ConfigError, match=r"env\.num_prompts: the run has none, now given 50"):
        run_recipe(recipe, ["env.num_prompts=50"], stages=None, resume=run_dir, view=view)
    assert load_config(run_dir / "config.toml").local.workers == 3


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(run_module, "_run", lambda *_: 0)
    recipe, run_dir, said = recipe_in(tmp_path), tmp_path / "run", io.StringIO()
    run_recipe(recipe, [], stages=None, resume=None, view=QuietView(io.StringIO()))
    (run_dir / "summary.json").write_text('{"exit": {"status": "finished", "reason": ""}}')
    (run_dir / "report.html").unlink(missing_ok=True)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    monkeypatch.setattr(run_module, "_run", lambda *_: pytest.fail("it was run again"))
    assert run_recipe(None, ["local.workers=3"], stages=None, resume=run_dir, view=PlainView(said, lambda: 0.0)) == 0
    assert f"{run_dir} is finished: nothing is left to do" in said.getvalue()
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (RunError("step 3: the loss is nan"), {"status": "stopped", "reason": "step 3: the loss is nan"}),
        (ConfigError("env.name: no such class"), {"status": "stopped", "reason": "env.name: no such class"}),
        (KeyboardInterrupt(), {"status": "interrupted", "reason": "Ctrl-C"}),
        (Interrupted("SIGTERM", 143), {"status": "interrupted", "reason": "SIGTERM"}),
    ],
)
def test_a_run_that_does_not_finish_still_says_what_it_was_how_long_and_why(tmp_path: Path, monkeypatch, error, ending):
    def ends(*_: object) -> int:
        raise error

    monkeypatch.setattr(run_module, "_run", ends)
    config = small_run(tmp_path / "run", seed=7)
    with pytest.raises(type(error)):
        run_recipe(recipe_in(tmp_path), [], stages=None, resume=None, view=QuietView(io.StringIO()))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["exit"] == ending
    assert (summary["seed"], summary["config_sha256"]) == (7, config.sha256())
    assert summary["wall_s"] >= 0
