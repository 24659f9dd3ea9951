"""What becomes of trajectories that a limit cut: four records, of which a method holds one. No torch here.

A cut trajectory keeps the environment's reward. What differs is what it is taken for (fault A5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TruncationName = Literal["terminal", "bootstrap", "drop", "mask_actor"]


@dataclass(frozen=True)
class Truncation:
    """What becomes of truncated trajectories.

    Attributes:
        name: as a recipe says it.
        trains: they are part of the optimiser batch; otherwise they are left out and counted.
        bootstraps: V of the state after the last token stands for the rewards that the limit cut off.
        moves_actor: their tokens carry a gradient of the actor; the critic learns from them in any case.
    """

    name: TruncationName
    trains: bool = True
    bootstraps: bool = False
    moves_actor: bool = True


TERMINAL = Truncation("terminal")
"""The environment's reward is the score, as if the task had ended there (a choice: docs/algorithm.md)."""
BOOTSTRAP = Truncation("bootstrap", bootstraps=True)
"""The task would have gone on: the critic says what was still to come."""
DROP = Truncation("drop", trains=False)
"""Nothing is learned from them; `trajectory/dropped_truncated` counts them."""
MASK_ACTOR = Truncation("mask_actor", moves_actor=False)
"""The critic learns what they earned, the actor neither repeats nor avoids what it did in them."""

TRUNCATIONS: Mapping[TruncationName, Truncation] = {t.name: t for t in (TERMINAL, BOOTSTRAP, DROP, MASK_ACTOR)}
