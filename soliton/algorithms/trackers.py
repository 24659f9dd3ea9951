"""Trackers of baselines as the learner uses them: trajectories in, baselines out, state for the checkpoint.

Both take a batch in the order of its draws, whatever order it arrived in. Failed attempts never get here (fault B13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from soliton.advantages.beta_tracker import BetaTracker
from soliton.advantages.running_mean import RunningMean
from soliton.reasons import Status
from soliton.types import AttemptId, Sampling, Times, Trajectory


class RunningMeanTracker:
    """`RunningMean` over trajectories."""

    def __init__(self, means: RunningMean) -> None:
        self._means = means

    def before(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """None: a mean does not ask how far the policy moved."""
        del trajectories
        return []

    def baselines(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """See `Tracker.baselines`."""
        return [self._means.baseline(t.prompt_id) for t in trajectories]

    def observe(self, trajectories: Sequence[Trajectory], drifts: Mapping[str, float]) -> None:
        """See `Tracker.observe`."""
        del drifts
        for t in trajectories:
            self._means.observe(t.prompt_id, t.attempt.draw, t.attempt.sample, t.total_reward)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `Tracker.state`."""
        return {}, {"rewards": self._means.state()}

    def load_state(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """See `Tracker.load_state`."""
        del tensors
        self._means.load_state(data["rewards"])


class SpoTracker:
    """`BetaTracker`, and the last trajectory of each prompt, on which the drift of the policy is measured."""

    def __init__(self, values: BetaTracker) -> None:
        self._values = values
        self._last: dict[str, Trajectory] = {}

    def before(self, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
        """The last trajectory of each prompt that was seen before, in the order of their draws."""
        prompts = {t.prompt_id for t in trajectories}
        return _by_draw(last for prompt_id, last in self._last.items() if prompt_id in prompts)

    def baselines(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """See `Tracker.baselines`."""
        return [self._values.baseline(t.prompt_id) for t in trajectories]

    def observe(self, trajectories: Sequence[Trajectory], drifts: Mapping[str, float]) -> None:
        """See `Tracker.observe`. A second trajectory of a prompt in one batch has no drift of its own: 0."""
        left = dict(drifts)
        for t in _by_draw(trajectories):
            self._values.observe(t.prompt_id, t.total_reward, left.pop(t.prompt_id, 0.0))
            self._last[t.prompt_id] = t

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """See `Tracker.state`; the last trajectories as flat arrays of what a log-prob is computed from."""
        kept = list(self._last.values())
        tensors = {
            name: torch.from_numpy(np.concatenate([getattr(t, name) for t in kept]))
            for name in ("token_ids", "roles", "rollout_logprobs", "versions")
            if kept
        }
        data = {
            "values": self._values.state(),
            "prompts": [t.prompt_id for t in kept],
            "lengths": [len(t.token_ids) for t in kept],
            "attempts": [[t.attempt.draw, t.attempt.sample, t.attempt.attempt] for t in kept],
            "temperatures": [t.sampling.temperature for t in kept],
        }
        return tensors, data

    def load_state(self, tensors: Mapping[str, Tensor], data: Mapping[str, Any]) -> None:
        """See `Tracker.load_state`."""
        self._values.load_state(data["values"])
        ends = np.cumsum([0, *data["lengths"]])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        self._last = {
            prompt_id: Trajectory(
                attempt=AttemptId(*data["attempts"][i]),
                prompt_id=prompt_id,
                status=Status.TERMINATED,
                token_ids=arrays["token_ids"][ends[i] : ends[i + 1]],
                roles=arrays["roles"][ends[i] : ends[i + 1]],
                rollout_logprobs=arrays["rollout_logprobs"][ends[i] : ends[i + 1]],
                versions=arrays["versions"][ends[i] : ends[i + 1]],
                reward_positions=np.zeros(0, dtype=np.int32),
                reward_values=np.zeros(0, dtype=np.float32),
                times=Times(0.0, 0.0, 0.0),
                sampling=Sampling(temperature=data["temperatures"][i]),
            )
            for i, prompt_id in enumerate(data["prompts"])
        }


def _by_draw(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    return sorted(trajectories, key=lambda t: t.attempt)
