"""Every metric: its name, unit, meaning and healthy range, and the numbers at which one should worry.

One table, so that a name means the same in the learner, the run folder, the plots and the docs. Computes nothing but
comparisons; who reports a metric computes it. A metric that does not apply is absent, never 0.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from soliton.reasons import DropReason


@dataclass(frozen=True)
class Metric:
    """One row.

    Attributes:
        name: group/name, in the field's usual words.
        unit: of one value; "share" is in [0, 1], "nats" are natural-log units.
        meaning: what is measured, over what.
        healthy: what to expect, for a reader.
        above: an alarm when the value is greater; None for never.
        below: an alarm when the value is smaller; None for never.
        advice: what to look at when it alarms.
    """

    name: str
    unit: str
    meaning: str
    healthy: str
    above: float | None = None
    below: float | None = None
    advice: str = ""

    def alarm(self, value: float) -> str | None:
        """The alarm that `value` raises, or None. NaN means "undefined" and raises none."""
        if self.above is not None and value > self.above:
            return f"{self.name} = {value:.4g}, above {self.above:g}: {self.advice}"
        if self.below is not None and value < self.below:
            return f"{self.name} = {value:.4g}, below {self.below:g}: {self.advice}"
        return None


ENTROPY_BINS: Mapping[str, tuple[float, float]] = {
    "low": (-math.inf, 0.1),
    "middle": (0.1, 1.0),
    "high": (1.0, math.inf),
}
"""Entropy of a token's distribution, in nats, by which the mask share is split: forced, open, free (a choice)."""
STALENESS_BINS = (0, 1, 2, 3)
"""Staleness by which the reward is split; the last one holds everything older."""

OFF_POLICY_ADVICE = (
    "the policy has left the one that made the data; look at staleness/max, lower actor lr or max_staleness"
)

