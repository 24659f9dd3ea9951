"""Tasks by name."""

import json
from pathlib import Path

import numpy as np
import pytest

from soliton.envs.calculator import Calculator
from soliton.errors import ConfigError
from soliton.runtime.task import find_task


def test_the_built_in_task_has_all_three_parts():
    task = find_task("calculator")
    assert isinstance(task.make_environment(), Calculator)
    assert task.make_prompts(seed=0, num_prompts=4).at(0).content["expression"]
    assert task.demonstrate is not None


def test_a_class_of_ones_own_is_imported(tmp_path: Path, monkeypatch):
    (tmp_path / "my_task.py").write_text(
        "from soliton.envs.calculator import Calculator\n"
        "from soliton.prompts.calculator import CalculatorPrompts\n"
        "class Mine(Calculator):\n    prompts = CalculatorPrompts\n"
        "class Bare:\n    async def reset(self, prompt, seed): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    task = find_task("my_task:Mine")
    assert isinstance(task.make_environment(), Calculator)
    assert task.demonstrate is None
    with pytest.raises(ConfigError, match="'my_task:Bare' lacks step, close, prompts"):
        find_task("my_task:Bare")
    with pytest.raises(ConfigError, match=r"my_task\.py has no 'Missing'; it has Bare, Mine"):
        find_task("my_task:Missing")


OWN = """
from soliton.envs import BaseEnvironment, SingleTurn

class Listed(BaseEnvironment):
    def act(self, action): return self.end(1.0)
    @staticmethod
    def items(): return [{"prompt": str(n)} for n in range(50)]

class Drawn(BaseEnvironment):
    def act(self, action): return self.end(1.0)
    @staticmethod
    def item(rng): return {"prompt": str(rng.integers(50))}
    def expert(self, rng, noise): return "x"

class Mute(BaseEnvironment):
    @staticmethod
    def item(rng): return {"prompt": "x"}

class Picky(Listed):
    def __init__(self, difficulty): ...

class Broken(Listed):
    @staticmethod
    def items(): return [1 / 0]

class Forgetful(Listed):
    def items(self): return [{"prompt": "x"}]

class Judged(SingleTurn):
    rewards = [lambda completions, solution: [1.0]]
    @staticmethod
    def items(): return [{"prompt": str(n)} for n in range(50)]

def reward(prompts, completions, **kwargs): return [1.0]

ANSWER = 42
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "own_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_items_and_item_make_the_prompts_and_an_expert_makes_the_warm_start(own):
    listed, drawn = find_task("own_tasks:Listed"), find_task("own_tasks:Drawn")
    assert listed.make_prompts(seed=0, num_prompts=None).at(0).content["prompt"].isdigit()
    three = drawn.make_prompts(seed=0, num_prompts=3)
    assert {three.at(draw).id for draw in range(3)} == {three.at(draw).id for draw in range(3, 6)}
    assert listed.demonstrate is None
    prompt = drawn.make_prompts(seed=0, num_prompts=None).at(0)
    assert [message.role for message in drawn.demonstrate(prompt, np.random.default_rng(0), 0.0)] == [
        "user",
        "assistant",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Mute", r"lacks act; write act\(self, action\)"),
        ("Picky", "made without arguments.* asks for difficulty; give them defaults"),
        ("Broken", "making the first prompt raised ZeroDivisionError"),
        ("Forgetful", "making the first prompt raised TypeError.* static methods"),
        ("Judged", "asks for solution, and the items have the columns prompt"),
        ("reward", r"is a reward function, and env\.prompts is missing"),
        ("ANSWER", "is a int; name a class of environments or a reward function"),
    ],
)
def test_what_an_own_task_lacks_is_said(own, name, message):
    with pytest.raises(ConfigError, match=message):
        find_task(f"own_tasks:{name}").make_prompts(seed=0, num_prompts=None)


def test_a_reward_function_judges_the_rows_of_a_file(own, tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps({"prompt": f"{n}+1", "completion": str(n + 1)}) for n in range(40)) + "\n\n")
    task = find_task("own_tasks:reward", str(rows))
    prompt = task.make_prompts(seed=0, num_prompts=None).at(0)
    assert prompt.content["prompt"].endswith("+1")
    assert task.demonstrate(prompt, np.random.default_rng(0), 0.3)[1].content == prompt.content["completion"]


def test_rows_that_cannot_be_read_are_named(own, tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    with pytest.raises(ConfigError, match=r"cannot read .*rows\.jsonl"):
        find_task("own_tasks:reward", str(rows))
    rows.write_text('{"prompt": "1"}\n[1]\n')
    with pytest.raises(ConfigError, match=r"rows\.jsonl line 2: .*each line is one JSON object"):
        find_task("own_tasks:reward", str(rows))
    with pytest.raises(ConfigError, match="'calculator' makes its own prompts; drop the key"):
        find_task("calculator", str(rows))


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(ConfigError, match=r"env\.name: got 'kalkulator'; allowed are 'calculator'.* 'module:Class'"):
        find_task("kalkulator")
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        find_task("no_such_module:Class")
