"""What single keys cannot say: combinations of a recipe that contradict each other or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from soliton.config.problems import Problem

if TYPE_CHECKING:
    from soliton.config.run_config import RunConfig

GROUP_ALGORITHMS: dict[str, int] = {"grpo": 8, "grpo-dis": 8}
"""Preset group sizes, needed here to check the batch size without building the method."""

PRESET_CRITICS: dict[str, tuple[int, str]] = {"sao": (2, "mlp"), "vapo": (1, "all")}
"""Presets with a critic: updates per actor update, and what trains in it; for plans made without building the method
(a test compares it with the methods)."""

CRITIC_KEYS = (
    "gamma",
    "policy_lambda",
    "alpha",
    "critic_lambda",
    "critic_updates",
    "critic_trainable",
    "train_router",
    "advantage_values",
)
"""`[method]` keys that only methods with a critic read."""
DIS_ALGORITHMS = frozenset({"sao", "grpo-dis"})
CLIP_KEYS = ("clip_low", "clip_high")
"""`[method]` keys that only methods without DIS read."""
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
        problems.append(
            Problem(
                keys,
                f"method.group_size: got {config.group_size}, but {config.algorithm!r} has a critic and samples one "
                "rollout per prompt; drop the key or use a group method such as 'grpo-dis'",
            )
        )
    return problems


def _unread_problems(config: RunConfig) -> list[Problem]:
    """Keys that were changed and that the algorithm never reads: a knob that does nothing misleads."""
    unread = CRITIC_KEYS if config.algorithm in GROUP_ALGORITHMS else ()
    if config.algorithm in DIS_ALGORITHMS:
        unread = (*unread, *CLIP_KEYS)
    fields = type(config.method).model_fields
    problems = [
        Problem(
            (f"method.{key}", "algorithm"),
            f"method.{key}: got {getattr(config.method, key)!r}, but {config.algorithm!r} does not read it; "
            "drop the key",
        )
        for key in unread
        if getattr(config.method, key) != fields[key].default
    ]
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


CHECKS = (
    _stage_problems,
    _group_problems,
    _sampling_problems,
    _staleness_problems,
    _rollout_problems,
    _unread_problems,
)


def problems_of(config: RunConfig) -> list[Problem]:
    """Every contradiction, as messages: what, the value got, what is allowed, what to do."""
    return [problem for check in CHECKS for problem in check(config)]
