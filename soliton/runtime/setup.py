"""From a configuration to the objects that a run is made of. The only place that knows which name is which class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel

from soliton.config import RunConfig
from soliton.engines.local import LocalEngine
from soliton.envs.environment import Environment
from soliton.envs.judge import Judge, JudgeConfig, OutsideJudge, RuleJudge
from soliton.envs.latency import LatencyConfig, SimulatedLatency
from soliton.envs.llm_judge import LlmJudge
from soliton.envs.surroundings import PhaseAt, Phased, Surroundings, first_phase, lend
from soliton.errors import ConfigError
from soliton.models.character_tokenizer import character_tokenizer
from soliton.models.load import load_causal_lm, new_causal_lm
from soliton.models.support import refuse_unsupported
from soliton.models.tiny import tiny_qwen3_config, tiny_qwen3_moe_config
from soliton.prompts.stream import PromptStream
from soliton.rollout.renderer import Renderer
from soliton.runtime.mixture import mixed_task
from soliton.runtime.task import Task, find_task
from soliton.types import Clock, stable_seed

Tokenizer = Any
"""A Hugging Face tokenizer; transformers types its methods as unions over all that any tokenizer can do."""
EnvironmentFactory = Callable[[Clock, int], Environment]
"""Makes the environment of one episode from its clock and seed."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class Setup:
    """What every stage shares.

    Attributes:
        config: the run's configuration.
        task: environment, prompts and expert.
        tokenizer, renderer: of the policy.
        prompts: training stream; held-out prompts come from it, too.
    """

    config: RunConfig
    task: Task
    tokenizer: Tokenizer
    renderer: Renderer
    prompts: PromptStream

    def environment_factory(self, latency: LatencyConfig, phase_at: PhaseAt = first_phase) -> EnvironmentFactory:
        """Environments of the run's task, with its judge and its phases, and simulated tool latency around them."""

        def make(clock: Clock, seed: int) -> Environment:
            surroundings = Surroundings(judge=new_judge(self.config.env.judge, clock, seed))
            environment = lend(self.task.make_environment(), surroundings)
            if self.task.phases > 1:
                environment = Phased(environment, surroundings, clock, phase_at)
            return SimulatedLatency(environment, clock, latency, seed)

        return make

    def new_engine(self, model: PreTrainedModel, version: int) -> LocalEngine:
        """An engine with its own copy of `model`, with empty caches."""
        table = self.config.engine
        return LocalEngine(
            model,
            self.tokenizer,
            num_slots=table.num_slots,
            max_context=self.config.limits.max_tokens,
            prefill_budget=table.prefill_budget,
            kv_on_update=table.kv_on_update,
            version=version,
        )


def new_judge(config: JudgeConfig, clock: Clock, seed: int) -> Judge:
    """The judge that `[env.judge]` names, for one episode."""
    if config.kind == "llm":
        return LlmJudge(config, clock, seed)
    return RuleJudge() if config.kind == "rules" else OutsideJudge(config.within_s)


def make_setup(config: RunConfig, model_folder: Path | None) -> Setup:
    """Tokenizer, renderer and prompts; the tokenizer comes from `model_folder` if the model does."""
    tokenizer: Tokenizer = character_tokenizer() if model_folder is None else _load_tokenizer(model_folder)
    renderer = _renderer(tokenizer, model_folder)
    if model_folder is not None:
        num_token_ids = max(tokenizer.get_vocab().values()) + 1
        refuse_unsupported(model_folder, num_token_ids=num_token_ids, max_tokens=config.limits.max_tokens)
    task = task_of(config)
    prompts = task.make_prompts(seed=stable_seed(config.seed, "prompts"), num_prompts=config.env.num_prompts)
    return Setup(config=config, task=task, tokenizer=tokenizer, renderer=renderer, prompts=prompts)


def task_of(config: RunConfig) -> Task:
    """The task that `[env]` describes: one environment, or a mixture of several."""
    mix = config.env.mix
    if not mix:
        return find_task(config.env.name, config.env.prompts)
    return mixed_task(
        {part.name: find_task(part.name, part.prompts) for part in mix},
        {part.name: part.weight for part in mix},
        {part.name: part.num_prompts for part in mix},
    )


def initial_model(config: RunConfig, setup: Setup, model_folder: Path | None) -> PreTrainedModel:
    """The policy that the first stage starts from."""
    if model_folder is not None:
        return load_causal_lm(model_folder)
    make = {"tiny-qwen3": tiny_qwen3_config, "tiny-qwen3-moe": tiny_qwen3_moe_config}[config.model.kind]
    tokenizer = setup.tokenizer
    model_config = make(
        len(tokenizer),
        tie=config.model.tie_embeddings,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return new_causal_lm(model_config, stable_seed(config.seed, "model"))


def initial_model_folder(config: RunConfig) -> Path | None:
    """The Hugging Face folder that `[init]` names; None for a new model.

    Raises:
        ConfigError: there is no such folder.
    """
    if config.init.model is not None:
        folder = Path(config.init.model)
        if not (folder / "config.json").exists():
            raise ConfigError(f"init.model: {folder} is no Hugging Face folder (it has no config.json)")
        return folder
    if config.init.run is None:
        return None
    run = Path(config.init.run)
    for folder in (run / "final", run / "stages" / "sft"):
        if (folder / "config.json").exists():
            return folder
    raise ConfigError(f"init.run: {run} holds no finished model (neither final/ nor stages/sft/); let it finish first")


def initial_critic_folder(config: RunConfig) -> Path | None:
    """The critic of the run that `[init]` names, if it left one."""
    if config.init.run is None:
        return None
    run = Path(config.init.run)
    for folder in (run / "final_critic", run / "stages" / "value_pretraining"):
        if folder.exists():
            return folder
    return None


def _renderer(tokenizer: Tokenizer, folder: Path | None) -> Renderer:
    try:
        return Renderer(tokenizer)
    except ConfigError as error:
        raise ConfigError(f"{folder}: {error}; it is in chat_template.jinja or tokenizer_config.json") from error


def _load_tokenizer(folder: Path) -> Tokenizer:
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise ConfigError(
            f"{folder} has no tokenizer (none of {', '.join(TOKENIZER_FILES)}); save the model's own into it: "
            "tokenizer.save_pretrained(folder)"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # its parts raise whatever they like
        raise ConfigError(f"{folder}: its tokenizer cannot be loaded: {type(error).__name__}: {error}") from error
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"{folder}: the tokenizer has no chat template, and prompts are rendered by it; set "
            "tokenizer.chat_template (ChatML is a good one for a base model) and save it again"
        )
    return tokenizer
