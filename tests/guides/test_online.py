"""docs/guides/online.md: its task runs and shifts, its tables are what the code does."""

import asyncio
import importlib
import json
from pathlib import Path

import pytest

from soliton.config import load_config, parse_config
from soliton.envs.judge import OutsideJudge
from soliton.envs.style import POOLS, PREFERRED
from soliton.envs.surroundings import Surroundings
from soliton.prompts.stream import make_prompt
from soliton.runtime.run_folder import RunFolder
from tests.guides.guide_pages import GUIDES, blocks, run_small, save_files
from tests.invariants.calculator_runs import WARM_START

PAGE = "online.md"
ROOT = GUIDES.parents[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_task_of_ones_own_runs_and_shifts(folder: Path):
    warm = f"init.model={json.dumps(str(WARM_START))}"  # writes short answers to another task
    overrides = (
        "runtime=inline",
        'stages=["train"]',
        "env.shifts=[1]",
        "eval.every_steps=1",
        "rollout.max_in_flight=4",
    )
    assert run_small(folder / "support.toml", warm, *overrides) == 0
    rows = RunFolder(folder / "runs" / "support").read_all_metrics()
    assert [row["eval/info/phase"] for row in rows if row["stage"] == "eval"] == [2.0, 2.0]
    assert {"info/phase", "info/answers", "info/short"} <= next(row for row in rows if row["stage"] == "train").keys()


def test_the_same_task_waits_for_a_judge_outside(folder: Path):
    support = importlib.import_module("support")  # the page's own file

    async def play():
        environment = support.Support()
        environment.surroundings = Surroundings(OutsideJudge(60.0), phase=2)
        await environment.reset(make_prompt({"prompt": "order 7 is late"}), 0)
        return await environment.step("order 7: sorry")

    asked = json.loads(asyncio.run(play()).awaited.key)
    assert asked["criteria"]["short"] == "it has at most 20 characters"


def test_the_table_of_phases_is_what_the_task_does():
    rows = [row for row in (GUIDES / PAGE).read_text().splitlines() if row[:4] in ("| 1 ", "| 2 ", "| 3 ")]
    shifts = load_config(ROOT / "recipes" / "style.toml").env.shifts
    for row, pool, preferred, step in zip(rows, POOLS, PREFERRED, (0, *shifts), strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == str(step)
        assert cells[2] in ("the same", ", ".join(pool))
        assert cells[3] == preferred
    assert POOLS[0] == POOLS[1]


def test_the_tables_and_commands_are_valid_recipes():
    band = "[method]\neps_low = 0.2\neps_high = 0.28\n"
    judge = next(block for block in blocks(PAGE, "toml") if "[env.judge]" in block)
    import tomllib

    assert parse_config(tomllib.loads(judge + band), source="guide").env.judge.kind == "llm"
    commands = [line.split() for block in blocks(PAGE, "bash") for line in block.splitlines()]
    for command in commands:
        if command[:2] == ["soliton", "train"] and command[2].startswith("recipes/"):
            load_config(ROOT / command[2], [word.strip("'") for word in command[3:]])
    assert ["soliton", "shift", "runs/live", "2"] in commands
