"""What a run loses at a shift of preferences, and how long it takes to be where it was: pure functions of a result.

    level before      mean held-out pass@1 of the last `WINDOW` evaluations before the shift
    steps to recover  from the shift to the first of two evaluations in a row at or over a share of that level
    at once           mean held-out pass@1 of the evaluations in the first `AT_ONCE_STEPS` steps after the shift
    end of phase      mean held-out pass@1 of the last `WINDOW` evaluations of the phase

An evaluation at the step of a shift is made in the new phase. A run that does not recover within its phase counts with
the length of the phase: a lower bound, said as such. A run that stopped itself is not left out: it never recovers, and
the reward of its last batches stands for what it would have had in phases that it did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from soliton.study.outcomes import Quantity, accuracy_at_end
from soliton.study.result import RunResult

WINDOW = 3
AT_ONCE_STEPS = 40


@dataclass(frozen=True)
class Phase:
    """A stretch of a run in which one preference holds.

    Attributes:
        number: 1 first.
        begins, ends: learner steps, the end excluded (the last phase ends after the last step).
        preferred: the style.
    """

    number: int
    begins: int
    ends: int
    preferred: str

    def evaluations(self, points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
        """Those made in this phase, in order; without the one before training, which is of another set of numbers."""
        return [(step, value) for step, value in points if self.begins <= step < self.ends and step > 0]


def level_at_end(phase: Phase) -> Quantity:
    """Held-out pass@1 at the end of a phase."""

    def quantity(run: RunResult) -> float | None:
        return _level(run, [value for _, value in phase.evaluations(run.evaluations)][-WINDOW:])

    return quantity


def level_at_once(phase: Phase) -> Quantity:
    """Held-out pass@1 right after the shift into a phase."""

    def quantity(run: RunResult) -> float | None:
        found = phase.evaluations(run.evaluations)
        return _level(run, [value for step, value in found if step <= phase.begins + AT_ONCE_STEPS])

    return quantity


def steps_to_recover(before: Phase, phase: Phase, share: float) -> Quantity:
    """Steps after the shift from `before` to `phase` until `share` of the level before it is reached and kept once."""

    def quantity(run: RunResult) -> float | None:
        level, found = level_at_end(before)(run), phase.evaluations(run.evaluations)
        if level is None or (len(found) < 2 and run.status == "finished"):
            return None
        for (step, value), (_, following) in pairwise(found):
            if min(value, following) >= share * level:
                return float(step - phase.begins)
        return float(phase.ends - phase.begins)

    return quantity


def is_recovered(before: Phase, phase: Phase, share: float) -> Quantity:
    """1 if the level was reached within the phase, else 0."""
    steps = steps_to_recover(before, phase, share)

    def quantity(run: RunResult) -> float | None:
        taken = steps(run)
        return None if taken is None else float(taken < phase.ends - phase.begins)

    return quantity


def share_at_end(phase: Phase) -> Quantity:
    """Held-out share of the preferred style at the end of a phase."""

    def quantity(run: RunResult) -> float | None:
        points = run.held_out.get(f"eval/info/style/{phase.preferred}", [])
        return _mean([value for _, value in phase.evaluations(points)][-WINDOW:])

    return quantity


def mean_after(metric: str, begins: int, ends: int) -> Quantity:
    """Mean of a training metric over the steps from `begins` (excluded) to `ends`, by the bins of its curve."""

    def quantity(run: RunResult) -> float | None:
        curve = zip(run.curve_steps, run.curves.get(metric, []), strict=False)
        return _mean([value for step, value in curve if begins < step <= ends and value is not None])

    return quantity


def _level(run: RunResult, values: Sequence[float]) -> float | None:
    return accuracy_at_end(run) if not values and run.status != "finished" else _mean(values)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
