"""`key.path=value` on the command line: parsing, and putting it into a recipe's data."""

from __future__ import annotations

import tomllib
from typing import Any

from soliton.config.allowed import alternatives
from soliton.config.keys import all_keys
from soliton.config.problems import Problem


def apply_override(data: dict[str, Any], override: str) -> Problem | str:
    """Put `override` into `data`; returns the dotted key it set, or what is wrong with it.

    The value is TOML; what is no TOML is text (`algorithm=grpo`), and so is everything for a key that takes only text
    (`run.dir=2024`). `none` takes an optional key away.
    """
    key, separator, text = (part.strip() for part in override.partition("="))
    if not separator or not key or not all(key.split(".")):
        return Problem((), f"override {override!r}: expected key.path=value, for example train.steps=20")
    *tables, last = key.split(".")
    for table in tables:
        inner = data.setdefault(table, {})
        if not isinstance(inner, dict):
            return Problem((), f"override {override!r}: {table!r} is a value, not a table")
        data = inner
    data[last] = _value(key, text)
    return key


def _value(key: str, text: str) -> Any:
    known = all_keys().get(key)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if known is None:
        return value
    if value == "none" and known.optional:
        return None
    kinds = {part for part, _ in alternatives(known.field.annotation)} - {type(None)}
    return text if kinds == {str} and not isinstance(value, str) else value
