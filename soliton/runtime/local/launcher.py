"""Starting the processes of a run. The only place that knows that a role is a process of this machine.

_listen   waits for: a word of the fork server    unblocked by the server, by its end

Roles are forked by a server that has imported everything (`fork_server.py`). Each leads a process group of its own:
Ctrl-C in the terminal reaches the controller alone, and killing a role kills what its environments started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from soliton.errors import RunError
from soliton.runtime.local.events import Event, decode
from soliton.runtime.local.fork_server import Answer, Ended, Request, Started
from soliton.runtime.local.role import MODULES

IMPORTS = () if sys.platform == "darwin" else tuple(MODULES.values())
"""What roles share. On macOS some libraries do not survive a fork."""
SERVER_LOG = "fork-server.log"
_LINE_LIMIT = 2**22
_LOG_CHARACTERS = 2_000
_Pipes = tuple[asyncio.ReadTransport, asyncio.WriteTransport]


class RoleProcess:
    """A running role.

    Args:
        pid: of the process, and of its process group.
        log: what it writes to standard error.
        said: its events.
        pipes: its events come through the first, commands go to it through the second.
        ended: its exit code, once it has one.
    """

    def __init__(
        self, pid: int, log: Path, said: asyncio.StreamReader, pipes: _Pipes, ended: asyncio.Future[int]
    ) -> None:
        self.pid = pid
        self.log = log
        self._said = said
        self._pipes = pipes
        self._ended = ended

    async def events(self) -> AsyncIterator[Event]:
        """What it says, until it has ended."""
        async for line in self._said:
            try:
                yield decode(line)
            except msgspec.MsgspecError:
                continue  # a line torn by a kill

    async def wait(self) -> int:
        """Its exit code (minus the signal that killed it); nothing of its process group is left afterwards."""
        code = await asyncio.shield(self._ended)
        self.kill()
        for pipe in self._pipes:
            pipe.close()
        return code

    def send(self, command: str) -> None:
        """One command line; nothing happens if it has ended."""
        _, commands = self._pipes
        if not commands.is_closing():
            commands.write(command.encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if not self._ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class LocalLauncher:
    """Starts roles as processes of this machine.

    Args:
        run_dir: the run's folder.
        logs: folder of their logs.
        imports: modules that the fork server imports before the first fork; none: roles are new interpreters.
    """

    def __init__(self, run_dir: Path, logs: Path, imports: Sequence[str] = IMPORTS) -> None:
        self._run_dir = run_dir
        self._logs = logs
        self._imports = imports
        self._started: set[str] = set()
        self._one_at_a_time = asyncio.Lock()
        self._server: _ServerLine | None = None

    async def start(self, name: str) -> RoleProcess:
        """Start the role `name` ("learner", "evaluator", "worker-0", ...).

        Raises:
            RunError: the fork server ended instead, with the end of its log.
        """
        failpoint = "" if name in self._started else os.environ.get("SOLITON_FAILPOINT", "")
        self._started.add(name)  # a test kills a role once, not at every start
        log = self._logs / f"{name}.log"
        async with self._one_at_a_time:
            if self._server is None or self._server.is_over:
                self._server = await _ServerLine.open(self._run_dir, self._logs / SERVER_LOG, self._imports)
            with log.open("ab") as errors:
                return await self._server.start(Request(name, failpoint), errors.fileno(), log)

    async def close(self) -> None:
        """End the fork server; roles must have ended."""
        if self._server is not None:
            await self._server.close()


class _ServerLine:
    """One fork server, seen from here."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket, log: Path) -> None:
        self._process = process
        self._line = line
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._pid: asyncio.Future[int] = self._loop.create_future()
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._listening = asyncio.create_task(self._listen())
        self.is_over = False

    @classmethod
    async def open(cls, run_dir: Path, log: Path, imports: Sequence[str]) -> _ServerLine:
        """A new one; it imports while this goes on."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        module = "soliton.runtime.local.fork_server"
        with theirs, log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, str(run_dir), str(theirs.fileno()), *imports),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # PyTorch then looks for a device without making it unusable in forked processes.
                env={"OMP_NUM_THREADS": "1", **os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(process, ours, log)

    async def start(self, request: Request, errors: int, log: Path) -> RoleProcess:
        """Have a role forked whose standard error is `errors`."""
        commands_read, commands_write = os.pipe()
        events_read, events_write = os.pipe()
        said = asyncio.StreamReader(limit=_LINE_LIMIT)
        connect_read, connect_write = self._loop.connect_read_pipe, self._loop.connect_write_pipe
        events, _ = await connect_read(lambda: asyncio.StreamReaderProtocol(said), os.fdopen(events_read, "rb"))
        commands, _ = await connect_write(asyncio.BaseProtocol, os.fdopen(commands_write, "wb"))
        self._pid = self._loop.create_future()
        try:
            if self.is_over:
                raise self._error()
            with suppress(BrokenPipeError):  # it has ended: `_listen` says so
                data = msgspec.json.encode(request) + b"\n"
                socket.send_fds(self._line, [data], [commands_read, events_write, errors])
            pid = await self._pid
        except BaseException:
            events.close()
            commands.close()  # a role that was forked nevertheless ends with this
            raise
        finally:
            os.close(commands_read)
            os.close(events_write)
        return RoleProcess(pid, log, said, (events, commands), self._ends[pid])

    async def close(self) -> None:
        """End it."""
        with suppress(OSError):  # it has ended
            self._line.shutdown(socket.SHUT_RDWR)
        await self._listening

    async def _listen(self) -> None:
        """Until the server has ended: then every role of it has, as nobody would say so later."""
        rest = b""
        try:
            with suppress(ConnectionError):
                while data := await self._loop.sock_recv(self._line, 65_536):
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._hear(msgspec.json.decode(line, type=Answer))
            await self._process.wait()
        finally:
            self.is_over = True
            self._line.close()
            if not self._pid.done():
                self._pid.set_exception(self._error())
            for pid, ended in self._ends.items():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                ended.set_result(-signal.SIGKILL)

    def _hear(self, answer: Answer) -> None:
        match answer:
            case Started(pid):
                self._ends[pid] = self._loop.create_future()
                if not self._pid.done():  # nobody waits for it any more
                    self._pid.set_result(pid)
            case Ended(pid, code):
                self._ends.pop(pid).set_result(code)

    def _error(self) -> RunError:
        words = self._log.read_text(errors="replace")[-_LOG_CHARACTERS:].strip() or "(its log is empty)"
        return RunError(
            f"the process that starts the roles ended (exit code {self._process.returncode}). Its last words:\n"
            f"{words}\nThe whole log: {self._log}"
        )
