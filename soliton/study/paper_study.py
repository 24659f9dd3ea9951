"""The studies of the paper's claims, as data: what is compared, with which seeds, what would count as reproduced."""

from __future__ import annotations

from dataclasses import replace

from soliton.study.outcomes import accuracy_at_end, number, usually_removed_share
from soliton.study.rules import above, below, both, higher, keeps, loses, not_testable, unless_the_same
from soliton.study.study import Arm, Claim, Start, Study

CALCULATOR, MAZE = "study.toml", "study-maze.toml"
SEEDS = (0, 1, 2, 3, 4)
LOW_LAG = ("rollout.max_in_flight=48", 'env.latency={kind="none"}')
"""No delay, and no more episodes in flight than a batch holds."""


def arm(name: str, family: str, *overrides: str, says: str = "", starts_with_critic: bool = True) -> Arm:
    """An arm with the learning rate of a loss family."""
    start: Start = "policy and critic" if starts_with_critic else "policy"
    return Arm(name, overrides, says=says, start=start, family=family)


def with_controls(*arms: Arm) -> tuple[Arm, ...]:
    """The arms, and each again with low lag."""
    controls = (replace(each, name=f"{each.name}-low-lag", overrides=(*each.overrides, *LOW_LAG)) for each in arms)
    return (*arms, *controls)


MAIN_ARMS = with_controls(
    arm("sao", "dis", "algorithm=sao"),
    arm("grpo", "latest-clip", "algorithm=grpo"),
    arm("grpo-dis", "dis", "algorithm=grpo-dis"),
    arm("vapo", "latest-clip", "algorithm=vapo"),
)

MAIN_CLAIMS = (
    Claim("Under stale data GRPO, clipped against its latest policy, loses its reward", loses("grpo", "grpo-low-lag")),
    Claim(
        "Under stale data VAPO loses its reward, and its clip hardly ever acts",
        both(
            loses("vapo", "vapo-low-lag"),
            below("vapo", usually_removed_share, 0.01, "share of tokens that its clip removes, median over steps"),
        ),
    ),
    Claim("DIS keeps GRPO stable under the same lag", keeps("grpo-dis")),
    Claim("SAO is stable under the same lag", keeps("sao")),
    Claim("SAO ends higher than GRPO + DIS", higher("sao", "grpo-dis", accuracy_at_end, "accuracy at the end")),
    Claim(
        "SAO ends higher than GRPO + DIS for the same number of tokens",
        lambda results: higher("sao", "grpo-dis", results.accuracy_at_equal_tokens, "accuracy at equal tokens")(
            results
        ),
    ),
    Claim(
        "SAO ends higher than GRPO + DIS for the same processor time (ours: the paper does not count it)",
        lambda results: higher("sao", "grpo-dis", results.accuracy_at_equal_cpu, "accuracy at equal CPU")(results),
    ),
    Claim(
        "Single rollouts are less off-policy than groups from the same engine",
        higher("grpo-dis", "sao", number("mean staleness/mean"), "mean lag"),
    ),
)
SCORES = Claim(
    "Scores on AIME, BeyondAIME, HMMT, IMOAnswerBench and SWE-Bench Verified",
    not_testable("they need a 30B model and its tools; nothing of that size was run"),
)

MAIN = Study(
    name="main",
    title="Four methods under heavy lag",
    question=(
        "Does training on stale data destroy GRPO and VAPO, and do SAO and GRPO + DIS stand it? Four methods, each "
        "with a control of low lag."
    ),
    recipe=CALCULATOR,
    arms=MAIN_ARMS,
    seeds=SEEDS,
    reference="sao",
    claims=(*MAIN_CLAIMS, SCORES),
)

MAIN_LONG = Study(
    name="main-long",
    title="Four methods under heavy lag, on long trajectories",
    question=(
        "The same on mazes: 5 to 20 turns, prompts of different difficulty, so that a critic has something to know."
    ),
    recipe=MAZE,
    arms=MAIN_ARMS,
    seeds=SEEDS,
    reference="sao",
    claims=(
        *MAIN_CLAIMS,
        Claim(
            "(a condition of this task, not a claim of the paper) The critic explains more than 0.3 of the variance",
            above("sao", number("mean critic/explained_var"), 0.3, "explained variance"),
        ),
    ),
)

ONE_RATE = Study(
    name="one-rate",
    title="One learning rate for all",
    question=(
        "The paper gives every method the same learning rate. What do GRPO and VAPO do under heavy lag with the one "
        "that the sweep found best for DIS, instead of their own?"
    ),
    recipe=CALCULATOR,
    arms=(
        Arm("sao", of="main"),
        Arm("grpo-dis", of="main"),
        *with_controls(arm("grpo", "dis", "algorithm=grpo"), arm("vapo", "dis", "algorithm=vapo")),
    ),
    seeds=SEEDS,
    reference="sao",
    claims=MAIN_CLAIMS[:2],
)

