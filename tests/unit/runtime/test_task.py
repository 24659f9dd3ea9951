"""Tasks by name."""

from pathlib import Path

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
    with pytest.raises(ConfigError, match=r"my_task\.py has no 'Missing'"):
        find_task("my_task:Missing")


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(ConfigError, match=r"env\.name: got 'kalkulator'; allowed are 'calculator' and 'module:Class'"):
        find_task("kalkulator")
    with pytest.raises(ConfigError, match="cannot import 'no_such_module'"):
        find_task("no_such_module:Class")
