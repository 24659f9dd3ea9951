"""What the results of a study say: one number per run, then an interval per arm, or per pair of arms.

    accuracy_at_end          held-out pass@1 at the last step
    lost                     best evaluation minus the last one: what was reached and not kept
    accuracy at equal tokens, at equal CPU time
                             of a seed: at the smallest budget that any arm of this seed used up

A run that stopped itself ("no token carries signal", something not finite) has no policy to evaluate at its end. Its
last training batches stand for it: that is how it was earning when it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from soliton.evals.statistics import Estimate
from soliton.study.result import RunResult
from soliton.study.statistics import at, mean_over_seeds, paired_difference
from soliton.study.study import Study

Quantity = Callable[[RunResult], float | None]
"""A number of one run; None where it does not have it."""
BySeed = dict[int, float]


def accuracy_before(run: RunResult) -> float | None:
    """Held-out pass@1 of the policy that the run began from."""
    return run.evaluations[0][1] if run.evaluations and run.evaluations[0][0] == 0 else None


def accuracy_at_end(run: RunResult) -> float | None:
    """Held-out pass@1 at the last step; for a run that stopped itself the reward of its last batches."""
    if run.status != "finished":
        return run.numbers.get("last reward/mean")
    return run.evaluations[-1][1] if run.evaluations else None


def best_accuracy(run: RunResult) -> float | None:
    """The best evaluation, the one at the beginning included."""
    return max((accuracy for _, accuracy in run.evaluations), default=None)


def lost(run: RunResult) -> float | None:
    """Best evaluation minus the accuracy at the end, >= 0 for runs that finished.

    The best of several noisy evaluations is biased upwards: a run that loses nothing shows 0.03 to 0.05.
    """
    best, end = best_accuracy(run), accuracy_at_end(run)
    return None if best is None or end is None else best - end


def number(name: str) -> Quantity:
    """A whole-run number of the result file."""
    return lambda run: run.numbers.get(name)


def median_of_curve(metric: str) -> Quantity:
    """Median over the points of a curve, each a mean of a few steps: no single batch can decide it.

    Explained variance needs that: of a batch whose returns are almost equal it may be -20,000.
    """

    def quantity(run: RunResult) -> float | None:
        values = [value for value in run.curves.get(metric, []) if value is not None]
        return median(values) if values else None

    return quantity


def removed_share(run: RunResult) -> float | None:
    """Action tokens that the actor loss learns nothing from: masked, clipped, or without an advantage."""
    kept = run.numbers.get("mean actor/signal_share")
    return None if kept is None else 1.0 - kept


def usually_removed_share(run: RunResult) -> float | None:
    """The same as a median over the curve: what a clip does is seen there.

    In the first batch of an untouched critic, which says 0 everywhere, every trajectory without reward has no
    advantage; a mean over the run would count that as clipped.
    """
    kept = median_of_curve("actor/signal_share")(run)
    return None if kept is None else 1.0 - kept


def train_cpu_s(run: RunResult) -> float:
    """Seconds of one core: rollouts, learning, and the value pretraining of the critic that the run uses."""
    return run.cpu_s[-1] + pretraining_cpu_s(run) if run.cpu_s else 0.0


def pretraining_cpu_s(run: RunResult) -> float:
    """Seconds of one core of the value pretraining that the run profits from; 0 without one.

    A run that made its own uses that one; one that has a critic from the warm start, the warm start's.
    """
    own = run.stage_cpu_s.get("value_pretraining")
    if own is not None:
        return own
    return run.stage_cpu_s.get("warm value_pretraining", 0.0) if run.uses_pretrained_critic else 0.0


def accuracy_after(run: RunResult, budget: float, spent: list[float], already: float = 0.0) -> float | None:
    """Held-out pass@1 when `budget` was used up, between evaluations by linear interpolation.

    Args:
        run: a run.
        budget: tokens or seconds.
        spent: of the same, up to each step of `run.curve_steps`.
        already: spent before training.
    """
    if not run.evaluations or not run.curve_steps:
        return None
    steps, spent = [0, *run.curve_steps], [already, *(already + each for each in spent)]
    points = [(at(steps, spent, step), accuracy) for step, accuracy in run.evaluations]
    end = accuracy_at_end(run)
    if run.status != "finished" and end is not None:
        points.append((spent[-1], end))
    return at([x for x, _ in points], [y for _, y in points], budget)


@dataclass(frozen=True)
class StudyResults:
    """The results of a study that are there.

    Attributes:
        study: the record.
        runs: arm -> seed -> result.
    """

    study: Study
    runs: Mapping[str, Mapping[int, RunResult]]

    @property
    def is_begun(self) -> bool:
        """Whether there is a result of an arm that is not borrowed."""
        return any(self.runs.get(arm.name) for arm in self.study.arms if not arm.of)

    @property
    def is_complete(self) -> bool:
        """Whether every arm has every seed."""
        return all(self.runs.get(arm.name, {}).keys() >= set(self.study.seeds) for arm in self.study.arms)

    def by_seed(self, arm: str, quantity: Quantity) -> BySeed:
        """The quantity of each run of an arm that has it."""
        values = {seed: quantity(run) for seed, run in self.runs.get(arm, {}).items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def mean(self, arm: str, quantity: Quantity) -> Estimate | None:
        """Over seeds, with its interval; None if no run has it."""
        values = self.by_seed(arm, quantity)
        return mean_over_seeds(list(values.values())) if values else None

    def difference(self, arm: str, other: str, quantity: Quantity) -> Estimate | None:
        """`arm` minus `other`, paired by seed."""
        return paired_difference(self.by_seed(arm, quantity), self.by_seed(other, quantity))

    def accuracy_at_equal_tokens(self, run: RunResult) -> float | None:
        """At the smallest number of tokens that an arm of this seed trained."""
        return accuracy_after(run, self._least_tokens[run.seed], [float(tokens) for tokens in run.tokens])

    def accuracy_at_equal_cpu(self, run: RunResult) -> float | None:
        """At the smallest processor time that an arm of this seed used."""
        return accuracy_after(run, self._least_cpu_s[run.seed], run.cpu_s, pretraining_cpu_s(run))

    @cached_property
    def _least_tokens(self) -> BySeed:
        return self._least(lambda run: float(run.tokens[-1]) if run.tokens else 0.0)

    @cached_property
    def _least_cpu_s(self) -> BySeed:
        return self._least(train_cpu_s)

    def _least(self, spent: Callable[[RunResult], float]) -> BySeed:
        """Over runs that went to their end: one that stopped itself early would shrink everybody's budget."""
        least: BySeed = {}
        for run in (run for runs in self.runs.values() for run in runs.values() if run.status == "finished"):
            least[run.seed] = min(least.get(run.seed, float("inf")), spent(run))
        return least
