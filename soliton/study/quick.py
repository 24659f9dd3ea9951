"""`--quick`: what is robust enough to be seen in ten minutes: few seeds, point estimates instead of intervals.

That GRPO or VAPO lose their reward is not: in the main study GRPO does in no seed, and VAPO in most, after more steps.
"""

from __future__ import annotations

from soliton.study.outcomes import StudyResults, lost, number, usually_removed_share
from soliton.study.paper_study import CALCULATOR
from soliton.study.rules import LOSS, Judge, shown
from soliton.study.study import Arm, Claim, Study, Verdict


def _mean_is(name: str, holds: bool, numbers: str) -> Verdict:
    return Verdict("reproduced" if holds else "not reproduced", f"{name}: {numbers} (means of few seeds, no interval)")


def _keeps(name: str) -> Judge:
    def judge(results: StudyResults) -> Verdict:
        loss = results.mean(name, lost)
        return _mean_is("best minus last accuracy", loss is not None and loss.mean < LOSS, f"{name} {shown(loss)}")

    return judge


def _less_lag(results: StudyResults) -> Verdict:
    single, groups = (results.mean(name, number("mean staleness/mean")) for name in ("sao", "grpo-dis"))
    holds = single is not None and groups is not None and single.mean < groups.mean
    return _mean_is("mean lag", holds, f"sao {shown(single)}, grpo-dis {shown(groups)}")


def _never_clips(results: StudyResults) -> Verdict:
    share = results.mean("vapo", usually_removed_share)
    holds = share is not None and share.mean < 0.01
    return _mean_is("share of tokens that the clip removes, median over steps", holds, shown(share))


QUICK = Study(
    name="quick",
    title="The robust part, quickly",
    question="A shorter version of the main study, as a test of the code. It proves nothing about the paper.",
    recipe=CALCULATOR,
    arms=tuple(Arm(name, (f"algorithm={name}",)) for name in ("sao", "grpo", "grpo-dis", "vapo")),
    seeds=(0, 1),
    reference="sao",
    overrides=("learner.actor_lr=4e-4", "train.steps=60"),
    claims=(
        Claim("GRPO + DIS keeps its reward under lag", _keeps("grpo-dis")),
        Claim("SAO keeps its reward under lag", _keeps("sao")),
        Claim("Single rollouts have less lag than groups", _less_lag),
        Claim("VAPO's clip hardly ever acts", _never_clips),
    ),
)
