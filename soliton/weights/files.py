"""Weights on disk: a Hugging Face folder, or one safetensors file of named tensors. Both appear whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from soliton.atomic import Durability, atomic_file, atomic_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_model_folder(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, path: str | Path) -> None:
    """Write a folder that `AutoModelForCausalLM.from_pretrained` (and the tokenizer's loader) reads.

    Atomic: `path` is afterwards the new folder, or, whatever went wrong, what it was before.
    """
    with atomic_folder(path) as folder:
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def save_tensors(state: Mapping[str, Tensor], path: str | Path, durability: Durability = "power") -> None:
    """Write named tensors to one safetensors file, atomically. Tensors must not share memory.

    Raises:
        ValueError: two names share memory (safetensors would store neither reliably).
        OSError: the disk is full, for example.
    """
    tensors = {name: tensor.detach().contiguous() for name, tensor in state.items()}
    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        if tensor.numel() and (other := owners.setdefault(tensor.untyped_storage().data_ptr(), name)) != name:
            raise ValueError(f"{other!r} and {name!r} share memory; pass a copy of one of them")
    with atomic_file(path, durability) as file:
        try:
            save_file(tensors, file)
        except SafetensorError as error:
            if "os error 28" in str(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise


def load_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read a file written by `save_tensors`, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        safetensors.SafetensorError: the file is damaged.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no tensor file at {path}")
    tensors: dict[str, Tensor] = load_file(path)
    return tensors
