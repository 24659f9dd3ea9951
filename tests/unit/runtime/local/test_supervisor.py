"""Keeping a role alive, with processes that are scripts of events and exit codes."""

import asyncio
import signal
from pathlib import Path

import pytest

from soliton.errors import ConfigError, RunError
from soliton.runtime.clock import VirtualClock
from soliton.runtime.local.events import Crash, Event, Fatal, Note, Progress, Stage, Stopped, Update
from soliton.runtime.local.supervisor import Supervisor, describe_exit


class ScriptedProcess:
    def __init__(self, script: list[Event | int], log: Path) -> None:
        self._script = script
        self.log = log
        self.pid = 1
        self.killed = self.waited = False
        self.commands: list[str] = []

    async def events(self):
        for step in self._script:
            if not isinstance(step, int):
                yield step

    async def wait(self) -> int:
        self.waited = True
        return self._script[-1]

    def send(self, command: str) -> None:
        self.commands.append(command)

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


def telling(what: list[str], text: str):
    async def tell() -> None:
        what.append(text)

    return tell


def make_supervisor(launcher: ScriptedLauncher, clock: VirtualClock, max_restarts: int = 2, **changes) -> Supervisor:
    wanted = {"on_event": lambda _: None, "on_death": telling([], ""), "alarm": lambda _: None, **changes}
    return Supervisor("worker-0", launcher=launcher, clock=clock, max_restarts=max_restarts, **wanted)


def supervise(launcher: ScriptedLauncher, max_restarts: int = 2) -> list[str]:
    """Run to the end on a virtual clock; returns what happened, in order."""
    told: list[str] = []
    clock = VirtualClock(0)
    supervisor = make_supervisor(
        launcher,
        clock,
        max_restarts,
        on_event=lambda event: told.append(type(event).__name__),
        on_death=telling(told, "death"),
        alarm=told.append,
    )
    clock.run(supervisor.run())
    return told


def test_a_role_that_ends_by_itself_is_not_started_again(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Progress(), 0])
    assert supervise(launcher) == ["Progress"]
    assert launcher.starts == 1


def test_a_killed_role_is_started_again_and_its_death_is_told_before(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Progress(), -9], [0])
    told = supervise(launcher)
    assert told == [
        "Progress",
        "worker-0 died (killed by SIGKILL); starting it again (1 of at most 2 in a row)",
        "death",
    ]
    assert launcher.starts == 2
    assert launcher.processes[0].killed  # nothing of its group is left


class HangingProcess(ScriptedProcess):
    async def events(self):
        await asyncio.Event().wait()
        yield Progress()


def test_a_cancelled_supervisor_leaves_no_process_that_is_still_ending(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log")
    launcher.processes = [HangingProcess([-9], tmp_path / "log")]

    async def main() -> None:
        running = asyncio.create_task(make_supervisor(launcher, VirtualClock(0)).run())
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert launcher.processes[0].killed
    assert launcher.processes[0].waited


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


def test_a_learner_that_dies_at_the_same_step_again_and_again_is_a_crash_loop(tmp_path: Path):
    """It goes back to its checkpoint, repeats a step and dies: that is no progress."""
    launcher = ScriptedLauncher(tmp_path / "log", *[[Stage("train", 9), Update(3, {}), Update(4, {}), -9]] * 4)
    with pytest.raises(RunError, match="died 3 times in a row without any progress"):
        supervise(launcher)
    assert launcher.starts == 3


def test_a_step_further_than_ever_before_or_another_stage_is_progress(tmp_path: Path):
    scripts = [[Stage("sft", 9), Update(7, {}), -9], *[[Stage("train", 9), Update(i, {}), -9] for i in range(5)], [0]]
    launcher = ScriptedLauncher(tmp_path / "log", *scripts)
    supervise(launcher, max_restarts=1)
    assert launcher.starts == 7


def test_stop_during_the_pause_before_a_restart_starts_nothing(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [-9], [0])
    clock = VirtualClock(0)
    deaths: list[str] = []
    supervisor = make_supervisor(launcher, clock, alarm=lambda _: supervisor.stop(), on_death=telling(deaths, "death"))
    clock.run(supervisor.run())
    assert launcher.starts == 1
    assert not deaths


def test_a_role_that_dies_after_it_was_asked_to_stop_is_not_started_again(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [Progress(), -9], [0])
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock, on_event=lambda _: supervisor.ask_to_stop())
    clock.run(supervisor.run())
    assert launcher.starts == 1
    assert launcher.processes[0].commands == ["stop"]


def test_asked_to_stop_while_it_is_dead_it_stays_dead(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [-9], [0])
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock, alarm=lambda _: supervisor.ask_to_stop())
    clock.run(supervisor.run())
    assert launcher.starts == 1


def test_asked_to_stop_while_it_is_being_started_it_hears_of_it(tmp_path: Path):
    class SlowLauncher(ScriptedLauncher):
        async def start(self, name: str) -> ScriptedProcess:
            supervisor.ask_to_stop()
            return await super().start(name)

    launcher = SlowLauncher(tmp_path / "log", [Stopped(), 0])
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock)
    clock.run(supervisor.run())
    assert launcher.processes[0].commands == ["stop"]


def test_ended_while_it_is_being_started_it_is_killed(tmp_path: Path):
    class UntilKilled(ScriptedProcess):
        async def events(self):
            assert self.killed, "nobody would end it"
            return
            yield

    class SlowLauncher(ScriptedLauncher):
        async def start(self, name: str) -> ScriptedProcess:
            supervisor.stop()
            return await super().start(name)

    launcher = SlowLauncher(tmp_path / "log")
    launcher.processes = [UntilKilled([-9], tmp_path / "log"), ScriptedProcess([0], tmp_path / "log")]
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock)
    clock.run(supervisor.run())
    assert launcher.starts == 1


def test_every_start_is_told_so_that_lost_commands_can_be_sent_again(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", [-9], [-9], [0])
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock, on_start=lambda: supervisor.send("hello"))
    clock.run(supervisor.run())
    assert [process.commands for process in launcher.processes] == [["hello"]] * 3


def test_cancelling_kills_the_process(tmp_path: Path):
    class Endless(ScriptedProcess):
        async def events(self):
            await asyncio.Event().wait()
            yield Progress()

    launcher = ScriptedLauncher(tmp_path / "log")
    launcher.processes.append(Endless([], tmp_path / "log"))
    clock = VirtualClock(0)
    supervisor = make_supervisor(launcher, clock)

    async def main() -> None:
        task = asyncio.create_task(supervisor.run())
        await clock.sleep_until(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())
    assert launcher.processes[0].killed


def test_a_restart_never_waits_long(tmp_path: Path):
    launcher = ScriptedLauncher(tmp_path / "log", *[[-9]] * 20, [0])
    clock = VirtualClock(0)
    clock.run(make_supervisor(launcher, clock, max_restarts=20).run())
    assert launcher.starts == 21
    assert clock.now() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 15 * 3.0)


def test_exit_codes_are_said_in_words():
    assert describe_exit(70) == "exit code 70"
    assert describe_exit(-signal.SIGTERM) == "killed by SIGTERM"
    assert describe_exit(-999) == "killed by signal 999"
