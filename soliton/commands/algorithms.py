"""`soliton algorithms`: the presets, and what one of them is made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from soliton.commands.arguments import Json, print_json
from soliton.commands.exits import console, exit_codes
from soliton.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from soliton.algorithms.options import MethodOptions
    from soliton.learner.method import Method


def complete_preset(incomplete: str) -> list[str]:
    """Presets that begin so, for the shell."""
    from typing import get_args

    from soliton.algorithms.options import AlgorithmName

    return [name for name in get_args(AlgorithmName) if name.startswith(incomplete)]


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="A preset; without it, all of them.", show_default=False, autocompletion=complete_preset
    ),
]
REFERENCE = "sao"


def algorithms(name: Name = None, as_json: Json = False) -> None:
    """List the presets that algorithm = "..." accepts; with NAME, the choices of that preset beside those of sao.

    \b
    Examples:
      soliton algorithms
      soliton algorithms grpo-dis
    """
    with exit_codes():
        from soliton.algorithms.build import PRESETS

        if name is None:
            _list({preset: description(build) for preset, build in PRESETS.items()}, as_json)
        elif name in PRESETS:
            _explain(name, as_json)
        else:
            meant = did_you_mean(name, PRESETS)
            raise ConfigError(f"algorithm {name!r}: there are {', '.join(map(repr, PRESETS))}{meant}")


def description(build: Callable[[MethodOptions], Method]) -> str:
    """What a preset is, from the documentation of its module."""
    return first_sentence(sys.modules[build.__module__].__doc__ or "")


def first_sentence(docstring: str) -> str:
    """The first paragraph of a docstring on one line, up to its first full stop."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def choices_of(name: str) -> dict[str, str]:
    """The named choices of a preset: what is chosen -> what the preset says, read from the method it builds."""
    from soliton.algorithms.build import build_method
    from soliton.algorithms.options import MethodOptions

    options = MethodOptions(eps_low=0.2, eps_high=0.28)
    method = build_method(name, options)  # type: ignore[arg-type]  # checked by the caller
    critic = method.critic
    return {
        "rollouts per prompt": str(method.group_size),
        "advantages": _named(method.advantages),
        "actor loss": _named(method.actor_loss),
        "critic": "none" if critic is None else "as large as the policy",
        "critic targets": "-" if method.returns is None else _named(method.returns),
        "value loss": "-" if critic is None else _named(method.value_loss),
        "value head": "-" if critic is None else critic.head,
        "tokens of the value loss": "-" if critic is None else _named(method.value_tokens),
        "critic updates per actor update (K)": "-" if critic is None else str(critic.updates),
        "what trains in the critic": "-" if critic is None else critic.trainable,
        "values for advantages": "-" if critic is None else critic.advantage_values,
        "value pretraining": "-" if critic is None else ("yes" if critic.pretrained else "no"),
    }


def _named(function: Any) -> str:
    function = getattr(function, "func", function)  # a partial names what it wraps
    what = first_sentence((function.__doc__ or "").partition(";")[0])
    return f"{function.__name__}: {what}"


def _list(presets: dict[str, str], as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        print_json(presets)
        return
    table = Table("preset", "method", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for preset, text in presets.items():
        table.add_row(preset, text)
    console().print(table)


def _explain(name: str, as_json: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    from soliton.algorithms.build import PRESETS

    mine, reference = choices_of(name), choices_of(REFERENCE)
    different = [choice for choice in mine if mine[choice] != reference[choice]]
    if as_json:
        print_json(
            {"name": name, "choices": mine, "differs_from_sao": {choice: reference[choice] for choice in different}}
        )
        return
    out = console()
    out.print(f"[bold]{name}[/bold]: {escape(' '.join((sys.modules[_module(PRESETS, name)].__doc__ or '').split()))}\n")
    table = Table("choice", name, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    if name != REFERENCE:
        table.add_column(f"{REFERENCE}, where it differs", header_style="bold")
    for choice, value in mine.items():
        style = "yellow" if choice in different else None
        other = [escape(reference[choice]) if choice in different else ""] if name != REFERENCE else []
        table.add_row(choice, escape(value), *other, style=style)
    out.print(table)
    out.print("\nThe band (method.eps_low, method.eps_high) and every other choice can be set in the table \\[method].")


def _module(presets: Any, name: str) -> str:
    return str(presets[name].__module__)