_ROWS = (
    # What was consumed.
    Metric("reward/mean", "reward", "total reward of a trajectory, over the batch", "rises, or stays at its ceiling"),
    *(
        Metric(
            f"reward/by_staleness_{b}",
            "reward",
            f"total reward at staleness {b}{' or more' * (b == STALENESS_BINS[-1])}; absent without any",
            "all alike while the policy changes slowly",
        )
        for b in STALENESS_BINS
    ),
    Metric("tokens/action", "tokens", "sampled tokens in the batch: the denominator of every token mean", "> 0"),
    Metric("tokens/total", "tokens", "all tokens of the batch, prompts and observations included", ">= tokens/action"),
    Metric(
        "trajectory/length_mean",
        "tokens",
        "all tokens of a trajectory, over the batch",
        "far from the token limit; a slow drift is normal",
    ),
    Metric(
        "trajectory/truncated_share",
        "share",
        "trajectories that a limit cut, over the batch",
        "< 0.1; they keep the environment's reward, so a rise changes what is rewarded",
        above=0.5,
        advice="most trajectories are cut; raise limits.max_tokens, limits.max_turns or the time limit",
    ),
    Metric(
        "trajectory/dropped_truncated",
        "trajectories",
        'truncated trajectories of the batch that method.truncated = "drop" left out; the ledger has them as trained',
        "near 0; what is left is biased towards short ones",
    ),
    Metric(
        "staleness/mean",
        "learner steps",
        "learner step minus step of the oldest action token's version at consumption, over the batch",
        "<= max_staleness; about outstanding / batch_size",
    ),
    Metric("staleness/max", "learner steps", "the largest staleness of the batch", "<= max_staleness"),
    Metric(
        "staleness/generating_mean",
        "versions",
        "newest minus oldest token version of a trajectory, over the batch: published while it was generated",
        "grows with the length of episodes, not with the queue",
    ),
    Metric(
        "staleness/waiting_mean",
        "versions",
        "learner's version minus newest token version, over the batch: published while a trajectory waited",
        "<= 1; the queue adds age and nothing else",
    ),
    Metric(
        "staleness/token_mean",
        "versions",
        "learner's version minus token version, over action tokens",
        "<= max_staleness",
    ),
    Metric("staleness/token_max", "versions", "the same of the oldest token of the batch", "<= max_staleness"),
    Metric(
        "staleness/dropped_long_share",
        "share",
        "share of the trajectories dropped as stale so far that are among the longest fifth of those committed",
        "0.2: drops do not depend on length",
        above=0.4,
        advice='the bound throws long trajectories away (length bias); raise max_staleness or use "wait"',
    ),
    Metric("versions/mean", "versions", "distinct policy versions among a trajectory's action tokens", "1 to a few"),
    Metric("versions/max", "versions", "the most distinct versions in one trajectory of the batch", "1 to a few"),
    Metric("versions/share_mixed", "share", "trajectories with tokens of two or more versions", "> 0 if asynchronous"),
    Metric("versions/share_mixed_turns", "share", "turns with tokens of two or more versions", "> 0 if asynchronous"),
    Metric(
        "group/zero_variance_share",
        "share",
        "groups whose members all earned the same reward, so that their advantages are 0; absent for single rollouts",
        "< 0.5; the rest is what is learned from",
    ),
    # Actor.
    Metric("actor/loss", "loss", "actor loss, one token mean over the batch", "no level of its own; finite"),
    Metric("actor/grad_norm", "norm", "gradient norm of the actor before clipping", "steady; a jump precedes collapse"),
    Metric("actor/entropy", "nats", "entropy of the policy, mean over action tokens", "falls slowly; 0 is collapse"),
    Metric("actor/lr", "per update", "learning rate of the actor's next update", "as configured"),
    Metric(
        "actor/signal_share",
        "share",
        "action tokens that the actor loss learns from: a trusted ratio and an advantage that is not 0",
        "> 0.5; 0 means that nothing is learned",
    ),
    Metric(
        "actor/reference_kl",
        "nats",
        "estimated KL from the reference policy, mean over action tokens; absent without method.kl_weight",
        "rises slowly and levels off",
        above=1.0,
        advice="the policy is far from where it started; raise method.kl_weight, or lower actor lr",
    ),
    Metric(
        "actor/positive_nll",
        "nats",
        "minus log-prob per action token of successful trajectories; absent without method.nll_weight",
        "falls slowly; 0 while nothing succeeds",
    ),
    Metric(
        "trust_mask/share",
        "share",
        "action tokens outside the trust band; for methods that do not mask, those that would be masked",
        "< 0.05",
        above=0.10,
        advice=OFF_POLICY_ADVICE,
    ),
    Metric("trust_mask/share_low", "share", "action tokens with a ratio at or under the lower bound", "< 0.05"),
    Metric("trust_mask/share_high", "share", "action tokens with a ratio at or over the upper bound", "< 0.05"),
    Metric(
        "log_ratio/mean",
        "nats",
        "policy minus recorded log-prob, mean over action tokens; its negative estimates the KL from the data's policy",
        "slightly below 0",
    ),
    Metric(
        "log_ratio/abs_mean",
        "nats",
        "absolute difference of policy and recorded log-prob, mean over action tokens",
        "< 0.05",
        above=0.1,
        advice=OFF_POLICY_ADVICE,
    ),
    Metric("ratio/mean", "ratio", "importance ratio, mean over action tokens", "near 1"),
    Metric("ratio/max", "ratio", "largest importance ratio of the batch", "< 10; only masking makes a larger one safe"),
    Metric(
        "ratio/effective_share",
        "share",
        "effective sample size of the ratios, (sum r)^2 / sum r^2, as a share of the action tokens",
        "> 0.9",
        below=0.5,
        advice="a few tokens of large ratio decide the step; " + OFF_POLICY_ADVICE,
    ),
    Metric(
        "parity/newest_gap_mean",
        "nats",
        "absolute gap of learner and engine log-probs on the tokens of the batch's newest version, mean",
        "<= 1e-5 in fp32 if that version is the learner's own; else the policy's movement since",
    ),
    Metric("parity/newest_gap_max", "nats", "the largest such gap", "<= 1e-3 in fp32 if of the learner's own version"),
    Metric(
        "parity/same_version_gap_mean",
        "nats",
        "absolute gap of learner and engine log-probs on tokens of the learner's own version; absent without any",
        '<= 1e-5 in fp32 with recomputed caches; with kv_on_update = "keep" that of the update before',
        above=0.1,
        advice="engine and learner disagree on the same weights; look at temperature, precision, chat template",
    ),
    Metric("parity/same_version_gap_max", "nats", "the largest such gap", "<= 1e-3 in fp32 with recomputed caches"),
    Metric(
        "parity/older_version_gap_mean",
        "nats",
        "the same gap on tokens of older versions: how far the policy has moved since; absent without any",
        "< 0.05",
    ),
    # Critic and advantages.
    Metric("critic/loss", "reward^2", "squared error to the return before the fit, token mean", "falls, then follows"),
    Metric("critic/grad_norm", "norm", "gradient norm of the critic before clipping, mean over the K fits", "steady"),
    Metric("critic/grad_norm_max", "norm", "the largest of these over the K fits", "steady"),
    Metric(
        "critic/explained_var",
        "1",
        "1 - Var(R - V) / Var(R) on values from before the fit; absent where returns do not vary",
        "> 0.2 and rising",
        below=-0.5,
        advice="the critic is worse than a constant; pretrain values, lower critic lr, or check what it trains",
    ),
    Metric("critic/value_mean", "reward", "value before the fit, mean over action tokens", "near reward/mean"),
    Metric(
        "critic/value_min",
        "reward",
        "the smallest value before the fit, over action tokens",
        "inside the range of rewards",
    ),
    Metric(
        "critic/value_max",
        "reward",
        "the largest value before the fit, over action tokens",
        "inside the range of rewards",
    ),
    Metric("critic/lr", "per update", "learning rate of the critic's next update", "as configured"),
    Metric("advantage/mean", "reward", "advantage, mean over action tokens", "near 0"),
    Metric(
        "advantage/std", "reward", "standard deviation of the advantage over action tokens", "> 0; 0 teaches nothing"
    ),
    # Store and rollouts.
    Metric("wait/admission_s", "s", "clock time so far in which rollouts waited at the admission limit", "small share"),
    Metric("wait/batch_s", "s", "clock time so far in which the learner waited for a full batch", "small share"),
    Metric(
        "wait/hold_s", "s", "clock time so far in which the learner held a batch for an old trajectory", "small share"
    ),
    Metric("ledger/issued", "attempts", "attempts ever issued; equals the sum of the other ledger terms", "grows"),
    Metric("ledger/trained", "attempts", "attempts consumed by a finished step", "grows by batch_size a step"),
    Metric("ledger/queued", "attempts", "attempts committed and not yet trained", "about one batch"),
    Metric("ledger/in_flight", "attempts", "attempts leased and not yet committed", "near the configured number"),
    Metric(
        "ledger/superseded", "attempts", "attempts that lost to another attempt of their sample", "0 without losses"
    ),
    Metric("ledger/dropped", "attempts", "attempts dropped, all reasons together", "< 5 % of ledger/issued"),
    Metric(
        "ledger/draws_given_up", "draws", "draws that used up their attempts, or kept too few valid members", "near 0"
    ),
    # Stages and time.
    Metric("learner/actor_updates", "updates", "updates of the actor so far", "train/policy_step"),
    Metric("learner/critic_updates", "updates", "updates of the critic so far", "K per batch"),
    Metric("train/policy_step", "learner steps", "actor updates published so far", "grows by 1 a step after warm-up"),
    Metric("eval/pass_at_1", "share", "held-out prompts solved by one sample", "rises with reward/mean"),
    Metric("sft/loss", "nats", "cross-entropy of the demonstrations' action tokens, token mean", "falls"),
    Metric("sft/lr", "per update", "learning rate of the warm start", "as configured"),
    Metric("value_pretraining/loss", "reward^2", "squared error to Monte-Carlo returns, token mean", "falls"),
    Metric("value_pretraining/explained_var", "1", "explained variance on held-out rollouts", "rises to a plateau"),
    Metric(
        "time/effective_tokens_per_s",
        "tokens/s",
        "action tokens that the actor learned from in a step, by seconds of the run's clock since the step before",
        "steady; the number to compare set-ups by",
    ),
    Metric("time/clock_s", "s", "the run's clock since training began; virtual under the inline runtime", "grows"),
)

