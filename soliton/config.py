"""One run, as data: `RunConfig` composes each component's own small model. Imports no torch.

A recipe is a TOML file; `key.path=value` overrides change single entries. Everything that is wrong is reported at once
before anything loads. `to_toml` of a resolved configuration, loaded again, is the same configuration.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.envs.latency import LatencyConfig
from soliton.errors import ConfigError
from soliton.learner.config import LearnerConfig, SftConfig, ValuePretrainingConfig
from soliton.rollout.limits import Limits
from soliton.store.config import StoreConfig
from soliton.types import Sampling

StageName = Literal["sft", "value_pretraining", "train", "eval"]
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


class Table(BaseModel):
    """A table of the recipe: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunTable(Table):
    """Where the run's files go."""

    dir: str = "runs/run"
    """Run folder, made if absent; a folder that already holds a run is refused unless resumed."""


class InitTable(Table):
    """What the first stage starts from; by default a new model from `[model]` and the seed."""

    run: str | None = None
    """Another run's folder: its actor (`final`, else `stages/sft`), and its critic if it has one."""
    model: str | None = None
    """A local Hugging Face folder with model and tokenizer."""


class ModelTable(Table):
    """The new model, when nothing is loaded."""

    kind: Literal["tiny-qwen3", "tiny-qwen3-moe"] = "tiny-qwen3"
    """A Qwen3-shaped model of 0.3M parameters over a character vocabulary, dense or mixture-of-experts."""
    tie_embeddings: bool = True
    """Whether input and output embeddings are one matrix."""


