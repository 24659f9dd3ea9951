"""Time and error of `skip_observation_gae` at the size of a large batch: `python -m benchmarks.gae`.

128 segments of 131,072 float32 tokens, 60 % of them observations, one length-adaptive lambda per segment, one core.
The clock covers the whole call: checks, mask compression, recursion, write-back. Two layouts: `turns` (runs of
200-2,000 sampled tokens between observations) and `scattered` (each token drawn on its own, the worst case for
compression); `gae_s` is the slower of the two. The error is against a plain loop in Python's float64.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
import torch
from torch import Tensor

from soliton.advantages import length_adaptive_lambda, skip_observation_gae

SEGMENTS, TOKENS, ACTION_SHARE = 128, 131_072, 0.4
REPEATS = 5


def turns_mask(rng: np.random.Generator) -> np.ndarray:
    """Alternating actions and observations whose lengths have the ratio 40 : 60."""
    actions = rng.integers(200, 2_000, size=SEGMENTS * TOKENS // 1_000)
    observations = (actions * (1 - ACTION_SHARE) / ACTION_SHARE).astype(np.int64)
    lengths = np.stack([observations, actions], axis=1).ravel()
    kinds = np.tile([False, True], len(actions))
    return np.repeat(kinds, lengths)[: SEGMENTS * TOKENS].reshape(SEGMENTS, TOKENS)


def scattered_mask(rng: np.random.Generator) -> np.ndarray:
    """Every token is an action with probability 0.4."""
    return rng.random((SEGMENTS, TOKENS), dtype=np.float32) < ACTION_SHARE


def loop_float64(values: Tensor, rewards: Tensor, mask: Tensor, lambdas: Tensor) -> np.ndarray:
    """The definition, one token at a time, in Python floats; gamma 1."""
    out = np.zeros(len(values))
    for segment in range(SEGMENTS):
        span = slice(segment * TOKENS, (segment + 1) * TOKENS)
        actions = np.flatnonzero(mask[span].numpy())
        v, r = values[span].numpy()[actions].tolist(), rewards[span].numpy()[actions].tolist()
        lam, after, advantage = float(lambdas[segment]), 0.0, 0.0
        result = [0.0] * len(v)
        for k in range(len(v) - 1, -1, -1):
            advantage = r[k] + after - v[k] + lam * advantage
            result[k], after = advantage, v[k]
        out[span][actions] = result
    return out


def measure_layout(mask_2d: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Median seconds over the repeats, and the largest error."""
    mask = torch.from_numpy(mask_2d.ravel())
    values = torch.from_numpy(rng.standard_normal(SEGMENTS * TOKENS, dtype=np.float32))
    rewards = torch.zeros(SEGMENTS * TOKENS)
    last = [row * TOKENS + int(np.flatnonzero(mask_2d[row])[-1]) for row in range(SEGMENTS)]
    rewards[last] = 1.0
    segment_ids = torch.arange(SEGMENTS).repeat_interleave(TOKENS)
    lambdas = length_adaptive_lambda(torch.from_numpy(mask_2d.sum(axis=1)))
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        advantages = skip_observation_gae(values, rewards, mask, lam=lambdas, segment_ids=segment_ids)
        seconds.append(time.perf_counter() - start)
    error = np.abs(advantages.numpy() - loop_float64(values, rewards, mask, lambdas)).max()
    return statistics.median(seconds), float(error)


def measure() -> dict[str, float]:
    """Seconds (median of 5) and largest absolute error; `gae_s` and `gae_max_error` are the worse of both layouts."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    turns_s, turns_error = measure_layout(turns_mask(rng), rng)
    scattered_s, scattered_error = measure_layout(scattered_mask(rng), rng)
    return {
        "gae_s": max(turns_s, scattered_s),
        "gae_max_error": max(turns_error, scattered_error),
        "gae_turns_s": turns_s,
        "gae_scattered_s": scattered_s,
        "gae_tokens": float(SEGMENTS * TOKENS),
        "gae_tokens_per_s": SEGMENTS * TOKENS / max(turns_s, scattered_s),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
