"""Makes `report.html` of a run folder: at the end of a run, and whenever somebody asks. Imports no torch."""

from __future__ import annotations

import fcntl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from soliton.atomic import atomic_file
from soliton.config import RunConfig
from soliton.errors import ConfigError
from soliton.report.html import Setting, render_report
from soliton.report.html.configuration import settings_of


def make_report(run: Path, out: Path | None = None, *, is_running: bool | None = None) -> Path:
    """Write the report of a run that is over, goes on, or was killed; returns where it is.

    Args:
        run: its folder.
        out: file to write; by default `report.html` in the folder.
        is_running: whether it goes on; None: look.

    Raises:
        ConfigError: it is no run folder.
    """
    if not run.is_dir():
        raise ConfigError(f"{run} is no run folder; give the folder that run.dir names")
    page = render_report(run, read_settings(run), is_running=is_locked(run) if is_running is None else is_running)
    out = out or run / "report.html"
    with atomic_file(out) as file:
        file.write_text(page, encoding="utf-8")
    return out


def read_settings(run: Path) -> list[Setting]:
    """The configuration in the run folder beside the defaults of this version; [] if it cannot be read."""
    try:
        config = tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return []
    return settings_of(config, defaults_of(RunConfig))


def is_locked(run: Path) -> bool:
    """Whether a process holds the folder."""
    try:
        with (run / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults of a configuration model and its tables, as they would stand in the TOML file."""
    defaults: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        table = _table_of(field)
        if table is not None:
            given = _plain(field)
            defaults[name] = {**defaults_of(table), **(given if isinstance(given, Mapping) else {})}
        elif not field.is_required():
            defaults[name] = _plain(field)
    return defaults


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _plain(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, tuple) else value
