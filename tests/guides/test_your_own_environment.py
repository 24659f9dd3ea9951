"""docs/guides/your-own-environment.md, followed literally, with fewer steps."""

import io
import json
import sys
from pathlib import Path

import pytest

from soliton.report.quiet import QuietView
from soliton.runtime.run import run_recipe
from tests.guides.guide_pages import blocks, lines_of_code, run_small, save_files

PAGE = "your-own-environment.md"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's working directory, with the page's files in it."""
    save_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("crack", "sums", "short_sums"):
        sys.modules.pop(name, None)


def test_the_environment_takes_at_most_thirty_lines(folder: Path):
    assert lines_of_code((folder / "crack.py").read_text()) <= 30


def test_the_game_has_a_warm_start_and_an_evaluation(folder: Path):
    assert run_small(folder / "crack.toml", 'stages=["sft","eval"]', "sft.num_demonstrations=16") == 0
    summary = json.loads((folder / "runs/crack/summary.json").read_text())
    assert summary["pass_at_1_before"]["n"] == 4


@pytest.mark.slow
def test_the_game_learns_as_the_page_has_it(folder: Path):
    assert run_recipe(folder / "crack.toml", [], stages=None, resume=None, view=QuietView(io.StringIO())) == 0
    summary = json.loads((folder / "runs/crack/summary.json").read_text())
    assert summary["steps"] == 40
    assert summary["pass_at_1_gain"]["mean"] > 0


def test_a_reward_function_trains_on_rows_of_a_file(folder: Path):
    rows = [{"prompt": f"{a}+{b}", "answer": str(a + b), "completion": str(a + b)} for a in range(9) for b in range(9)]
    printed = [json.loads(line) for block in blocks(PAGE, "json") for line in block.splitlines()]
    assert all(row.keys() == rows[0].keys() for row in printed)
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *printed]))
    recipe = folder / "sums.toml"
    table = next(block for block in blocks(PAGE, "toml") if "sums.jsonl" in block)
    rest = (folder / "crack.toml").read_text().replace("runs/crack", "runs/sums")
    recipe.write_text(rest.replace('[env]\nname = "crack:CrackCode"\n', table))
    assert run_small(recipe, "sft.num_demonstrations=192") == 0
    assert json.loads((folder / "runs/sums/summary.json").read_text())["steps"] == 2


def test_two_reward_functions_judge_prompts_from_python(folder: Path):
    recipe = folder / "crack.toml"
    overrides = ['env.name="short_sums:ShortSums"', 'run.dir="runs/short"', 'stages=["train"]']
    assert run_small(recipe, *overrides) == 0
    assert json.loads((folder / "runs/short/summary.json").read_text())["steps"] == 2


def test_the_mistake_that_the_page_shows_gets_the_message_that_it_prints(folder: Path):
    from soliton.errors import ConfigError

    source = (folder / "crack.py").read_text().replace("def act", "def answer")
    (folder / "crack.py").write_text(source)
    (printed,) = blocks(PAGE, "text")
    with pytest.raises(ConfigError) as error:
        run_small(folder / "crack.toml")
    assert " ".join(printed.split()) in " ".join(str(error.value).split())
