"""The command `soliton`. Parses arguments, chooses a view, turns errors into exit codes; knows nothing of training.

Guarantees: importing this module imports neither torch nor transformers, so `soliton --help` answers at once.

Exit codes: 0 fine; 1 the run stopped (`RunError`); 2 a mistake in the recipe or the command (`ConfigError`);
130 and 143 interrupted by Ctrl-C and by SIGTERM, but 0 after a Ctrl-C that the `local` runtime
answered with a checkpoint. Anything else is a mistake of ours and keeps its traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import soliton
from soliton.errors import ConfigError, Interrupted, RunError
from soliton.report import make_view
from soliton.report.view import RunView

EXIT_RUN_STOPPED = 1
EXIT_CONFIG = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="soliton",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Recipe = Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="The experiment: one TOML file (see recipes/).")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY.PATH=VALUE", help="Change a key of the recipe, e.g. train.steps=20 seed=3."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print alarms and the result, nothing else.")]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="RUN", help="Go on with this run folder from its newest sound checkpoint."),
]


def main() -> None:
    """Entry point of the command."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"soliton {soliton.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Single-rollout asynchronous reinforcement learning (SAO) for LLM agents.

    A recipe is one TOML file; any of its keys can be changed on the command line. Start with:

      [cyan]soliton train recipes/calculator.toml[/cyan]
    """


@app.command()
def train(recipe: Recipe, overrides: Overrides = None, resume: Resume = None, quiet: Quiet = False) -> None:
    """Run every stage of a recipe: warm start, value pretraining, reinforcement learning, evaluation.

    The run folder (key [cyan]run.dir[/cyan]) gets the resolved config, metrics.jsonl, summary.json,
    checkpoints/ and final/, a Hugging Face folder.

    Examples:
      [cyan]soliton train recipes/calculator.toml[/cyan]

      [cyan]soliton train recipes/calculator.toml train.steps=20 algorithm=grpo seed=3[/cyan]

      [cyan]soliton train recipes/calculator.toml --resume runs/calculator[/cyan]
    """
    _run(recipe, overrides, stages=None, resume=resume, quiet=quiet)


@app.command()
def sft(recipe: Recipe, overrides: Overrides = None, quiet: Quiet = False) -> None:
    """Run only the supervised warm start of a recipe, on demonstrations.

    Example:
      [cyan]soliton sft recipes/calculator.toml run.dir=runs/warm-start[/cyan]
    """
    _run(recipe, overrides, stages=["sft"], resume=None, quiet=quiet)


@app.command("pretrain-value")
def pretrain_value(recipe: Recipe, overrides: Overrides = None, quiet: Quiet = False) -> None:
    """Run only the value pretraining: roll out the initial policy, fit the critic to what it earned.

    Example:
      [cyan]soliton pretrain-value recipes/calculator.toml run.dir=runs/critic[/cyan]
    """
    _run(recipe, overrides, stages=["value_pretraining"], resume=None, quiet=quiet)


@app.command("eval")
def evaluate(recipe: Recipe, overrides: Overrides = None, quiet: Quiet = False) -> None:
    """Measure pass@1 on held-out prompts, with its interval; nothing is trained.

    Example:
      [cyan]soliton eval recipes/calculator.toml run.dir=runs/check[/cyan]
    """
    _run(recipe, overrides, stages=["eval"], resume=None, quiet=quiet)


@app.command()
def replay(run: Run, quiet: Quiet = False) -> None:
    """Repeat the training of a [cyan]local[/cyan] run from its store alone, and compare every published policy.

    No engine and no environment take part. Ends with the same weights hash, or names the first batch that differs.

    Example:
      [cyan]soliton replay runs/calculator[/cyan]
    """
    from soliton.runtime.clock import wall_s

    view = make_view(Console(), quiet, wall_s)
    with _exit_codes(view):
        from soliton.runtime.replay import replay as replay_run

        done = replay_run(run, view)
        critic = f", critic {done.critic_sha256}" if done.critic_sha256 else ""
        view.finish(f"equal: {done.batches} batches, {done.step} steps; sha256 of the actor {done.sha256}{critic}")


@app.command()
def doctor(run: Run) -> None:
    """Say what a run is doing: who waits for whom and since when, its processes, its last log lines.

    Exit code 0 if it runs, 1 if it does not.

    Example:
      [cyan]soliton doctor runs/calculator[/cyan]
    """
    with _exit_codes(make_view(Console(), True, lambda: 0.0)):
        from soliton.runtime.local.doctor import diagnose

        diagnosis = diagnose(run)
        for line in diagnosis.lines:
            Console(highlight=False).print(escape(line), soft_wrap=True)
        raise typer.Exit(0 if diagnosis.alive else EXIT_RUN_STOPPED)


@app.command()
def algorithms() -> None:
    """List the presets that [cyan]algorithm = "..."[/cyan] accepts, with the method each one is."""
    from soliton.algorithms.build import PRESETS

    table = Table("preset", "method", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name, build in PRESETS.items():
        table.add_row(name, first_sentence(sys.modules[build.__module__].__doc__ or ""))
    Console().print(table)


def first_sentence(docstring: str) -> str:
    """The first paragraph of a docstring on one line, up to its first full stop."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def _run(
    recipe: Path, overrides: list[str] | None, *, stages: list[str] | None, resume: Path | None, quiet: bool
) -> None:
    from soliton.runtime.clock import wall_s

    view = make_view(Console(), quiet, wall_s)
    with _exit_codes(view):
        from soliton.runtime.run import run_recipe

        code = run_recipe(recipe, list(overrides or []), stages=stages, resume=resume, view=view)
        raise typer.Exit(code)


@contextmanager
def _exit_codes(view: RunView) -> Iterator[None]:
    """Errors meant for the user become one message and an exit code; the view gives the terminal back first."""
    errors = Console(stderr=True, highlight=False)
    try:
        yield
    except ConfigError as error:
        view.finish("nothing was run")
        errors.print(f"[bold red]error:[/bold red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(EXIT_CONFIG) from None
    except RunError as error:
        view.finish("the run stopped")
        errors.print(f"[bold red]stopped:[/bold red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(EXIT_RUN_STOPPED) from None
    except Interrupted as stop:
        view.finish(f"stopped by {stop}")
        raise typer.Exit(stop.exit_code) from None
    except KeyboardInterrupt:
        view.finish("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None


if __name__ == "__main__":
    main()
