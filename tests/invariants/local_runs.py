"""Small real runs of the `local` runtime: processes to kill, and what must hold when all is over."""

import datetime
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from soliton.config import RunConfig
from soliton.report.quiet import QuietView
from soliton.runtime.replay import replay
from soliton.store.history import consumed_batches, ledger_at_rest
from soliton.weights import PublishedVersions
from tests.invariants.calculator_runs import ROOT, small_run

PATIENCE_S = 300.0
"""Longest wait for anything: the machine may be busy."""
CHANGED = re.compile(r"^(\S+ \S+) INFO \S+: (\S+) (started: process (\d+)|ended: .*)$", re.MULTILINE)


def local_run(run_dir: Path, **changes: Any) -> RunConfig:
    """A few quick steps in processes, with a checkpoint and an evaluation at every second one."""
    defaults: dict[str, Any] = {
        "runtime": "local",
        "env": {"latency": {"kind": "heavy_tailed", "low_s": 0.02, "high_s": 0.3}},
        "rollout": {"max_in_flight": 24},
        "train": {"steps": 8, "batch_size": 8},
        "checkpoint": {"every_steps": 2},
        "eval": {"num_prompts": 8, "every_steps": 2},
    }
    return small_run(run_dir, **{**defaults, **changes})


class Running:
    """A `soliton train` in a process of its own.

    Args:
        config: of the run; its recipe is written beside its folder.
        arguments: of the command.
        environment: added to this one.
        cwd: where it starts.
    """

    def __init__(
        self, config: RunConfig, *arguments: str, environment: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.run_dir = Path(config.run.dir)
        recipe = self.run_dir.with_suffix(".toml")
        recipe.parent.mkdir(parents=True, exist_ok=True)
        recipe.write_text(config.to_toml())
        self.out = self.run_dir.with_suffix(".out")
        clean = {name: value for name, value in os.environ.items() if name != "SOLITON_FAILPOINT"}
        with self.out.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "soliton", "train", str(recipe), *arguments],
                env={**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **(environment or {})},
                stdout=out,
                stderr=out,
                cwd=cwd,
                start_new_session=True,
            )

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for something to hold while the run goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended ({self.process.returncode}) before {what}:\n{self.text()}")
            assert time.monotonic() < deadline, f"no {what} after {PATIENCE_S:.0f} s:\n{self.text()}"
            time.sleep(0.02)

    def until_steps(self, number: int) -> None:
        """Wait until so many batches are trained."""
        self.until(f"step {number}", lambda: len(train_rows(self.run_dir)) >= number)

    def until_alive(self, role: str) -> int:
        """Wait until the role runs; returns its process."""
        self.until(f"{role} started", lambda: process_of(self.run_dir, role) is not None)
        pid = process_of(self.run_dir, role)
        assert pid is not None
        return pid

    def kill(self, role: str) -> None:
        """kill -9 of a role, `controller` included."""
        os.kill(self.process.pid if role == "controller" else self.until_alive(role), signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """A signal to the controller."""
        self.process.send_signal(number)

    def ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:.0f} s:\n{self.text()}") from None

    def text(self) -> str:
        """All it has said."""
        return self.out.read_text(errors="replace")


@contextmanager
def running(config: RunConfig, *arguments: str, **options: Any) -> Iterator[Running]:
    """A run that is ended, with all of its processes, when the test is."""
    run = Running(config, *arguments, **options)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


def resumed(run_dir: Path, config: RunConfig, **options: Any) -> Any:
    """The same run, going on."""
    return running(config, "--resume", str(run_dir), **options)


# -- what a run folder says --------------------------------------------------------------------------------------------


def rows(run_dir: Path, stage: str) -> list[dict[str, Any]]:
    """The whole lines of metrics.jsonl of one stage."""
    path = run_dir / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in found if row["stage"] == stage]


def train_rows(run_dir: Path) -> list[dict[str, Any]]:
    """One per batch."""
    return rows(run_dir, "train")


def summary_of(run_dir: Path) -> dict[str, Any]:
    """summary.json."""
    return dict(json.loads((run_dir / "summary.json").read_text()))


def changes(run_dir: Path) -> list[tuple[float, str, int | None]]:
    """What the controller logged of each role, in order: (seconds, role, process started, or None where it ended)."""
    log = run_dir / "logs" / "run.log"
    text = log.read_text() if log.exists() else ""
    return [
        (
            datetime.datetime.strptime(f"{at} +0000", "%Y-%m-%d %H:%M:%S,%f %z").timestamp(),
            role,
            int(pid) if pid else None,
        )
        for at, role, _, pid in CHANGED.findall(text)
    ]


