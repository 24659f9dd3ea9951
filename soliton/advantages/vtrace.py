"""V-trace: value targets and advantages corrected for the policy that sampled (IMPALA).

Owns: the recursion with one truncated weight per token, observations skipped. Does not know: losses.
Guarantees: values, log-ratios and rewards are treated as in `skip_observation_gae`; a huge ratio never overflows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from soliton.advantages.gae import skip_observation_gae

MAX_LOG_RATIO = 20.0


def vtrace(
    values: Tensor,
    rewards: Tensor,
    action_mask: Tensor,
    log_ratios: Tensor,
    segment_ids: Tensor,
    *,
    gamma: float,
    lam: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    bootstrap_values: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute V-trace targets and policy-gradient advantages over the action tokens of each segment.

        w_k = exp(log pi - log mu),   rho_k = min(rho_clip, w_k),   c_k = lam * min(c_clip, w_k)
        delta_k = rho_k (r_k + gamma V_{k+1} - V_k),   v_k = V_k + delta_k + gamma c_k (v_{k+1} - V_{k+1})
        A_k = rho_k (r_k + gamma v_{k+1} - V_k)                     (IMPALA, https://arxiv.org/abs/1802.01561)

    After the last action v and V are `bootstrap_values`. A already holds the importance weight: its loss is
    `reinforce_loss`.
    Special case: w = 1 with clips >= 1 gives the lambda-returns v = V + GAE(lam), and at lam 1 A = GAE(1).

    Args:
        values: floating [T]; read on action tokens only, finite there.
        rewards: [T], finite everywhere; one at a masked position belongs to the action before it.
        action_mask: bool [T].
        log_ratios: [T], log pi - log mu of each token; read on action tokens only. Limited to +-20; NaN is refused.
        segment_ids: int64 [T], non-decreasing from 0.
        gamma: in [0, 1].
        lam: in [0, 1].
        rho_clip: > 0, which fixed point: at 1 the values stay those of a policy between mu and pi.
        c_clip: > 0, how far corrections travel back.
        bootstrap_values: floating [S]; see `skip_observation_gae`. None: 0 everywhere.

    Returns:
        Targets and advantages, float32 [T] on the device of `values`, without gradient, 0 off the action mask.

    Raises:
        ValueError: see `skip_observation_gae`; a log-ratio that is NaN on an action token; a clip or lam out of range.
    """
    if not (rho_clip > 0 and c_clip > 0 and 0 <= lam <= 1):
        raise ValueError(f"the clips must be > 0 and lam in [0, 1], got {rho_clip}, {c_clip} and {lam}")
    bad = action_mask & log_ratios.isnan()
    if bool(bad.any()):
        raise ValueError(f"log_ratios[{int(bad.int().argmax())}] is NaN on an action token")
    # GAE at lambda 0 is r + gamma V' - V: the checks and the placing of rewards come with it.
    delta = skip_observation_gae(
        values,
        rewards,
        action_mask,
        gamma=gamma,
        lam=0.0,
        segment_ids=segment_ids,
        bootstrap_values=bootstrap_values,
    )
    actions = action_mask.cpu().numpy()
    ids = segment_ids.cpu().numpy()[actions]
    weight = np.exp(log_ratios.detach().double().cpu().numpy()[actions].clip(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    rho, carry = np.minimum(rho_clip, weight), gamma * lam * np.minimum(c_clip, weight)
    td = delta.double().cpu().numpy()[actions]
    gap = _backwards(rho * td, carry, ids)  # v - V
    last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.zeros(0, dtype=bool)
    next_gap = np.where(last, 0.0, np.append(gap[1:], 0.0))
    targets, advantages = torch.zeros(len(values)), torch.zeros(len(values))
    on_actions = action_mask.cpu()
    v = values.detach().cpu().double()[on_actions]
    targets[on_actions] = (v + torch.from_numpy(gap)).float()
    advantages[on_actions] = torch.from_numpy(rho * (td + gamma * next_gap)).float()
    return targets.to(values.device), advantages.to(values.device)


def _backwards(x: np.ndarray, carry: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """y_k = x_k + carry_k y_{k+1} inside each run of equal ids, all runs at once: one pass per place in a run."""
    out = x.copy()
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, dtype=np.int64)
    ends = np.append(starts[1:], len(ids))
    for back in range(2, int((ends - starts).max(initial=0)) + 1):
        at = (ends - back)[ends - starts >= back]
        out[at] += carry[at] * out[at + 1]
    return out
