"""The configuration of a run beside the defaults, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One key.

    Attributes:
        table: dotted name of its table; "" for the root.
        key: name in the table.
        value: as in the TOML file.
        default: the same, "" if it has none.
        differs: the value is not the default.
    """

    table: str
    key: str
    value: str
    default: str
    differs: bool


def settings_of(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[Setting]:
    """One row per key of `config`, the root's first. A key that `defaults` lacks has no default, so it differs."""
    known = {(table, key): value for table, key, value in _leaves(defaults, "")}
    rows = []
    for table, key, value in _leaves(config, ""):
        has_default = (table, key) in known
        default = known.get((table, key))
        shown = "" if not has_default or default is None else _text(default)
        rows.append(Setting(table, key, _text(value), shown, not has_default or value != default))
    return sorted(rows, key=lambda row: row.table != "")  # stable: tables stay in their order


def _leaves(data: Mapping[str, Any], table: str) -> Iterator[tuple[str, str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{table}.{key}" if table else key)
        else:
            yield table, key, value


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
