"""Tasks by name: an environment with its prompts and, where it has one, its expert. Built-in ones, and your own."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from soliton.config.tables import EnvTable
from soliton.envs.base import BaseEnvironment
from soliton.envs.calculator import Calculator, demonstration
from soliton.envs.environment import Environment, Message
from soliton.envs.maze import Maze
from soliton.envs.mixed_maze import MixedMaze
from soliton.envs.single_turn import SingleTurn
from soliton.envs.style import StyleWriting
from soliton.errors import ConfigError
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.items import DrawnPrompts, Item, ListedPrompts
from soliton.prompts.stream import PromptStream
from soliton.prompts.style import even_style_item, style_item
from soliton.types import Prompt

MakePrompts = Callable[..., PromptStream]
"""Called with `seed=` and `num_prompts=` (None: all there are)."""
Demonstrate = Callable[[Prompt, np.random.Generator, float], list[Message]]
"""A scripted expert that errs with the given probability per turn."""


@dataclass(frozen=True)
class Task:
    """What a recipe's `env.name` stands for.

    Attributes:
        make_environment: one environment per episode.
        make_prompts: its prompts.
        demonstrate: its expert; None: no warm start on demonstrations.
        phases: how many phases it has (`soliton.envs.surroundings`).
        judged: whether its environment asks a judge.
    """

    make_environment: Callable[[], Environment]
    make_prompts: MakePrompts
    demonstrate: Demonstrate | None = None
    phases: int = 1
    judged: bool = False


def _style(item: Callable[[np.random.Generator], Item]) -> Task:
    prompts = partial(DrawnPrompts, item)
    return Task(StyleWriting, prompts, StyleWriting.demonstration, phases=StyleWriting.phases, judged=True)


BUILT_IN = {
    "calculator": Task(Calculator, CalculatorPrompts, demonstration),
    "maze": Task(Maze, partial(DrawnPrompts, Maze.item), Maze.demonstration),
    "mixed_maze": Task(MixedMaze, partial(DrawnPrompts, MixedMaze.item), MixedMaze.demonstration),
    "style": _style(style_item),
    "style_even": _style(even_style_item),
}


def phases_of(env: EnvTable) -> int:
    """How many phases the environments of a run have; of a mixture, the most that any has."""
    if not env.mix:
        return find_task(env.name, env.prompts).phases
    return max(find_task(part.name, part.prompts).phases for part in env.mix)


def find_task(name: str, prompts_file: str | None = None) -> Task:
    """A built-in task, or what `module:name` names, imported from the Python path or the working directory.

    * A class: an `Environment` without constructor arguments (`BaseEnvironment` has defaults for all but the task
      itself) and with prompts: `items()`, `item(rng)` or `prompts(*, seed, num_prompts)`.
    * A function: a reward function (`soliton.envs.single_turn`); its prompts are the rows of `prompts_file` (JSONL).

    Raises:
        ConfigError: no such task, module or name, or one that lacks something; the message says what to write.
    """
    module_name, separator, attribute = name.partition(":")
    if name not in BUILT_IN and not separator:
        raise ConfigError(
            f"env.name: got {name!r}; allowed are {', '.join(map(repr, BUILT_IN))}, and 'module:Class' or "
            "'module:reward_function' of your own"
        )
    own = _import(name, module_name, attribute) if separator else None
    if separator and not isinstance(own, type):
        own = _from_function(name, own, prompts_file)
    elif prompts_file is not None:
        raise ConfigError(
            f"env.prompts: got {prompts_file!r}, but {name!r} makes its own prompts; drop the key, or name a reward "
            "function"
        )
    return BUILT_IN[name] if own is None else _from_class(name, own)


def _import(name: str, module_name: str, attribute: str) -> Any:
    if "" not in sys.path:
        sys.path.append("")  # the working directory, as `python` itself has it
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"env.name: {name!r}: cannot import {module_name!r}: {error}; start in the folder in which "
            f"{module_name.replace('.', '/')}.py lies, or put that folder on PYTHONPATH"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"env.name: {name!r}: importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, attribute):
        there = sorted(
            key for key, value in vars(module).items() if callable(value) and value.__module__ == module_name
        )
        raise ConfigError(
            f"env.name: {name!r}: {module.__file__} has no {attribute!r}; it has {', '.join(there) or 'nothing'}"
        )
    return getattr(module, attribute)


def _from_class(name: str, environment: type[Any]) -> Task:
    missing = [method for method in ("reset", "step", "close") if not hasattr(environment, method)]
    if not any(hasattr(environment, source) for source in ("prompts", "items", "item")):
        missing.append("prompts")
    if missing:
        raise ConfigError(
            f"env.name: {name!r} lacks {', '.join(missing)}; an environment has reset, step and close "
            "(soliton.envs.BaseEnvironment has them), and its prompts: a static method items() -> list of dicts, "
            "item(rng) -> dict, or prompts(*, seed, num_prompts)"
        )
    needed = [
        parameter
        for parameter, p in inspect.signature(environment).parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise ConfigError(
            f"env.name: {name!r} is made without arguments, one object per episode, and asks for "
            f"{', '.join(needed)}; give them defaults"
        )
    if issubclass(environment, BaseEnvironment) and not _answers(environment):
        raise ConfigError(
            f"env.name: {name!r} lacks act; write act(self, action) -> StepResult, which returns self.say(text) or "
            "self.end(reward)"
        )
    return Task(
        environment,
        _prompts_of(name, environment),
        _expert_of(environment),
        phases=getattr(environment, "phases", 1),
        judged=getattr(environment, "judged", False),
    )


def _answers(environment: type[BaseEnvironment]) -> bool:
    return environment.act is not BaseEnvironment.act or environment.step is not BaseEnvironment.step


def _expert_of(environment: type[Any]) -> Demonstrate | None:
    inherits = issubclass(environment, BaseEnvironment) and not issubclass(environment, SingleTurn)
    demonstrate: Demonstrate | None = getattr(environment, "demonstration", None)
    has_no_expert = inherits and environment.expert is BaseEnvironment.expert
    if has_no_expert and "demonstration" not in vars(environment):
        return None
    return demonstrate


def _prompts_of(name: str, environment: type[Any]) -> MakePrompts:
    if hasattr(environment, "prompts"):
        return partial(_checked_prompts, name, environment.prompts)
    if hasattr(environment, "items"):

        def listed(*, seed: int, num_prompts: int | None) -> PromptStream:
            return ListedPrompts(environment.items(), seed=seed, num_prompts=num_prompts)

        make: MakePrompts = listed
    else:
        make = partial(DrawnPrompts, environment.item)
    if issubclass(environment, SingleTurn):
        return partial(_judged_prompts, name, environment, make)
    return partial(_checked_prompts, name, make)


def _checked_prompts(name: str, make: MakePrompts, *, seed: int, num_prompts: int | None) -> PromptStream:
    """The stream, once its first prompt could be made."""
    try:
        stream = make(seed=seed, num_prompts=num_prompts)
        stream.at(0)
    except ConfigError as error:
        raise ConfigError(f"env.name: {name!r}: {error}") from error
    except Exception as error:
        raise ConfigError(
            f"env.name: {name!r}: making the first prompt raised {type(error).__name__}: {error}; items, item and "
            "prompts are static methods: items(), item(rng), prompts(*, seed, num_prompts)"
        ) from error
    return stream


def _judged_prompts(
    name: str, environment: type[SingleTurn], make: MakePrompts, *, seed: int, num_prompts: int | None
) -> PromptStream:
    stream = _checked_prompts(name, make, seed=seed, num_prompts=num_prompts)
    if problems := environment.problems(stream.at(0).content):
        raise ConfigError(f"env.name: {name!r}: {'; '.join(problems)}")
    return stream


def _from_function(name: str, function: Any, prompts_file: str | None) -> type[SingleTurn]:
    if not callable(function):
        raise ConfigError(
            f"env.name: {name!r} is a {type(function).__name__}; name a class of environments or a reward function "
            "reward(prompts, completions, **kwargs) -> list[float]"
        )
    if prompts_file is None:
        raise ConfigError(
            f"env.name: {name!r} is a reward function, and env.prompts is missing; set it to a JSONL file whose rows "
            'have a "prompt" and the columns that the function reads'
        )
    rows = read_rows(Path(prompts_file))
    return type("RewardedRows", (SingleTurn,), {"rewards": [function], "items": staticmethod(lambda: rows)})


def read_rows(path: Path) -> list[Item]:
    """The rows of a JSONL file; empty lines are skipped.

    Raises:
        ConfigError: no such file, or a line that is no JSON object.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"env.prompts: cannot read {str(path)!r} ({error.strerror}); give a JSONL file") from error
    rows: list[Item] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"env.prompts: {path} line {number}: {error}; each line is one JSON object such as "
                '{"prompt": "2+2", "answer": "4"}'
            ) from error
    return rows
