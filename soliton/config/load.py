"""From a recipe and overrides to a `RunConfig`: everything that is wrong is reported at once, before anything loads.

A recipe is a TOML file; `key.path=value` overrides change single entries. `RunConfig.to_toml`, loaded again, is the
same configuration.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from soliton.config.overrides import apply_override
from soliton.config.problems import Problem
from soliton.config.run_config import RunConfig
from soliton.config.violations import validated
from soliton.errors import ConfigError

Origin = Literal["default", "recipe", "override"]


@dataclass(frozen=True)
class Resolved:
    """A configuration that knows where its values come from.

    Attributes:
        config: the configuration.
        origins: dotted key -> "recipe" or "override"; a key that is not there has its default.
    """

    config: RunConfig
    origins: Mapping[str, Origin]

    def origin(self, key: str) -> Origin:
        """Where the value of a dotted key comes from."""
        return self.origins.get(key, "default")


def load_config(path: Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a recipe and apply `key.path=value` overrides.

    Raises:
        ConfigError: an unreadable file, a malformed override or any violation; all violations in one message.
    """
    return resolve_config(path, overrides).config


def resolve_config(path: Path, overrides: Iterable[str] = ()) -> Resolved:
    """As `load_config`, with the origin of each value.

    Raises:
        ConfigError: as `load_config`.
    """
    data = _read(path)
    origins: dict[str, Origin] = dict.fromkeys(_leaves(data, ""), "recipe")
    problems: list[Problem] = []
    applied: dict[str, str] = {}
    for override in overrides:
        done = apply_override(data, override)
        if isinstance(done, Problem):
            problems.append(done)
        else:
            applied[done] = override
            origins |= dict.fromkeys(_leaves_at(data, done), "override")
    return Resolved(_checked(data, str(path), problems, applied), origins)


def parse_config(data: dict[str, Any], source: str) -> RunConfig:
    """Validate plain data; `source` names it in messages."""
    return _checked(data, source, [], {})


def _checked(data: dict[str, Any], source: str, problems: list[Problem], applied: Mapping[str, str]) -> RunConfig:
    config, violations = validated(data, applied)
    problems = [*problems, *violations]
    if problems or config is None:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise ConfigError(f"{source}: {count}\n" + "\n".join(f"  {problem.text}" for problem in problems))
    return config


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        near = [*path.parent.glob("*.toml"), *Path("recipes").glob("*.toml")]
        close = difflib.get_close_matches(path.stem, [other.stem for other in near], n=1)
        hint = next((f"did you mean {other}?" for other in near if [other.stem] == close), "")
        if not path.parent.is_dir():
            hint = hint or f"there is no folder {path.parent} in {Path.cwd()}; start in the folder that it lies in"
        raise ConfigError(
            f"{path}: no such recipe; {hint or 'the ones that come with Soliton are in recipes/'}"
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(
            f"{path} is a folder, not a recipe; a run goes on with `soliton train --resume {path}`"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}. Text needs quotes; a table begins with [name]") from error


def _leaves(data: Any, prefix: str) -> list[str]:
    if not isinstance(data, dict):
        return [prefix]
    return [leaf for key, value in data.items() for leaf in _leaves(value, f"{prefix}.{key}" if prefix else key)]


def _leaves_at(data: Any, key: str) -> list[str]:
    for part in key.split("."):
        data = data[part]
    return _leaves(data, key)