_SIDE_ROWS = tuple(
    Metric(
        f"trust_mask/share_{side}_{sign}",
        "share",
        f"action tokens at or {word} the {bound} bound of the band with a {sign} advantage, of all action tokens",
        healthy,
    )
    for side, word, bound, sign, healthy in (
        ("high", "over", "upper", "positive", "< 0.05; moved as its advantage asks, far enough"),
        ("high", "over", "upper", "negative", "near 0; moved against its advantage"),
        ("low", "under", "lower", "positive", "near 0; moved against its advantage"),
        ("low", "under", "lower", "negative", "< 0.05; moved as its advantage asks, far enough"),
    )
)

_ENTROPY_ROWS = tuple(
    Metric(
        f"trust_mask/share_entropy_{name}",
        "share",
        f"action tokens outside the band among those whose distribution has an entropy of {words}; absent without any",
        healthy,
    )
    for name, words, healthy in (
        ("low", "less than 0.1 nats", "near 0; forced tokens move little"),
        ("middle", "0.1 to 1 nats", "< 0.05"),
        ("high", "1 nat or more", "the largest of the three"),
    )
)

_DROPPED_ROWS = tuple(
    Metric(f"ledger/dropped_{reason.value}", "attempts", f"attempts dropped with reason {reason.value}", "rare")
    for reason in DropReason
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_ROWS, *_SIDE_ROWS, *_ENTROPY_ROWS, *_DROPPED_ROWS)
}
"""Name -> row, in the order of the table."""


