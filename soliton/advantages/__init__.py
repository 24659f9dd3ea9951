"""Advantages: pure functions from rewards and values to one number per action token."""

from soliton.advantages.adaptive_lambda import length_adaptive_lambda
from soliton.advantages.gae import skip_observation_gae
from soliton.advantages.group import group_advantages

__all__ = ["group_advantages", "length_adaptive_lambda", "skip_observation_gae"]
