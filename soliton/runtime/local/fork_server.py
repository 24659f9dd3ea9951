"""A process that has imported everything and forks roles, so that they start in milliseconds instead of seconds.

serve   waits for: a request of the launcher, or the end of a role    unblocked by those, by the launcher's end

One socket pair leads to the launcher. A request is a JSON line with three descriptors attached: the role's commands,
events and log. Answers are JSON lines: `Started`, and `Ended` for every role. Only one thread may run when a process
forks, and no device may be in use: roles make threads and models, this process never does. Told to import nothing, it
starts roles as new interpreters: macOS has libraries that do not survive a fork. It ends with the launcher; roles end
with the controller by themselves (`channel.py`).
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import select
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from soliton.runtime.local import role

LOOK_EVERY_MS = 200
NUM_DESCRIPTORS = 3


class Request(msgspec.Struct, frozen=True):
    """Start a role.

    Attributes:
        name: of the role.
        failpoint: value of SOLITON_FAILPOINT for it, "" for none.
    """

    name: str
    failpoint: str = ""


class Started(msgspec.Struct, frozen=True, tag=True):
    """A role runs: the answer to a request."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A role has ended, with its exit code (minus the signal that killed it)."""

    pid: int
    code: int


Answer = Started | Ended


def serve(line: socket.socket, run: Callable[[str], int]) -> None:
    """Fork a process that does `run(name)` for every request until the launcher is gone."""
    with _woken_by_ends() as woken, selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is line:
                    data, descriptors, _, _ = socket.recv_fds(line, 65_536, NUM_DESCRIPTORS)
                    if not data:
                        return
                    _say(line, Started(_fork(msgspec.json.decode(data, type=Request), descriptors, line, run)))
                else:
                    os.read(woken, 512)
                    _report_ends(line)


def _fork(request: Request, descriptors: list[int], line: socket.socket, run: Callable[[str], int]) -> int:
    pid = os.fork()
    if pid == 0:
        line.close()
        _become(request, descriptors, run)
    with suppress(PermissionError, ProcessLookupError):  # a group before anybody hears of it, whoever is faster
        os.setpgid(pid, pid)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _become(request: Request, descriptors: list[int], run: Callable[[str], int]) -> None:
    """The new process: a role, and nothing of the server. Does not return."""
    code = role.EXIT_CRASH
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        gc.enable()
        os.setpgid(0, 0)
        for standard, descriptor in enumerate(descriptors):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        with suppress(OSError):  # what `top` shows; only Linux has it
            Path("/proc/self/comm").write_text(request.name)
        os.environ.pop("SOLITON_FAILPOINT", None)
        if request.failpoint:
            os.environ["SOLITON_FAILPOINT"] = request.failpoint
        code = run(request.name)
    except BaseException:
        traceback.print_exc()
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)


def _report_ends(line: socket.socket) -> None:
    with suppress(ChildProcessError):  # no role runs any more
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _say(line, Ended(pid, os.waitstatus_to_exitcode(status)))


def _say(line: socket.socket, answer: Answer) -> None:
    with suppress(BrokenPipeError):  # the launcher is gone, which the next read finds
        line.sendall(msgspec.json.encode(answer) + b"\n")


@contextmanager
def _woken_by_ends() -> Iterator[int]:
    """A descriptor that can be read when a role has ended."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written
    yield woken


@contextmanager
def _ending_with(line: socket.socket) -> Iterator[None]:
    """End this process when the launcher ends, while its one thread is busy with imports."""
    done = threading.Event()
    hang_ups = select.poll()
    hang_ups.register(line, 0)  # an end alone: requests may be waiting already

    def look() -> None:
        while not done.is_set():
            if hang_ups.poll(LOOK_EVERY_MS):
                os._exit(0)

    thread = threading.Thread(target=look, name="launcher")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _forked(name: str, run_dir: Path) -> int:
    sys.argv[1:] = [name, str(run_dir)]  # as in a new interpreter
    return role.main(name, run_dir)


def _new_interpreter(name: str, run_dir: Path) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", role.__name__, name, str(run_dir)])  # noqa: S606  (no shell is wanted)


if __name__ == "__main__":
    folder, line_descriptor, *modules = sys.argv[1:]
    to_launcher = socket.socket(fileno=int(line_descriptor))
    gc.disable()  # imports take a quarter less time without it
    with _ending_with(to_launcher):
        for module in modules:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is imported stays as it is, in memory that all roles share
    start = _forked if modules else _new_interpreter
    serve(to_launcher, lambda name: start(name, Path(folder)))
    os._exit(0)  # taking all of the imports apart would take a second
