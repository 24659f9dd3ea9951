"""What a study is: a record of arms, seeds and claims. Knows neither how runs are made nor how pages are written.

    Study(name="main", recipe="study.toml", arms=(Arm("sao", ("algorithm=sao",)), ...), seeds=(0, 1, 2, 3, 4), ...)

All arms of a seed begin from one warm start, see the same training prompts and are evaluated on the same held-out
ones, so that arms are compared in pairs, seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from soliton.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from soliton.study.outcomes import StudyResults

Start = Literal["policy and critic", "policy"]
Outcome = Literal["reproduced", "not reproduced", "not testable at this scale", "not known yet"]


@dataclass(frozen=True)
class Arm:
    """One thing that is tried, with every seed.

    Attributes:
        name: of the arm; also of its files, so letters, digits and dashes.
        overrides: `key.path=value` on top of the recipe and of the study's own.
        of: name of the study that runs it, where this one only borrows the results; "" for this study.
        says: what differs, for tables; "" where the name says it.
        start: what a run begins with: the warm start's policy and critic, or its policy alone.
        family: loss family whose learning rate it gets, the one that the sweep found best; "" where overrides say it.
        tries: for an arm of the sweep, (family, learning rate) that it stands for.
    """

    name: str
    overrides: tuple[str, ...] = ()
    of: str = ""
    says: str = ""
    start: Start = "policy and critic"
    family: str = ""
    tries: tuple[str, float] | None = None


@dataclass(frozen=True)
class Verdict:
    """What the numbers say of a claim.

    Attributes:
        outcome: in the words of the docs.
        numbers: those it was computed from, for a reader.
    """

    outcome: Outcome
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, in our words, and the rule that judges it.

    Attributes:
        text: the claim.
        judge: verdict from the results of the study; only numbers may decide.
    """

    text: str
    judge: Callable[[StudyResults], Verdict]


@dataclass(frozen=True)
class Panel:
    """One panel of a study's figure.

    Attributes:
        metric: name in `soliton.metrics` of the training stage, or "eval/..." of the evaluations.
        title: what it shows.
        axis: label of the y axis, with its unit.
        complement: draw 1 minus the metric.
        share: the axis is [0, 1].
    """

    metric: str
    title: str
    axis: str
    complement: bool = False
    share: bool = False


Section = Callable[["StudyResults"], str]
"""A part of a study's page that only this study has: Markdown, computed from the results."""

PANELS = (
    Panel("reward/mean", "Reward of the training batch", "mean reward", share=True),
    Panel("eval/pass_at_1", "Held-out accuracy", "pass@1", share=True),
    Panel("staleness/mean", "Lag when consumed", "learner steps, mean"),
    Panel("actor/signal_share", "Tokens masked, clipped or without advantage", "share of action tokens", True),
    Panel("log_ratio/abs_mean", "Distance from the sampling policy", "mean |log ratio|"),
    Panel("critic/explained_var", "Critic: explained variance (pre-fit)", "1"),
    Panel("critic/grad_norm", "Critic: gradient norm", "norm"),
)
"""What the paper's figures show."""

KEPT_METRICS = (
    "reward/mean",
    "staleness/mean",
    "staleness/max",
    "trust_mask/share",
    "actor/signal_share",
    "log_ratio/abs_mean",
    "actor/entropy",
    "critic/explained_var",
    "critic/grad_norm",
    "trajectory/length_mean",
)
"""Metrics whose curves every result keeps."""


@dataclass(frozen=True)
class Study:
    """One question, its arms and its seeds.

    Attributes:
        name: of the study; also of its files.
        title: of its section in the docs.
        question: one paragraph: what is asked, in which setting.
        recipe: file below `recipes/`.
        arms: what is compared.
        seeds: each arm runs with each of them.
        seeds_are_fixed: whether `--seeds` leaves them alone.
        reference: name of the arm that the others are compared with.
        overrides: `key.path=value` for every arm of this study, not for the warm start.
        warm_overrides: `key.path=value` for the warm start alone.
        warm_stages: stages of the warm start; () where every run begins from nothing.
        claims: what the paper says about it.
        panels: of its figure.
        marks: (step, text) of vertical lines in the figure.
        extra_metrics: what results of this study keep besides `KEPT_METRICS`: of steps, and "eval/..." of evaluations.
        sections: further parts of its page.
    """

    name: str
    title: str
    question: str
    recipe: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    reference: str
    seeds_are_fixed: bool = False
    overrides: tuple[str, ...] = ()
    warm_overrides: tuple[str, ...] = ()
    warm_stages: tuple[str, ...] = ("sft", "value_pretraining", "eval")
    claims: tuple[Claim, ...] = ()
    panels: tuple[Panel, ...] = PANELS
    marks: tuple[tuple[int, str], ...] = ()
    extra_metrics: tuple[str, ...] = ()
    sections: tuple[Section, ...] = field(default=())

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)


def chosen(studies: Mapping[str, Study], name: str, num_seeds: int | None) -> list[Study]:
    """The studies that a command names, with `num_seeds` seeds from 0.

    Raises:
        ConfigError: no such study, or no seed.
    """
    if name != "all" and name not in studies:
        meant = did_you_mean(name, [*studies, "all"])
        raise ConfigError(f"study {name!r}: there are {', '.join(map(repr, studies))} and 'all'{meant}")
    found = list(studies.values()) if name == "all" else [studies[name]]
    if num_seeds is None:
        return found
    return [_with_seeds(study, num_seeds) for study in found]


def _with_seeds(study: Study, num_seeds: int) -> Study:
    if num_seeds < 1:
        raise ConfigError(f"--seeds: got {num_seeds}; allowed is a whole number >= 1")
    return study if study.seeds_are_fixed else replace(study, seeds=tuple(range(num_seeds)))
