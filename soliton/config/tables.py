"""The tables of a recipe, one small model each. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from soliton.envs.judge import JudgeConfig
from soliton.envs.latency import LatencyConfig
from soliton.learner.config import SftConfig, ValuePretrainingConfig
from soliton.types import Sampling


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


class MixTable(Table):
    """One of several environments of a run."""

    name: str = Field(pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$")
    """As `env.name`; also what its metrics are called: `env/NAME/...`."""
    weight: int = Field(default=1, ge=1)
    """Its draws in every `sum of all weights` draws."""
    prompts: str | None = None
    """As `env.prompts`."""
    num_prompts: int | None = Field(default=None, ge=1)
    """As `env.num_prompts`."""


class EnvTable(Table):
    """The task, or several."""

    name: str = Field(default="calculator", pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$")
    """Built-in environment (`calculator`, `maze`, `mixed_maze`, `style`), or your own: `module:Class` or
    `module:reward_function`."""
    prompts: str | None = None
    """JSONL file of prompts for a reward function: rows with a "prompt" and the columns that it reads."""
    num_prompts: int | None = Field(default=None, ge=1)
    """Size of the training prompt set; None: an endless stream of new prompts."""
    shifts: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Learner steps at which an environment that has phases moves into the next one; 0: from the start. `soliton shift`
    moves it from outside."""
    mix: tuple[MixTable, ...] = ()
    """Several environments in one run instead of `name`: one `[[env.mix]]` each, with a weight."""
    latency: LatencyConfig = LatencyConfig()
    """Simulated tool latency, in seconds of the run's clock."""
    judge: JudgeConfig = JudgeConfig()


class SamplingTable(Table):
    """How rollouts sample. Training needs the plain distribution at a temperature (top_p = 1, top_k = 0)."""

    temperature: float = Field(default=1.0, gt=0)
    """Logits are divided by it; the learner's log-probs are of the same distribution. The paper uses 1."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus mass; 1 keeps everything. Below 1 for evaluation alone."""
    top_k: int = Field(default=0, ge=0)
    """Likeliest tokens kept; 0 keeps all. Above 0 for evaluation alone."""

    def record(self) -> Sampling:
        """The record that requests and trajectories carry."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k)


class EngineTable(Table):
    """The engine that samples. Its other keys are those of the embedded one."""

    kind: Literal["embedded", "vllm", "sglang"] = "embedded"
    """`embedded` is part of Soliton and runs on CPU cores. The others are planned: `--dry-run` says what they would
    need, and `soliton train` refuses them."""
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
    max_outstanding: int | None = Field(default=None, ge=1)
    """Most trajectories leased and not yet trained, members of unfinished groups included, if max_staleness is
    "unbounded" (a bound limits them itself). None: train.batch_size + max_in_flight."""
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


class HardwareTable(Table):
    """What a model beyond one machine's CPU needs. Planned: `--dry-run` counts with it, `soliton train` refuses it."""

    learner_gpus: int = Field(default=0, ge=0)
    """GPUs that the actor and its critic train on; 0: CPU."""
    engine_gpus: int = Field(default=0, ge=0)
    """GPUs that sample; 0: CPU."""
    gpu_memory_gb: int = Field(default=80, ge=1)
    """Memory of one of them, in GB: what `--dry-run` divides by."""
    sharding: Literal["none", "fsdp"] = "none"
    """How weights, gradients and optimiser state are spread over the learner's GPUs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights in engines and in forward passes; master weights stay float32."""


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


class ReportTable(Table):
    """What is kept for `report.html`. None of these keys changes what is learned."""

    examples_every_steps: int | None = Field(default=None, ge=0)
    """Learner steps between those whose trajectories are kept, token by token; the first and the last always are.
    None: a twentieth of `train.steps`; 0: none at all."""
    max_example_tokens: int = Field(default=4096, ge=64)
    """Tokens kept of one trajectory; of a longer one the middle is left out."""


class TrackTable(Table):
    """Other places that get every row of metrics; TensorBoard files are always written to logs/tensorboard/."""

    trackers: tuple[Literal["wandb", "trackio", "mlflow"], ...] = ()
    """Each needs its package: `pip install 'soliton[wandb]'`."""
    project: str = "soliton"
    """Project (an experiment in MLflow)."""
    name: str | None = None
    """Name of the run; None: that of its folder."""
