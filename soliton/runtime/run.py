"""One run from recipe to summary: the function behind the command. Imports no torch: the runtime decides who does."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from soliton.config import Resolved, RunConfig, load_config, resolve_config
from soliton.errors import ConfigError, Interrupted, RunError
from soliton.report.folder import is_finished
from soliton.report.view import RunView
from soliton.runtime.obstacles import refuse_obstacles
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.summary import identity_of, write_summary
from soliton.runtime.tracking import has_unsent_rows, tracked

EXIT_TERMINATED = 143
"""128 + SIGTERM, as a shell has it."""


logger = logging.getLogger(__name__)


def run_recipe(
    recipe: Path | None, overrides: list[str], *, stages: list[str] | None, resume: Path | None, view: RunView
) -> int:
    """Run a recipe; returns the exit code.

    Args:
        recipe: TOML file; None for the configuration of the run to resume.
        overrides: `key.path=value`.
        stages: instead of the recipe's.
        resume: folder of a run to go on with; it must be of the same configuration.
        view: who watches.

    Raises:
        ConfigError: before anything loads.
        RunError: the run cannot go on.
        Interrupted: by SIGTERM, or by a signal that the `local` runtime answered with a checkpoint.
        KeyboardInterrupt: by Ctrl-C, at once.
    """
    config = resolve_run(recipe, overrides, stages=stages, resume=resume).config
    folder = RunFolder(Path(config.run.dir) if resume is None else resume)
    if resume is not None:
        refuse_other_config(folder, config)
        if is_finished(folder.path):
            view.note(f"{resume} is finished: nothing is left to do. To train on, start a run with init.run={resume}")
            return 0
    refuse_obstacles(config, resumed=resume is not None)
    if resume is None:
        folder.create(config.to_toml())
    with folder.lock(), _sigterm_interrupts():
        folder.write_config(config.to_toml())  # a resumed run may have other `[local]` keys
        try:
            return _run_logged(config, folder, view)
        finally:
            _leave_report(folder)


def resolve_run(
    recipe: Path | None, overrides: list[str], *, stages: list[str] | None, resume: Path | None
) -> Resolved:
    """The configuration of a run about to start, as `run_recipe` takes it.

    Raises:
        ConfigError: any violation, or no run to resume.
    """
    if recipe is None:
        if resume is None:
            raise ConfigError("no recipe was given; try `soliton train recipes/calculator.toml`")
        recipe = run_to_resume(resume).config
    if stages is not None:
        overrides = [*overrides, f"stages={json.dumps(stages)}"]
    return resolve_config(recipe, overrides)


def run_to_resume(path: Path) -> RunFolder:
    """The folder of a run.

    Raises:
        ConfigError: no run there.
    """
    folder = RunFolder(path)
    if not folder.config.exists():
        raise ConfigError(f"--resume: {path} holds no run (it has no config.toml); give the folder that run.dir names")
    return folder


class Terminated(KeyboardInterrupt):
    """SIGTERM, as Python raises Ctrl-C: nothing that catches errors catches it."""


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does, once; a second one ends the process. Runtimes may do better."""

    def terminate(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_logged(config: RunConfig, folder: RunFolder, view: RunView) -> int:
    handler = folder.log_to_file()
    elapsed_s = folder.stopwatch()

    def write_unfinished(status: str, reason: str) -> None:
        ending = {"wall_s": round(elapsed_s(), 1), "exit": {"status": status, "reason": reason}}
        with suppress(OSError):  # the disk may be full: the cause matters more than its record
            write_summary(folder.summary, {**identity_of(config), **ending})

    try:
        return _run(config, folder, view)
    except (RunError, ConfigError) as error:
        write_unfinished("stopped", str(error))
        raise
    except (KeyboardInterrupt, Interrupted) as error:
        view.note(f"interrupted; go on with `soliton train --resume {folder.path}`")
        if isinstance(error, Terminated):
            write_unfinished("interrupted", "SIGTERM")
            raise Interrupted("SIGTERM", EXIT_TERMINATED) from None
        write_unfinished("interrupted", "Ctrl-C" if isinstance(error, KeyboardInterrupt) else str(error))
        raise
    finally:
        logging.getLogger("soliton").removeHandler(handler)
        handler.close()


def _leave_report(folder: RunFolder) -> None:
    """Make `report.html`, however the run ended. What goes wrong with it is not the run's: it is logged."""
    from soliton.runtime.report import make_report

    try:
        make_report(folder.path, is_running=False)
    except Exception as error:
        logger.warning("no report was made: %s; `soliton report %s` tries again", error, folder.path)


def _run(config: RunConfig, folder: RunFolder, view: RunView) -> int:
    """Hand the run to its runtime. Without training there is nothing to do asynchronously."""
    if config.runtime == "local" and "train" in config.stages:
        from soliton.runtime.local.controller import run_local

        code = run_local(config, folder, view)
        if has_unsent_rows(config, folder):  # evaluations that ended after the learner
            with tracked(config, folder, view.alarm, folder.stopwatch()):
                folder.on_row()
        return code
    from soliton.runtime.staged_run import run_stages

    return run_stages(config, folder, view)


def refuse_other_config(folder: RunFolder, config: RunConfig) -> None:
    """Refuse to go on with a run of another configuration.

    Raises:
        ConfigError: no run there, or a difference, key by key.
    """
    theirs = load_config(run_to_resume(folder.path).config).identity()
    differences = list(_differences(theirs, config.identity(), ""))
    if differences:
        raise ConfigError(
            f"--resume: {folder.path} was started with another configuration; the result would belong to neither:\n  "
            + "\n  ".join(differences)
            + f"\nresume with `soliton train --resume {folder.path}`, or start a new run from it with "
            f"init.run={folder.path}"
        )


def _differences(ours: dict[str, Any], given: dict[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for key in sorted({*ours, *given}):
        left, right = ours.get(key), given.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            lines += _differences(left, right, f"{prefix}{key}.")
        elif left != right:
            lines.append(f"{prefix}{key}: the run has {_as_given(left)}, now given {_as_given(right)}")
    return lines


def _as_given(value: Any) -> str:
    """As an override has it."""
    return "none" if value is None else repr(value)
