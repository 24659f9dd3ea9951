"""What a finished step leaves for whoever watches the learner: its tensors, before they are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.learner.examples import StepArrays
from soliton.learner.packing import Batch
from soliton.losses.band import split_by_band
from soliton.types import AttemptId, Float32Array


@dataclass(frozen=True)
class StepRecord:
    """One step; a watcher reads it and changes nothing.

    Attributes:
        step: number of the step, from 1.
        actor_updates: of the whole run, this step included.
        batch: what was trained on.
        staleness: of each attempt.
        policy_logprobs: float32 [T] before the update; None in a critic-only step.
        values: float32 [T] before the fit; None without a critic.
        advantages: float32 [T].
        band: bounds of the ratio, open.
    """

    step: int
    actor_updates: int
    batch: Batch
    staleness: Mapping[AttemptId, int]
    policy_logprobs: Tensor | None
    values: Tensor | None
    advantages: Tensor
    band: tuple[float, float]

    def arrays(self) -> StepArrays:
        """The same as arrays on the host."""
        sides = None
        if self.policy_logprobs is not None:
            low, high = self.band
            split = split_by_band(self.policy_logprobs, self.batch.rollout_logprobs, self.batch.action_mask, low, high)
            sides = (split.high.to(torch.int8) - split.low.to(torch.int8)).cpu().numpy()
        return StepArrays(
            trajectories=self.batch.trajectories,
            staleness=[self.staleness[trajectory.attempt] for trajectory in self.batch.trajectories],
            policy_logprobs=_array(self.policy_logprobs),
            sides=sides,
            values=_array(self.values),
            advantages=self.advantages.detach().float().cpu().numpy(),
        )


Watch = Callable[[StepRecord], None]


def _array(tensor: Tensor | None) -> Float32Array | None:
    return None if tensor is None else tensor.detach().float().cpu().numpy()
