"""How much of the returns' variance the critic explains.

Owns: the statistic and its mergeable form. Does not know: when values were computed (the run measures it before a
batch's critic updates; after them it flatters itself).
Guarantees: merging the parts of a split in any order gives the whole, up to float64 rounding; a constant return gives
NaN exactly, never 0 and never a ratio of rounding errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from soliton.losses.reduction import bool_mask, check_packed, refuse


@dataclass(frozen=True)
class ExplainedVariance:
    """Sufficient statistics of returns R and errors E = R - V over `count` action tokens; all float64.

    Start from `ExplainedVariance()` and `merge` the parts. Example: V = [0, 1], R = [0, 2] has count 2, error mean 0.5
    and error_m2 0.5, return mean 1 and return_m2 2, hence `value` 0.75.

    Attributes:
        count: action tokens.
        error_mean, error_m2: mean of E, and sum of its squared deviations from that mean.
        return_mean, return_m2: the same of R.
        return_min, return_max: range of R; equal means Var(R) = 0, exactly.
    """

    count: int = 0
    error_mean: float = 0.0
    error_m2: float = 0.0
    return_mean: float = 0.0
    return_m2: float = 0.0
    return_min: float = math.inf
    return_max: float = -math.inf

    @classmethod
    def of(cls, values: Tensor, returns: Tensor, action_mask: Tensor) -> ExplainedVariance:
        """Collect the statistics of one micro-batch; arguments and errors as for `explained_variance`."""
        check_packed(values=values, returns=returns, action_mask=action_mask)
        mask = bool_mask(action_mask)
        refuse(values, mask & ~values.isfinite(), "values", "an action token has a finite value")
        refuse(returns, mask & ~returns.isfinite(), "returns", "an action token has a finite return")
        r = returns.detach()[mask].double()
        if len(r) == 0:
            return cls()
        e = r - values.detach()[mask].double()
        error_mean, return_mean = e.mean(), r.mean()
        parts = [error_mean, (e - error_mean).square().sum(), return_mean, (r - return_mean).square().sum()]
        return cls(len(r), *torch.stack([*parts, r.min(), r.max()]).tolist())

    def merge(self, other: ExplainedVariance) -> ExplainedVariance:
        """Combine two parts (Chan, Golub and LeVeque's pairwise update of means and squared deviations)."""
        count = self.count + other.count
        if count == 0:
            return self
        share = other.count / count
        cross = self.count * share
        error_gap, return_gap = other.error_mean - self.error_mean, other.return_mean - self.return_mean
        return ExplainedVariance(
            count=count,
            error_mean=self.error_mean + share * error_gap,
            error_m2=self.error_m2 + other.error_m2 + cross * error_gap**2,
            return_mean=self.return_mean + share * return_gap,
            return_m2=self.return_m2 + other.return_m2 + cross * return_gap**2,
            return_min=min(self.return_min, other.return_min),
            return_max=max(self.return_max, other.return_max),
        )

    @property
    def value(self) -> float:
        """1 - Var(E) / Var(R); NaN where Var(R) = 0 or there is no token."""
        if not self.return_min < self.return_max or self.return_m2 == 0.0:
            return math.nan
        return 1.0 - self.error_m2 / self.return_m2


def explained_variance(values: Tensor, returns: Tensor, action_mask: Tensor) -> float:
    """Measure the share of the returns' variance that the values explain.

        EV = 1 - Var(R - V) / Var(R)  over action tokens        (paper §3.2)

    Special cases: V = R + constant gives 1, a constant V gives 0, worse than a constant is negative.

    Args:
        values: [T]; entries off the mask are not read.
        returns: [T], the critic's targets.
        action_mask: [T] bool (or numbers that are 0 or 1).

    Returns:
        A float, at most 1; NaN (never 0) where Var(R) = 0 or there is no token. For micro-batches merge
        `ExplainedVariance.of(...)`: a mean of their EVs is not the EV (fault E2).

    Raises:
        ValueError: shapes differ, or a value or return that is not finite on an action token (named).
    """
    return ExplainedVariance.of(values, returns, action_mask).value
