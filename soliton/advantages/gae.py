"""Token-level generalised advantage estimation over what the model sampled, observations skipped.

Owns: the recursion, the placing of rewards on action tokens, and the checks of its inputs.
Does not know: models, critics (values come paired: values[t] is V of the prefix before token t), losses.
Guarantees: values off the action mask are never read, so NaN there changes nothing, bit for bit; inserting
observations changes no advantage; a packed segment gives the same bits alone or among others.

Deleting the observations leaves a first-order linear recursion with one coefficient per segment, which is a
recursive filter: float64 coefficient and state cost nothing over float32 and are 500 times more exact over 50,000
steps. It runs on the CPU whatever the device of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.signal import lfilter
from torch import Tensor

FloatArray = NDArray[np.floating]
Float64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def skip_observation_gae(
    values: Tensor,
    rewards: Tensor,
    action_mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float | Tensor,
    segment_ids: Tensor | None = None,
    bootstrap_values: Tensor | None = None,
) -> Tensor:
    """Compute token GAE over the action tokens of each segment as if observations were not there.

        delta_k = r_k + gamma * V_{k+1} - V_k,   A_k = delta_k + gamma * lam * A_{k+1}      (paper §3.2, Eq. 4-5)

    k counts the ACTION tokens of one segment, so the step from the last token of an action to the first of the next
    is one step. After the last one V is `bootstrap_values` and A is 0.
    Critic targets are the same call at the critic's lambda, plus `values` (lam 1, gamma 1: the sum of rewards to come).

    A reward on a masked position belongs to the last action token before it in its segment.
    Property: an observation changes no advantage, whatever it holds.

    Args:
        values: floating [T]; values[t] = V(prefix before token t). Read on action tokens only, finite there.
        rewards: [T], finite everywhere. Read everywhere.
        action_mask: [T] bool (or numbers that are 0 or 1): the model sampled this token.
        gamma: discount per action token, in [0, 1].
        lam: in [0, 1]; a float, or a float64 tensor [S] with one lambda per segment.
        segment_ids: int64 [T], the trajectory of each token, non-decreasing from 0; None: one segment. S is the last
            id plus one.
        bootstrap_values: floating [S], finite; V of the state AFTER the last token of a truncated segment, 0 where
            terminated. None: 0 everywhere.

    Returns:
        float32 [T] on the device of `values`, without gradient, 0 off the action mask. A segment without action tokens
        gets zeros.

    Raises:
        ValueError: a shape, dtype or range other than the above; a reward that is not finite, or not 0 before the
            first action token of its segment; a value that is not finite on an action token. Names the index.
    """
    num_tokens = _check_shapes(values, rewards, action_mask)
    if not 0.0 <= gamma <= 1.0:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}")
    starts, ids, num_segments = _runs(segment_ids, num_tokens)
    lambdas = _per_segment_lambda(lam, num_segments)
    bootstraps = _per_segment_bootstrap(bootstrap_values, num_segments)
    mask = _bool_mask(action_mask)
    value_array, reward_array = _to_numpy(values), _to_numpy(rewards)
    advantages = np.zeros(num_tokens, dtype=np.float32)
    for segment, start, stop in _spans(starts, ids, num_tokens):
        actions = np.flatnonzero(mask[start:stop])
        r = _rewards_on_actions(reward_array[start:stop], mask[start:stop], actions, start)
        if len(actions) == 0:
            continue
        v = value_array[start:stop].take(actions).astype(np.float64)
        _check_values(v, actions, start)
        delta = r - v
        delta[:-1] += gamma * v[1:]
        delta[-1] += gamma * bootstraps[segment]
        reversed_advantages = lfilter([1.0], [1.0, -gamma * lambdas[segment]], delta[::-1])
        advantages[start:stop][actions] = reversed_advantages[::-1].astype(np.float32)
    return torch.from_numpy(advantages).to(values.device)


def _check_shapes(values: Tensor, rewards: Tensor, action_mask: Tensor) -> int:
    if values.ndim != 1 or not values.is_floating_point():
        raise ValueError(f"values must be floating and packed [T], got {values.dtype} {tuple(values.shape)}")
    for name, tensor in (("rewards", rewards), ("action_mask", action_mask)):
        if tensor.shape != values.shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}, values {tuple(values.shape)}; one entry per token"
            )
    return len(values)


def _to_numpy(tensor: Tensor) -> FloatArray:
    detached = tensor.detach().cpu()
    if detached.dtype not in (torch.float32, torch.float64):
        detached = detached.float()  # numpy has no bfloat16
    array: FloatArray = detached.numpy()
    return array


def _bool_mask(action_mask: Tensor) -> BoolArray:
    if action_mask.dtype != torch.bool:
        bad = (action_mask != 0) & (action_mask != 1)
        if bool(bad.any()):
            i = int(bad.int().argmax())
            raise ValueError(f"action_mask[{i}] = {action_mask[i].item()}; a mask is bool, or numbers that are 0 or 1")
        action_mask = action_mask != 0
    mask: BoolArray = action_mask.cpu().numpy()
    return mask


def _runs(segment_ids: Tensor | None, num_tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Starts of the runs of equal ids, the id of each run, and S."""
    if segment_ids is None:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), 1
    if segment_ids.shape != (num_tokens,) or segment_ids.dtype != torch.int64:
        got = f"{segment_ids.dtype} {tuple(segment_ids.shape)}"
        raise ValueError(f"segment_ids must be int64 with one id per token ({num_tokens}), got {got}")
    ids = segment_ids.detach().cpu().numpy()
    if num_tokens == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0
    if ids[0] != 0:
        raise ValueError(f"segment_ids[0] = {ids[0]}; ids start at 0")
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
    run_ids = ids[starts]
    falls = np.flatnonzero(run_ids[1:] < run_ids[:-1])
    if len(falls):
        i = int(starts[falls[0] + 1])
        raise ValueError(f"segment_ids[{i}] = {ids[i]} after {ids[i - 1]}; ids never decrease: pack whole segments")
    return starts, run_ids, int(run_ids[-1]) + 1


