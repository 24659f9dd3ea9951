"""A run as data: tables, their combinations, and reading a recipe. Imports no torch."""

from soliton.config.checks import GROUP_ALGORITHMS, PRESET_CRITICS
from soliton.config.load import Resolved, load_config, parse_config, resolve_config
from soliton.config.run_config import RunConfig

__all__ = [
    "GROUP_ALGORITHMS",
    "PRESET_CRITICS",
    "Resolved",
    "RunConfig",
    "load_config",
    "parse_config",
    "resolve_config",
]
