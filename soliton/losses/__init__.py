"""Losses: pure functions over packed 1-D tensors, and the one reduction they share."""

from soliton.losses.band import band_metrics, merge_metrics
from soliton.losses.dcpo import dcpo_bounds, dcpo_clip_loss
from soliton.losses.dis import dis_loss
from soliton.losses.explained import ExplainedVariance, explained_variance
from soliton.losses.gspo import gspo_loss
from soliton.losses.ppo import ppo_clip_loss
from soliton.losses.reduction import token_mean
from soliton.losses.reinforce import reinforce_loss
from soliton.losses.result import LossResult
from soliton.losses.two_ratios import two_ratio_clip_loss
from soliton.losses.value import value_loss

__all__ = [
    "ExplainedVariance",
    "LossResult",
    "band_metrics",
    "dcpo_bounds",
    "dcpo_clip_loss",
    "dis_loss",
    "explained_variance",
    "gspo_loss",
    "merge_metrics",
    "ppo_clip_loss",
    "reinforce_loss",
    "token_mean",
    "two_ratio_clip_loss",
    "value_loss",
]