def _spans(starts: NDArray[np.int64], ids: NDArray[np.int64], num_tokens: int) -> Iterator[tuple[int, int, int]]:
    stops = np.append(starts, num_tokens)[1:]
    yield from zip(ids.tolist(), starts.tolist(), stops.tolist(), strict=True)


def _per_segment_lambda(lam: float | Tensor, num_segments: int) -> Float64Array:
    if isinstance(lam, Tensor):
        if lam.dtype != torch.float64 or lam.shape != (num_segments,):
            got = f"{lam.dtype} {tuple(lam.shape)}"
            raise ValueError(f"lam must be a float or float64 [{num_segments}], one per segment, got {got}")
        lambdas: Float64Array = lam.detach().cpu().numpy()
    else:
        lambdas = np.broadcast_to(np.float64(lam), (num_segments,))
    bad = ~((lambdas >= 0) & (lambdas <= 1))
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"lam of segment {i} is {lambdas[i]}; it must be in [0, 1]")
    return lambdas


def _per_segment_bootstrap(bootstrap_values: Tensor | None, num_segments: int) -> Float64Array:
    if bootstrap_values is None:
        return np.broadcast_to(np.float64(0.0), (num_segments,))
    if bootstrap_values.shape != (num_segments,):
        raise ValueError(f"bootstrap_values must be [{num_segments}], got shape {tuple(bootstrap_values.shape)}")
    bootstraps = _to_numpy(bootstrap_values).astype(np.float64)
    bad = ~np.isfinite(bootstraps)
    if bad.any():
        i = int(bad.argmax())
        raise ValueError(f"bootstrap_values[{i}] = {bootstraps[i]}; it must be finite (0 where terminated)")
    return bootstraps


def _rewards_on_actions(rewards: FloatArray, mask: BoolArray, actions: NDArray[np.intp], offset: int) -> Float64Array:
    """Rewards of one segment, float64, one per action token; a masked one joins the action token before it."""
    on_actions: Float64Array = rewards.take(actions).astype(np.float64)
    masked = np.flatnonzero((rewards != 0) & ~mask)  # NaN and inf are not 0 either
    # One sum instead of a test per token: it is finite unless a term is not (or the terms overflow).
    if not (np.isfinite(on_actions.sum()) and np.isfinite(rewards[masked]).all()):
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            raise ValueError(f"rewards[{offset + bad[0]}] = {rewards[bad[0]]}; rewards are finite everywhere")
    if len(masked) == 0:
        return on_actions
    owners = np.cumsum(mask)[masked] - 1
    if owners[0] < 0:
        i = int(masked[0])
        raise ValueError(
            f"rewards[{offset + i}] = {rewards[i]} comes before the first action token of its segment, so no action "
            "earned it; a reward sits on an action token or after one"
        )
    return on_actions + np.bincount(owners, weights=rewards[masked], minlength=len(actions))


def _check_values(values: Float64Array, actions: NDArray[np.intp], offset: int) -> None:
    if np.isfinite(values.sum()):
        return
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        i = bad[0]
        raise ValueError(f"values[{offset + actions[i]}] = {values[i]} on an action token; it must be finite")
