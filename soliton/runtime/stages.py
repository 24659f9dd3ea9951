"""The stages of a run, each from what it needs to what it leaves.

A finished stage leaves a folder that appears whole or not at all; a resumed run loads it instead of running the stage
again. A stage that was interrupted begins again from its seed (`train` from its newest checkpoint) and ends the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import msgspec
import numpy as np
from transformers import PreTrainedModel

from soliton.algorithms.build import build_method
from soliton.atomic import atomic_file, atomic_folder
from soliton.config import RunConfig
from soliton.errors import ConfigError
from soliton.evals.evaluation import Evaluation, evaluation_of
from soliton.learner.critic import head_of
from soliton.learner.learner import Learner
from soliton.learner.sft import Demonstration, SftUpdate, sft
from soliton.learner.value_pretraining import ValueEpoch, pretrain_values
from soliton.models.critic import Critic
from soliton.models.load import load_causal_lm
from soliton.report.view import RunView
from soliton.runtime.collect import collect
from soliton.runtime.mixture import evaluation_metrics, pass_at_1_by_environment
from soliton.runtime.phases import RunPhases
from soliton.runtime.recording import ExampleRecorder
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import Setup
from soliton.runtime.training import Train, Trained, TrainingStage
from soliton.types import Role, Trajectory, stable_seed
from soliton.weights import published_state, save_model_folder, weights_sha256


@dataclass(frozen=True)
class Stages:
    """What every stage is given.

    Attributes:
        setup: task and settings.
        folder: where stages leave their results.
        view: who watches.
        elapsed_s: real seconds of the run so far.
    """

    setup: Setup
    folder: RunFolder
    view: RunView
    elapsed_s: Callable[[], float]

    @property
    def _phases(self) -> RunPhases:
        return RunPhases(self.setup.config.env.shifts, self.folder.phases)

    def sft(self, model: PreTrainedModel) -> PreTrainedModel:
        """Supervised warm start on the environment's demonstrations."""
        done = self.folder.stages / "sft"
        if done.exists():
            return load_causal_lm(done)
        config = self.setup.config.sft
        if self.setup.task.demonstrate is None:
            raise ConfigError(
                f"stages: 'sft' needs demonstrations, and {self.setup.config.env.name!r} has no expert; write "
                "expert(self, rng, noise) -> str, or drop the stage and start from a model with init.model"
            )
        seed = stable_seed(self.setup.config.seed, "sft")
        self.folder.truncate_metrics("sft", after_step=-1)
        self.view.stage("sft", config.epochs * -(-config.num_demonstrations // config.batch_size))
        demonstrations = [self._demonstration(i, seed) for i in range(config.num_demonstrations)]

        def report(update: SftUpdate) -> None:
            self._report("sft", update.update, {"sft/loss": update.loss, "sft/lr": update.lr})

        sft(model, demonstrations, config, seed=seed, progress=report)
        save_model_folder(model, self.setup.tokenizer, done)
        return model

    def _demonstration(self, draw: int, seed: int) -> Demonstration:
        rng = np.random.default_rng(stable_seed(seed, draw))
        demonstrate = self.setup.task.demonstrate
        assert demonstrate is not None, "checked before the stage"
        messages = demonstrate(self.setup.prompts.at(draw), rng, self.setup.config.sft.noise)
        token_ids, roles = self.setup.renderer.demonstration(messages)
        return Demonstration(np.asarray(token_ids, dtype=np.int32), np.asarray(roles) == Role.ACTION)

    def value_pretraining(self, model: PreTrainedModel) -> Critic:
        """Roll out the initial policy on training prompts and fit a critic, started from it, to what it earned."""
        done = self.folder.stages / "value_pretraining"
        if done.exists():
            return Critic.load(done)
        config = self.setup.config.value_pretraining
        seed = stable_seed(self.setup.config.seed, "value_pretraining")
        self.folder.truncate_metrics("value_pretraining", after_step=-1)
        corpus = self._rollouts(model, "value_pretraining rollouts", config.num_rollouts, seed)
        method = build_method(self.setup.config.algorithm, self.setup.config.method)
        critic = Critic.from_causal_lm(model, head_of(method.critic))
        self.view.stage("value_pretraining", config.max_epochs)

        def report(epoch: ValueEpoch) -> None:
            metrics = {
                "value_pretraining/loss": epoch.loss,
                "value_pretraining/explained_var": epoch.explained_variance,
            }
            self._report("value_pretraining", epoch.epoch, metrics)

        result = pretrain_values(critic, corpus, config, seed=seed, progress=report, value_loss=method.value_loss)
        prompts = "\n".join(sorted({trajectory.prompt_id for trajectory in corpus}))
        origin = {
            "policy_sha256": weights_sha256(published_state(model)),
            "prompts_sha256": hashlib.sha256(prompts.encode()).hexdigest(),
        }
        with atomic_folder(done) as folder:
            critic.save(folder, manifest={**origin, **asdict(result)})
        if result.epochs < config.max_epochs:
            self.view.note(f"no better in {config.patience} steps: the critic of step {result.best_epoch} is kept")
        return critic

    def _rollouts(self, model: PreTrainedModel, name: str, count: int, seed: int) -> list[Trajectory]:
        self.view.stage(name, count)
        prompts = [self.setup.prompts.at(draw) for draw in range(count)]
        phase = self._phases.at_step(0)
        return collect(self.setup, model, prompts, seed=seed, phase=phase, on_done=self._counter())

    def _counter(self) -> Callable[[Trajectory], None]:
        rewards: list[float] = []

        def count(trajectory: Trajectory) -> None:
            rewards.append(trajectory.total_reward)
            if len(rewards) % 16 == 0:
                self.view.update(len(rewards), {"reward/mean": sum(rewards) / len(rewards)})

        return count

    def evaluate(self, model: PreTrainedModel, name: str, step: int) -> Evaluation:
        """pass@1 of `model`, the policy of `step`, on the held-out prompts; kept in `evals/<name>.json`, by prompt."""
        kept = self.folder.evals / f"{name}.json"
        if kept.exists():
            return msgspec.json.decode(kept.read_bytes(), type=Evaluation)
        self.view.stage(f"eval {name}", self.setup.config.eval.num_prompts)
        evaluation = self.evaluate_now(model, step, self._counter())
        with atomic_file(kept) as file:
            file.write_bytes(msgspec.json.encode(evaluation))
        self.view.note(f"pass@1 {name}: {evaluation.pass_at_1()}")
        for environment, estimate in pass_at_1_by_environment(evaluation).items():
            self.view.note(f"pass@1 {name}, {environment}: {estimate}")
        return evaluation

    def evaluate_now(
        self, model: PreTrainedModel, step: int, on_done: Callable[[Trajectory], None] = lambda _: None
    ) -> Evaluation:
        """The same, in the phase of `step`, with nothing kept."""
        config, phase = self.setup.config.eval, self._phases.at_step(step)
        prompts = self.setup.prompts.held_out(config.num_prompts, config.seed)
        return evaluation_of(collect(self.setup, model, prompts, seed=config.seed, phase=phase, on_done=on_done))

    def train(self, model: PreTrainedModel, critic: Critic | None, train: Train) -> tuple[Learner, Trained]:
        """Reinforcement learning by the runtime `train`; `model` and `critic` are trained in place."""
        learner = new_learner(self.setup.config, model, critic)
        if learner.critic is not None:
            if critic is None:
                self.view.note("the critic was not pretrained: it starts from the policy's trunk, with a zero head")
            total = len(dict(learner.critic.model.named_parameters()))
            names = learner.critic.trainable
            kinds = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)
            self.view.note(f"the critic trains {len(names)} of its {total} parameters: {', '.join(kinds)}")
        learner.watch = ExampleRecorder(self.setup.config, self.setup.tokenizer, self.folder.examples, self.view.alarm)
        stage = TrainingStage(
            self.setup,
            learner,
            self.folder,
            self.view,
            self.elapsed_s,
            evaluate=lambda step: evaluation_metrics(self.evaluate_now(model, step)),
        )
        return learner, train(stage)

    def _report(self, stage: str, step: int, metrics: dict[str, float]) -> None:
        self.folder.append_metrics(stage, step, self.elapsed_s(), metrics)
        self.view.update(step, metrics)


def new_learner(config: RunConfig, model: PreTrainedModel, critic: Critic | None) -> Learner:
    """A learner at step 0 that trains `model` and `critic` in place; it makes a critic if it needs one and has none."""
    method = build_method(config.algorithm, config.method)
    if method.critic is not None and critic is None:
        critic = Critic.from_causal_lm(model, head_of(method.critic))
    return Learner(
        actor=model, critic=critic if method.critic is not None else None, method=method, config=config.learner
    )
