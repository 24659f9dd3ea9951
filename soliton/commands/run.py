"""`soliton train`, `sft` and `pretrain-value`: run a recipe, or some of its stages, or only say what would run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.arguments import DryRun, Json, Overrides, Quiet, Recipe, Resume, refuse_options
from soliton.commands.exits import exit_codes, new_view
from soliton.errors import ConfigError

OptionalRecipe = Annotated[
    Path | None,
    typer.Argument(
        metavar="RECIPE.toml",
        help="The experiment: one TOML file (see recipes/). Not needed with --resume.",
        show_default=False,
    ),
]

OPTIONS = ("--dry-run", "--resume", "--quiet", "--json", "--help")


def train(
    recipe: OptionalRecipe = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    resume: Resume = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run every stage of a recipe: warm start, value pretraining, reinforcement learning, evaluation.

    The run folder (key run.dir) gets the resolved config.toml, metrics.jsonl, summary.json, curves.png, checkpoints/
    and final/, a Hugging Face folder.

    \b
    Examples:
      soliton train recipes/calculator.toml
      soliton train recipes/calculator.toml --dry-run
      soliton train recipes/calculator.toml train.steps=20 algorithm=grpo seed=3 run.dir=runs/grpo-3
      soliton train --resume runs/calculator

    --dry-run prints the resolved configuration with the origin of each value, what would run, rough needs of memory
    and time, and what stands in the way; it exits with 0 if the configuration is valid. --json prints that as JSON.
    """
    changes = list(overrides or [])
    if recipe is not None and resume is not None and "=" in str(recipe) and not recipe.exists():
        recipe, changes = None, [str(recipe), *changes]  # `train --resume RUN key=value`
    _run(recipe, changes, stages=None, resume=resume, quiet=quiet, dry_run=dry_run, as_json=as_json)


def sft(
    recipe: Recipe, overrides: Overrides = None, dry_run: DryRun = False, quiet: Quiet = False, as_json: Json = False
) -> None:
    """Run only the supervised warm start of a recipe, on demonstrations.

    The result is RUN/stages/sft, a Hugging Face folder; `init.run=RUN` starts another run from it.

    \b
    Examples:
      soliton sft recipes/calculator.toml run.dir=runs/warm-start
      soliton sft recipes/calculator.toml sft.epochs=1 run.dir=runs/warm-start-1 --dry-run
    """
    _run(recipe, list(overrides or []), stages=["sft"], resume=None, quiet=quiet, dry_run=dry_run, as_json=as_json)


def pretrain_value(
    recipe: Recipe, overrides: Overrides = None, dry_run: DryRun = False, quiet: Quiet = False, as_json: Json = False
) -> None:
    """Run only the value pretraining: roll out the initial policy, fit the critic to what it earned.

    The result is RUN/stages/value_pretraining: a critic, with a manifest that says what it was fitted to.

    \b
    Example:
      soliton pretrain-value recipes/calculator.toml init.run=runs/warm-start run.dir=runs/critic
    """
    stages = ["value_pretraining"]
    _run(recipe, list(overrides or []), stages=stages, resume=None, quiet=quiet, dry_run=dry_run, as_json=as_json)


def _run(
    recipe: Path | None,
    overrides: list[str],
    *,
    stages: list[str] | None,
    resume: Path | None,
    quiet: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    arguments = [*([] if recipe is None else [recipe]), *overrides]
    if dry_run:
        with exit_codes():
            refuse_options(arguments, OPTIONS)
            from soliton.commands.dry_run import show_plan

            show_plan(recipe, overrides, stages=stages, resume=resume, as_json=as_json)
        return
    view = new_view(quiet)
    with exit_codes(view):
        refuse_options(arguments, OPTIONS)
        if as_json:
            raise ConfigError("--json belongs to --dry-run; a run writes summary.json into its folder")
        from soliton.runtime.run import run_recipe

        raise typer.Exit(run_recipe(recipe, overrides, stages=stages, resume=resume, view=view))
