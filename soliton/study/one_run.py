"""One run of a study, in a process of its own.

Runs a recipe as `soliton train` does, goes on if the folder holds an interrupted run, and says what it is doing (JSON
lines). Beside the run's own files it leaves `cpu.jsonl`: what each step cost in seconds of one core.

Exit codes: 0 finished, 3 the run stopped itself and its summary says why, 2 a mistake in recipe or study, as a shell
has it after a signal, and 1 (Python's own) after any other exception.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from soliton.errors import ConfigError, Interrupted, RunError
from soliton.runtime.clock import cpu_s
from soliton.runtime.run import run_recipe

STOPPED = 3
"""Exit code of a run that stopped itself; not 1, which is that of an exception nobody caught."""
COSTS = "cpu.jsonl"
"""Name of the file below the run folder."""


class CostRecorder:
    """A `RunView` that writes down what each step cost, and passes on where the run is.

    Each line of the file is `{"stage", "step", "cpu_s"}` with the seconds SINCE THE LINE BEFORE, so that lines of a
    resumed run can be added up: what a later process made again counts.

    Args:
        folder: of the run.
        out: where progress goes.
        now: seconds of this process's processor time.
    """

    def __init__(self, folder: Path, out: IO[str], now: Callable[[], float] = cpu_s) -> None:
        self._file = folder / COSTS
        self._out = out
        self._now = now
        self._before_s = now()
        self._stage = "start"
        self._total: int | None = None

    def stage(self, name: str, total: int | None) -> None:
        """What was done since the last step belongs to the stage before."""
        self._write(self._stage, -1)
        self._stage, self._total = name, total
        self._say(0)

    def update(self, step: int, metrics: dict[str, float]) -> None:
        """A step, or an evaluation during training."""
        self._write("eval" if "eval/pass_at_1" in metrics else self._stage, step)
        self._say(step)

    def note(self, text: str) -> None:
        """Nothing: the run's own log has it."""

    def alarm(self, text: str) -> None:
        """Nothing: what a study asks is seen in its metrics."""

    def finish(self, text: str) -> None:
        """The rest."""
        del text
        self._write("end", -1)

    def _write(self, stage: str, step: int) -> None:
        now_s = self._now()
        line: dict[str, Any] = {"stage": stage, "step": step, "cpu_s": round(now_s - self._before_s, 4)}
        self._before_s = now_s
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _say(self, step: int) -> None:
        self._out.write(json.dumps({"stage": self._stage, "step": step, "total": self._total}) + "\n")
        self._out.flush()


def make_run(folder: Path, recipe: Path, overrides: Sequence[str], out: IO[str]) -> int:
    """Make the run, or go on with it; returns the exit code."""
    resume = folder if (folder / "config.toml").exists() else None
    try:
        return run_recipe(
            recipe, [*overrides, f"run.dir={folder}"], stages=None, resume=resume, view=CostRecorder(folder, out)
        )
    except (ConfigError, RunError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else STOPPED
    except Interrupted as stop:
        return stop.exit_code


Make = Callable[[Path, Path, Sequence[str], IO[str]], int]


@dataclass(frozen=True)
class Program:
    """What makes a run.

    Attributes:
        make: given folder, recipe, overrides, and where progress goes; returns the exit code.
        imports: modules that it will want.
    """

    make: Make
    imports: tuple[str, ...]


PROGRAM = Program(
    make_run,
    (
        "soliton.study.one_run",
        "soliton.runtime.staged_run",
        "soliton.runtime.inline_training",
        "soliton.runtime.report",
        "soliton.report.curve",
        "transformers.models.qwen3.modeling_qwen3",
        "torch.utils.tensorboard",
    ),
)


def in_process(
    make: Make, folder: Path, recipe: Path, overrides: Sequence[str], says: Connection, errors: Path
) -> NoReturn:
    """All that a process does: `make`, with its output in the file `errors`; a ^C at the terminal does not reach it."""
    os.setsid()
    gc.freeze()  # looking through all that is imported would be a fiftieth of a run
    with errors.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with os.fdopen(says.fileno(), "w", encoding="utf-8", closefd=False) as out:
        code = make(folder, recipe, overrides, out)
    raise SystemExit(code)
