"""What single keys cannot say: combinations of a recipe that contradict each other or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soliton.algorithms.traits import TRAITS
from soliton.config.env_checks import judge_problems, shift_problems
from soliton.config.method_checks import truncation_problems, unread_problems, value_problems
from soliton.config.problems import Problem
from soliton.store.config import WhenTooOld

if TYPE_CHECKING:
    from soliton.config.run_config import RunConfig

GROUP_ALGORITHMS: dict[str, int] = {name: traits.group_size for name, traits in TRAITS.items() if traits.compares}
"""Presets that compare rollouts of a prompt, and their group sizes."""
PRESET_CRITICS: dict[str, tuple[int, str]] = {
    name: (traits.critic.updates, traits.critic.trainable) for name, traits in TRAITS.items() if traits.critic
}
"""Presets with a critic: updates per actor update, and what trains in it."""
SCHEDULES: dict[str, tuple[int, WhenTooOld]] = {"synchronous": (0, "wait"), "one-step-off": (1, "wait")}
"""Largest staleness, and what happens past it, under schedules that fix both."""
STAGES_IN_ORDER = ("sft", "value_pretraining", "train", "eval")


def _stage_problems(config: RunConfig) -> list[Problem]:
    problems = []
    in_order = [stage for stage in STAGES_IN_ORDER if stage in config.stages]
    if list(config.stages) != in_order or not config.stages:
        use = f"; write {in_order}" if in_order else ""
        problems.append(
            Problem(
                ("stages",),
                f"stages: got {list(config.stages)}; allowed is a non-empty part of {list(STAGES_IN_ORDER)}, "
                f"in this order{use}",
            )
        )
    if config.init.run is not None and config.init.model is not None:
        problems.append(
            Problem(
                ("init.run", "init.model"),
                "init: both run and model are given; a stage starts from one of them, so drop the other",
            )
        )
    return problems


def _group_problems(config: RunConfig) -> list[Problem]:
    problems = []
    keys = ("algorithm", "method.group_size")
    if config.train.batch_size % config.group_size:
        fitting = -(-config.train.batch_size // config.group_size) * config.group_size
        problems.append(
            Problem(
                (*keys, "train.batch_size"),
                f"train.batch_size: got {config.train.batch_size}, which is no multiple of the group size "
                f"{config.group_size} of {config.algorithm!r}; use {fitting}",
            )
        )
    if config.algorithm in GROUP_ALGORITHMS and config.group_size < 2:
        problems.append(
            Problem(
                keys, f"method.group_size: got {config.group_size}; {config.algorithm!r} compares >= 2 rollouts; use 8"
            )
        )
    if config.algorithm not in GROUP_ALGORITHMS and config.group_size > 1:
        has = "has a critic and " if config.algorithm in PRESET_CRITICS else ""
        problems.append(
            Problem(
                keys,
                f"method.group_size: got {config.group_size}, but {config.algorithm!r} {has}samples one rollout per "
                "prompt; drop the key or use a group method such as 'grpo-dis'",
            )
        )
    return problems


def _prompt_problems(config: RunConfig) -> list[Problem]:
    """Baselines of a prompt are learned when it comes back, and memory is kept for each."""
    kept = TRAITS[config.algorithm].keeps_prompts
    everywhere = config.algorithm == "running-mean" and config.method.baseline_scope == "global"
    sizes = [part.num_prompts for part in config.env.mix] or [config.env.num_prompts]
    if not kept or everywhere or None not in sizes:
        return []
    or_else = ', or method.baseline_scope = "global"' if config.algorithm == "running-mean" else ""
    return [
        Problem(
            ("algorithm", "env.num_prompts", "env.mix"),
            f"env.num_prompts: got none, but {config.algorithm!r} keeps a baseline for each prompt, so prompts must "
            f"come back; set env.num_prompts, such as 256{or_else}",
        )
    ]


def _schedule_problems(config: RunConfig) -> list[Problem]:
    """A schedule that fixes bound and wait leaves nothing for the keys that set them."""
    if config.schedule not in SCHEDULES:
        return []
    bound, when = SCHEDULES[config.schedule]
    fields = type(config).model_fields
    return [
        Problem(
            (key, "schedule"),
            f"{key}: got {getattr(config, key)!r}, but schedule = {config.schedule!r} means {meant!r}; drop the key "
            "or the schedule",
        )
        for key, meant in (("max_staleness", bound), ("when_too_old", when))
        if getattr(config, key) not in (meant, fields[key].default)
    ]


def _sft_problems(config: RunConfig) -> list[Problem]:
    """Keys that the chosen optimiser never reads."""
    problems = []
    sft = config.sft
    if sft.optimiser != "muon" and sft.muon_lr != type(sft).model_fields["muon_lr"].default:
        problems.append(
            Problem(
                ("sft.muon_lr", "sft.optimiser"),
                f"sft.muon_lr: got {sft.muon_lr}, but sft.optimiser = {sft.optimiser!r} does not read it; "
                'drop the key or use sft.optimiser = "muon"',
            )
        )
    return problems


def _sampling_problems(config: RunConfig) -> list[Problem]:
    if "train" in config.stages and (config.sampling.top_p < 1 or config.sampling.top_k > 0):
        return [
            Problem(
                ("sampling", "stages"),
                f"sampling: top_p = {config.sampling.top_p}, top_k = {config.sampling.top_k}, but training recomputes "
                "log-probs over the whole vocabulary, so each ratio would be biased by the mass cut off; "
                "use top_p = 1 and top_k = 0",
            )
        ]
    return []


def _staleness_problems(config: RunConfig) -> list[Problem]:
    problems = []
    if config.max_staleness != "unbounded" and config.max_staleness < 0:
        problems.append(
            Problem(
                ("max_staleness",),
                f'max_staleness: got {config.max_staleness}; allowed is a number >= 0 or "unbounded"',
            )
        )
    if config.max_staleness == "unbounded" and config.when_too_old != "drop":
        problems.append(
            Problem(
                ("max_staleness", "when_too_old"),
                f"when_too_old: got {config.when_too_old!r}, but without a bound nothing is; drop the key",
            )
        )
    return problems


def _rollout_problems(config: RunConfig) -> list[Problem]:
    problems = []
    limit = config.rollout.max_outstanding
    if limit is not None and config.staleness_bound != "unbounded":
        problems.append(
            Problem(
                ("rollout.max_outstanding", "max_staleness"),
                f"rollout.max_outstanding: got {limit}, but the staleness bound {config.staleness_bound} limits "
                'what is outstanding; drop the key, or use max_staleness = "unbounded"',
            )
        )
    elif limit is not None and limit < config.train.batch_size:
        problems.append(
            Problem(
                ("rollout.max_outstanding", "train.batch_size"),
                f"rollout.max_outstanding: got {limit}, less than train.batch_size = {config.train.batch_size}, so "
                "that no batch could ever be full; raise it",
            )
        )
    if config.limits.max_turn_tokens > config.limits.max_tokens:
        problems.append(
            Problem(
                ("limits.max_turn_tokens", "limits.max_tokens"),
                f"limits.max_turn_tokens: got {config.limits.max_turn_tokens}, more than limits.max_tokens = "
                f"{config.limits.max_tokens}; a turn cannot be longer than its trajectory",
            )
        )
    if config.runtime == "local" and config.local.workers > config.rollout.max_in_flight:
        problems.append(
            Problem(
                ("local.workers", "rollout.max_in_flight"),
                f"local.workers: got {config.local.workers}, but rollout.max_in_flight = "
                f"{config.rollout.max_in_flight} episodes are shared out among them, at least one each; use fewer "
                "workers or a larger rollout.max_in_flight",
            )
        )
    return problems


def _mix_problems(config: RunConfig) -> list[Problem]:
    env = config.env
    if not env.mix:
        return []
    names = [part.name for part in env.mix]
    problems = [
        Problem(
            ("env.mix",),
            f"env.mix: got {name!r} {names.count(name)} times; give each environment once, with the sum of the weights",
        )
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    fields = type(env).model_fields
    problems += [
        Problem(
            (f"env.{key}", "env.mix"),
            f"env.{key}: got {getattr(env, key)!r}, but env.mix names the environments; move the key to its "
            "[[env.mix]]",
        )
        for key in ("name", "prompts", "num_prompts")
        if getattr(env, key) != fields[key].default
    ]
    return problems


CHECKS = (
    _mix_problems,
    shift_problems,
    judge_problems,
    _stage_problems,
    _group_problems,
    _sampling_problems,
    _staleness_problems,
    _prompt_problems,
    _schedule_problems,
    _rollout_problems,
    _sft_problems,
    unread_problems,
    value_problems,
    truncation_problems,
)


def problems_of(config: RunConfig) -> list[Problem]:
    """Every contradiction, as messages: what, the value got, what is allowed, what to do."""
    return [problem for check in CHECKS for problem in check(config)]
