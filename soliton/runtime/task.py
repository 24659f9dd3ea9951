"""Tasks by name: an environment with its prompts and, where it has one, its expert. Built-in ones, and your own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from soliton.envs.calculator import Calculator, demonstration
from soliton.envs.environment import Environment, Message
from soliton.errors import ConfigError
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.stream import PromptStream
from soliton.types import Prompt

MakePrompts = Callable[..., PromptStream]
"""Called with `seed=` and `num_prompts=` (None: endless)."""
Demonstrate = Callable[[Prompt, np.random.Generator, float], list[Message]]
"""A scripted expert that errs with the given probability per turn."""


@dataclass(frozen=True)
class Task:
    """What a recipe's `env.name` stands for.

    Attributes:
        make_environment: one environment per episode.
        make_prompts: its prompts.
        demonstrate: its expert; None: no warm start on demonstrations.
    """

    make_environment: Callable[[], Environment]
    make_prompts: MakePrompts
    demonstrate: Demonstrate | None = None


BUILT_IN = {"calculator": Task(Calculator, CalculatorPrompts, demonstration)}


def find_task(name: str) -> Task:
    """A built-in task, or the class that `module:Class` names, imported from the Python path or the working directory.

    The class is an `Environment` without constructor arguments; its static method `prompts(*, seed, num_prompts)`
    makes the prompt stream, and `demonstration(prompt, rng, noise)`, if there is one, is its expert.

    Raises:
        ConfigError: no such task, module or class, or one without prompts.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, separator, class_name = name.partition(":")
    if not separator:
        raise ConfigError(
            f"env.name: got {name!r}; allowed are {', '.join(map(repr, BUILT_IN))} and 'module:Class' of your own"
        )
    environment = _import(name, module_name, class_name)
    missing = [method for method in ("reset", "step", "close", "prompts") if not hasattr(environment, method)]
    if missing:
        raise ConfigError(
            f"env.name: {name!r} lacks {', '.join(missing)}; an environment has reset, step and close "
            "(soliton.envs.environment), and prompts(*, seed, num_prompts), which makes its prompt stream"
        )
    return Task(environment, environment.prompts, getattr(environment, "demonstration", None))


def _import(name: str, module_name: str, class_name: str) -> Any:
    if "" not in sys.path:
        sys.path.append("")  # the working directory, as `python` itself has it
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"env.name: {name!r}: cannot import {module_name!r}: {error}; start where it lies") from error
    if not hasattr(module, class_name):
        raise ConfigError(f"env.name: {name!r}: {module.__file__} has no {class_name!r}")
    return getattr(module, class_name)
