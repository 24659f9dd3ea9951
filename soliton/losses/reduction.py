"""The one reduction of every loss, and the checks of packed inputs that go with it.

Owns: sum over action tokens divided by the action tokens of the whole optimiser batch.
Does not know: what a token's loss means.
Guarantees: adding the results of all micro-batches and ranks gives the result of the whole batch; a call without
tokens gives 0 with a graph, never 0/0.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor


def token_mean(per_token: Tensor, action_mask: Tensor, num_action_tokens: int | None) -> Tensor:
    """Average over the action tokens of the whole optimiser batch.

        sum over this call's action tokens of per_token / num_action_tokens         (a choice: docs/algorithm.md)

    Masked entries are not read. They do receive a zero gradient, so whatever made `per_token` must itself be finite
    there: 0 times an infinite derivative is NaN.

    Args:
        per_token: floating [T].
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        Scalar with a graph whenever `per_token` has one.

    Raises:
        ValueError: shapes differ, a mask that is not 0/1, or a global count below this call's own.
    """
    check_packed(per_token=per_token, action_mask=action_mask)
    mask = bool_mask(action_mask)
    return torch.where(mask, per_token, 0.0).sum() / denominator(mask, num_action_tokens)


def denominator(mask: Tensor, num_action_tokens: int | None) -> int:
    """Return the global count, at least 1 so that a batch without tokens gives 0.

    Raises:
        ValueError: the global count is not an integer, or is below the count of this call.
    """
    own = int(mask.sum())
    if num_action_tokens is None:
        return max(own, 1)
    try:
        total = operator.index(num_action_tokens)
    except TypeError as error:
        raise ValueError(f"num_action_tokens must be an integer or None, got {num_action_tokens!r}") from error
    if total < own:
        raise ValueError(
            f"num_action_tokens is {total} but this call alone has {own} action tokens; pass the count of the whole "
            "optimiser batch, all micro-batches and ranks together"
        )
    return max(total, 1)


def check_packed(**tensors: Tensor) -> None:
    """Check that all tensors are packed 1-D of one length.

    Raises:
        ValueError: another shape; broadcasting would pair wrong tokens without a word (fault B14).
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"packed tensors must all be [T] with one T, got {shapes}")


def bool_mask(mask: Tensor, name: str = "action_mask") -> Tensor:
    """Return `mask` as bool.

    Raises:
        ValueError: an entry that is neither 0 nor 1, named with its index.
    """
    if mask.dtype == torch.bool:
        return mask
    refuse(mask, (mask != 0) & (mask != 1), name, "a mask is bool, or numbers that are 0 or 1")
    return mask != 0


def refuse(tensor: Tensor, bad: Tensor, name: str, allowed: str) -> None:
    """Raise for the first entry of `tensor` where `bad` holds, if any.

    Raises:
        ValueError: names the index, the value and what is allowed.
    """
    if bool(bad.any()):
        i = int(bad.int().argmax())
        raise ValueError(f"{name}[{i}] = {tensor[i].item()}; {allowed}")


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return `tensor` in float32, or in float64 if it is that already; the graph is kept."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
