"""The one place where a position is paired with the token after it (faults A10, C1).

A causal model reads tokens 0..t-1 and its output AT POSITION t-1 speaks about token t: the distribution that token t
is drawn from, and the value of the prefix before it. So token t's log-prob and V come from the output at t-1. Nobody
else slices by one.
"""

from __future__ import annotations

import torch
from torch import Tensor


def outputs_before_tokens(outputs: Tensor, token_mask: Tensor) -> Tensor:
    """Pick, for every masked token t, the output at position t-1 (V of the prefix before the token).

    Args:
        outputs: [B, L, ...], one output per position (hidden states or values).
        token_mask: bool [B, L], True for the N tokens wanted.

    Returns:
        [N, ...] in row-major order, the same order as `tensor[token_mask]`; gradients flow to `outputs`.

    Raises:
        ValueError: shapes that do not match, a mask that is not boolean, or a masked first token (nothing precedes it).
    """
    if token_mask.dtype != torch.bool:
        raise ValueError(f"token_mask must be boolean, got {token_mask.dtype}")
    if token_mask.dim() != 2 or outputs.shape[:2] != token_mask.shape:
        raise ValueError(
            f"outputs {tuple(outputs.shape)} must begin with the shape [B, L] of token_mask {tuple(token_mask.shape)}"
        )
    if bool(token_mask[:, :1].any()):
        first = token_mask[:, 0].nonzero().flatten().tolist()
        raise ValueError(f"the first token of rows {first} is masked, but nothing precedes it that could predict it")
    rows, columns = token_mask.nonzero(as_tuple=True)
    return outputs[rows, columns - 1]


def outputs_after_rows(outputs: Tensor, lengths: Tensor) -> Tensor:
    """Pick the output at the last token of each row: it has read all of it, and speaks of what would come next.

    Args:
        outputs: [B, L, ...], one output per position.
        lengths: int64 [B], tokens of each row, in [1, L]; what stands behind them is padding.

    Returns:
        [B, ...]; gradients flow to `outputs`.

    Raises:
        ValueError: another shape, or a length outside [1, L].
    """
    if lengths.shape != outputs.shape[:1]:
        raise ValueError(f"lengths must be [{outputs.shape[0]}], one per row, got shape {tuple(lengths.shape)}")
    if bool(((lengths < 1) | (lengths > outputs.shape[1])).any()):
        raise ValueError(f"lengths must be in [1, {outputs.shape[1]}], got {lengths.tolist()}")
    return outputs[torch.arange(len(lengths), device=outputs.device), lengths - 1]
