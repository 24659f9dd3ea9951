"""Losses: pure functions over packed 1-D tensors, and the one reduction they share."""

from soliton.losses.band import band_metrics, merge_metrics
from soliton.losses.dcpo import dcpo_bounds, dcpo_clip_loss
from soliton.losses.dis import dis_loss
from soliton.losses.explained import ExplainedVariance, explained_variance
from soliton.losses.gspo import gspo_loss
from soliton.losses.ppo import ppo_clip_loss
from soliton.losses.probability_clip import probability_bounds, probability_clip_loss
from soliton.losses.reduction import token_mean
from soliton.losses.reinforce import reinforce_loss
from soliton.losses.result import LossResult
from soliton.losses.states import separated_states
from soliton.losses.terms import entropy_loss, positive_example_loss, reference_kl_loss
from soliton.losses.two_ratios import two_ratio_clip_loss
from soliton.losses.value import bce_value_loss, clipped_value_loss, huber_value_loss, value_loss

__all__ = [
    "ExplainedVariance",
    "LossResult",
    "band_metrics",
    "bce_value_loss",
    "clipped_value_loss",
    "dcpo_bounds",
    "dcpo_clip_loss",
    "dis_loss",
    "entropy_loss",
    "explained_variance",
    "gspo_loss",
    "huber_value_loss",
    "merge_metrics",
    "positive_example_loss",
    "ppo_clip_loss",
    "probability_bounds",
    "probability_clip_loss",
    "reference_kl_loss",
    "reinforce_loss",
    "separated_states",
    "token_mean",
    "two_ratio_clip_loss",
    "value_loss",
]
