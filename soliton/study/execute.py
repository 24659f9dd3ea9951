"""Runs what is missing, several processes at once, each with one thread; writes a result as soon as a run has ended.

    scheduling loop   waits for: any process to end        unblocked by a process
    one thread each   reads a process's progress lines     unblocked by the process, or its end

Processes are forked from one that has imported everything, as imports would be a tenth of a run. A warm start comes
before the runs that begin from it. A run that stopped itself is a result; a process that died is not: the others go on,
and the study says so at its end.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_until_ready
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from soliton.report.folder import is_finished, read_summary
from soliton.study.digest import digest
from soliton.study.one_run import PROGRAM, STOPPED, Program, in_process
from soliton.study.origin import commit_of_the_code, machine
from soliton.study.progress import StudyView
from soliton.study.result import write_result
from soliton.study.schedule import PlannedRun, WarmRun

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""One thread each; and PyTorch looks for a device without making it unusable in forked processes."""
PROCESSES: Any = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "forkserver")
"""On macOS some libraries do not survive a fork."""
ENDED = (0, STOPPED)
"""Exit codes of a run that ended by itself."""
TERMINATED = (128 + signal.SIGTERM, -signal.SIGTERM)
"""Those of one that was asked to end, also before it could hear."""
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
    program: Program = PROGRAM
    failures: list[str] = field(default_factory=list)
    _processes: dict[str, BaseProcess] = field(default_factory=dict)
    _warm: dict[Path, bool] = field(default_factory=dict)
    _is_interrupted: bool = False
    # A start looks for processes that have ended, and an exit code can be read only once.
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Run until nothing is left; a second call would make what died again.

        Raises:
            ConfigError: a result is damaged or of other settings; nothing was run.
        """
        missing = list({run.path: run for run in self.runs if run.existing() is None}.values())
        self._warm = {run.warm.folder: is_finished(run.warm.folder) for run in missing if run.warm is not None}
        self.view.plan([run.name for run in missing], self.jobs)
        os.environ.update(ENVIRONMENT)
        if PROCESSES.get_start_method() == "forkserver":
            PROCESSES.set_forkserver_preload(list(self.program.imports))
        pool = ThreadPoolExecutor(self.jobs)
        try:
            self._run_all(missing, pool)
        except BaseException:
            with self._one_at_a_time:
                self._is_interrupted = True
                for process in self._processes.values():
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
        said, says = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(
            target=in_process, args=(self.program.make, folder, recipe, tuple(overrides), says, _errors(folder))
        )
        with said, says:
            with self._one_at_a_time:
                if self._is_interrupted:
                    return TERMINATED[0]
                process.start()
                self._processes[name] = process
            self.view.started(name)
            says.close()  # now only the process has it, and its end is seen
            with os.fdopen(said.fileno(), encoding="utf-8", closefd=False) as lines:
                for line in lines:
                    progress = json.loads(line)
                    self.view.moved(name, progress["stage"], progress["step"], progress["total"])
        wait_until_ready([process.sentinel])
        with self._one_at_a_time:
            process.join()
            del self._processes[name]
        code: int = process.exitcode
        self.view.ended(name, _ending(folder, code))
        if code not in ENDED:
            self._fail(name, folder, code)
        return code

    def _fail(self, name: str, folder: Path, code: int) -> None:
        last_words = "\n  ".join(_errors(folder).read_text(errors="replace").strip().splitlines()[-ERROR_LINES:])
        self.failures.append(f"{name}: exit code {code}; {_errors(folder)} ends with\n  {last_words}")


def _errors(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.stderr")


def _ending(folder: Path, code: int) -> str:
    if code in TERMINATED:
        return "interrupted; the same command goes on with it"
    summary = read_summary(folder)
    if code not in ENDED or summary is None:
        return f"DIED with exit code {code}"
    if summary["exit"]["status"] != "finished":
        return f"stopped: {summary['exit']['reason']}"
    return "done"
