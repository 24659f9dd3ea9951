"""Roles started by the fork server, as new interpreters and by fork: real processes."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from soliton.errors import RunError
from soliton.runtime.local.events import Event, Fatal
from soliton.runtime.local.launcher import SERVER_LOG, LocalLauncher, RoleProcess


@dataclass
class Seen:
    """What happened to roles that do not exist: they say so and end.

    Attributes:
        first, second: what two of them said, and their exit codes.
        killed: exit code of one that was killed.
        orphaned: exit code of one whose server was killed.
        afterwards: exit code of one started after that.
        own_group: whether a role led a process group of its own.
        left: whether a server was alive after `close`.
    """

    first: tuple[list[Event], int]
    second: tuple[list[Event], int]
    killed: int
    orphaned: int
    afterwards: int
    own_group: bool
    left: bool


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


async def said(role: RoleProcess) -> tuple[list[Event], int]:
    return [event async for event in role.events()], await role.wait()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def all_of_it(folder: Path) -> Seen:
    launcher = LocalLauncher(folder, folder, imports=())
    role = await launcher.start("cook")
    own_group = os.getpgid(role.pid) == role.pid
    first = await said(role)
    second = await said(await launcher.start("baker"))

    role = await launcher.start("cook")
    os.kill(role.pid, signal.SIGSTOP)  # so that it is there to be killed
    role.kill()
    killed = await role.wait()

    role = await launcher.start("cook")
    os.kill(role.pid, signal.SIGSTOP)
    os.kill(parent_of(role.pid), signal.SIGKILL)
    orphaned = await role.wait()
    role = await launcher.start("cook")
    server = parent_of(role.pid)
    _, afterwards = await said(role)
    await launcher.close()
    return Seen(first, second, killed, orphaned, afterwards, own_group, left=is_alive(server))


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Seen:
    return asyncio.run(all_of_it(tmp_path_factory.mktemp("run")))


def test_a_role_is_a_process_whose_events_and_exit_code_arrive(seen: Seen):
    for (events, code), name in ((seen.first, "cook"), (seen.second, "baker")):
        (fatal,) = events
        assert isinstance(fatal, Fatal)
        assert fatal.text.startswith(f"no role is called '{name}'")
        assert code == 3
    assert seen.killed == -signal.SIGKILL
    assert seen.own_group


def test_only_the_first_start_waits_for_imports_and_one_thread_forks(tmp_path: Path):
    """A lock that another thread held would stay locked in the new process."""

    async def start_twice() -> tuple[float, float, int]:
        launcher = LocalLauncher(tmp_path, tmp_path)
        seconds = []
        for _ in range(2):
            begun = time.monotonic()
            role = await launcher.start("cook")
            server = parent_of(role.pid)
            _, code = await said(role)
            assert code == 3
            seconds.append(time.monotonic() - begun)
            num_threads = len(list(Path(f"/proc/{server}/task").iterdir()))
        await launcher.close()
        return seconds[0], seconds[1], num_threads

    first_s, second_s, num_threads = asyncio.run(start_twice())
    assert second_s < first_s / 5
    assert num_threads == 1


def test_a_server_that_is_killed_takes_its_roles_along_and_another_one_starts(seen: Seen):  # fault H1
    assert seen.orphaned == -signal.SIGKILL
    assert seen.afterwards == 3


def test_nothing_is_left_of_it(seen: Seen):
    assert not seen.left


def let_it_import(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> None:
    """Put a module where the server finds it first."""
    folder.mkdir()
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    )


def test_what_keeps_it_from_starting_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    let_it_import(monkeypatch, tmp_path / "broken", "torch", "raise ImportError('libgomp.so.1 is missing')")

    async def start() -> None:
        launcher = LocalLauncher(tmp_path, tmp_path)
        try:
            await launcher.start("learner")
        finally:
            await launcher.close()

    with pytest.raises(RunError, match="the process that starts the roles ended") as caught:
        asyncio.run(start())
    assert "libgomp.so.1 is missing" in str(caught.value)
    assert str(tmp_path / SERVER_LOG) in str(caught.value)


def test_a_launcher_that_ends_while_a_request_waits_for_imports_takes_the_server_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):  # fault K8
    let_it_import(monkeypatch, tmp_path / "slow", "slow_import", "import time; time.sleep(60)")

    async def start_and_end() -> float:
        launcher = LocalLauncher(tmp_path, tmp_path, imports=("slow_import",))
        waiting = asyncio.create_task(launcher.start("cook"))
        await asyncio.sleep(1.0)
        begun = time.monotonic()
        await launcher.close()
        with pytest.raises(RunError, match="the process that starts the roles ended"):
            await waiting
        return time.monotonic() - begun

    assert asyncio.run(start_and_end()) < 5.0
