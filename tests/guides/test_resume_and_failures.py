"""docs/guides/resume-and-failures.md: its commands after a Ctrl-C, with small numbers; its messages are the code's."""

import io
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.config import load_config
from soliton.report.quiet import QuietView
from soliton.runtime.run import run_recipe
from tests.guides.guide_pages import GUIDES, blocks, commands
from tests.guides.test_first_run import SMALL
from tests.invariants.calculator_runs import ROOT

PAGE = "resume-and-failures.md"
STAGES = 'stages=["train","eval"]'


class CtrlC(QuietView):
    """Interrupts the run after its first learner step."""

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """See `RunView`."""
        if "reward/mean" in metrics and "train/policy_step" in metrics:
            raise KeyboardInterrupt


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == code, (arguments, result.output)
    return result.output


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's run, interrupted; returns its folder as the page names it."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    _, recipe, *overrides = commands(PAGE)[0]
    with pytest.raises(KeyboardInterrupt):
        run_recipe(Path(recipe), [*SMALL, STAGES, *overrides], stages=None, resume=None, view=CtrlC(io.StringIO()))
    return Path("runs/first")


def test_a_run_goes_on_and_what_may_change_is_as_the_page_says(interrupted: Path):
    first, resume, other_workers, other_steps, longer = commands(PAGE)[:5]
    assert "interrupted" in said("doctor", str(interrupted), code=1)
    shutil.copytree(interrupted, "runs/moved")
    said(*other_workers)
    assert "the run has finished" in said("doctor", str(interrupted), code=1)
    assert "is finished: nothing is left to do" in said(*resume)
    assert load_config(interrupted / "config.toml").local.workers == 2
    refused = said(*other_steps, code=2)
    printed = next(block for block in blocks(PAGE, "text") if "another configuration" in block)
    assert printed.replace("has 100", "has 2").strip() in refused
    interrupted.rename("runs/elsewhere")
    said("train", "--resume", "runs/moved")
    said(*longer[:2], *SMALL, "init.model=none", *[each.replace("first", "moved") for each in longer[2:]])
    assert first[:2] == longer[:2]


def test_the_pages_settings_are_valid(tmp_path: Path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[method]\neps_low = 0.2\neps_high = 0.28\n" + "\n".join(blocks(PAGE, "toml")))
    config = load_config(recipe)
    assert (config.checkpoint.every_steps, config.local.durability) == (25, "process")


def test_every_message_of_the_table_is_in_the_code():
    code = re.sub(r'"\s+f?"', "", "".join(file.read_text() for file in (ROOT / "soliton").rglob("*.py")))
    code = re.sub(r"\{[^{}]*\}", "{}", code)
    rows = re.findall(r"^\| `(.+?)` \|", (GUIDES / PAGE).read_text(), re.M)
    assert len(rows) >= 14
    assert [text for text in rows if re.sub(r"killed by \w+", "{}", text) not in code] == []
