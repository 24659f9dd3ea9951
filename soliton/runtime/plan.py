"""What a run would do and cost, from its configuration alone: stages, processes, files, memory, time, warnings.

The estimates are rough and say so. They are scaled from one measurement: the calculator demo, 0.31M parameters, one
thread of a 2-core virtual machine (docs/lab-notes.md). Imports no torch.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from soliton.algorithms.traits import TRAITS
from soliton.config import PRESET_CRITICS, RunConfig
from soliton.runtime.model_shape import ModelShape, shape_of
from soliton.runtime.obstacles import initial_folder, missing_here, not_supported

TRAIN_FLOPS_PER_S = 16e9
"""Useful operations of the learner per second and thread (demo: 8.8k tokens/s x 6 x 0.31M parameters)."""
SAMPLE_FLOPS_PER_S = 2.8e9
"""Useful operations of the engine per second (demo: 4.5k sampled tokens/s x 2 x 0.31M parameters)."""
PROCESS_MB = 450
"""Memory of a process that has imported torch and transformers, before any model."""
SHARE_OF_LIMIT = 0.25
"""Tokens of a trajectory as a share of `limits.max_tokens` (64 of 256 in the demo)."""
SHARE_SAMPLED = 1 / 3
"""Share of a trajectory's tokens that the policy sampled."""
BASIS = (
    f"scaled from the calculator demo on one CPU thread, assuming trajectories of {SHARE_OF_LIMIT:.0%} of "
    "limits.max_tokens; right within a factor of about 3 for models of that size, a guess beyond"
)
GB = 2**30


@dataclass(frozen=True)
class Estimate:
    """Rough needs.

    Attributes:
        parameters: of the policy.
        memory_gb: of all processes together; the largest one alone in `learner_gb`.
        disk_gb: of the run folder at its largest.
        minutes: of each stage on CPU cores; None for a model beyond what was measured.
        basis: where the numbers come from.
    """

    parameters: int
    memory_gb: float
    learner_gb: float
    disk_gb: float
    minutes: dict[str, float] | None
    basis: str


