"""What single keys cannot say: combinations of a recipe that contradict each other or do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from soliton.config.run_config import RunConfig

GROUP_ALGORITHMS: dict[str, int] = {"grpo": 8, "grpo-dis": 8}
"""Preset group sizes, needed here to check the batch size without building the method."""


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


def _stage_problems(config: RunConfig) -> list[str]:
    problems = []
    order = ["sft", "value_pretraining", "train", "eval"]
    if list(config.stages) != [stage for stage in order if stage in config.stages] or not config.stages:
        problems.append(f"stages: got {list(config.stages)}; allowed is a non-empty part of {order}, in this order")
    if config.init.run is not None and config.init.model is not None:
        problems.append("init: both run and model are given; a stage starts from one of them, so drop the other")
    return problems


def _group_problems(config: RunConfig) -> list[str]:
    problems = []
    if config.train.batch_size % config.group_size:
        fitting = -(-config.train.batch_size // config.group_size) * config.group_size
        problems.append(
            f"train.batch_size: got {config.train.batch_size}, which is no multiple of the group size "
            f"{config.group_size} of {config.algorithm!r}; use {fitting}"
        )
    if config.algorithm in GROUP_ALGORITHMS and config.group_size < 2:
        problems.append(f"method.group_size: got {config.group_size}; {config.algorithm!r} compares >= 2 rollouts")
    if config.algorithm not in GROUP_ALGORITHMS and config.group_size > 1:
        problems.append(
            f"method.group_size: got {config.group_size}, but {config.algorithm!r} has a critic and samples one "
            "rollout per prompt; drop the key or use a group method such as 'grpo-dis'"
        )
    return problems


def _unread_problems(config: RunConfig) -> list[str]:
    """Keys that were changed and that the algorithm never reads: a knob that does nothing misleads."""
    unread = CRITIC_KEYS if config.algorithm in GROUP_ALGORITHMS else ()
    if config.algorithm in DIS_ALGORITHMS:
        unread = (*unread, *CLIP_KEYS)
    fields = type(config.method).model_fields
    problems = [
        f"method.{key}: got {getattr(config.method, key)!r}, but {config.algorithm!r} does not read it; drop the key"
        for key in unread
        if getattr(config.method, key) != fields[key].default
    ]
    sft = config.sft
    if sft.optimiser != "muon" and sft.muon_lr != type(sft).model_fields["muon_lr"].default:
        problems.append(
            f"sft.muon_lr: got {sft.muon_lr}, but sft.optimiser = {sft.optimiser!r} does not read it; "
            'drop the key or use sft.optimiser = "muon"'
        )
    return problems


def _sampling_problems(config: RunConfig) -> list[str]:
    if "train" in config.stages and (config.sampling.top_p < 1 or config.sampling.top_k > 0):
        return [
            f"sampling: top_p = {config.sampling.top_p}, top_k = {config.sampling.top_k}, but training recomputes "
            "log-probs over the whole vocabulary, so each ratio would be biased by the mass cut off; "
            "use top_p = 1 and top_k = 0"
        ]
    return []


def _queue_problems(config: RunConfig) -> list[str]:
    problems = []
    if config.max_staleness != "unbounded" and config.max_staleness < 0:
        problems.append(f'max_staleness: got {config.max_staleness}; allowed is a number >= 0 or "unbounded"')
    if config.max_staleness == "unbounded" and config.when_too_old != "drop":
        problems.append(f"when_too_old: got {config.when_too_old!r}, but without a bound nothing is; drop the key")
    if config.limits.max_turn_tokens > config.limits.max_tokens:
        problems.append(
            f"limits.max_turn_tokens: got {config.limits.max_turn_tokens}, more than limits.max_tokens = "
            f"{config.limits.max_tokens}; a turn cannot be longer than its trajectory"
        )
    return problems


CHECKS = (_stage_problems, _group_problems, _sampling_problems, _queue_problems, _unread_problems)


def problems_of(config: RunConfig) -> list[str]:
    """Every contradiction, as messages: what, the value got, what is allowed, what to do."""
    return [problem for check in CHECKS for problem in check(config)]
