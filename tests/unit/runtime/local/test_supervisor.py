"""Keeping a role alive, with processes that are scripts of events and exit codes."""

import asyncio
import signal
from pathlib import Path

import pytest

from soliton.errors import ConfigError, RunError
from soliton.runtime.clock import VirtualClock
from soliton.runtime.local.events import Crash, Event, Fatal, Note, Progress, Stopped
from soliton.runtime.local.supervisor import Supervisor, describe_exit


class ScriptedProcess:
    def __init__(self, script: list[Event | int], log: Path) -> None:
        self._script = script
        self.log = log
        self.pid = 1
        self.killed = False

    async def events(self):
        for step in self._script:
            if not isinstance(step, int):
                yield step

    async def wait(self) -> int:
        return self._script[-1]

    def send(self, command: str) -> None: ...

    def signal(self, number: int) -> None: ...

    def kill(self) -> None:
        self.killed = True


class ScriptedLauncher:
    """One script per start: events, then the exit code."""

    def __init__(self, log: Path, *scripts: list[Event | int]) -> None:
        log.write_text("line 1\nSegmentation fault\n")
        self.processes = [ScriptedProcess(script, log) for script in scripts]
        self.starts = 0

    async def start(self, name: str) -> ScriptedProcess:
        self.starts += 1
        return self.processes[self.starts - 1]


def supervise(launcher: ScriptedLauncher, max_restarts: int = 2) -> list[str]:
    """Run to the end on a virtual clock; returns what happened, in order."""
    told: list[str] = []
    clock = VirtualClock(0)
    supervisor = Supervisor(
        "worker-0",
        launcher=launcher,
        clock=clock,
        max_restarts=max_restarts,
        on_event=lambda event: told.append(type(event).__name__),
        on_death=lambda: told.append("death"),
        alarm=told.append,
    )
    clock.run(supervisor.run())
    return told


def test_a_role_that_ends_by_itself_is_not_started_again(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Progress(), 0])
    assert supervise(launcher) == ["Progress"]
    assert launcher.starts == 1


def test_a_killed_role_is_started_again_and_its_death_is_told_first(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Progress(), -9], [0])
    told = supervise(launcher)
    assert told[:2] == ["Progress", "death"]
    assert told[2] == "worker-0 died (killed by SIGKILL); starting it again (1 of at most 2 in a row)"
    assert launcher.starts == 2
    assert launcher.processes[0].killed  # nothing of its group is left


def test_a_crash_loop_ends_the_run_with_the_cause(tmp_path: Path):  # fault H1
    launcher = ScriptedLauncher(tmp_path / "log", *[[Crash("ZeroDivisionError: boom"), 70]] * 3)
    with pytest.raises(RunError, match=r"died 3 times in a row without any progress.*exit code 70.*(\n.*)*boom"):
        supervise(launcher)
    assert launcher.starts == 3


def test_without_last_words_the_end_of_the_log_is_the_cause(tmp_path: Path):  # fault K10
    launcher = ScriptedLauncher(tmp_path / "log", *[[-11]] * 3)
    with pytest.raises(RunError, match=r"killed by SIGSEGV(.|\n)*Segmentation fault"):
        supervise(launcher)


def test_deaths_with_progress_in_between_are_no_loop(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", *[[Progress(), -9]] * 6, [0])
    supervise(launcher)
    assert launcher.starts == 7


@pytest.mark.parametrize(("is_config", "kind"), [(False, RunError), (True, ConfigError)])
def test_what_no_restart_can_mend_ends_the_run_at_once(tmp_path: Path, is_config: bool, kind):
    launcher = ScriptedLauncher(tmp_path / "log", [Fatal("step 3: the loss is nan", is_config), 3])
    with pytest.raises(kind, match="step 3: the loss is nan"):
        supervise(launcher)
    assert launcher.starts == 1
    assert launcher.processes[0].killed


def test_a_role_that_was_asked_to_stop_stays_stopped_however_it_ends(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Note("x"), Stopped(), -9])
    assert supervise(launcher) == ["Note", "Stopped"]


def test_stop_during_the_pause_before_a_restart_starts_nothing(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [-9], [0])
    clock = VirtualClock(0)
    supervisor = Supervisor(
        "w",
        launcher=launcher,
        clock=clock,
        max_restarts=2,
        on_event=lambda _: None,
        on_death=lambda: None,
        alarm=lambda _: supervisor.stop(),
    )
    clock.run(supervisor.run())
    assert launcher.starts == 1


def test_cancelling_kills_the_process(tmp_path: Path):
    class Endless(ScriptedProcess):
        async def events(self):
            await asyncio.Event().wait()
            yield Progress()

    launcher = ScriptedLauncher(tmp_path / "log")
    launcher.processes.append(Endless([], tmp_path / "log"))
    clock = VirtualClock(0)
    supervisor = Supervisor(
        "w",
        launcher=launcher,
        clock=clock,
        max_restarts=0,
        on_event=lambda _: None,
        on_death=lambda: None,
        alarm=lambda _: None,
    )

    async def main() -> None:
        task = asyncio.create_task(supervisor.run())
        await clock.sleep_until(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())
    assert launcher.processes[0].killed


def test_exit_codes_are_said_in_words():
    assert describe_exit(70) == "exit code 70"
    assert describe_exit(-signal.SIGTERM) == "killed by SIGTERM"
    assert describe_exit(-999) == "killed by signal 999"
