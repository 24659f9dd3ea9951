"""Arguments and options that several commands share."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from soliton.errors import ConfigError


def complete_key(incomplete: str) -> list[str]:
    """Keys of a recipe that begin so, for the shell."""
    from soliton.config.keys import all_keys

    return [f"{key}=" for key in all_keys() if key.startswith(incomplete)]


Recipe = Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="The experiment: one TOML file (see recipes/).")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY.PATH=VALUE",
        help="Change keys of the recipe, e.g. train.steps=20 seed=3.",
        autocompletion=complete_key,
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print alarms and the result, nothing else.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for scripts.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would run, what it would cost and where each value is from; run nothing."),
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="RUN", help="Go on with this run from its newest sound checkpoint."),
]


ANY_OPTION = {"ignore_unknown_options": True}
"""Context settings of commands that take keys: `refuse_options` sees unknown options, and knows what was meant."""


def refuse_options(arguments: Iterable[object], known: Sequence[str]) -> None:
    """Refuse what looks like an option among arguments.

    Args:
        arguments: of the command, its options left out.
        known: the options that it has.

    Raises:
        ConfigError: there is one; the message says what was probably meant.
    """
    from soliton.config.keys import all_keys

    for argument in map(str, arguments):
        name, _, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        if name in all_keys():
            raise ConfigError(f"{argument}: keys are changed without dashes: {name}={value or 'VALUE'}")
        close = difflib.get_close_matches(argument.partition("=")[0], known, n=1)
        raise ConfigError(
            f"there is no option {argument}; {f'did you mean {close[0]}?' if close else '--help lists them'}"
        )


def print_json(data: Any) -> None:
    """One document on standard output."""
    typer.echo(json.dumps(data, indent=1, default=str))