ABLATIONS = Study(
    name="ablations",
    title="What each part of SAO does",
    question="SAO with one part changed at a time, under the lag of the main study.",
    recipe=CALCULATOR,
    arms=(
        Arm("sao", of="main"),
        arm("k1", "dis", "algorithm=sao-k1", says="(one critic update)"),
        arm("k4", "dis", "algorithm=sao", "method.critic_updates=4", says="(four)"),
        arm("full-critic", "dis", "algorithm=sao-full-critic", says="(attention trains, too)"),
        arm("post-fit", "dis", "algorithm=sao-post-fit", says="(advantages from values after the fits)"),
        arm(
            "no-dis",
            "latest-clip",
            "algorithm=vapo",
            "method.critic_updates=2",
            "method.critic_trainable=mlp",
            says="(SAO's critic, VAPO's clip)",
        ),
        arm(
            "dis-only",
            "dis",
            "algorithm=sao-dis-only",
            says="(K = 1, unfrozen, not pretrained)",
            starts_with_critic=False,
        ),
        arm("paper-band", "dis", "algorithm=sao", "method.eps_low=0.3", "method.eps_high=5.0", says="(0.7, 6)"),
        arm("no-pretraining", "dis", "algorithm=sao", starts_with_critic=False),
        arm(
            "pretraining-x4",
            "dis",
            "algorithm=sao",
            'stages=["value_pretraining","train"]',
            "value_pretraining.num_rollouts=2048",
            says="(four times the rollouts)",
        ),
        arm("lambda-1", "dis", "algorithm=sao", "method.policy_lambda=1.0"),
        arm("lambda-0.95", "dis", "algorithm=sao", "method.policy_lambda=0.95"),
    ),
    seeds=SEEDS,
    reference="sao",
    claims=(
        Claim(
            "Two critic updates per actor update beat one", higher("sao", "k1", accuracy_at_end, "accuracy at the end")
        ),
        Claim(
            "Two critic updates explain more of the variance than one",
            higher("sao", "k1", number("last critic/explained_var"), "explained variance of the last 10 batches"),
        ),
        Claim(
            "Frozen attention in the critic beats an unfrozen one",
            higher("sao", "full-critic", accuracy_at_end, "accuracy at the end"),
        ),
        Claim(
            "An unfrozen critic has larger gradient norms",
            higher("full-critic", "sao", number("mean critic/grad_norm"), "critic gradient norm"),
        ),
        Claim(
            "Value pretraining helps",
            unless_the_same(
                "sao",
                "no-pretraining",
                "no epoch of value pretraining explained held-out returns better than the untouched critic",
                higher("sao", "no-pretraining", accuracy_at_end, "accuracy at the end"),
            ),
        ),
        Claim(
            "More value pretraining helps more",
            higher("pretraining-x4", "sao", accuracy_at_end, "accuracy at the end"),
        ),
        Claim("Without DIS, SAO loses its reward under lag", loses("no-dis")),
        Claim(
            "The whole of SAO beats its DIS alone",
            higher("sao", "dis-only", accuracy_at_end, "accuracy at the end"),
        ),
    ),
)

STEPWISE_ARMS = (
    Arm("sao", of="main", says="(token)"),
    arm("step-average", "dis", "algorithm=sao-step-average"),
    arm("step-last", "dis", "algorithm=sao-step-last"),
    arm("no-skip", "dis", "algorithm=sao-no-skip", says="(GAE through observations)"),
)
STEPWISE_CLAIMS = (
    Claim(
        "Advantages per token beat one per step from its last value",
        higher("sao", "step-last", accuracy_at_end, "accuracy at the end"),
    ),
    Claim(
        "One per step from its last value beats one from its mean value",
        higher("step-last", "step-average", accuracy_at_end, "accuracy at the end"),
    ),
    Claim(
        "Skipping observations in GAE helps",
        higher("sao", "no-skip", accuracy_at_end, "accuracy at the end"),
    ),
)
STEPWISE = Study(
    name="stepwise",
    title="Advantages per token and per step",
    question="Does an advantage per token beat one per turn, and does GAE have to skip observations?",
    recipe=CALCULATOR,
    arms=STEPWISE_ARMS,
    seeds=SEEDS,
    reference="sao",
    claims=STEPWISE_CLAIMS,
)
STEPWISE_LONG = Study(
    name="stepwise-long",
    title="Advantages per token and per step, on long trajectories",
    question="The same on mazes.",
    recipe=MAZE,
    arms=(Arm("sao", of="main-long", says="(token)"), *STEPWISE_ARMS[1:]),
    seeds=SEEDS,
    reference="sao",
    claims=STEPWISE_CLAIMS,
)

BASELINES = Study(
    name="baselines",
    title="Other baselines and other ratios",
    question="SAO beside methods without a critic, and beside other ways to correct for lag. Three seeds.",
    recipe=CALCULATOR,
    arms=(
        Arm("sao", of="main"),
        Arm("grpo-dis", of="main"),
        arm("running-mean", "dis", "algorithm=running-mean", says="(8 rewards of the prompt)"),
        arm("running-mean-128", "dis", "algorithm=running-mean", "method.baseline_scope=global", says="(128 of all)"),
        arm("spo", "behaviour-clip", "algorithm=spo"),
        arm("rloo", "no-ratio", "algorithm=rloo"),
        arm("reinforce", "no-ratio", "algorithm=reinforce"),
        arm("decoupled-ppo", "two-ratios", "algorithm=decoupled-ppo"),
        arm("gspo", "sequence", "algorithm=gspo"),
        arm("icepop", "band-of-two", "algorithm=icepop", says="(grpo-dis, where a batch gets one update)"),
        arm("vtrace", "vtrace", "algorithm=vtrace", starts_with_critic=False),
    ),
    seeds=SEEDS[:3],
    reference="sao",
    claims=(
        Claim(
            "A critic beats the running mean of a prompt's rewards",
            higher("sao", "running-mean", accuracy_at_end, "accuracy at the end"),
        ),
    ),
)

STABILITY = Study(
    name="stability",
    title="A thousand steps",
    question="Is SAO still stable after 1,000 steps under heavy lag? Three seeds: each run is as long as ten others.",
    recipe=CALCULATOR,
    arms=(arm("sao", "dis", "algorithm=sao"),),
    seeds=SEEDS[:3],
    reference="sao",
    overrides=("train.steps=1000", "eval.every_steps=100", "checkpoint.every_steps=100"),
    claims=(Claim("SAO trains for a thousand steps without losing its reward", keeps("sao")),),
)
