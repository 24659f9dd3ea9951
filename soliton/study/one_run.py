"""One run of a study, in a process of its own: `python -m soliton.study.one_run RUN_FOLDER RECIPE [KEY=VALUE ...]`.

Runs a recipe as `soliton train` does, goes on if the folder holds an interrupted run, and says on standard output what
it is doing (JSON lines). Beside the run's own files it leaves `cpu.jsonl`: what each step cost in seconds of one core.

Exit codes: 0 finished, 3 the run stopped itself and its summary says why, 2 a mistake in recipe or study, as a shell
has it after a signal, and 1 (Python's own) after any other exception.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

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
    resumed run can be added up: for a step that was made twice, the later line counts.

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


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    folder, recipe, overrides = Path(arguments[0]), Path(arguments[1]), list(arguments[2:])
    resume = folder if (folder / "config.toml").exists() else None
    try:
        return run_recipe(
            recipe,
            [*overrides, f"run.dir={folder}"],
            stages=None,
            resume=resume,
            view=CostRecorder(folder, sys.stdout),
        )
    except (ConfigError, RunError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else STOPPED
    except Interrupted as stop:
        return stop.exit_code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
