"""From a recipe and overrides to a `RunConfig`: everything that is wrong is reported at once, before anything loads.

A recipe is a TOML file; `key.path=value` overrides change single entries. `RunConfig.to_toml`, loaded again, is the
same configuration.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from soliton.config.run_config import RunConfig
from soliton.errors import ConfigError


def load_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Read a recipe and apply `key.path=value` overrides.

    Raises:
        ConfigError: an unreadable file, a malformed override or any violation; all violations in one message.
    """
    try:
        data = tomllib.loads(Path(path).read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe; the ones that come with Soliton are in recipes/") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for override in overrides or []:
        _apply_override(data, override)
    return parse_config(data, source=str(path))


def parse_config(data: dict[str, Any], source: str) -> RunConfig:
    """Validate plain data; `source` names it in messages."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = [_describe(dict(problem)) for problem in error.errors()]
        raise ConfigError(f"{source}: {len(lines)} problem(s)\n" + "\n".join(f"  {line}" for line in lines)) from error


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"override {override!r}: expected key.path=value, for example train.steps=20")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text  # a bare word is a string: algorithm=grpo
    *tables, last = key.strip().split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise ConfigError(f"override {override!r}: {table!r} is a value, not a table")
    data[last] = value


def _describe(problem: dict[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{path}: unknown key{_did_you_mean(problem['loc'])}"
    if problem["type"] == "missing":
        return f"{path}: required and missing; add it to the recipe"
    message = problem["msg"].removeprefix("Value error, ")
    if not path:
        return str(message)
    return f"{path}: got {problem['input']!r}. {message}"


def _did_you_mean(location: tuple[str | int, ...]) -> str:
    model: type[BaseModel] = RunConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        model = annotation
    known = sorted(model.model_fields)
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys here: {', '.join(known)}"
