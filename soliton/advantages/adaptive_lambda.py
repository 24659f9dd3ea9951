"""The policy's GAE lambda as a function of trajectory length.

Owns one formula. Does not know what a trajectory is. Guarantees float64: in bfloat16 the lambda of 1,000 tokens is
exactly 1.0, and in float32 one minus the lambda of 131,072 tokens is wrong by a percent.
"""

from __future__ import annotations

import math
import operator
from typing import overload

import torch
from torch import Tensor


@overload
def length_adaptive_lambda(num_action_tokens: int, *, alpha: float = 1.5) -> float: ...


@overload
def length_adaptive_lambda(num_action_tokens: Tensor, *, alpha: float = 1.5) -> Tensor: ...


def length_adaptive_lambda(num_action_tokens: int | Tensor, *, alpha: float = 1.5) -> float | Tensor:
    """Return the GAE lambda under which the credit window grows with the length of the trajectory.

        lambda = max(0, 1 - 1 / (alpha * l))        (paper §4.1; length-adaptive GAE of VAPO)

    Special cases: alpha * l <= 1 gives 0; l = 3 with alpha 1.5 gives 7/9.

    Args:
        num_action_tokens: l >= 1, the number of tokens that the model sampled (observations do not count); an int, or
            an integer tensor of any shape with one l per trajectory.
        alpha: finite and > 0; larger means closer to Monte Carlo.

    Returns:
        A float for an int; a float64 tensor of the same shape and device for a tensor. In [0, 1).

    Raises:
        ValueError: an l below 1 (named with its index), a tensor that is not of integers, or a bad alpha.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be finite and > 0, got {alpha}")
    if isinstance(num_action_tokens, Tensor):
        return _of_tensor(num_action_tokens, alpha)
    try:
        length = operator.index(num_action_tokens)
    except TypeError as error:
        raise ValueError(f"num_action_tokens must be an integer, got {num_action_tokens!r}") from error
    if length < 1:
        raise ValueError(f"num_action_tokens must be >= 1, got {length}; a trajectory without actions has no lambda")
    return max(0.0, 1.0 - 1.0 / (alpha * length))


def _of_tensor(lengths: Tensor, alpha: float) -> Tensor:
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"num_action_tokens must be a tensor of integers, got {lengths.dtype}")
    flat = lengths.flatten()
    bad = flat < 1
    if bool(bad.any()):
        i = int(bad.int().argmax())
        raise ValueError(
            f"num_action_tokens[{i}] = {int(flat[i])}; it must be >= 1: without actions there is no lambda"
        )
    return (1.0 - 1.0 / (alpha * lengths.double())).clamp_(min=0.0)