def process_of(run_dir: Path, role: str) -> int | None:
    """The process of a role that runs now."""
    found = [pid for _, name, pid in changes(run_dir) if name == role]
    return found[-1] if found else None


def restarts(run_dir: Path) -> list[tuple[str, float]]:
    """Each restart of a role by one controller, and the seconds from its end to its next start."""
    died: dict[str, float] = {}
    found = []
    for at, role, pid in changes(run_dir):
        if pid is None:
            died[role] = at
        elif role in died:
            found.append((role, at - died.pop(role)))
    return found


# -- what must hold in the end -----------------------------------------------------------------------------------------


def alive(run_dir: Path) -> list[str]:
    """Processes that belong to a run: by their command line, or by their process group."""
    groups = {pid for _, _, pid in changes(run_dir) if pid is not None}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state, _, group = (process / "stat").read_text().rsplit(")", 1)[1].split()[:3]
            if state != "Z" and (str(run_dir) in command or int(group) in groups):
                found.append(f"{process.name} {command}")
    return found


def assert_nobody_is_left(run_dir: Path, within_s: float = 5.0) -> None:
    """No process of the run lives any more."""
    deadline = time.monotonic() + within_s
    while left := alive(run_dir):
        assert time.monotonic() < deadline, f"still alive after {within_s} s: {left}"
        time.sleep(0.02)


def port_of(run_dir: Path) -> int:
    """Where the hub listens."""
    return int(json.loads((run_dir / "hub.json").read_text())["url"].rsplit(":", 1)[1])


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def assert_nothing_is_left(run_dir: Path) -> None:
    """No process, no temporary file."""
    assert_nobody_is_left(run_dir)
    names = [path.relative_to(run_dir) for path in run_dir.rglob("*")]
    temporary = [name for name in names if name.suffix in {".new", ".old", ".partial"}]
    assert not temporary
    assert not (run_dir / "hub.json").exists()


def assert_books_are_right(config: RunConfig, batches: int) -> None:
    """`batches` batches were trained, each of its own trajectories; everything issued is accounted for."""
    run_dir = Path(config.run.dir)
    trained = batches * config.train.batch_size
    ledger = ledger_at_rest(run_dir / "store.sqlite")
    assert ledger.balance == 0
    assert ledger.trained == trained
    samples = [item.trajectory.attempt for _, items, _ in consumed_batches(run_dir / "store.sqlite") for item in items]
    assert len({(attempt.draw, attempt.sample) for attempt in samples}) == len(samples) == trained
    assert [row["step"] for row in train_rows(run_dir)] == list(range(1, batches + 1))


def assert_ended_well(config: RunConfig) -> None:
    """The run is finished, its books are right, what it did can be repeated, and it left nothing behind."""
    run_dir = Path(config.run.dir)
    summary = summary_of(run_dir)
    assert summary["exit"] == {"status": "finished", "reason": None}
    assert summary["steps"] == config.train.steps <= summary["batches"]  # a batch without signal moves no actor
    assert_books_are_right(config, summary["batches"])
    assert summary["ledger"] == to_builtins(ledger_at_rest(run_dir / "store.sqlite"))
    every = config.eval.every_steps or config.train.steps + 1
    evaluated = sorted(row["train/policy_step"] for row in rows(run_dir, "eval"))
    assert evaluated == list(range(every, config.train.steps + 1, every))
    repeated = replay(run_dir, QuietView(io.StringIO()))
    assert repeated.sha256 == summary["weights_sha256"]["actor"]
    assert repeated.critic_sha256 == summary["weights_sha256"]["critic"]
    assert_nothing_is_left(run_dir)
    assert not (run_dir / "weights" / "evaluation").exists()


def assert_stopped_well(run: Running, config: RunConfig) -> None:
    """The run was stopped by SIGTERM: its books are right, what it did can be repeated, and it left nothing behind.

    Weights whose evaluation is still due stay for the run that goes on.
    """
    run_dir = run.run_dir
    assert "Traceback" not in run.text()
    assert summary_of(run_dir)["exit"] == {"status": "interrupted", "reason": "SIGTERM"}
    assert_books_are_right(config, len(train_rows(run_dir)))
    newest, _ = PublishedVersions(run_dir / "weights").load_newest()
    assert replay(run_dir, QuietView(io.StringIO())).sha256 == newest.sha256
    assert_nothing_is_left(run_dir)


def assert_restarted_in_time(run_dir: Path, *roles: str) -> None:
    """Each of these roles was restarted, and none took more than five seconds to be."""
    found = restarts(run_dir)
    assert {role for role, _ in found} >= set(roles), found
    assert all(seconds <= 5.0 for _, seconds in found), found
