"""Moving a run into another phase from outside. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from soliton.config import load_config
from soliton.errors import ConfigError
from soliton.report.folder import is_finished
from soliton.runtime.clock import date_s
from soliton.runtime.phases import RunPhases
from soliton.runtime.report import is_locked
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.task import phases_of


def shift_run(run: Path, phase: int) -> str:
    """Set the phase of the run in a folder, whether it goes on or is resumed later; returns what was done.

    Raises:
        ConfigError: no run there, one that is `inline` or finished, or a phase that its environments do not have.
    """
    folder = RunFolder(run)
    if not folder.config.exists():
        raise ConfigError(f"{run} holds no run (it has no config.toml); give the folder that run.dir names")
    config = load_config(folder.config)
    if config.runtime == "inline":
        raise ConfigError(
            f"{run} runs inline, which repeats itself to the bit, so nobody can step in; set env.shifts in its recipe, "
            'or use runtime = "local"'
        )
    if is_finished(run):
        raise ConfigError(f"{run} is finished: nothing learns in it any more; start a run from it with init.run={run}")
    last = phases_of(config.env)
    if not 1 <= phase <= last:
        has = f"phases 1 to {last}" if last > 1 else "no phases"
        raise ConfigError(f"PHASE: got {phase}; the environment of {run} has {has}")
    RunPhases(config.env.shifts, folder.phases).shift(phase, date_s())
    return f"{run}: phase {phase} from now on" if is_locked(run) else f"{run}: phase {phase} once it goes on"
