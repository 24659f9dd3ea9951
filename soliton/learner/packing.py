"""Consumed trajectories -> the packed optimiser batch that everything in a step reads.

Owns the order of the batch (ascending length) and the refusal of data whose recorded log-probs cannot be compared with
the policy's. Guarantees: every field is in that one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from soliton.learner.alarms import Scene
from soliton.learner.method import PackedBatch
from soliton.learner.microbatches import MicroBatch, micro_batches, sorted_by_length, trained_length
from soliton.learner.truncation import TERMINAL, Truncation
from soliton.reasons import Status
from soliton.store.store import BatchItem
from soliton.types import Sampling, Trajectory


@dataclass(frozen=True)
class Batch:
    """S trajectories with T tokens between them, on the learner's device.

    Attributes:
        trajectories: in packed order.
        micro_batches: slices of what follows, together all of it.
        rewards: float32 [T].
        action_mask: bool [T].
        rollout_logprobs: float32 [T], NaN off the mask.
        versions: int64 [T], -1 off the mask.
        trusted: bool [T]; False where an action token is older than its item's `min_trusted_version`, or where its
            trajectory shall not move the actor.
        segment_ids: int64 [T], trajectory of each token.
        groups: int64 [S], draw of each trajectory.
        temperatures: float32 [S], by which the logits are divided (fault C3).
        num_action_tokens: the global denominator.
        scene: names the trajectories in an alarm.
        bootstrapped: bool [S], whose value after the last token is wanted; those rows hold all their tokens.
        positive: bool [S], who earned more than 0 in total.
        num_positive_tokens: action tokens of those.
    """

    trajectories: tuple[Trajectory, ...]
    micro_batches: tuple[MicroBatch, ...]
    rewards: Tensor
    action_mask: Tensor
    rollout_logprobs: Tensor
    versions: Tensor
    trusted: Tensor
    segment_ids: Tensor
    groups: Tensor
    temperatures: Tensor
    num_action_tokens: int
    scene: Scene
    bootstrapped: Tensor
    positive: Tensor
    num_positive_tokens: int

    def packed(
        self,
        values: Tensor | None,
        log_ratios: Tensor | None = None,
        baselines: Tensor | None = None,
        bootstrap_values: Tensor | None = None,
    ) -> PackedBatch:
        """The whole batch as a method sees it; `values` and `log_ratios` are float32 [T], the other two [S]."""
        return PackedBatch(
            rewards=self.rewards,
            action_mask=self.action_mask,
            segment_ids=self.segment_ids,
            groups=self.groups,
            values=values,
            log_ratios=log_ratios,
            baselines=baselines,
            bootstrap_values=bootstrap_values,
        )

    def packed_part(
        self,
        part: MicroBatch,
        values: Tensor,
        log_ratios: Tensor | None = None,
        bootstrap_values: Tensor | None = None,
    ) -> PackedBatch:
        """The trajectories of one micro-batch alone; `values` are float32 over ITS tokens, the others over all."""
        return PackedBatch(
            rewards=self.rewards[part.tokens],
            action_mask=self.action_mask[part.tokens],
            segment_ids=self.segment_ids[part.tokens] - part.segments.start,
            groups=self.groups[part.segments],
            values=values,
            log_ratios=None if log_ratios is None else log_ratios[part.tokens],
            bootstrap_values=None if bootstrap_values is None else bootstrap_values[part.segments],
        )


def pack(
    trajectories: Sequence[Trajectory],
    *,
    what: str,
    max_padded_tokens: int,
    device: torch.device,
    min_trusted_versions: Sequence[int] | None = None,
    truncation: Truncation = TERMINAL,
) -> Batch:
    """Pack trajectories.

    Args:
        trajectories: at least one, none failed.
        what: stage and number for alarms, for instance "step 12".
        max_padded_tokens: budget of a micro-batch.
        device: where the tensors go.
        min_trusted_versions: one per trajectory; None trusts every token.
        truncation: what becomes of truncated trajectories; whoever calls has left out what shall not be trained.

    Raises:
        ValueError: nothing to pack, a failed trajectory, sampling whose log-probs are not the policy's, or an action
            token without a prefix.
    """
    if not trajectories:
        raise ValueError("an optimiser batch needs at least one trajectory, got none")
    for trajectory in trajectories:
        _refuse_untrainable(trajectory)
    cuts = [t.status is Status.TRUNCATED for t in trajectories]
    rows = [
        len(t.token_ids) if truncation.bootstraps and is_cut else trained_length(t.action_mask)
        for t, is_cut in zip(trajectories, cuts, strict=True)
    ]
    order = sorted_by_length(rows)
    ordered = tuple(trajectories[i] for i in order)
    is_cut_off = np.array([cuts[i] for i in order])
    trust_from = [min_trusted_versions[i] if min_trusted_versions is not None else 0 for i in order]
    masks = [t.action_mask for t in ordered]
    lengths = [len(t.token_ids) for t in ordered]

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    action_mask = np.concatenate(masks)
    versions = np.concatenate([t.versions for t in ordered]).astype(np.int64)
    positive = np.array([t.total_reward > 0 for t in ordered])
    moves_actor = np.repeat(truncation.moves_actor | ~is_cut_off, lengths)
    return Batch(
        trajectories=ordered,
        micro_batches=tuple(
            micro_batches([t.token_ids for t in ordered], masks, [rows[i] for i in order], max_padded_tokens, device)
        ),
        rewards=tensor(np.concatenate([_rewards(t) for t in ordered])),
        action_mask=tensor(action_mask),
        rollout_logprobs=tensor(np.concatenate([t.rollout_logprobs for t in ordered])),
        versions=tensor(versions),
        trusted=tensor(action_mask & moves_actor & (versions >= np.repeat(trust_from, lengths))),
        segment_ids=tensor(np.repeat(np.arange(len(ordered)), lengths)),
        groups=tensor(np.array([t.attempt.draw for t in ordered], dtype=np.int64)),
        temperatures=tensor(np.array([t.sampling.temperature for t in ordered], dtype=np.float32)),
        num_action_tokens=int(action_mask.sum()),
        scene=Scene(what, tuple(str(t.attempt) for t in ordered)),
        bootstrapped=tensor(is_cut_off & truncation.bootstraps),
        positive=tensor(positive),
        num_positive_tokens=int((action_mask & np.repeat(positive, lengths)).sum()),
    )


def pack_items(
    items: Sequence[BatchItem],
    *,
    what: str,
    max_padded_tokens: int,
    device: torch.device,
    truncation: Truncation = TERMINAL,
) -> Batch:
    """`pack` for what the store hands out."""
    return pack(
        [item.trajectory for item in items],
        what=what,
        max_padded_tokens=max_padded_tokens,
        device=device,
        min_trusted_versions=[item.min_trusted_version for item in items],
        truncation=truncation,
    )


def _rewards(trajectory: Trajectory) -> np.ndarray:
    rewards = np.zeros(len(trajectory.token_ids), dtype=np.float32)
    np.add.at(rewards, trajectory.reward_positions, trajectory.reward_values)
    return rewards


def _refuse_untrainable(trajectory: Trajectory) -> None:
    name = f"trajectory {trajectory.attempt}"
    if trajectory.status is Status.FAILED:
        raise ValueError(f"{name} failed ({trajectory.reason}); failures of the world are counted, never trained")
    if trajectory.action_mask[0]:
        raise ValueError(f"{name} begins with an action token; a sampled token needs a prompt before it")
    refuse_sampling(name, trajectory.sampling)


def refuse_sampling(name: str, sampling: Sampling) -> None:
    """Refuse data whose recorded log-prob is not that of softmax(logits / temperature) (faults C3, C4).

    Raises:
        ValueError: temperature 0, top_p < 1 or top_k > 0.
    """
    if sampling.temperature == 0:
        raise ValueError(
            f"{name} was sampled greedily (temperature 0): its tokens have no distribution to take a ratio against. "
            f"Train on temperature > 0; use 0 for evaluation only"
        )
    if sampling.top_p < 1 or sampling.top_k > 0:
        raise ValueError(
            f"{name} was sampled with top_p={sampling.top_p:g}, top_k={sampling.top_k}: its log-probs are those of a "
            f"cut-off distribution, the learner's of the whole vocabulary, so each ratio would be wrong by the mass "
            f"that was kept. Train on top_p=1, top_k=0 (temperature may be anything > 0)"
        )
