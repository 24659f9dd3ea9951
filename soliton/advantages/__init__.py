"""Advantages: pure functions over packed 1-D tensors, one entry per token, and baselines learned across steps."""

from soliton.advantages.adaptive_lambda import length_adaptive_lambda
from soliton.advantages.gae import skip_observation_gae
from soliton.advantages.group import group_advantages
from soliton.advantages.leave_one_out import leave_one_out_advantages
from soliton.advantages.naive import naive_gae
from soliton.advantages.normalise import normalised_over_action_tokens, normalised_over_trajectories
from soliton.advantages.turns import last_tokens_of_turns, turn_counts, turn_gae
from soliton.advantages.vtrace import vtrace

__all__ = [
    "group_advantages",
    "last_tokens_of_turns",
    "leave_one_out_advantages",
    "length_adaptive_lambda",
    "naive_gae",
    "normalised_over_action_tokens",
    "normalised_over_trajectories",
    "skip_observation_gae",
    "turn_counts",
    "turn_gae",
    "vtrace",
]
