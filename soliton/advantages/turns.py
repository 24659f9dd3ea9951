"""Step-level advantages: GAE over conversation turns instead of tokens (the paper's appendix A.1).

Owns: what a turn is (an unbroken run of action tokens of one segment), its value, and the spreading of one advantage
over its tokens. Does not know: critics. Guarantees: those of `skip_observation_gae`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from soliton.advantages.gae import skip_observation_gae

TurnValue = Literal["mean", "last"]


def turns_of(action_mask: Tensor, segment_ids: Tensor) -> Tensor:
    """Number the turns of a packed batch: int64 [T], 0, 1, 2 ... on action tokens, -1 elsewhere.

    Args:
        action_mask: bool [T].
        segment_ids: int64 [T], trajectory of each token; a turn never goes on in the next one.
    """
    starts = action_mask.clone()
    starts[1:] &= ~(action_mask[:-1] & (segment_ids[1:] == segment_ids[:-1]))
    return torch.where(action_mask, starts.long().cumsum(0) - 1, -1)


def last_tokens_of_turns(action_mask: Tensor, segment_ids: Tensor) -> Tensor:
    """Bool [T]: True on the last token of each turn."""
    turns = turns_of(action_mask, segment_ids)
    ends = action_mask.clone()
    ends[:-1] &= turns[1:] != turns[:-1]
    return ends


def turn_counts(action_mask: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
    """Turns of each segment, int64 [num_segments]."""
    return torch.bincount(segment_ids[last_tokens_of_turns(action_mask, segment_ids)], minlength=num_segments)


def turn_gae(
    values: Tensor,
    rewards: Tensor,
    action_mask: Tensor,
    segment_ids: Tensor,
    *,
    gamma: float,
    lam: float | Tensor,
    turn_value: TurnValue,
    bootstrap_values: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute GAE over turns: one value, one advantage and one return per turn, shared by its tokens.

        V(turn) = mean of V over its tokens, or V of its last token
        delta_i = r_i + gamma V(turn_{i+1}) - V(turn_i),   A_i = delta_i + gamma lam A_{i+1},   G_i = A_i + V(turn_i)
        (paper appendix A.1)

    r_i is the sum of the rewards on the turn's tokens and on the observations after it. gamma and lam count turns.
    Special case: turns of one token give `skip_observation_gae`.

    Args:
        values: floating [T], V of the prefix before each token; read on action tokens only, finite there.
        rewards: [T], finite everywhere. Read everywhere.
        action_mask: bool [T].
        segment_ids: int64 [T], non-decreasing from 0; each segment has an action token.
        gamma: discount per turn, in [0, 1].
        lam: in [0, 1]; a float, or float64 [S] with one lambda per segment.
        turn_value: "mean" or "last".
        bootstrap_values: floating [S]; see `skip_observation_gae`.

    Returns:
        Advantages and returns, float32 [T] on the device of `values`, without gradient, 0 off the action mask.

    Raises:
        ValueError: see `skip_observation_gae`; a segment without actions.
    """
    if len(values) == 0:
        return torch.zeros_like(values, dtype=torch.float32), torch.zeros_like(values, dtype=torch.float32)
    turns = turns_of(action_mask, segment_ids)
    ends = last_tokens_of_turns(action_mask, segment_ids)
    turn_segments = segment_ids[ends]
    if len(torch.unique(segment_ids)) != len(torch.unique(turn_segments)):
        raise ValueError("a segment has no action token; a trajectory without actions has no turns")
    # One token carries all of its turn: the recursion and the placing of rewards are then those of tokens.
    per_turn = torch.zeros(len(turn_segments), dtype=torch.float64, device=values.device)
    read = torch.where(action_mask, values.detach().double(), 0.0)
    kept = action_mask if turn_value == "mean" else ends
    count = per_turn.index_add(0, turns[kept], torch.ones_like(read[kept]))
    turn_values = per_turn.index_add(0, turns[kept], read[kept]) / count
    turn_rewards = per_turn.index_add(0, *_owned(rewards, turns, segment_ids))
    advantages = skip_observation_gae(
        turn_values,
        turn_rewards,
        torch.ones_like(turn_segments, dtype=torch.bool),
        gamma=gamma,
        lam=lam,
        segment_ids=turn_segments,
        bootstrap_values=bootstrap_values,
    )
    returns = (advantages.double() + turn_values).float()
    spread = turns.clamp(min=0)
    return torch.where(action_mask, advantages[spread], 0.0), torch.where(action_mask, returns[spread], 0.0)


def _owned(rewards: Tensor, turns: Tensor, segment_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The turn that each non-zero reward belongs to, and the rewards, float64."""
    owners = turns.cummax(0).values
    at = (rewards != 0).nonzero().flatten()
    segment_of_turn = torch.zeros(int(turns.max()) + 1, dtype=torch.int64, device=turns.device)
    segment_of_turn[turns[turns >= 0]] = segment_ids[turns >= 0]
    orphans = (owners[at] < 0) | (segment_of_turn[owners[at].clamp(min=0)] != segment_ids[at])
    if bool(orphans.any()):
        i = int(at[int(orphans.int().argmax())])
        raise ValueError(f"rewards[{i}] = {rewards[i].item()} comes before the first action token of its segment")
    return owners[at], rewards[at].double()
