"""Intervals over seeds. Pure: numbers in, an `Estimate` out.

Seeds are the sample: two runs of one arm differ by their seed alone, and two arms are compared seed by seed, because
those of a seed share their warm start, prompts and evaluation. With 3 to 5 seeds the Student t interval is wide, and
that is the truth of it; a bootstrap over so few would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from scipy.stats import t as student_t

from soliton.evals.statistics import Estimate


def mean_over_seeds(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean with its Student t interval.

        mean +- t(1 - (1 - confidence)/2; n - 1) * s / sqrt(n),   s^2 = sum (x - mean)^2 / (n - 1)

    Example: 1, 2, 3 give 2 +- 4.303 * 1 / 1.732 = [-0.484, 4.484]. One seed has no interval: (-inf, inf).

    Args:
        values: one per seed, finite.
        confidence: in (0, 1).

    Raises:
        ValueError: no value, one that is not finite, or a confidence outside its range.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError(f"an interval over seeds needs finite values, at least one; got {list(values)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), for example 0.95; got {confidence}")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean=mean, low=-math.inf, high=math.inf, n=1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half_width = float(student_t.ppf(0.5 + confidence / 2, n - 1)) * deviation / math.sqrt(n)
    return Estimate(mean=mean, low=mean - half_width, high=mean + half_width, n=n)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """`mean_over_seeds` of ours minus theirs, over the seeds that both have; None if there is none.

    What is common to a seed (its warm start, its prompts) cancels.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    return mean_over_seeds([ours[seed] - theirs[seed] for seed in seeds]) if seeds else None


def at(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Linear interpolation of the points (xs, ys) at x; beyond an end, the value at that end.

    Args:
        xs: non-decreasing, as many as `ys`, at least one.
        ys: values.
        x: where.
    """
    if x <= xs[0]:
        return ys[0]
    for (left, right), (low, high) in zip(pairwise(xs), pairwise(ys), strict=True):
        if x <= right:
            return high if right == left else low + (high - low) * (x - left) / (right - left)
    return ys[-1]
