"""docs/reference/configuration.md, written from the models: `python -m soliton.config.reference [FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import tomli_w
from pydantic import BaseModel

from soliton.config.keys import Key, all_keys, all_tables, heading

PAGE = Path("docs/reference/configuration.md")
_OPENING = """# Configuration reference

<!-- Written by `python -m soliton.config.reference`; a test compares them. Change the models, not this. -->

A recipe is a TOML file; the command line changes single keys: `soliton train RECIPE.toml train.steps=20 seed=3`.
Values are TOML; a bare word is text, `none` takes an optional key away. Durations are seconds (`_s`), sizes MB (`_mb`),
as plain numbers. Unknown keys, wrong types and impossible combinations are all reported at once before anything loads.
`soliton train RECIPE.toml --dry-run` prints every value with its origin; `soliton schema` writes a JSON schema for
editors. Required are `method.eps_low` and `method.eps_high` alone: the band has no silent default.
"""


def reference() -> str:
    """The page."""
    parts = [_OPENING]
    sections = groupby(sorted(all_keys().values(), key=lambda key: "." in key.path), key=lambda k: _table(k.path))
    for table, keys in sections:
        model = all_tables().get(table)
        title = f"## `{heading(table)}`" if table else "## Top level"
        parts.append("\n".join([title, "", *([_about(model), ""] if model is not None else []), *_rows(keys)]) + "\n")
    return "\n".join(parts)


def _table(path: str) -> str:
    return path.rpartition(".")[0]


def _about(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").partition("\n\n")[0].split())


def _rows(keys: Iterable[Key]) -> list[str]:
    rows = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        name = key.path.rpartition(".")[2]
        rows.append(f"| `{name}` | {_cell(key.allowed)} | {_default(key)} | {_cell(key.meaning)} |")
    return rows


def _default(key: Key) -> str:
    if key.required:
        return "**required**"
    value = key.default
    if value is None:
        return "none"
    if isinstance(value, tuple):
        value = list(value)
    text = " ".join(tomli_w.dumps({"v": value}, multiline_strings=False).partition(" = ")[2].split())
    return f"`{text.replace(', ]', ' ]')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.write_text(reference(), encoding="utf-8")
