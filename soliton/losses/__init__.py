"""Losses: pure functions over packed 1-D tensors, and the one reduction they share."""

from soliton.losses.band import band_metrics, merge_metrics
from soliton.losses.dis import dis_loss
from soliton.losses.explained import ExplainedVariance, explained_variance
from soliton.losses.ppo import ppo_clip_loss
from soliton.losses.reduction import token_mean
from soliton.losses.result import LossResult
from soliton.losses.value import value_loss

__all__ = [
    "ExplainedVariance",
    "LossResult",
    "band_metrics",
    "dis_loss",
    "explained_variance",
    "merge_metrics",
    "ppo_clip_loss",
    "token_mean",
    "value_loss",
]
