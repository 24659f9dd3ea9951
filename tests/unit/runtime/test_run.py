"""How a run ends that does not finish."""

import io
import json
from pathlib import Path

import pytest

from soliton.errors import Interrupted, RunError
from soliton.report.quiet import QuietView
from soliton.runtime import run as run_module
from soliton.runtime.run import run_recipe
from tests.invariants.calculator_runs import small_run


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (RunError("step 3: the loss is nan"), {"status": "stopped", "reason": "step 3: the loss is nan"}),
        (KeyboardInterrupt(), {"status": "interrupted", "reason": "Ctrl-C"}),
        (Interrupted("SIGTERM", 143), {"status": "interrupted", "reason": "SIGTERM"}),
    ],
)
def test_a_run_that_does_not_finish_still_says_what_it_was_how_long_and_why(tmp_path: Path, monkeypatch, error, ending):
    def ends(*_: object) -> int:
        raise error

    monkeypatch.setattr(run_module, "_run", ends)
    config = small_run(tmp_path / "run", seed=7)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(config.to_toml())
    with pytest.raises(type(error)):
        run_recipe(recipe, [], stages=None, resume=None, view=QuietView(io.StringIO()))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["exit"] == ending
    assert (summary["seed"], summary["config_sha256"]) == (7, config.sha256())
    assert summary["wall_s"] >= 0
