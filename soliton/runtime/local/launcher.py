"""Starting the processes of a run. The only place that knows that a role is a process of this machine.

Each role leads a process group of its own: Ctrl-C in the terminal reaches the controller alone, and killing a role
kills what its environments started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from soliton.runtime.local.events import Event, decode

_LINE_LIMIT = 2**22


class RoleProcess:
    """A running role."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's, too."""
        return self._process.pid

    async def events(self) -> AsyncIterator[Event]:
        """What it says, until it has ended."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                yield decode(line)
            except msgspec.MsgspecError:
                continue  # a line torn by a kill

    async def wait(self) -> int:
        """Its exit code (minus the signal that killed it); nothing of its process group is left afterwards."""
        code = await self._process.wait()
        self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return code

    def send(self, command: str) -> None:
        """One command line; nothing happens if it has ended."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(command.encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


class LocalLauncher:
    """Starts roles as processes of this machine.

    Args:
        run_dir: the run's folder.
        logs: folder of their logs.
    """

    def __init__(self, run_dir: Path, logs: Path) -> None:
        self._run_dir = run_dir
        self._logs = logs
        self._started: set[str] = set()

    async def start(self, name: str) -> RoleProcess:
        """Start the role `name` ("learner", "evaluator", "worker-0", ...)."""
        log = self._logs / f"{name}.log"
        environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        if name in self._started:
            environment.pop("SOLITON_FAILPOINT", None)  # a test kills a role once, not at every start
        self._started.add(name)
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "soliton.runtime.local.role",
                name,
                str(self._run_dir),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
        return RoleProcess(process, log)
