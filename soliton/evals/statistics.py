"""Intervals for what a run reports. Pure: numbers in, an `Estimate` out, the same one every time.

A single number from 256 prompts hides that its standard error is about 0.03. Nothing in a report or a table of this
project is printed without the interval and the n behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec
import numpy as np

RESAMPLES_PER_BLOCK = 256
"""Resamples drawn at once: bounds the memory at 256 * n indices, whatever the number of resamples."""


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its interval, as written to `summary.json`: `{"mean": 0.31, "low": 0.26, "high": 0.37, "n": 256}`.

    Attributes:
        mean: the point estimate.
        low, high: ends of the interval (95 % unless the caller asked for another).
        n: observations behind it (prompts, or pairs of them).
    """

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n})"


def wilson(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Wilson score interval of a proportion (E. B. Wilson, 1927).

    With p = successes / n and z the two-sided normal quantile of `confidence`:
    centre = (p + z^2/2n) / (1 + z^2/n), half width = z/(1 + z^2/n) * sqrt(p(1-p)/n + z^2/4n^2).
    Unlike p +- z * sqrt(p(1-p)/n) it stays inside [0, 1] and has a width at p = 0 and p = 1.

    Args:
        successes: 0 <= successes <= n.
        n: >= 1.
        confidence: in (0, 1).

    Raises:
        ValueError: an argument outside its range.
    """
    if n < 1:
        raise ValueError(f"an interval of a proportion needs n >= 1 observations, got n = {n}")
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be between 0 and n = {n}, got {successes}")
    z = NormalDist().inv_cdf(0.5 + _checked_confidence(confidence) / 2)
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half_width = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half_width)  # exact ends, not 1e-18
    high = 1.0 if successes == n else min(1.0, centre + half_width)
    return Estimate(mean=p, low=low, high=high, n=n)


def paired_bootstrap(
    before: Sequence[float],
    after: Sequence[float],
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Estimate:
    """Percentile interval of mean(after - before), resampling PAIRS (B. Efron, 1979).

    `before[i]` and `after[i]` are results of the same prompt, so the difficulty of the prompts cancels: shuffling both
    together changes the mean by nothing, shuffling one of them makes the interval wider.

    Args:
        before: one finite result per prompt.
        after: the same, in the same order of prompts.
        seed: of the resampling; equal arguments give an equal result.
        resamples: >= 1.
        confidence: in (0, 1).

    Raises:
        ValueError: no pair, unequal lengths, a result that is not finite, or an argument outside its range.
    """
    if len(before) != len(after):
        raise ValueError(f"pairs need equal lengths, got {len(before)} before and {len(after)} after")
    if len(before) == 0:
        raise ValueError("a paired bootstrap needs at least one pair, got none")
    if resamples < 1:
        raise ValueError(f"resamples must be >= 1, got {resamples}")
    tail = (1 - _checked_confidence(confidence)) / 2
    difference = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    if not np.isfinite(difference).all():
        worst = int((~np.isfinite(difference)).argmax())
        raise ValueError(f"results must be finite, got before[{worst}] = {before[worst]}, after = {after[worst]}")
    n = len(difference)
    rng = np.random.default_rng(seed)
    blocks = [min(RESAMPLES_PER_BLOCK, resamples - done) for done in range(0, resamples, RESAMPLES_PER_BLOCK)]
    means = np.concatenate([difference[rng.integers(0, n, size=(block, n))].mean(axis=1) for block in blocks])
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean=float(difference.mean()), low=float(low), high=float(high), n=n)


def _checked_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), for example 0.95; got {confidence}")
    return confidence
