"""The critic's loss.

Owns: squared error to the return. Does not know: how returns were made.
Guarantees: returns receive no gradient; masked entries are not read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.losses.band import sums
from soliton.losses.reduction import at_least_float32, bool_mask, check_packed, refuse, token_mean
from soliton.losses.result import LossResult


def value_loss(
    values: Tensor, returns: Tensor, action_mask: Tensor, *, num_action_tokens: int | None = None
) -> LossResult:
    """Average the squared error of the critic, without a factor 1/2 and without clipping.

        loss = sum over action tokens of (V_t - R_t)^2 / num_action_tokens      (PAPER section 3)

    Args:
        values: [T], with gradient.
        returns: [T], detached here. Entries off the mask are not read, in both; those on it are finite.
        action_mask: [T] bool (or numbers that are 0 or 1).
        num_action_tokens: action tokens of ALL micro-batches and ranks; None: of this call.

    Returns:
        The loss (0 with a graph if there is no token) and metrics, sums and counts: `tokens`, `squared_error_sum`,
        `error_sum` (V - R), `value_sum`, `return_sum`.

    Raises:
        ValueError: shapes differ, a value or return that is not finite on an action token (named), or a global count
            below this call's own.
    """
    check_packed(values=values, returns=returns, action_mask=action_mask)
    mask = bool_mask(action_mask)
    refuse(values, mask & ~values.isfinite(), "values", "an action token has a finite value")
    refuse(returns, mask & ~returns.isfinite(), "returns", "an action token has a finite return")
    # Both are replaced BEFORE the square: the gradient 2 (V - R) * 0 of a masked NaN would be NaN.
    value = torch.where(mask, at_least_float32(values), 0.0)
    target = torch.where(mask, at_least_float32(returns.detach()), 0.0)
    error = value - target
    squared = error.square()
    metrics = sums(tokens=mask, squared_error_sum=squared, error_sum=error, value_sum=value, return_sum=target)
    return LossResult(token_mean(squared, mask, num_action_tokens), metrics)