@dataclass(frozen=True)
class Plan:
    """What `--dry-run` prints.

    Attributes:
        stages: one line each.
        processes: one line each.
        files: what the run folder will hold.
        estimate: None if nothing is known about the model.
        hardware: what a model beyond one machine's CPU needs.
        warnings: what costs more or says less than one may think.
        not_supported: keys that this version refuses.
        missing: what is absent here and now.
    """

    stages: list[str]
    processes: list[str]
    files: list[str]
    estimate: Estimate | None
    hardware: list[str]
    warnings: list[str]
    not_supported: list[str]
    missing: list[str]

    @property
    def can_start(self) -> bool:
        """Whether `soliton train` would begin."""
        return not self.not_supported and not self.missing

    def as_data(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {**asdict(self), "can_start": self.can_start}


def plan_of(config: RunConfig, *, resumed: bool) -> Plan:
    """The plan of a run."""
    shape = shape_of(config, initial_folder(config))
    return Plan(
        stages=_stages(config),
        processes=_processes(config),
        files=_files(config),
        estimate=None if shape is None else _estimate(config, shape),
        hardware=[] if shape is None else _hardware(config, shape),
        warnings=_warnings(config),
        not_supported=not_supported(config),
        missing=missing_here(config, resumed=resumed),
    )


def has_critic(config: RunConfig) -> bool:
    """Whether the preset trains one."""
    return config.algorithm in PRESET_CRITICS


def _wants_pretraining(config: RunConfig) -> bool:
    critic = TRAITS[config.algorithm].critic
    return critic is not None and critic.pretrained


def _reference_bytes(config: RunConfig) -> int:
    """Bytes per parameter of the frozen reference policy that a KL term needs: float32 weights alone."""
    return 4 if config.method.kl_weight and "train" in config.stages else 0


def _critic_updates(config: RunConfig) -> int:
    if not has_critic(config):
        return 0
    return config.method.critic_updates or PRESET_CRITICS[config.algorithm][0]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _stages(config: RunConfig) -> list[str]:
    sft, pretraining, train, evaluation = config.sft, config.value_pretraining, config.train, config.eval
    updates = math.ceil(sft.num_demonstrations / sft.batch_size) * sft.epochs
    k, group = _critic_updates(config), config.group_size
    critic = f", {_count(k, 'critic update')} each" if k else ", no critic"
    per_prompt = "one rollout per prompt" if group == 1 else f"{train.batch_size // group} prompts x {group} rollouts"
    times = "before and after" if "train" in config.stages else "once"
    lines = {
        "sft": f"sft: {sft.num_demonstrations} demonstrations x {_count(sft.epochs, 'epoch')} = {updates} updates of "
        f"{sft.batch_size} ({sft.optimiser})",
        "value_pretraining": f"value_pretraining: {pretraining.num_rollouts} rollouts, at most "
        f"{pretraining.max_epochs} epochs over them",
        "train": f"train: {config.algorithm}, {train.steps} steps of {train.batch_size} trajectories ({per_prompt})"
        f"{critic}; {train.steps * train.batch_size} trajectories at least; staleness bound {config.staleness_bound}",
        "eval": f"eval: {evaluation.num_prompts} held-out prompts, {times}",
    }
    return [lines[stage] for stage in config.stages]


def _processes(config: RunConfig) -> list[str]:
    if config.runtime == "inline" or "train" not in config.stages:
        return ["this one alone, in virtual time (inline): repeatable to the bit, uses one core"]
    workers = config.local.workers
    each = math.ceil(config.rollout.max_in_flight / workers)
    port = "a free port" if config.local.port == 0 else f"port {config.local.port}"
    engine = f"an engine of {config.engine.num_slots} slots"
    if config.engine.kind != "embedded":
        engine = f"{config.engine.kind} on {config.hardware.engine_gpus} GPUs between them"
    every = config.eval.every_steps
    return [
        f"controller: the store and its hub on {config.local.host}, {port}",
        "learner: all stages",
        f"{_count(workers, 'rollout worker')}, {each} episodes in flight each, with {engine}",
        *([f"evaluator: every {every} steps"] if every else []),
    ]


def _files(config: RunConfig) -> list[str]:
    files = ["config.toml", "metrics.jsonl", "summary.json", "report.html", "logs/"]
    files += [f"stages/{stage}/" for stage in ("sft", "value_pretraining") if stage in config.stages]
    if "eval" in config.stages:
        files.append("evals/")
    if "train" in config.stages:
        files += [f"checkpoints/ ({config.checkpoint.keep} kept, every {config.checkpoint.every_steps} steps)"]
        if config.runtime == "local":
            files += ["store.sqlite and store.payloads", f"weights/ ({config.local.keep_weights} versions)"]
        files += (
            ["final/ (Hugging Face)"] + (["final_critic/"] if has_critic(config) else []) + ["curves.png", "examples/"]
        )
    return [f"{config.run.dir}/{file}" for file in files]


def _estimate(config: RunConfig, shape: ModelShape) -> Estimate:
    n, context = shape.parameters, config.limits.max_tokens
    copies = 2 if has_critic(config) else 1
    activations = config.learner.micro_batch_tokens * (shape.layers * shape.hidden * 40 + shape.vocab * 8)
    learner = PROCESS_MB * 2**20 + (copies * 16 + _reference_bytes(config)) * n + activations
    slots = config.engine.num_slots * context * shape.kv_bytes_per_token(4)
    engine = 4 * n + slots
    local = config.runtime == "local" and "train" in config.stages
    others = (config.local.workers + 1) * (PROCESS_MB * 2**20 + engine) + 150 * 2**20 if local else engine
    stored = config.train.steps * config.train.batch_size * SHARE_OF_LIMIT * context * 20 if local else 0
    kept_weights = 4 * n * config.local.keep_weights if local else 0
    disk = copies * (12 * n * config.checkpoint.keep + 8 * n) + stored + kept_weights
    measured = shape.active_parameters < 1e8
    return Estimate(
        parameters=n,
        memory_gb=round((learner + others) / GB, 2),
        learner_gb=round(learner / GB, 2),
        disk_gb=round(disk / GB, 3),
        minutes=_minutes(config, shape) if measured else None,
        basis=BASIS,
    )


def _minutes(config: RunConfig, shape: ModelShape) -> dict[str, float]:
    n, length = shape.active_parameters, SHARE_OF_LIMIT * config.limits.max_tokens
    train_s = 6 * n * length / TRAIN_FLOPS_PER_S  # one trajectory, forward and backward
    sample_s = 2 * n * length * SHARE_SAMPLED / SAMPLE_FLOPS_PER_S  # one trajectory
    trained = config.train.steps * config.train.batch_size
    workers = config.local.workers if config.runtime == "local" else 1
    reference = 1 / 3 if _reference_bytes(config) else 0  # a forward pass without a backward one
    learning = trained * train_s * (1 + _critic_updates(config) + reference)
    sampling = trained * sample_s / workers
    rounds = 2 if "train" in config.stages else 1
    pretraining = config.value_pretraining
    seconds = {
        "sft": config.sft.num_demonstrations * config.sft.epochs * train_s,
        "value_pretraining": pretraining.num_rollouts * (sample_s + pretraining.max_epochs * train_s),
        "train": max(learning, sampling) if config.runtime == "local" else learning + sampling,
        "eval": rounds * config.eval.num_prompts * sample_s,
    }
    return {stage: round(seconds[stage] / 60, 1) for stage in config.stages}


def _hardware(config: RunConfig, shape: ModelShape) -> list[str]:
    """What a model needs that is too large for this version; [] for the small ones."""
    if shape.parameters < 1e9:
        return []
    gpu, copies = config.hardware.gpu_memory_gb, 2 if has_critic(config) else 1
    states = (copies * 16 + _reference_bytes(config)) * shape.parameters / 1e9
    reference = ", and 4 more for the reference policy" if _reference_bytes(config) else ""
    engine = 2 * shape.parameters / 1e9
    cache = shape.kv_bytes_per_token(2) * config.limits.max_tokens / 1e9
    lines = [
        f"model: {shape.parameters / 1e9:.1f}B parameters, {shape.active_parameters / 1e9:.1f}B active per token",
        f"learner: {states:.0f} GB of weights, gradients and AdamW state for the actor"
        f"{' and its critic' if copies == 2 else ''} (16 bytes per parameter each{reference}), so at least "
        f"{math.ceil(states / (0.7 * gpu))} GPUs of {gpu} GB with sharding, 30 % left for activations",
        f"each engine: {engine:.0f} GB of bfloat16 weights, and {cache:.1f} GB of keys and values for every sequence "
        f"of {config.limits.max_tokens} tokens",
    ]
    given = config.hardware.learner_gpus
    if given and given * 0.7 * gpu < states:
        lines.append(f"hardware.learner_gpus = {given} is too few for that")
    lines.append("nothing of this size has been run with this version: these are sums, not measurements")
    return lines


def _warnings(config: RunConfig) -> list[str]:
    train, found = config.train, []
    training = "train" in config.stages
    if training and "eval" not in config.stages:
        found.append("stages has no 'eval': nothing will say whether the policy improved on held-out prompts")
    if training and config.checkpoint.every_steps >= train.steps:
        found.append(
            f"checkpoint.every_steps = {config.checkpoint.every_steps} and train.steps = {train.steps}: an "
            "interrupted training begins again from its first step"
        )
    if training and _wants_pretraining(config) and "value_pretraining" not in config.stages and config.init.run is None:
        found.append("no value pretraining: the critic starts knowing nothing (the paper calls pretraining essential)")
    if training and config.init == type(config.init)() and "sft" not in config.stages:
        found.append("a new model without 'sft' samples noise: hardly any rollout will earn a reward")
    if training and config.max_staleness == "unbounded":
        found.append('max_staleness = "unbounded" is for studies: old trajectories are trained however old')
    limit = config.store_config().outstanding_limit
    if training and config.rollout.max_in_flight > limit:
        found.append(
            f"rollout.max_in_flight = {config.rollout.max_in_flight}, but the staleness bound admits only {limit} "
            f"trajectories at once ((max_staleness + 1) x train.batch_size): the rest waits"
        )
    if "eval" in config.stages and config.eval.num_prompts < 100:
        width = 1.96 * math.sqrt(0.25 / config.eval.num_prompts)
        found.append(
            f"eval.num_prompts = {config.eval.num_prompts}: the interval of pass@1 is up to +-{width:.2f} wide"
        )
    if training and train.shuffle_rewards:
        found.append("train.shuffle_rewards: the negative control; nothing will be learned")
    return found
