"""What every loss returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class LossResult:
    """A loss and its metrics.

    Attributes:
        loss: scalar with a graph (also when there is no token), already divided by the global token count, so the
            losses of all micro-batches and ranks are simply added.
        metrics: sums and counts, never means: adding those of two micro-batches gives those of both (fault E2).
    """

    loss: Tensor
    metrics: dict[str, float] = field(default_factory=dict)
