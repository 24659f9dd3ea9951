"""The choice of learning rates: one small sweep per loss family, the same for all, all of it shown.

What the sweep found best is what the other studies use: they read it from its results, nobody copies a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from soliton.study.outcomes import StudyResults, accuracy_at_end
from soliton.study.result import RunResult
from soliton.study.study import Arm, Start, Study

RATES = (1e-4, 3e-4, 1e-3)


@dataclass(frozen=True)
class Family:
    """Methods with one actor loss, and the one that stands for them in the sweep.

    Attributes:
        preset: the representative.
        start: what it begins with.
    """

    preset: str
    start: Start = "policy and critic"


FAMILIES = {
    "dis": Family("sao"),
    "latest-clip": Family("grpo"),
    "behaviour-clip": Family("spo"),
    "two-ratios": Family("decoupled-ppo"),
    "band-of-two": Family("icepop"),
    "sequence": Family("gspo"),
    "no-ratio": Family("reinforce"),
    "vtrace": Family("vtrace", start="policy"),
}


def choices(results: StudyResults) -> str:
    """Accuracy of every rate of each family, the chosen one in bold; Markdown."""
    lines = ["| loss family | " + " | ".join(f"{rate:g}" for rate in RATES) + " |", "|---|" + "---:|" * len(RATES)]
    for name, family in FAMILIES.items():
        tried = [(arm.tries[1], run) for arm in results.study.arms for run in _of(results, arm, name) if arm.tries]
        if tried:
            chosen = best_rate(tried)
            found = {rate: f"{accuracy_at_end(run) or 0.0:.3f}" for rate, run in tried}
            cells = [f"**{found[rate]}**" if rate == chosen else found.get(rate, "—") for rate in RATES]
            lines.append(f"| {name} (`{family.preset}`) | " + " | ".join(cells) + " |")
    return "\n".join(["Held-out accuracy after 40 steps by learning rate; the one that is used is bold:\n", *lines])


def _of(results: StudyResults, arm: Arm, family: str) -> list[RunResult]:
    is_of_it = arm.tries is not None and arm.tries[0] == family
    return list(results.runs.get(arm.name, {}).values()) if is_of_it else []


def best_rate(tried: Sequence[tuple[float, RunResult]]) -> float:
    """The learning rate with the best accuracy at the end; of equals the smallest.

    Args:
        tried: at least one, each with its result.
    """
    return max(tried, key=lambda pair: (accuracy_at_end(pair[1]) or 0.0, -pair[0]))[0]


SWEEP = Study(
    name="sweep",
    title="Learning rates",
    question=(
        "Which learning rate of the actor does each loss family get? One representative each, three values, one seed "
        "that no other study uses, 40 steps under the lag of the other studies. The value with the best held-out "
        "accuracy after 40 steps is taken, the smaller one of equals, whatever the curve looks like."
    ),
    recipe="study.toml",
    arms=tuple(
        Arm(
            f"{family.preset}-{rate:g}",
            (f"algorithm={family.preset}", f"learner.actor_lr={rate}"),
            start=family.start,
            tries=(name, rate),
        )
        for name, family in FAMILIES.items()
        for rate in RATES
    ),
    seeds=(100,),
    seeds_are_fixed=True,
    reference="sao-0.0001",
    overrides=("train.steps=40",),
    sections=(choices,),
)


def families_of(studies: Sequence[Study]) -> set[str]:
    """Loss families whose learning rate some arm of these studies needs; borrowed arms are looked up by the caller."""
    return {arm.family for study in studies for arm in study.arms if arm.family}


def part_of_the_sweep(sweep: Study, families: set[str]) -> Study:
    """The sweep with the arms of some families alone."""
    return replace(sweep, arms=tuple(arm for arm in sweep.arms if arm.tries is not None and arm.tries[0] in families))
