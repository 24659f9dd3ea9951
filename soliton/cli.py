"""The command `soliton`: its commands put together. Each is a small module of `soliton.commands`.

Guarantees: importing this module imports neither torch, transformers, pydantic nor rich, so that `soliton --help`
answers at once. Exit codes are those of `soliton.commands.exits`; an error that is nobody's mistake but ours keeps its
traceback.
"""

from __future__ import annotations

from typing import Annotated

import typer

import soliton
from soliton.commands import algorithms, compare, doctor, evaluate, inspect, replay, report, run, schema, shift, study
from soliton.commands.arguments import ANY_OPTION
from soliton.commands.exits import epilog

app = typer.Typer(
    name="soliton",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich's help takes twice as long to come
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main() -> None:
    """Entry point of the command."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"soliton {soliton.__version__}")
        raise typer.Exit


@app.callback(epilog=epilog())
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Single-rollout asynchronous reinforcement learning (SAO) for LLM agents.

    A recipe is one TOML file; any of its keys can be changed on the command line.

    \b
    Start with:
      soliton doctor                                        is everything there?
      soliton train recipes/calculator.toml --dry-run       what would run, and what would it cost?
      soliton train recipes/calculator.toml                 learn, in minutes on two cores
      soliton inspect runs/calculator                       look at what it sampled
      soliton COMMAND --help                                examples for each command
    """


TAKES_KEYS = ("train", "sft", "pretrain-value", "eval")
"""Commands that are followed by keys of a recipe."""

for name, command, says in (
    ("train", run.train, "run every stage of a recipe; --dry-run, --resume"),
    ("sft", run.sft, "only the supervised warm start"),
    ("pretrain-value", run.pretrain_value, "only the value pretraining"),
    ("eval", evaluate.evaluate, "pass@1, avg@k, pass@k on held-out prompts"),
    ("inspect", inspect.inspect, "summary, ledger and trajectories of a run"),
    ("compare", compare.compare, "several runs: table and curves"),
    ("report", report.report, "make the report.html of a run"),
    ("algorithms", algorithms.algorithms, "presets, and what one is made of"),
    ("doctor", doctor.doctor, "what a run is doing; is this installation sound?"),
    ("shift", shift.shift, "move a run into another phase, while it goes on"),
    ("replay", replay.replay, "repeat a run's training from its store"),
    ("study", study.study, "the paper's claims at small scale: runs, tables, verdicts"),
    ("schema", schema.schema, "JSON schema of recipes, for editors"),
):
    app.command(name, short_help=says, context_settings=ANY_OPTION if name in TAKES_KEYS else None)(command)


if __name__ == "__main__":
    main()
