"""One run from recipe to summary: the function behind the command."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from soliton.algorithms.build import build_method
from soliton.config import RunConfig, load_config
from soliton.errors import ConfigError, RunError
from soliton.evals.evaluation import Evaluation, gain
from soliton.learner.learner import Learner
from soliton.models.critic import Critic
from soliton.report.curve import draw_curves
from soliton.report.view import RunView
from soliton.runtime.clock import wall_s
from soliton.runtime.inline import Boundary
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import initial_critic_folder, initial_model, initial_model_folder, make_setup
from soliton.runtime.stages import Stages
from soliton.runtime.summary import SCHEMA, estimate_or_none, train_summary
from soliton.store.memory import MemoryStore
from soliton.weights import atomic_file, atomic_folder, published_state, save_model_folder, weights_sha256


def run_recipe(
    recipe: Path, overrides: list[str], *, stages: list[str] | None, resume: Path | None, view: RunView
) -> int:
    """Run a recipe; returns the exit code 0.

    Args:
        recipe: TOML file.
        overrides: `key.path=value`.
        stages: instead of the recipe's.
        resume: folder of a run to go on with; it must be of the same configuration.
        view: who watches.

    Raises:
        ConfigError: before anything loads.
        RunError: the run cannot go on.
    """
    if stages is not None:
        overrides = [*overrides, f"stages={json.dumps(stages)}"]
    config = load_config(recipe, overrides)
    folder = RunFolder(Path(config.run.dir) if resume is None else resume)
    if resume is None:
        folder.create(config.to_toml())
    else:
        refuse_other_config(folder, config)
    handler = folder.log_to_file()
    elapsed_s = _elapsed(folder)

    def write_unfinished(status: str, reason: str) -> None:
        ending = {"wall_s": round(elapsed_s(), 1), "exit": {"status": status, "reason": reason}}
        write_summary(folder, {**_identity(config), **ending})

    try:
        return run_stages(config, folder, view)
    except RunError as error:
        write_unfinished("stopped", str(error))
        raise
    except KeyboardInterrupt:
        view.note(f"interrupted; go on with `soliton train {folder.config} --resume {folder.path}`")
        write_unfinished("interrupted", "Ctrl-C")
        raise
    finally:
        logging.getLogger("soliton").removeHandler(handler)
        handler.close()


def run_stages(config: RunConfig, folder: RunFolder, view: RunView) -> int:
    """Run the stages that are left, write `final/` and `summary.json`."""
    torch.set_num_threads(1)  # several threads on tiny operations are slower, and one makes results reproducible
    disable_progress_bar()  # type: ignore[no-untyped-call]  # the view shows progress
    elapsed_s = _elapsed(folder)
    model_folder = initial_model_folder(config)
    setup = make_setup(config, model_folder)
    model = initial_model(config, setup, model_folder)
    run = Stages(setup, folder, view, elapsed_s)
    critic_folder = initial_critic_folder(config)
    critic = Critic.load(critic_folder) if critic_folder is not None else None
    before = after = None
    trained: tuple[Learner, Boundary] | None = None
    if "sft" in config.stages:
        model = run.sft(model)
    if "value_pretraining" in config.stages:
        if "train" in config.stages and not uses_pretrained_critic(config):
            view.note(f"value pretraining is left out: {config.algorithm!r} uses no pretrained critic")
        else:
            critic = run.value_pretraining(model)
    if "eval" in config.stages:
        before = run.evaluate(model, "before")
    if "train" in config.stages:
        trained = run.train(model, critic)
        save_model_folder(model, setup.tokenizer, folder.final)
        if trained[0].critic is not None:
            with atomic_folder(folder.final_critic) as target:
                trained[0].critic.model.save(
                    target, manifest={"step": trained[1].step, "trained": trained[0].critic.trainable}
                )
        if "eval" in config.stages:
            after = run.evaluate(model, "after")
    summary = _summary(config, folder, before, after, trained)
    summary["wall_s"] = round(elapsed_s(), 1)
    write_summary(folder, summary)
    if trained is not None:
        draw_curves([folder.path], folder.path / "curves.png")
    view.finish(_verdict(summary, folder))
    return 0


def uses_pretrained_critic(config: RunConfig) -> bool:
    """Whether the algorithm starts from the critic that value pretraining makes."""
    critic = build_method(config.algorithm, config.method).critic
    return critic is not None and critic.pretrained


def refuse_other_config(folder: RunFolder, config: RunConfig) -> None:
    """Refuse to go on with a run of another configuration.

    Raises:
        ConfigError: no run there, or a difference, key by key.
    """
    if not folder.config.exists():
        raise ConfigError(f"--resume: {folder.path} holds no run (it has no config.toml)")
    theirs = load_config(folder.config).identity()
    differences = list(_differences(theirs, config.identity(), ""))
    if differences:
        raise ConfigError(
            f"--resume: {folder.path} was started with another configuration; the result would belong to neither:\n  "
            + "\n  ".join(differences)
            + f"\nresume with `soliton train {folder.config} --resume {folder.path}`"
        )


def _differences(ours: dict[str, Any], given: dict[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for key in sorted({*ours, *given}):
        left, right = ours.get(key), given.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            lines += _differences(left, right, f"{prefix}{key}.")
        elif left != right:
            lines.append(f"{prefix}{key}: the run has {left!r}, now given {right!r}")
    return lines


def _elapsed(folder: RunFolder) -> Callable[[], float]:
    """Real seconds of this run, those before an interruption included."""
    earlier = max((row["time_s"] for row in folder.read_all_metrics()), default=0.0)
    begun = wall_s()
    return lambda: earlier + wall_s() - begun


def _summary(
    config: RunConfig,
    folder: RunFolder,
    before: Evaluation | None,
    after: Evaluation | None,
    trained: tuple[Learner, Boundary] | None,
) -> dict[str, Any]:
    summary: dict[str, Any] = {
        **_identity(config),
        "pass_at_1_before": estimate_or_none(before.pass_at_1() if before else None),
        "pass_at_1_after": estimate_or_none(after.pass_at_1() if after else None),
        "pass_at_1_gain": estimate_or_none(gain(before, after, config.eval.seed) if before and after else None),
    }
    if trained is not None:
        learner, boundary = trained
        ledger = MemoryStore.ledger_of(boundary.store)
        summary |= train_summary(folder.read_metrics("train"), ledger, config)
        summary["weights_sha256"] = {
            "actor": weights_sha256(published_state(learner.actor.model)),
            "critic": weights_sha256(dict(learner.critic.model.state_dict())) if learner.critic else None,
        }
    summary["exit"] = {"status": "finished", "reason": None}
    return summary


def _identity(config: RunConfig) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "seed": config.seed,
        "algorithm": config.algorithm,
        "config_sha256": config.sha256(),
    }


def write_summary(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Write `summary.json`, whole or not at all."""
    with atomic_file(folder.summary) as file:
        file.write_text(json.dumps(summary, indent=1) + "\n")


def _verdict(summary: dict[str, Any], folder: RunFolder) -> str:
    parts = [f"done in {summary['wall_s']:.0f} s: {folder.path}"]
    before, after, rise = (summary[f"pass_at_1_{name}"] for name in ("before", "after", "gain"))
    if before:
        parts.append(f"pass@1 before {_interval(before)}")
    if after and rise:
        parts.append(f"after {_interval(after)}, gain {_interval(rise)}")
    return "; ".join(parts)


def _interval(estimate: dict[str, Any]) -> str:
    return f"{estimate['mean']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"
