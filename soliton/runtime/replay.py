"""Repeat the training of a `local` run from its store alone: no engine, no environment, no other process.

Which trajectories a truly asynchronous run trained on, and in which order, was decided by time. The store knows both;
everything else is a function of the configuration. So the replay ends with the same weights, to the bit, on the same
type of machine with the same library versions, or it names the first batch that differs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from soliton.config import RunConfig, load_config
from soliton.errors import ConfigError, RunError
from soliton.learner.learner import Learner
from soliton.models.critic import Critic
from soliton.models.load import load_causal_lm
from soliton.report.view import RunView
from soliton.runtime.learning import trained_items
from soliton.runtime.run_folder import START_CRITIC, START_MODEL, RunFolder
from soliton.runtime.stages import new_learner
from soliton.store.history import consumed_batches
from soliton.weights import published_state, weights_sha256


@dataclass(frozen=True)
class Replayed:
    """The end of a replay.

    Attributes:
        batches: repeated.
        step: learner steps repeated.
        sha256: of the policy; equal to the run's, batch by batch.
        critic_sha256: of the critic; None without one.
    """

    batches: int
    step: int
    sha256: str
    critic_sha256: str | None


def replay(run_dir: Path, view: RunView) -> Replayed:
    """Repeat every batch of the run in `run_dir` and compare each published policy with the repeated one.

    Raises:
        ConfigError: no `local` run with a store there.
        RunError: a trajectory is damaged, or the replay differs.
    """
    folder = RunFolder(run_dir)
    if not folder.store.exists() or not (folder.weights / START_MODEL).exists():
        raise ConfigError(
            f"{run_dir} holds no {folder.store.name} with its weights/{START_MODEL}: only the training of a run under "
            "the `local` runtime can be replayed (an inline run is repeated by running its config.toml again)"
        )
    config = load_config(folder.config)
    torch.set_num_threads(1)
    critic_folder = folder.weights / START_CRITIC
    learner = new_learner(
        config,
        load_causal_lm(folder.weights / START_MODEL),
        Critic.load(critic_folder) if critic_folder.exists() else None,
    )
    view.stage("replay", None)
    batches, step = _repeat(config, folder, learner, view)
    result = Replayed(
        batches,
        step,
        weights_sha256(published_state(learner.actor.model)),
        weights_sha256(dict(learner.critic.model.state_dict())) if learner.critic else None,
    )
    _compare_with_summary(folder, result)
    return result


def _repeat(config: RunConfig, folder: RunFolder, learner: Learner, view: RunView) -> tuple[int, int]:
    batches = step = 0
    for number, items, publication in consumed_batches(folder.store):
        learner.start_step(trained_items(config, items, number))
        moved = learner.update_actor()
        if moved != (publication is not None):
            did = "moved the policy" if moved else "did not move the policy"
            raise RunError(f"batch {number}: the replay {did}, the run did the opposite")
        if publication is not None:
            step = publication.step
            if (ours := weights_sha256(published_state(learner.actor.model))) != publication.sha256:
                raise RunError(
                    f"batch {number}: the replay gives sha256 {ours[:16]}..., the run published version "
                    f"{publication.version} with {publication.sha256[:16]}...; another machine type or other library "
                    "versions round differently, otherwise something in the run folder was changed"
                )
        metrics = learner.finish_step()
        batches += 1
        view.update(batches, metrics)
    return batches, step


def _compare_with_summary(folder: RunFolder, result: Replayed) -> None:
    """The last critic updates are published nowhere: only the summary of a finished run has their hash."""
    if not folder.summary.exists():
        return
    expected = json.loads(folder.summary.read_text()).get("weights_sha256")
    if expected and (expected["actor"], expected["critic"]) != (result.sha256, result.critic_sha256):
        raise RunError(
            f"the replay ends with actor {result.sha256[:16]}... and critic {str(result.critic_sha256)[:16]}..., "
            f"summary.json has {expected['actor'][:16]}... and {str(expected['critic'])[:16]}..."
        )
