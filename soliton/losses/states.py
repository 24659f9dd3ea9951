"""Which action tokens of a trajectory a critic's loss is taken on, where it is not all of them.

Owns: one choice. Does not know: values. Guarantees: it depends on the action masks alone.
"""

from __future__ import annotations

import torch
from torch import Tensor


def separated_states(action_mask: Tensor, segment_ids: Tensor, *, num_states: int) -> Tensor:
    """Choose a few action tokens of each trajectory, as far apart as they get: the middles of equal parts.

        of l action tokens, number floor((j + 1/2) l / n) for j = 0 .. n - 1        (SP3O, https://arxiv.org/abs/2609.18708)

    Neighbouring tokens have nearly the same prefix and the same return, so that their errors add up to one loud vote;
    a few distant ones are nearly independent. Two of them are at least floor(l / n) action tokens apart.
    Special case: n >= l chooses every action token. Example: l = 9, n = 3 chooses 1, 4 and 7, counted from 0.

    Args:
        action_mask: bool [T].
        segment_ids: int64 [T], trajectory of each token, non-decreasing from 0.
        num_states: n, >= 1.

    Returns:
        Bool [T], False off the action mask; min(n, l) tokens of each trajectory.

    Raises:
        ValueError: a `num_states` below 1.
    """
    if num_states < 1:
        raise ValueError(f"num_states must be >= 1, got {num_states}")
    counts = torch.bincount(segment_ids[action_mask], minlength=int(segment_ids.max()) + 1 if len(segment_ids) else 0)
    before = counts.cumsum(0) - counts  # action tokens of earlier trajectories
    place = action_mask.long().cumsum(0) - 1 - before[segment_ids]
    length = counts[segment_ids]
    chosen = torch.zeros_like(action_mask)
    for j in range(num_states):
        chosen |= place == (2 * j + 1) * length // (2 * num_states)
    return chosen & action_mask
