"""Runs what is missing, several processes at once, each with one thread; writes a result as soon as a run has ended.

    scheduling loop   waits for: any process to end        unblocked by a process
    one thread each   reads a process's progress lines     unblocked by the process, or its end

A warm start comes before the runs that begin from it. A run that stopped itself is a result; a process that died is
not: the others go on, and the study says so at its end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from soliton.report.folder import is_finished, read_summary
from soliton.study.digest import digest
from soliton.study.one_run import STOPPED
from soliton.study.origin import commit_of_the_code, machine
from soliton.study.progress import StudyView
from soliton.study.result import write_result
from soliton.study.schedule import PlannedRun, WarmRun

PROGRAM = (sys.executable, "-m", "soliton.study.one_run")
"""What makes a run, given its folder, its recipe and overrides."""
ENDED = (0, STOPPED)
"""Exit codes of a run that ended by itself."""
ERROR_LINES = 6
"""Lines of a dead process's last words that are repeated."""


@dataclass
class Execution:
    """Makes the missing results of a plan.

    Attributes:
        runs: the plan, in the order in which runs shall begin.
        jobs: processes at once.
        view: who watches.
        program: what makes a run.
        failures: what died, one message each.
    """

    runs: Sequence[PlannedRun]
    jobs: int
    view: StudyView
    program: Sequence[str] = PROGRAM
    failures: list[str] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _warm: dict[Path, bool] = field(default_factory=dict)

    def run(self) -> None:
        """Run until nothing is left; a second call would make what died again.

        Raises:
            ConfigError: a result is damaged or of other settings; nothing was run.
        """
        missing = list({run.path: run for run in self.runs if run.existing() is None}.values())
        self._warm = {run.warm.folder: is_finished(run.warm.folder) for run in missing if run.warm is not None}
        self.view.plan([run.name for run in missing], self.jobs)
        pool = ThreadPoolExecutor(self.jobs)
        try:
            self._run_all(missing, pool)
        except BaseException:
            for process in list(self._processes.values()):
                process.terminate()  # it goes on from its newest checkpoint next time
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _run_all(self, missing: list[PlannedRun], pool: ThreadPoolExecutor) -> None:
        waiting: list[PlannedRun] = missing
        running: dict[Future[None], Path] = {}
        while waiting or running:
            waiting = self._start(waiting, running, pool)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                del running[future]
                future.result()

    def _start(
        self, waiting: list[PlannedRun], running: dict[Future[None], Path], pool: ThreadPoolExecutor
    ) -> list[PlannedRun]:
        """Begin as many as there is room for; returns those that still wait."""
        left = []
        for run in waiting:
            warm = run.warm
            if warm is not None and not self._warm[warm.folder]:
                if len(running) < self.jobs and warm.folder not in running.values() and not self._failed(warm):
                    running[pool.submit(self._make_warm, warm)] = warm.folder
                if self._failed(warm):
                    self.failures.append(f"{run.name}: not run, because its warm start failed")
                else:
                    left.append(run)
            elif len(running) < self.jobs:
                running[pool.submit(self._make, run)] = run.folder
            else:
                left.append(run)
        return left

    def _failed(self, warm: WarmRun) -> bool:
        return any(failure.startswith(f"{warm.name}:") for failure in self.failures)

    def _make_warm(self, warm: WarmRun) -> None:
        code = self._process(warm.name, warm.folder, warm.recipe, warm.overrides)
        if code == 0:
            self._warm[warm.folder] = True
        elif code in ENDED:
            self._fail(warm.name, warm.folder, code)

    def _make(self, run: PlannedRun) -> None:
        if not is_finished(run.folder):
            code = self._process(run.name, run.folder, run.recipe, run.overrides)
            if code not in ENDED:
                return
        warm = run.warm.folder if run.warm is not None else None
        result = digest(run, warm, commit=commit_of_the_code(), machine=machine())
        write_result(run.path, result)
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)

    def _process(self, name: str, folder: Path, recipe: Path, overrides: Sequence[str]) -> int:
        """Run one process to its end and pass on its progress; returns its exit code."""
        folder.mkdir(parents=True, exist_ok=True)
        command = [*self.program, str(folder), str(recipe), *overrides]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.view.started(name)
        with (
            _errors(folder).open("w") as errors,
            subprocess.Popen(  # noqa: S603  (our own program)
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            ) as process,
        ):
            self._processes[name] = process
            assert process.stdout is not None
            for line in process.stdout:
                progress = json.loads(line)
                self.view.moved(name, progress["stage"], progress["step"], progress["total"])
        del self._processes[name]
        self.view.ended(name, _ending(folder, process.returncode))
        if process.returncode not in ENDED:
            self._fail(name, folder, process.returncode)
        return process.returncode

    def _fail(self, name: str, folder: Path, code: int) -> None:
        last_words = "\n  ".join(_errors(folder).read_text(errors="replace").strip().splitlines()[-ERROR_LINES:])
        self.failures.append(f"{name}: exit code {code}; {_errors(folder)} ends with\n  {last_words}")


def _errors(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.stderr")


def _ending(folder: Path, code: int) -> str:
    summary = read_summary(folder)
    if code not in ENDED or summary is None:
        return f"DIED with exit code {code}"
    if summary["exit"]["status"] != "finished":
        return f"stopped: {summary['exit']['reason']}"
    return "done"