PER_ENVIRONMENT: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("reward/mean", "reward", "total reward of this environment's trajectories in the batch", "rises"),
        Metric("trajectory/length_mean", "tokens", "all tokens of such a trajectory", "far from the token limit"),
        Metric("trajectory/count", "trajectories", "trajectories of this environment in the batch", "about its weight"),
        Metric("failed", "attempts", "its attempts that the world failed so far, in this start of the run", "rare"),
        Metric("eval/pass_at_1", "share", "its held-out prompts solved by one sample", "rises with its reward/mean"),
    )
}
"""Metrics of each environment of a mixture, named `env/ENVIRONMENT/...`; absent in a run of one environment."""


REPORTED = Metric(
    "info/NAME",
    "as the environment counts",
    "a number that the environment reports of an episode, mean over the batch; an episode without it counts 0",
    "as its author expects",
)
"""Numbers in `Trajectory.info`: `info/NAME` of training batches, `eval/info/NAME` of held-out prompts."""


def describe(name: str) -> Metric:
    """The row of `name`.

    Raises:
        KeyError: unknown; the message names the closest known ones.
    """
    if name in METRICS:
        return METRICS[name]
    if name.startswith(("info/", "eval/info/")):
        return replace(REPORTED, name=name)
    group, _, rest = name.partition("/")
    environment, _, of_environment = rest.partition("/")
    if group == "env" and environment and of_environment in PER_ENVIRONMENT:
        return replace(PER_ENVIRONMENT[of_environment], name=name)
    close = difflib.get_close_matches(name, METRICS, n=3)
    hint = f"did you mean {' or '.join(repr(other) for other in close)}?" if close else "soliton.metrics lists them all"
    raise KeyError(f"unknown metric {name!r}; {hint}")


def alarms(values: Mapping[str, float]) -> list[str]:
    """One line for each value outside the range at which its metric alarms, in the order of `values`.

    Raises:
        KeyError: a name that the table does not have.
    """
    lines = (describe(name).alarm(value) for name, value in values.items() if not math.isnan(value))
    return [line for line in lines if line is not None]
