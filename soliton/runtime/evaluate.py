"""Evaluate a policy that lies somewhere: a Hugging Face folder, a run, or what a recipe starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from soliton.config import RunConfig, load_config, parse_config
from soliton.config.overrides import apply_override
from soliton.config.problems import Problem
from soliton.errors import ConfigError
from soliton.evals.evaluation import Evaluation
from soliton.runtime.phases import RunPhases
from soliton.runtime.run_folder import RunFolder
from soliton.types import Trajectory

DEFAULTS = {"runtime": "inline", "stages": ["eval"], "method": {"eps_low": 0.2, "eps_high": 0.28}}
"""What a model folder without a recipe is evaluated with; the band is not used."""


@dataclass(frozen=True)
class Target:
    """What is evaluated, and how.

    Attributes:
        config: task, limits, sampling, prompts.
        model: Hugging Face folder; None for a new model.
        name: for messages.
    """

    config: RunConfig
    model: Path | None
    name: str


def find_target(path: Path, recipe: Path | None, overrides: list[str]) -> Target:
    """What `path` names: a recipe, a run folder (its newest finished model), or a Hugging Face folder.

    Args:
        path: see above.
        recipe: task and settings for a Hugging Face folder; by default those of the run it lies in, else the defaults.
        overrides: `key.path=value`.

    Raises:
        ConfigError: nothing like that there, or a wrong configuration.
    """
    if path.suffix == ".toml":
        from soliton.runtime.setup import initial_model_folder

        config = load_config(path, [*overrides, 'stages=["eval"]'])
        return Target(config, initial_model_folder(config), str(path))
    if (path / "config.toml").is_file():
        model = next((f for f in (path / "final", path / "stages" / "sft") if (f / "config.json").is_file()), None)
        if model is None:
            raise ConfigError(
                f"{path} holds no finished model yet (neither final/ nor stages/sft/); let the run finish first, or "
                "evaluate what it starts from: give its config.toml"
            )
        return Target(_config(recipe or path / "config.toml", overrides), model, str(model))
    if (path / "config.json").is_file():
        beside = next((up / "config.toml" for up in path.resolve().parents[:2] if (up / "config.toml").is_file()), None)
        return Target(_config(recipe or beside, overrides), path, str(path))
    if not path.exists():
        raise ConfigError(f"there is no {path}; give a recipe, the folder of a run, or a Hugging Face folder")
    raise ConfigError(
        f"{path} is no recipe (.toml), no run folder (config.toml in it) and no Hugging Face folder (config.json in it)"
    )


def _config(recipe: Path | None, overrides: list[str]) -> RunConfig:
    if recipe is not None:
        return load_config(recipe, overrides)
    data = {**DEFAULTS}
    wrong = [done.text for override in overrides if isinstance(done := apply_override(data, override), Problem)]
    if wrong:
        raise ConfigError("\n".join(wrong))
    return parse_config(data, source="the command line")


def phase_of(target: Target) -> int:
    """The phase that a policy is evaluated in: the one in which its run ended, for a trained policy; else the first."""
    is_trained = target.model is not None and target.model.name == "final"
    step = target.config.train.steps if is_trained else 0
    run = RunFolder(target.model.parent if target.model is not None else Path())
    return RunPhases(target.config.env.shifts, run.phases).at_step(step)


def evaluate(target: Target, runs: int, on_done: Callable[[int, float], None]) -> list[tuple[int, Evaluation]]:
    """Roll out every held-out prompt once per run; returns (sampling seed, result) of each run.

    Run i samples with seed `eval.seed + i`; the prompts are those of `eval.seed` in all of them.

    Args:
        target: what and how.
        runs: >= 1.
        on_done: called with the number of finished rollouts and the reward of the last one.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    from soliton.evals.evaluation import evaluation_of
    from soliton.runtime.collect import collect
    from soliton.runtime.setup import initial_model, make_setup

    torch.set_num_threads(1)  # as a run does: the same results
    disable_progress_bar()  # the view shows progress
    setup = make_setup(target.config, target.model)
    model = initial_model(target.config, setup, target.model)
    settings = target.config.eval
    prompts, phase = setup.prompts.held_out(settings.num_prompts, settings.seed), phase_of(target)
    finished = 0

    def count(trajectory: Trajectory) -> None:
        nonlocal finished
        finished += 1
        on_done(finished, trajectory.total_reward)

    def once(seed: int) -> Evaluation:
        return evaluation_of(collect(setup, model, prompts, seed=seed, phase=phase, on_done=count))

    return [(settings.seed + run, once(settings.seed + run)) for run in range(runs)]