class EnvTable(Table):
    """The task."""

    name: str = Field(default="calculator", pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$")
    """Built-in environment (`calculator`), or your own as `module:Class`."""
    num_prompts: int | None = Field(default=None, ge=1)
    """Size of the training prompt set; None: an endless stream of new prompts."""
    latency: LatencyConfig = LatencyConfig()
    """Simulated tool latency, in seconds of the run's clock."""


class SamplingTable(Table):
    """How rollouts sample. Training needs the plain distribution at a temperature (top_p = 1, top_k = 0)."""

    temperature: float = Field(default=1.0, gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)

    def record(self) -> Sampling:
        """The record that requests and trajectories carry."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)


class EngineTable(Table):
    """The embedded engine."""

    num_slots: int = Field(default=64, ge=1)
    """Sequences decoded together. Episodes beyond it wait; those that wait on a tool need no slot."""
    prefill_budget: int = Field(default=512, ge=1)
    """Prompt and observation tokens fed per decode step."""
    kv_on_update: Literal["keep", "recompute"] = "keep"
    """What happens to running sequences' KV cache when new weights arrive."""


class RolloutTable(Table):
    """Rollouts in flight."""

    max_in_flight: int = Field(default=96, ge=1)
    """Episodes in flight, waiting ones included."""
    max_attempts: int = Field(default=3, ge=1)
    """Tries of a draw before it is given up."""


class InlineTable(Table):
    """Virtual durations of the `inline` runtime, in seconds of virtual time."""

    tick_s: float = Field(default=0.01, gt=0)
    """One decode step of the engine."""
    actor_update_s: float = Field(default=0.2, ge=0)
    """From taking a batch to publishing new weights."""
    critic_updates_s: float = Field(default=0.1, ge=0)
    """The critic's remaining updates, after publishing."""


class LocalTable(Table):
    """The `local` runtime: processes on this machine. None of these keys changes what is learned."""

    workers: int = Field(default=1, ge=1)
    """Rollout processes, each with its own engine; `rollout.max_in_flight` is shared out among them."""
    host: str = "127.0.0.1"
    """Address that the hub listens on. Anything but loopback lets other machines talk to it (they need the token)."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port of the hub; 0: any free one."""
    durability: Literal["process", "power"] = "process"
    """What committed work survives: the death of any process, or (slower: one flush per commit) of the machine."""
    max_queued_mb: int = Field(default=256, ge=1)
    """Finished trajectories waiting for the learner, in MB of payload; beyond it rollouts wait."""
    lease_s: float = Field(default=600.0, gt=0)
    """An attempt not heard of for so long is tried again by somebody else; the first answer wins."""
    keep_weights: int = Field(default=4, ge=2)
    """Published versions kept as files."""
    max_restarts: int = Field(default=3, ge=0)
    """Deaths in a row of one process, without progress in between, before the run stops with the cause."""
    watchdog_s: float = Field(default=60.0, gt=0)
    """Seconds without any progress after which the stacks of all processes are written to logs/."""


class SftTable(SftConfig):
    """The supervised warm start: the learner's settings, and the demonstrations it is given."""

    num_demonstrations: int = Field(default=9_600, ge=1)
    """Demonstrations written by the environment's scripted expert, on training prompts."""
    noise: float = Field(default=0.35, ge=0, le=1)
    """How often the expert errs, so that there is something left to learn by reinforcement."""


class ValuePretrainingTable(ValuePretrainingConfig):
    """Value pretraining: the learner's settings, and the corpus it is given."""

    num_rollouts: int = Field(default=768, ge=8)
    """Rollouts of the initial policy on training prompts, of which one prompt in eight is held out. The paper calls
    the size of this corpus essential and does not give it."""


class TrainTable(Table):
    """The reinforcement-learning stage."""

    steps: int = Field(default=100, ge=1)
    """Actor updates that were published."""
    batch_size: int = Field(default=48, ge=1)
    """Trajectories per optimiser batch. The paper uses 128."""
    shuffle_rewards: bool = False
    """Negative control: rewards are permuted within each batch, so that nothing can be learned."""


class EvalTable(Table):
    """Evaluation on held-out prompts."""

    num_prompts: int = Field(default=256, ge=1)
    """Held-out prompts, disjoint from training by hash; the same ones before and after."""
    seed: int = 1234
    """Seed of prompts and sampling; the same before and after, whatever the run's seed."""
    every_steps: int = Field(default=0, ge=0)
    """Evaluate during training every so many steps; 0: only before and after."""


class CheckpointTable(Table):
    """What survives a crash."""

    every_steps: int = Field(default=25, ge=1)
    """Learner steps between checkpoints."""
    keep: int = Field(default=2, ge=2)
    """Checkpoints kept; at least two, so that a damaged one has a predecessor."""


class RunConfig(Table):
    """A whole run."""

    algorithm: AlgorithmName = "sao"
    """Preset; `soliton algorithms` lists them."""
    runtime: Literal["local", "inline"] = "local"
    """`local`: processes on this machine, truly asynchronous. `inline`: one process, virtual time, bit-exact."""
    seed: int = Field(default=0, ge=0)
    """Under `inline` two runs with equal seeds (and configurations) end with equal weights."""
    stages: tuple[StageName, ...] = ("sft", "value_pretraining", "train", "eval")
    """What runs, in this order. `eval` alone evaluates; with `train` it evaluates before and after."""
    max_staleness: int | Literal["unbounded"] = 8
    """Largest staleness (in learner steps) a trajectory may have when consumed; "unbounded" is for studies."""
    when_too_old: Literal["drop", "wait", "mask_tokens"] = "drop"
    """What happens to a trajectory over the bound."""
    run: RunTable = RunTable()
    init: InitTable = InitTable()
    model: ModelTable = ModelTable()
    env: EnvTable = EnvTable()
    limits: Limits = Limits()
    sampling: SamplingTable = SamplingTable()
    engine: EngineTable = EngineTable()
    rollout: RolloutTable = RolloutTable()
    inline: InlineTable = InlineTable()
    local: LocalTable = LocalTable()
    method: MethodOptions
    learner: LearnerConfig
    sft: SftTable = SftTable()
    value_pretraining: ValuePretrainingTable = ValuePretrainingTable()
    train: TrainTable = TrainTable()
    eval: EvalTable = EvalTable()
    checkpoint: CheckpointTable = CheckpointTable()

    @model_validator(mode="after")
    def _check_combinations(self) -> RunConfig:
        checks = (_stage_problems, _group_problems, _sampling_problems, _queue_problems, _unread_problems)
        problems = [problem for check in checks for problem in check(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def group_size(self) -> int:
        """Rollouts per prompt: what the recipe says, else what the preset says."""
        return self.method.group_size or GROUP_ALGORITHMS.get(self.algorithm, 1)

    def store_config(self) -> StoreConfig:
        """The store's share of this configuration."""
        unbounded = self.max_staleness == "unbounded"
        max_queued_bytes = self.local.max_queued_mb * 2**20 if self.runtime == "local" else None
        return StoreConfig(
            batch_size=self.train.batch_size,
            group_size=self.group_size,
            max_staleness=None if self.max_staleness == "unbounded" else self.max_staleness,
            when_too_old=self.when_too_old,
            max_outstanding=self.train.batch_size + self.rollout.max_in_flight if unbounded else None,
            max_attempts=self.rollout.max_attempts,
            max_queued_bytes=max_queued_bytes,
            num_draws=None,
        )

    def to_toml(self) -> str:
        """The resolved configuration as TOML; absent keys are `None`."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def sha256(self) -> str:
        """Hash of everything that decides the result: all but where the files go and how many processes there are."""
        return hashlib.sha256(tomli_w.dumps(self.identity()).encode()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """The configuration without `[run]` and `[local]`, as plain data."""
        return self.model_dump(mode="json", exclude_none=True, exclude={"run": True, "local": True})


def _stage_problems(config: RunConfig) -> list[str]:
    problems = []
    order: list[StageName] = ["sft", "value_pretraining", "train", "eval"]
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


def load_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Read a recipe and apply `key.path=value` overrides.

    Raises:
        ConfigError: an unreadable file, a malformed override or any violation; all violations in one message.
    """
    try:
        data = tomllib.loads(Path(path).read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe; the ones that come with Soliton are in recipes/") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for override in overrides or []:
        _apply_override(data, override)
    return parse_config(data, source=str(path))


def parse_config(data: dict[str, Any], source: str) -> RunConfig:
    """Validate plain data; `source` names it in messages."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = [_describe(dict(problem)) for problem in error.errors()]
        raise ConfigError(f"{source}: {len(lines)} problem(s)\n" + "\n".join(f"  {line}" for line in lines)) from error


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"override {override!r}: expected key.path=value, for example train.steps=20")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string: algorithm=grpo
    *tables, last = key.strip().split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise ConfigError(f"override {override!r}: {table!r} is a value, not a table")
    data[last] = value


def _describe(problem: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown key{_did_you_mean(problem['loc'])}"
    if problem["type"] == "missing":
        return f"{path}: required and missing; add it to the recipe"
    message = problem["msg"].removeprefix("Value error, ")
    if not path:
        return str(message)
    return f"{path}: got {problem['input']!r}. {message}"


def _did_you_mean(location: tuple[str | int, ...]) -> str:
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys here: {', '.join(known)}"
