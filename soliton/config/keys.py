"""Every key of a recipe: what it accepts, its default, what it means; read from the models themselves."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from soliton.config.allowed import allowed_values, is_optional, is_table_list, table_of
from soliton.config.run_config import RunConfig


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        path: dotted, e.g. "train.batch_size"; entries of a list of tables are all called by the list's name.
        owner: the model that has it.
        field: pydantic's record of it.
    """

    path: str
    owner: type[BaseModel]
    field: FieldInfo

    @property
    def allowed(self) -> str:
        """What it accepts, in words."""
        return allowed_values(self.field.annotation, self.field.metadata)

    @property
    def required(self) -> bool:
        """Whether a recipe must have it."""
        return self.field.is_required()

    @property
    def optional(self) -> bool:
        """Whether its absence means something else than a default value."""
        return is_optional(self.field.annotation)

    @property
    def default(self) -> Any:
        """Its default; None where it is required, or absent by default."""
        return None if self.required else self.field.get_default(call_default_factory=True)

    @property
    def meaning(self) -> str:
        """Its documentation, on one line."""
        return documentation(self.owner).get(self.path.rpartition(".")[2], "")


@cache
def all_keys() -> dict[str, Key]:
    """Dotted path -> key, in the order of the recipe; tables are not keys."""
    return {key.path: key for key in _walk(RunConfig, "")}


@cache
def all_tables() -> dict[str, type[BaseModel]]:
    """Dotted path of a table -> its model."""
    return dict(_tables(RunConfig, ""))


@cache
def heading(table: str) -> str:
    """How a recipe begins a table: `[train]`; `[[env.mix]]` where there may be several of it."""
    model: type[BaseModel] = RunConfig
    field = None
    for name in table.split("."):
        field = model.model_fields[name]
        model = table_of(field.annotation) or model
    return f"[[{table}]]" if field is not None and is_table_list(field.annotation) else f"[{table}]"


def _tables(model: type[BaseModel], prefix: str) -> list[tuple[str, type[BaseModel]]]:
    found: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        if (table := table_of(field.annotation)) is not None:
            found += [(prefix + name, table), *_tables(table, f"{prefix}{name}.")]
    return found


def _walk(model: type[BaseModel], prefix: str) -> list[Key]:
    keys: list[Key] = []
    for name, field in model.model_fields.items():
        table = table_of(field.annotation)
        keys += [Key(prefix + name, model, field)] if table is None else _walk(table, f"{prefix}{name}.")
    return keys


def suggestion(path: str) -> str:
    """What an unknown key was probably meant to be, or what there is in its table."""
    table, _, name = path.rpartition(".")
    model = all_tables().get(table, RunConfig if not table else None)
    known = sorted(model.model_fields) if model is not None else []
    if close := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {close[0]!r}?"
    elsewhere = [other for other in all_keys() if other.rpartition(".")[2] == name]
    elsewhere += [heading(other) for other in all_tables() if other.rpartition(".")[2] == name]
    if elsewhere:
        return "did you mean " + " or ".join(repr(other) for other in elsewhere[:3]) + "?"
    if close := difflib.get_close_matches(path, [*all_keys(), *all_tables()], n=1, cutoff=0.75):
        return f"did you mean {close[0]!r}?"
    return f"known keys here: {', '.join(known)}" if known else f"known tables: {', '.join(all_tables())}"


@cache
def documentation(model: type[BaseModel]) -> dict[str, str]:
    """Name of a field -> its documentation: the string below it, or its line under `Attributes:` of the class."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, BaseModel) and owner is not BaseModel:
            found |= _of_attributes(owner.__doc__ or "") | _below_fields(owner)
    return found


def _below_fields(model: type[BaseModel]) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found[statement.target.id] = " ".join(text.split())
    return found


def _of_attributes(docstring: str) -> dict[str, str]:
    section = docstring.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent(section).splitlines():
        if entry := re.fullmatch(r"(\w+(?:, \w+)*): (.*)", line):
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif line.startswith("    ") and names:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        elif line.strip():
            break
    return found
