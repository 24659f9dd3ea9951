"""What a key accepts, in words, and what a wrong value was probably meant to be. Pure functions of annotations."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_SECONDS = {"ms": 1e-3, "s": 1, "sec": 1, "seconds": 1, "min": 60, "m": 60, "h": 3600, "hours": 3600, "d": 86400}
_MEGABYTES = {
    "kb": 2**-10,
    "mb": 1,
    "m": 1,
    "gb": 2**10,
    "g": 2**10,
    "tb": 2**20,
    "kib": 2**-10,
    "mib": 1,
    "gib": 2**10,
}
_COUNTS = {"%": 0.01, "k": 10**3, "m": 10**6, "b": 10**9}
_QUANTITY = re.compile(r"\s*([-+]?[\d_]*\.?\d+(?:[eE][-+]?\d+)?)\s*([A-Za-z%]*)\s*")


def alternatives(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The types that an annotation is a union of, each with its constraints."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        flat = [item for part in extra for item in (part.metadata if isinstance(part, FieldInfo) else [part])]
        yield from alternatives(inner, [*metadata, *flat])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from alternatives(part, metadata)
    else:
        yield annotation, metadata


def allowed_values(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """What a key accepts, for a reader: "a whole number >= 1", "one of 'drop', 'wait'", ..."""
    options = [_words(part, limits) for part, limits in alternatives(annotation, metadata) if part is not type(None)]
    return " or ".join(dict.fromkeys(options))


def is_optional(annotation: Any) -> bool:
    """Whether None (an absent key) is a value."""
    return any(part is type(None) for part, _ in alternatives(annotation))


def choices(annotation: Any) -> list[str]:
    """The words of every Literal in an annotation."""
    return [str(word) for part, _ in alternatives(annotation) if get_origin(part) is Literal for word in get_args(part)]


def table_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a table, a list of tables or a table of tables is made of."""
    for part, _ in alternatives(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
        for inner in get_args(part):
            if get_origin(part) is not Literal and (found := table_of(inner)) is not None:
                return found
    return None


def is_table_list(annotation: Any) -> bool:
    """Whether a key is a list of tables: `[[name]]` in TOML."""
    return table_of(annotation) is not None and any(
        get_origin(part) in (tuple, list) for part, _ in alternatives(annotation)
    )


def meant(key: str, value: Any, annotation: Any) -> str:
    """A hint at what a wrong value was meant to be, or "": units, quoted numbers, misspelt words."""
    if not isinstance(value, str):
        return _number_hint(value, annotation)
    if any(get_origin(part) in (tuple, list) for part, _ in alternatives(annotation)):
        return _list_hint(value)
    words = choices(annotation)
    if close := difflib.get_close_matches(value.lower(), words, n=1):
        return f"did you mean {close[0]!r}?"
    if not any(part in (int, float) for part, _ in alternatives(annotation)):
        return ""
    return _unit_hint(key, value)


def _words(annotation: Any, limits: Sequence[Any]) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        quoted = ", ".join(repr(word) for word in inner)
        return f"one of {quoted}" if len(inner) > 1 else quoted
    if origin in (tuple, list):
        items = [part for part in inner if part is not Ellipsis]
        if origin is tuple and Ellipsis not in inner:
            return f"a list of {len(items)}: " + ", ".join(allowed_values(part) for part in items)
        return f"a list of ({allowed_values(items[0])})"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    if origin is dict:
        return f"a table whose values are ({allowed_values(inner[1])})"
    words = _WORDS.get(annotation, str(getattr(annotation, "__name__", annotation)))
    bounds = [
        f"{sign} {getattr(limit, name):g}" for name, sign in _BOUNDS.items() for limit in limits if hasattr(limit, name)
    ]
    patterns = [f"matching {limit.pattern}" for limit in limits if getattr(limit, "pattern", None)]
    return " ".join([words, " and ".join([*bounds, *patterns])]).strip()


def _number_hint(value: Any, annotation: Any) -> str:
    kinds = [part for part, _ in alternatives(annotation)]
    if isinstance(value, bool) and bool not in kinds:
        return "true and false are no numbers" if int in kinds or float in kinds else ""
    if isinstance(value, float) and int in kinds and value.is_integer():
        return f"write {int(value)}"
    if isinstance(value, int | float) and bool in kinds and value in (0, 1):
        return f"write {'true' if value else 'false'}"
    if isinstance(value, int | float | bool) and str in kinds:
        return f'write "{value}"'
    return ""


def _list_hint(text: str) -> str:
    """How the words or numbers of `text` are written as a list."""
    items = re.findall(r"[^\s,\[\]'\"]+", text)
    are_numbers = all(re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", item) for item in items)
    shown = ", ".join(items if are_numbers else [f'"{item}"' for item in items])
    return f"write [{shown}], on the command line in single quotes"


def _unit_hint(key: str, text: str) -> str:
    """What to write for "5s", "2GB", "50%", "10k" or "20" where a number is expected."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return ""
    number, unit = float(found[1]), found[2].lower()
    if not unit:
        return f"write {text.strip()} without quotes"
    for suffix, name, factors in (("_s", "seconds", _SECONDS), ("_mb", "MB", _MEGABYTES)):
        if key.endswith(suffix) and unit in factors:
            return f"the unit is {name} and goes without saying: write {number * factors[unit]:g}"
    if unit in _COUNTS:
        return f"write {number * _COUNTS[unit]:.15g}"
    return f"write {found[1]}: numbers carry no unit"
