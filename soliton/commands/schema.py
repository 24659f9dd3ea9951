"""`soliton schema`: the JSON schema of recipes, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from soliton.commands.exits import exit_codes

Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it there instead of printing it.")]


def schema(out: Out = None) -> None:
    """Write the JSON schema of recipes: editors complete keys and mark mistakes with it.

    Recipes here begin with `#:schema recipe.schema.json`, which the TOML language servers Taplo and Tombi read.

    \b
    Examples:
      soliton schema --out recipes/recipe.schema.json
    """
    with exit_codes():
        from soliton.config.schema import schema_json

        if out is None:
            typer.echo(schema_json(), nl=False)
        else:
            out.write_text(schema_json(), encoding="utf-8")
            typer.echo(f"wrote {out}")
