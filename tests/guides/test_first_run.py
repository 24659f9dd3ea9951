"""docs/guides/first-run.md: its commands in their order, with small numbers, and what it says they leave."""

import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from tests.guides.guide_pages import GUIDES, blocks, commands, save_files
from tests.invariants.calculator_runs import ROOT, WARM_START

PAGE = "first-run.md"
SMALL = [
    "runtime=inline",
    f"init.model={WARM_START}",  # what the page's warm start would end with
    "sft.num_demonstrations=8",
    "sft.batch_size=8",
    "sft.muon_lr=1e-6",
    "sft.lr=1e-6",
    "value_pretraining.num_rollouts=64",
    "value_pretraining.max_epochs=1",
    "train.steps=2",
    "train.batch_size=8",
    "engine.num_slots=16",
    "rollout.max_in_flight=16",
    "eval.num_prompts=8",
]
OVER = ["doctor", "runs/first"]
"""The page asks while the run goes on; here it is over, and `doctor` says so by its exit code."""
ONLY_LOCAL = {"store.sqlite", "store.payloads", "weights/"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone, as far as the page needs one."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small(arguments: list[str]) -> list[str]:
    """A command of the page; a run gets small numbers, which the page's own keys overrule."""
    return [*arguments[:2], *SMALL, *arguments[2:]] if arguments[0] == "train" else arguments


def test_the_pages_commands_work_in_their_order_and_leave_what_it_says(folder: Path):
    said = {}
    for arguments in commands(PAGE):
        result = CliRunner().invoke(app, small(arguments), catch_exceptions=False)
        assert result.exit_code == (1 if arguments == OVER else 0), (arguments, result.output)
        said[" ".join(arguments)] = result.output
    assert len(said) == len(commands(PAGE)) == 10
    rows = re.findall(r"^\| (`.*?) \| ", (GUIDES / PAGE).read_text().partition("| in `runs/first`")[2], re.M)
    named = {name for row in rows for name in re.findall(r"`(.*?)`", row)}
    assert len(named) > 10
    assert [name for name in sorted(named - ONLY_LOCAL) if not (folder / "runs/first" / name).exists()] == []
    assert "| second | grpo-dis | 0 | 2 |" in said["compare runs/first runs/second --out first-and-second.png"]
    assert (folder / "first-and-second.png").exists()
    assert "avg@4" in said["eval runs/first --runs 4"]
    assert "the run has finished" in said[" ".join(OVER)]


def test_the_pages_function_asks_a_policy(folder: Path):
    save_files(PAGE, folder)
    asked = runpy.run_path("ask.py")["first_operation"](WARM_START, "78-62*3")
    assert re.fullmatch(r"[\d*+=-]+", asked)
    assert "ask.first_operation" in blocks(PAGE, "bash")[-1]
