"""Making and loading Hugging Face causal language models.

Every model that leaves this module is float32, in evaluation mode (so that trainer and engine compute the same
function), free of dropout, and complete: a parameter that the folder does not hold is an error, never a random one.
Nothing here reaches the network or runs code from a folder.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from soliton.errors import ConfigError
from soliton.models.trunk import check_plain_projection

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
_HEAD_ONLY_DROPOUT = ("classifier", "summary")
"""Prefixes of dropout rates that belong to classification heads, which a causal language model does not have."""


def new_causal_lm(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Build a causal language model with random weights that depend on `seed` alone.

    The global random state is the same before and after.

    Raises:
        ConfigError: the configuration sets a dropout rate above 0.
    """
    from transformers import AutoModelForCausalLM

    refuse_dropout(config)
    auto_class: Any = AutoModelForCausalLM  # untyped in transformers
    # transformers initialises from the global generator, so that one is seeded for the time of the construction.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model: PreTrainedModel = auto_class.from_config(copy.deepcopy(config), dtype=torch.float32)
    model.train(mode=False)
    return model


def load_causal_lm(folder: str | Path) -> PreTrainedModel:
    """Load a causal language model from a local folder in Hugging Face format: float32, evaluation mode, SDPA.

    Raises:
        ConfigError: the folder, its `config.json` or its safetensors weights are missing; a dropout rate is above 0;
            the weights lack parameters, hold unknown ones or have other shapes; the model caps or scales its logits.
    """
    from transformers import AutoModelForCausalLM

    model = load_strictly(AutoModelForCausalLM, Path(folder))
    check_plain_projection(model)
    return model


def load_strictly(auto_class: Any, folder: Path) -> PreTrainedModel:
    """Load `folder` through one of transformers' auto classes and refuse anything incomplete (see `load_causal_lm`)."""
    from transformers import AutoConfig

    _check_folder(folder)
    refuse_dropout(AutoConfig.from_pretrained(folder, local_files_only=True))
    model, info = auto_class.from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
    )
    problems = {kind: sorted(map(str, info[kind])) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    found = "; ".join(f"{kind.replace('_keys', '')}: {', '.join(names)}" for kind, names in problems.items() if names)
    if found:
        raise ConfigError(
            f"the weights in {folder} do not fit their own config.json ({found}). Loading must be complete, because a "
            "missing parameter would silently start at random; save the model again with save_pretrained"
        )
    loaded: PreTrainedModel = model
    loaded.train(mode=False)
    return loaded


def refuse_dropout(config: PreTrainedConfig) -> None:
    """Raise `ConfigError` if `config` sets any dropout rate above 0.

    With dropout the trainer and the engine compute different functions: 54 % of on-policy tokens were masked in
    another implementation.
    """
    rates = _dropout_rates(config.to_dict())
    if rates:
        named = ", ".join(f"{name} = {rate}" for name, rate in rates.items())
        raise ConfigError(
            f"the model's configuration has dropout ({named}); reinforcement learning needs the trainer and the engine "
            "to compute the same function, so set these to 0.0 in config.json"
        )


def _dropout_rates(config: dict[Any, Any], prefix: str = "") -> dict[str, float]:
    rates: dict[str, float] = {}
    for key, value in config.items():
        name = str(key)  # id2label has integers for keys
        if isinstance(value, dict):
            rates |= _dropout_rates(value, f"{prefix}{name}.")
        elif _is_dropout_rate(name) and isinstance(value, int | float) and value > 0:
            rates[prefix + name] = float(value)
    return rates


def _is_dropout_rate(name: str) -> bool:
    return ("dropout" in name or name.endswith("pdrop")) and not name.startswith(_HEAD_ONLY_DROPOUT)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"no model folder at {folder}; give a local folder written by save_pretrained")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} has no config.json; give a local folder written by save_pretrained")
    if not any((folder / name).is_file() for name in _WEIGHT_FILES):
        raise ConfigError(
            f"{folder} has no weights; one of {', '.join(_WEIGHT_FILES)} must be there (pickled weights are not read)"
        )
