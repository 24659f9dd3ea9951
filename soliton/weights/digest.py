"""One hash for a set of named tensors: trainer, engine, checkpoint and summary compare it (fault I1)."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping

import torch
from torch import Tensor


def weights_sha256(state: Mapping[str, Tensor]) -> str:
    """Hash names, dtypes, shapes and values: equal digests mean bit-equal weights.

    sha256 over the tensors sorted by name, each as the line `name dtype shape` (say `norm.weight float32 128`,
    dimensions joined by commas) followed by its elements in row-major order as little-endian bytes.

    Returns:
        64 hexadecimal digits; the same on every machine and device.
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        shape = ",".join(map(str, tensor.shape))
        digest.update(f"{name} {str(tensor.dtype).removeprefix('torch.')} {shape}\n".encode())
        raw = tensor.reshape(-1).view(torch.uint8).numpy()
        if sys.byteorder == "big":
            raw = raw.reshape(-1, tensor.element_size())[:, ::-1].copy().reshape(-1)
        digest.update(raw.data)
    return digest.hexdigest()
