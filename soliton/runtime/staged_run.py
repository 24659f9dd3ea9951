"""The stages of a run in this process, from what the first one starts from to `final/` and `summary.json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from soliton.algorithms.build import build_method
from soliton.atomic import atomic_folder
from soliton.config import RunConfig
from soliton.evals.evaluation import Evaluation, gain
from soliton.learner.learner import Learner
from soliton.models.critic import Critic
from soliton.report.view import RunView
from soliton.runtime.inline_training import train_inline
from soliton.runtime.mixture import pass_at_1_by_environment
from soliton.runtime.preflight import check_task
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import initial_critic_folder, initial_model, initial_model_folder, make_setup
from soliton.runtime.stages import Stages
from soliton.runtime.summary import estimate_or_none, identity_of, train_summary, write_summary
from soliton.runtime.tracking import tracked
from soliton.runtime.training import Train, Trained
from soliton.weights import published_state, save_model_folder, weights_sha256


def run_stages(
    config: RunConfig,
    folder: RunFolder,
    view: RunView,
    train: Train = train_inline,
    elapsed_s: Callable[[], float] | None = None,
) -> int:
    """Run the stages that are left, write `final/` and `summary.json`.

    Args:
        config: of the run.
        folder: its folder.
        view: who watches.
        train: the runtime of the training stage.
        elapsed_s: real seconds of the run so far; by default those of this process and what metrics.jsonl knows.
    """
    elapsed_s = elapsed_s or folder.stopwatch()
    with tracked(config, folder, view.alarm, elapsed_s):
        return _run_stages(config, folder, view, train, elapsed_s)


def _run_stages(
    config: RunConfig, folder: RunFolder, view: RunView, train: Train, elapsed_s: Callable[[], float]
) -> int:
    torch.set_num_threads(1)  # several threads on tiny operations are slower, and one makes results reproducible
    disable_progress_bar()  # the view shows progress
    model_folder = initial_model_folder(config)
    setup = make_setup(config, model_folder)
    for warning in check_task(setup):
        view.alarm(warning)
    model = initial_model(config, setup, model_folder)
    run = Stages(setup, folder, view, elapsed_s)
    critic_folder = initial_critic_folder(config)
    critic = Critic.load(critic_folder) if critic_folder is not None else None
    before = after = None
    trained: tuple[Learner, Trained] | None = None
    if "sft" in config.stages:
        model = run.sft(model)
    if "value_pretraining" in config.stages:
        if "train" in config.stages and not uses_pretrained_critic(config):
            view.note(f"value pretraining is left out: {config.algorithm!r} uses no pretrained critic")
        else:
            critic = run.value_pretraining(model)
    if "eval" in config.stages:
        before = run.evaluate(model, "before", step=0)
    if "train" in config.stages:
        trained = run.train(model, critic, train)
        save_model_folder(model, setup.tokenizer, folder.final)
        if trained[0].critic is not None:
            with atomic_folder(folder.final_critic) as target:
                trained[0].critic.model.save(
                    target, manifest={"step": trained[1].step, "trained": trained[0].critic.trainable}
                )
        if "eval" in config.stages:
            after = run.evaluate(model, "after", step=config.train.steps)
    summary = _summary(config, folder, before, after, trained)
    summary["wall_s"] = round(elapsed_s(), 1)
    write_summary(folder.summary, summary)
    if trained is not None:
        from soliton.report.curve import draw_curves  # seconds of importing, which no restart of a role should cost

        draw_curves([folder.path], folder.path / "curves.png")
    view.finish(_verdict(summary, folder))
    return 0


def uses_pretrained_critic(config: RunConfig) -> bool:
    """Whether the algorithm starts from the critic that value pretraining makes."""
    critic = build_method(config.algorithm, config.method).critic
    return critic is not None and critic.pretrained


def _summary(
    config: RunConfig,
    folder: RunFolder,
    before: Evaluation | None,
    after: Evaluation | None,
    trained: tuple[Learner, Trained] | None,
) -> dict[str, Any]:
    summary: dict[str, Any] = {
        **identity_of(config),
        "pass_at_1_before": estimate_or_none(before.pass_at_1() if before else None),
        "pass_at_1_after": estimate_or_none(after.pass_at_1() if after else None),
        "pass_at_1_gain": estimate_or_none(gain(before, after, config.eval.seed) if before and after else None),
    }
    if config.env.mix:
        summary["pass_at_1_by_environment"] = {
            name: {environment: estimate_or_none(each) for environment, each in pass_at_1_by_environment(made).items()}
            for name, made in (("before", before), ("after", after))
            if made is not None
        }
    if trained is not None:
        learner, end = trained
        summary |= train_summary(folder.read_metrics("train"), end.ledger, config)
        summary["weights_sha256"] = {
            "actor": weights_sha256(published_state(learner.actor.model)),
            "critic": weights_sha256(dict(learner.critic.model.state_dict())) if learner.critic else None,
        }
    summary["exit"] = {"status": "finished", "reason": None}
    return summary


def _verdict(summary: dict[str, Any], folder: RunFolder) -> str:
    parts = [f"done in {summary['wall_s']:.0f} s: {folder.path}"]
    before, after, rise = (summary[f"pass_at_1_{name}"] for name in ("before", "after", "gain"))
    if before:
        parts.append(f"pass@1 before {_interval(before)}")
    if after and rise:
        parts.append(f"after {_interval(after)}, gain {_interval(rise)}")
    parts.append(f"report: {folder.report}")
    return "; ".join(parts)


def _interval(estimate: dict[str, Any]) -> str:
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"
