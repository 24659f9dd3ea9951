"""Rules that judge claims: numbers in, a verdict out. A claim that fails is said to fail.

Four outcomes. "reproduced": the 95 % interval over seeds lies on the claimed side. "not reproduced": anything else
that could be measured; the numbers say whether the interval lies on the other side or holds both. "not testable at this
scale": this study cannot measure it. "not known yet": some of its runs are still to be made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from soliton.evals.statistics import Estimate
from soliton.study.outcomes import Quantity, StudyResults, lost
from soliton.study.study import Claim, Verdict

LOSS = 0.10
"""Held-out accuracy that a run must have lost from its best to count as having lost reward. Chosen before the study:
a run that loses nothing shows 0.03 to 0.05, because the best of several noisy evaluations is biased upwards."""

Judge = Callable[[StudyResults], Verdict]


def higher(arm: str, other: str, quantity: Quantity, what: str) -> Judge:
    """`arm` has more of the quantity than `other`: the interval of the paired difference lies above 0."""

    def judge(results: StudyResults) -> Verdict:
        difference = results.difference(arm, other, quantity)
        if difference is None:
            return missing(arm, other)
        means = ", ".join(f"{name} {shown(results.mean(name, quantity))}" for name in (arm, other))
        undecided = "" if difference.low > 0 or difference.high < 0 else "; undecided: the interval holds 0"
        numbers = f"{what}: {means}; difference, paired: {shown(difference)}{undecided}"
        return Verdict("reproduced" if difference.low > 0 else "not reproduced", numbers)

    return judge


def loses(arm: str, control: str | None = None) -> Judge:
    """An arm loses what it had reached: the interval of the loss lies above `LOSS`, and above that of its control."""

    def judge(results: StudyResults) -> Verdict:
        loss = results.mean(arm, lost)
        if loss is None:
            return missing(arm)
        numbers = f"best minus last accuracy: {arm} {shown(loss)} (threshold {LOSS})"
        holds = loss.low > LOSS
        if control is not None:
            difference = results.difference(arm, control, lost)
            if difference is None:
                return missing(control)
            numbers += f"; its control {control} {shown(results.mean(control, lost))}, difference {shown(difference)}"
            holds = holds and difference.low > 0
        return Verdict("reproduced" if holds else "not reproduced", numbers)

    return judge


def keeps(*arms: str) -> Judge:
    """Every one of these arms keeps what it reached: the interval of the loss lies below `LOSS`."""

    def judge(results: StudyResults) -> Verdict:
        losses = {arm: results.mean(arm, lost) for arm in arms}
        if None in losses.values():
            return missing(*arms)
        known = {arm: loss for arm, loss in losses.items() if loss is not None}
        numbers = "best minus last accuracy: " + ", ".join(f"{arm} {shown(loss)}" for arm, loss in known.items())
        holds = all(loss.high < LOSS for loss in known.values())
        return Verdict("reproduced" if holds else "not reproduced", f"{numbers} (threshold {LOSS})")

    return judge


def below(arm: str, quantity: Quantity, bound: float, what: str) -> Judge:
    """A quantity of an arm stays below a bound: so does its interval."""

    def judge(results: StudyResults) -> Verdict:
        value = results.mean(arm, quantity)
        if value is None:
            return missing(arm)
        numbers = f"{what}: {arm} {shown(value)} (bound {bound:g})"
        return Verdict("reproduced" if value.high < bound else "not reproduced", numbers)

    return judge


def above(arm: str, quantity: Quantity, bound: float, what: str) -> Judge:
    """A quantity of an arm stays above a bound: so does its interval."""

    def judge(results: StudyResults) -> Verdict:
        value = results.mean(arm, quantity)
        if value is None:
            return missing(arm)
        numbers = f"{what}: {arm} {shown(value)} (bound {bound:g})"
        return Verdict("reproduced" if value.low > bound else "not reproduced", numbers)

    return judge


def both(*judges: Judge) -> Judge:
    """Every part must hold."""

    def judge(results: StudyResults) -> Verdict:
        verdicts = [each(results) for each in judges]
        failing = [v.outcome for v in verdicts if v.outcome != "reproduced"]
        return Verdict(failing[0] if failing else "reproduced", "; ".join(verdict.numbers for verdict in verdicts))

    return judge


def unless_the_same(arm: str, other: str, why: str, judge: Judge) -> Judge:
    """`judge`, unless the two arms made the same runs with every seed: then what they differ in never came to act."""

    def judge_or_not(results: StudyResults) -> Verdict:
        runs, others = (results.runs.get(name, {}) for name in (arm, other))
        same = [seed for seed in runs.keys() & others.keys() if runs[seed].curves == others[seed].curves]
        if len(same) == len(results.study.seeds):
            return Verdict("not testable at this scale", f"{arm} and {other} are the same runs with every seed: {why}")
        verdict = judge(results)
        if not same:
            return verdict
        share = f"with {len(same)} of {len(results.study.seeds)} seeds they are the same runs"
        return replace(verdict, numbers=f"{verdict.numbers}; {share}")

    return judge_or_not


def not_testable(why: str) -> Judge:
    """This study cannot measure the claim."""
    return lambda _: Verdict("not testable at this scale", why)


def judged(claim: Claim, results: StudyResults) -> Verdict:
    """The verdict on a claim; none before every run of the study is there, for the first seeds may say anything."""
    verdict = claim.judge(results)
    if results.is_complete or verdict.outcome == "not testable at this scale":
        return verdict
    return Verdict("not known yet", verdict.numbers)


def missing(*arms: str) -> Verdict:
    """Some arm has no results."""
    return Verdict("not known yet", f"no results of {' and '.join(arms)} yet")


def shown(estimate: Estimate | None) -> str:
    """`0.61 [0.55, 0.67]`, the interval over seeds; without one for a single seed."""
    if estimate is None:
        return "—"
    digits = 3 if abs(estimate.mean) < 10 else 1
    if estimate.n < 2:
        return f"{estimate.mean:.{digits}f} (1 seed)"
    return f"{estimate.mean:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def counted(verdicts: Sequence[Verdict]) -> str:
    """`3 reproduced, 2 not reproduced, 1 not testable at this scale`."""
    outcomes = [verdict.outcome for verdict in verdicts]
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(sorted(outcomes)))
