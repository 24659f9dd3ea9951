"""What stands in the way of a run here and now: files, folders, names, and what this version cannot do.

The configuration itself is valid; these depend on the machine. Everything is reported at once, before torch is
imported and before anything is written.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

from soliton.config import PRESET_CRITICS, RunConfig
from soliton.errors import ConfigError, did_you_mean
from soliton.parameter_names import unmatched_kinds
from soliton.runtime.model_shape import shape_of
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.task import BUILT_IN

PLANNED_ENVIRONMENTS = {
    "python_tool_math": "mathematics with a Python tool: needs a sandbox and the paper's data",
    "swe_bench_openhands": "SWE-Bench with OpenHands: needs containers and its harness",
}
"""Environments of the paper that this version does not have."""
_LARGEST_HEADER_BYTES = 100_000_000


def refuse_obstacles(config: RunConfig, *, resumed: bool) -> None:
    """Raise if anything stands in the way.

    Raises:
        ConfigError: all of `not_supported` and `missing_here` in one message.
    """
    found = [*not_supported(config), *missing_here(config, resumed=resumed)]
    if found:
        raise ConfigError("the run cannot start:\n" + "\n".join(f"  {line}" for line in found))


def not_supported(config: RunConfig) -> list[str]:
    """Keys that a recipe may have and that this version does nothing with."""
    hardware, defaults = config.hardware, type(config.hardware)()
    found = []
    if config.engine.kind != "embedded":
        found.append(
            f"engine.kind: {config.engine.kind!r} is not supported yet; only 'embedded' runs, which samples with the "
            "learner's own float32 model on CPU cores"
        )
    changed = {key: getattr(hardware, key) for key in ("learner_gpus", "engine_gpus", "sharding", "dtype")}
    found += [
        f"hardware.{key}: {value!r} is not supported yet; this version trains and samples on CPU cores, in float32, "
        "in one learner process"
        for key, value in changed.items()
        if value != getattr(defaults, key)
    ]
    found += [
        f"{key}.name: {name!r} is not part of this version ({PLANNED_ENVIRONMENTS[name]}); write your own as "
        "'module:Class'"
        for key, name, _ in _environments(config)
        if name in PLANNED_ENVIRONMENTS
    ]
    return found


def missing_here(config: RunConfig, *, resumed: bool) -> list[str]:
    """Files that are absent or do not fit, a run folder that is taken, modules that cannot be found."""
    found = [*_run_folder(config, resumed), *_initial_run(config), *_judge_key(config), *_trackers(config)]
    for key, name, prompts in _environments(config):
        found += [*_environment(key, name), *_prompts_file(key, prompts)]
    folder = initial_folder(config)
    if folder is not None:
        found += _model_folder(config, folder)
    shape = shape_of(config, folder)
    if shape is not None and shape.max_context is not None and config.limits.max_tokens > shape.max_context:
        found.append(
            f"limits.max_tokens: got {config.limits.max_tokens}, more than the {shape.max_context} positions that "
            f"{shape.name} was made for; use at most {shape.max_context}"
        )
    return found


def initial_folder(config: RunConfig) -> Path | None:
    """The Hugging Face folder that the first stage starts from, whether or not it is there."""
    if config.init.model is not None:
        return Path(config.init.model)
    if config.init.run is None:
        return None
    run = Path(config.init.run)
    return next((f for f in (run / "final", run / "stages" / "sft") if (f / "config.json").exists()), run / "final")


def _run_folder(config: RunConfig, resumed: bool) -> list[str]:
    folder = RunFolder(Path(config.run.dir))
    if resumed or not folder.config.exists():
        if folder.path.is_file():
            return [f"run.dir: {folder.path} is a file; choose another run.dir"]
        return []
    try:
        with folder.lock():
            pass
    except ConfigError as going_on:
        return [str(going_on)]
    if folder.was_refused():
        return []
    return [
        f"run.dir: {folder.path} already holds a run; choose another run.dir, go on with "
        f"`soliton train --resume {folder.path}`, or remove the folder"
    ]


def _initial_run(config: RunConfig) -> list[str]:
    if config.init.run is None:
        return []
    run = Path(config.init.run)
    if not run.is_dir():
        return [f"init.run: there is no folder {run}; give the folder that run.dir of the other run names"]
    folder = initial_folder(config)
    if folder is not None and not (folder / "config.json").exists():
        return [f"init.run: {run} holds no finished model (neither final/ nor stages/sft/); let it finish first"]
    return []


def _environments(config: RunConfig) -> list[tuple[str, str, str | None]]:
    """(table, name, file of prompts) of each environment of the run."""
    mix = config.env.mix
    if not mix:
        return [("env", config.env.name, config.env.prompts)]
    return [(f"env.mix.{i}", part.name, part.prompts) for i, part in enumerate(mix)]


def _prompts_file(key: str, prompts: str | None) -> list[str]:
    if prompts is None or Path(prompts).is_file():
        return []
    return [f"{key}.prompts: there is no file {prompts}; give a JSONL file, from the folder in which you start"]


def _environment(key: str, name: str) -> list[str]:
    module, separator, _ = name.partition(":")
    if not separator:
        return _built_in(key, name)
    if "" not in sys.path:
        sys.path.append("")  # the working directory, as `python` itself has it
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return [
            f"{key}.name: {name!r}: there is no module {module!r}; start in the folder in which "
            f"{module.replace('.', '/')}.py lies, or put that folder on PYTHONPATH"
        ]
    return []


def _judge_key(config: RunConfig) -> list[str]:
    name = config.env.judge.api_key_env
    if name is None or os.environ.get(name):
        return []
    return [f"env.judge.api_key_env: there is no environment variable {name!r}; export it, or drop the key"]


def _trackers(config: RunConfig) -> list[str]:
    return [
        f"track.trackers: {name!r} needs a package that is not installed; pip install 'soliton[{name}]', or drop it"
        for name in config.track.trackers
        if importlib.util.find_spec(name) is None
    ]


def _built_in(key: str, name: str) -> list[str]:
    if name in BUILT_IN or name in PLANNED_ENVIRONMENTS:
        return []
    meant = did_you_mean(name, BUILT_IN)
    return [
        f"{key}.name: got {name!r}; allowed are {', '.join(map(repr, BUILT_IN))}, and 'module:Class' or "
        f"'module:reward_function' of your own{meant}"
    ]


def _model_folder(config: RunConfig, folder: Path) -> list[str]:
    if config.init.model is None:
        return _trained_part(config, folder) if folder.is_dir() else []
    if not folder.is_dir():
        return [f"init.model: there is no folder {folder}; give a local folder written by save_pretrained"]
    wanted = {
        "config.json": ("config.json",),
        "weights": ("model.safetensors", "model.safetensors.index.json"),
        "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json"),
    }
    missing = [what for what, files in wanted.items() if not any((folder / file).is_file() for file in files)]
    if missing:
        return [
            f"init.model: {folder} lacks {' and '.join(missing)}; save model and tokenizer there with save_pretrained"
        ]
    return _trained_part(config, folder)


def _trained_part(config: RunConfig, folder: Path) -> list[str]:
    """Whether what shall train in the critic exists in a model of these names."""
    if config.algorithm not in PRESET_CRITICS or "train" not in config.stages:
        return []
    trainable = config.method.critic_trainable or PRESET_CRITICS[config.algorithm][1]
    names = parameter_names(folder)
    unmatched = unmatched_kinds([*names, "value_head.weight"], trainable, config.method.train_router)
    if not names or not unmatched:
        return []
    return [
        f"method.critic_trainable: {trainable!r} with method.train_router = "
        f"{'true' if config.method.train_router else 'false'} wants parameters of kind {', '.join(unmatched)}, and "
        f'{folder} has none; choose another value, such as critic_trainable = "all"'
    ]


def parameter_names(folder: Path) -> list[str]:
    """Names of the weights in a Hugging Face folder, from the headers alone; [] if they cannot be read."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            return sorted(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        with (folder / "model.safetensors").open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _LARGEST_HEADER_BYTES)))
        return sorted(name for name in header if name != "__metadata__")
    except (OSError, ValueError, KeyError):
        return []
