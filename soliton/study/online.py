"""Learning online while the preferred style shifts twice (paper §4.5), and the same with all prompts equally hard.

The prototype found "ends higher" weakly and "faster at once" not at all. Two explanations are told apart here: the
task (if all prompts are equally hard, a critic knows no more than one number, so it can be no better than a running
mean) and the method (a baseline that follows the reward quickly stops pushing the old style down, whatever it is made
of). The second study makes all prompts equally hard; the arm `running-mean-16` is a quick baseline that knows no state.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from soliton.study.outcomes import Quantity, StudyResults
from soliton.study.page import table
from soliton.study.paper_study import SEEDS
from soliton.study.recovery import (
    Phase,
    is_recovered,
    level_at_end,
    level_at_once,
    mean_after,
    share_at_end,
    steps_to_recover,
)
from soliton.study.result import RunResult
from soliton.study.rules import Judge, both, higher, shown
from soliton.study.study import Arm, Claim, Panel, Study

SHIFTS, STEPS = (150, 300), 450
STYLES = ("academic", "cute", "chuunibyou", "classical")
PHASES = tuple(
    Phase(number, begins, ends, preferred)
    for number, ((begins, ends), preferred) in enumerate(
        zip(pairwise((0, *SHIFTS, STEPS + 1)), ("cute", "chuunibyou", "classical"), strict=True), start=1
    )
)
SHIFTED = tuple(pairwise(PHASES))
"""(phase before, phase after) of each shift."""
SHARES = (0.5, 0.9)
SAO, RUNNING_MEAN = "sao-lambda-1", "running-mean"
GLOBAL = 'method.baseline_scope="global"'

ARMS = (
    Arm("sao", ("algorithm=sao",), says="(length-adaptive lambda)"),
    Arm(SAO, ("algorithm=sao", "method.policy_lambda=1.0")),
    Arm(RUNNING_MEAN, ("algorithm=running-mean", GLOBAL), says="(of 128 rewards)"),
    Arm("running-mean-16", ("algorithm=running-mean", GLOBAL, "method.baseline_window=16"), says="(of 16)"),
    Arm("grpo-dis", ("algorithm=grpo-dis",)),
    Arm("reinforce", ("algorithm=reinforce",)),
)
PANELS = (
    Panel("reward/mean", "Reward of the training batch", "mean reward", share=True),
    Panel("eval/pass_at_1", "Held-out: liked at the time", "pass@1", share=True),
    Panel("actor/entropy", "Entropy", "nats per token"),
    *(Panel(f"eval/info/style/{style}", f"Held-out: {style}", "share of texts", share=True) for style in STYLES),
    Panel("critic/explained_var", "Critic: explained variance (pre-fit)", "1"),
    Panel("critic/value_mean", "Critic: value", "mean"),
)


def _over_shifts(*quantities: Quantity) -> Quantity:
    """The mean over both shifts, of one run."""

    def quantity(run: RunResult) -> float | None:
        values = [value for each in quantities if (value := each(run)) is not None]
        return sum(values) / len(values) if len(values) == len(quantities) else None

    return quantity


AT_ONCE = _over_shifts(*(level_at_once(after) for _, after in SHIFTED))
AT_END = _over_shifts(*(level_at_end(after) for _, after in SHIFTED))


def shift_table(results: StudyResults) -> str:
    """Each shift by arm: how low, how long, how high in the end."""
    parts = []
    for before, after in SHIFTED:
        columns: dict[str, Quantity] = {
            "level before": level_at_end(before),
            "first 40 steps": level_at_once(after),
            "end of phase": level_at_end(after),
            f"share of {after.preferred} at the end": share_at_end(after),
            "EV in the first 40 steps": mean_after("critic/explained_var", after.begins, after.begins + 40),
            "EV later": mean_after("critic/explained_var", after.begins + 40, after.ends),
        }
        rows = [
            [
                f"`{each.name}`",
                *(shown(results.mean(each.name, quantity)) for quantity in columns.values()),
                *(_recovery(results, each.name, before, after, share) for share in SHARES),
            ]
            for each in results.study.arms
            if each.name in results.runs
        ]
        head = ["arm", *columns, *(f"steps to {share:.0%} of the level before" for share in SHARES)]
        parts.append(f"Shift at step {after.begins}, to {after.preferred} (held-out pass@1):\n\n{table(head, rows)}")
    return "\n".join(parts)


def _recovery(results: StudyResults, name: str, before: Phase, after: Phase, share: float) -> str:
    """Mean steps, and how many runs did not get there: those count with the length of the phase."""
    steps = results.mean(name, steps_to_recover(before, after, share))
    reached = results.by_seed(name, is_recovered(before, after, share))
    late = sum(value == 0.0 for value in reached.values())
    return f"{shown(steps)}{f'; {late} of {len(reached)} not within the phase' if late else ''}"


def because(results: StudyResults) -> str:
    """Whether "faster at once" fails because of the task or the method: one sentence chosen by the numbers."""
    faster = results.difference(SAO, RUNNING_MEAN, AT_ONCE)
    quick = results.difference("running-mean-16", RUNNING_MEAN, AT_ONCE)
    critic = results.difference(SAO, "running-mean-16", AT_ONCE)
    if faster is None or quick is None or critic is None:
        return ""
    numbers = (
        f"Held-out pass@1 in the first 40 steps after a shift, mean of both shifts: `{SAO}` minus `{RUNNING_MEAN}` "
        f"{shown(faster)}; the quick baseline `running-mean-16` minus `{RUNNING_MEAN}` {shown(quick)}; `{SAO}` minus "
        f"`running-mean-16` {shown(critic)}."
    )
    return f"{numbers}\n\n{_reading(faster.low > 0, faster.high < 0, quick.high < 0, critic.low > 0, critic.high < 0)}"


def _reading(faster: bool, slower: bool, quick_is_slower: bool, critic_helps: bool, critic_hurts: bool) -> str:
    if faster:
        return "SAO is faster at once in this task."
    first = "SAO is slower at once" if slower else "SAO is not faster at once: the interval holds 0"
    if quick_is_slower:
        second = (
            "A quick baseline without a critic is slower, too, so this is the method: the sooner the baseline follows "
            "the reward down, the sooner nothing pushes the old style away"
        )
    else:
        second = "A quick baseline without a critic is not shown to be slower, so the speed of the baseline is not it"
    third = {
        (True, False): "against an equally quick baseline the critic helps",
        (False, True): "against an equally quick baseline the critic hurts",
        (False, False): "against an equally quick baseline the critic makes no difference that is seen here",
    }[(critic_helps, critic_hurts)]
    return f"{first}. {second}; {third}."


def _faster(share: float) -> Judge:
    """Fewer steps than the running mean, at both shifts."""
    return both(
        *(
            higher(
                RUNNING_MEAN,
                SAO,
                steps_to_recover(before, after, share),
                f"steps to {share:.0%} of the level before, shift at {after.begins}",
            )
            for before, after in SHIFTED
        )
    )


CLAIMS = (
    Claim(
        "After a shift SAO recovers faster at once than a running mean of 128 rewards",
        higher(SAO, RUNNING_MEAN, AT_ONCE, "held-out pass@1 in the first 40 steps after a shift"),
    ),
    Claim("SAO is back at half of its level sooner than the running mean", _faster(0.5)),
    Claim("SAO is back at 90 % of its level sooner than the running mean", _faster(0.9)),
    Claim(
        "SAO ends each later phase higher than the running mean",
        higher(SAO, RUNNING_MEAN, AT_END, "held-out pass@1 at the end of phases 2 and 3"),
    ),
    Claim(
        "SAO with the length-adaptive lambda ends each later phase higher than the running mean",
        higher("sao", RUNNING_MEAN, AT_END, "held-out pass@1 at the end of phases 2 and 3"),
    ),
)

ONLINE = Study(
    name="online",
    title="Learning online while the preferred style shifts",
    question=(
        "Who follows shifting preferences, and how fast? A policy writes a few words about a topic; the reward is "
        "quality x style, each 0 or 1; the preferred style shifts at steps 150 and 300. Batches of 16, lag at most one "
        "step, prompts of different difficulty (1 to 5 words)."
    ),
    recipe="study-style.toml",
    arms=ARMS,
    seeds=SEEDS,
    reference=RUNNING_MEAN,
    claims=CLAIMS,
    panels=PANELS,
    marks=tuple((after.begins, after.preferred) for _, after in SHIFTED),
    extra_metrics=("critic/value_mean", *(f"eval/info/style/{style}" for style in STYLES)),
    sections=(shift_table, because),
)
EVEN_ARMS: tuple[Arm, ...] = tuple(each for each in ARMS if each.name in (SAO, RUNNING_MEAN, "running-mean-16"))
ONLINE_EVEN = replace(
    ONLINE,
    name="online-even",
    title="The same with all prompts equally hard",
    question=(
        "Is it the task? The same with prompts that all ask for three words, so that a critic has nothing to know of a "
        "prompt: if prompts of different difficulty are what a critic needs, the arms differ less here than above."
    ),
    arms=EVEN_ARMS,
    overrides=("env.name=style_even",),
    claims=CLAIMS[:4],
)
