"""From what pydantic says to what a user needs: one `Problem` per wrong key, and the contradictions behind them.

pydantic checks combinations only once every key is valid. Here a second pass leaves the wrong keys out, so that the
contradictions among the valid ones are reported together with them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from soliton.config.allowed import alternatives, meant
from soliton.config.keys import all_keys, all_tables, heading, suggestion
from soliton.config.problems import CombinationError, Problem
from soliton.config.run_config import RunConfig

Path = tuple[str | int, ...]


def validated(data: dict[str, Any], overrides: Mapping[str, str]) -> tuple[RunConfig | None, list[Problem]]:
    """The configuration, or every violation.

    Args:
        data: plain data, as TOML gives it.
        overrides: dotted key -> the override that set it, named in messages.
    """
    config, error = _validate(data)
    if error is None:
        return config, []
    combinations = _combinations(error)
    if combinations:
        return None, combinations
    found = _by_key(error, data)
    problems = [_problem(path, kinds, data, overrides) for path, kinds in found.items()]
    wrong = [key for problem in problems for key in problem.keys]
    behind = [problem for problem in _behind(data, found) if not problem.touches(wrong)]
    return None, [*problems, *behind]


def _validate(data: dict[str, Any]) -> tuple[RunConfig | None, ValidationError | None]:
    """Strictly, as JSON is: the text "3" is no number, and a list is a tuple."""
    try:
        return RunConfig.model_validate_json(json.dumps(data, default=str), strict=True), None
    except ValidationError as error:
        return None, error


def _combinations(error: ValidationError) -> list[Problem]:
    """The contradictions, if all keys are valid."""
    for entry in error.errors():
        cause = entry.get("ctx", {}).get("error")
        if isinstance(cause, CombinationError):
            return cause.problems
    return []


def _by_key(error: ValidationError, data: dict[str, Any]) -> dict[Path, list[dict[str, Any]]]:
    """Path in the data -> what is wrong there: a union says it once per member."""
    found: dict[Path, list[dict[str, Any]]] = {}
    for entry in error.errors():
        here: Any = data
        path: list[str | int] = []
        for part in entry["loc"]:
            if isinstance(here, dict) and part in here:
                here = here[str(part)]
            elif isinstance(here, list) and isinstance(part, int) and part < len(here):
                here = here[part]
            elif not (entry["type"] == "missing" and part == entry["loc"][-1]):
                break
            path.append(part)
        found.setdefault(tuple(path), []).append(dict(entry))
    return found


def _problem(path: Path, entries: list[dict[str, Any]], data: dict[str, Any], overrides: Mapping[str, str]) -> Problem:
    shown = ".".join(str(part) for part in path)
    key = ".".join(part for part in path if isinstance(part, str))
    source = f" (override {overrides[key]!r})" if key in overrides else ""
    first = entries[0]
    if first["type"] == "extra_forbidden":
        return Problem((shown,), f"{shown}: unknown key{source}; {suggestion(key)}")
    if first["type"] == "missing":
        return Problem((shown,), f"{shown}: required and missing; {_what_is_missing(key)}")
    if first["type"] == "value_error":
        return Problem((shown,), f"{shown}: {first['ctx']['error']}{source}")
    value = _value_at(data, path)
    known = all_keys().get(key)
    if known is None:
        return Problem((shown,), f"{shown}: got {said(value)}{source}; {_a_table(key) or first['msg']}")
    name = key.rpartition(".")[2]
    hints = [meant(name, value, known.field.annotation)]
    if isinstance(path[-1], int):  # an entry of a list: its type is that of the list's entries
        hints = [meant(name, value, part) for part in _entries_of(known.field.annotation)]
    hint = next((f"; {hint}" for hint in hints if hint), "")
    return Problem((shown,), f"{shown}: got {said(value)}{source}; allowed is {known.allowed}{hint}")


def _a_table(key: str) -> str:
    if key not in all_tables():
        return ""
    several = heading(key).startswith("[[")
    return f"allowed {'are tables: write each' if several else 'is a table: write it'} as {heading(key)}"


def _entries_of(annotation: Any) -> list[Any]:
    return [inner for part, _ in alternatives(annotation) for inner in get_args(part) if inner is not Ellipsis]


def _what_is_missing(key: str) -> str:
    if key in all_tables():
        required = [path for path, known in all_keys().items() if path.startswith(f"{key}.") and known.required]
        return f"add the table {heading(key)} with {' and '.join(path.rpartition('.')[2] for path in required)}"
    known = all_keys()[key]
    return f"allowed is {known.allowed}. {known.meaning}"


def _behind(data: dict[str, Any], found: Mapping[Path, list[dict[str, Any]]]) -> list[Problem]:
    """Contradictions among the keys that are valid."""
    rest = copy.deepcopy(data)
    for path in sorted(found, key=len, reverse=True):
        _leave_out(rest, path)
    for key in all_keys().values():
        if key.required:
            _fill_in(rest, key.path, key.field.annotation)
    _, error = _validate(rest)
    return _combinations(error) if error is not None else []


def _leave_out(data: dict[str, Any], path: Path) -> None:
    here: Any = data
    for i, part in enumerate(path):
        if isinstance(here, list) or i == len(path) - 1:  # a list with a wrong entry goes as a whole
            break
        following = here.get(part)
        if isinstance(following, list):
            here.pop(part, None)
            return
        if not isinstance(following, dict):
            break
        here = following
    if isinstance(here, dict) and path:
        here.pop(str(path[-1]), None)


def _fill_in(data: dict[str, Any], key: str, annotation: Any) -> None:
    """A required key that is absent gets a value, whatever it is: what depends on it is not reported."""
    *tables, last = key.split(".")
    for depth, table in enumerate(tables):
        if table not in data and depth:
            return  # an optional table inside another: nothing in it is required while it is absent
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            return
    kinds = [part for part, _ in alternatives(annotation)]
    data.setdefault(last, 0.5 if float in kinds else 1 if int in kinds else "x")


def _value_at(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def said(value: Any) -> str:
    """A value as the recipe has it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
