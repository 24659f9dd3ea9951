"""What a run is doing, asked from outside: who waits for whom, since when, and what each process is up to.

Reads the run folder, asks the hub, and looks at the process table. Changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec

from soliton.errors import ConfigError, RunError
from soliton.runtime.clock import RealClock, seconds_since_change
from soliton.runtime.local.connection import Connection
from soliton.runtime.report import is_locked
from soliton.runtime.run_folder import RunFolder
from soliton.store.client import HubStore
from soliton.store.limits import ClientLimits
from soliton.store.store import StoreStatus

LOG_LINES = 5
"""Last lines of the controller's log that are shown."""


class Diagnosis(msgspec.Struct, frozen=True):
    """The findings.

    Attributes:
        alive: whether the controller runs.
        lines: findings, the most telling first.
    """

    alive: bool
    lines: tuple[str, ...]


def diagnose(run_dir: Path) -> Diagnosis:
    """Look at the run in `run_dir`.

    Raises:
        ConfigError: there is no run.
    """
    folder = RunFolder(run_dir)
    if not folder.config.exists():
        raise ConfigError(f"{run_dir} holds no run (it has no config.toml); give the folder that run.dir names")
    progress = _progress(folder)
    is_alive = is_locked(run_dir)
    if is_alive and not folder.connection.exists():
        text = "the run goes on in one process, which has no hub to ask who waits (the `inline` runtime)"
        return Diagnosis(True, (text, *progress, *_log_tail(folder)))
    if not folder.connection.exists():
        return Diagnosis(False, (_ending(folder), *progress, *_log_tail(folder)))
    connection = Connection.read(folder.connection)
    if not is_alive:
        return Diagnosis(
            False,
            (
                f"the run was killed (its controller, process {connection.controller}, is gone); {_resume(folder)}",
                *progress,
                *_log_tail(folder),
            ),
        )
    try:
        status = asyncio.run(_ask(connection))
    except RunError as error:
        findings = [f"the hub of process {connection.controller} does not answer: {error}"]
    else:
        findings = describe(status)
    return Diagnosis(True, (*findings, *progress, *_processes(connection.controller), *_log_tail(folder)))


def describe(status: StoreStatus) -> list[str]:
    """Who waits for whom, and where the attempts are."""
    if status.version < 0:
        return ["training has not begun: a stage before it goes on, or the first policy is on its way"]
    lines = [f"{wait.reason}, for {wait.for_s:.0f} s" for wait in status.waiting.values()]
    if "learner" not in status.waiting:
        lines.append("the learner has its batch: it trains, starts, or is stuck in a step")
    if "rollouts" not in status.waiting:
        lines.append("rollouts are under way: engines and environments are busy, starting, or stuck")
    ledger = status.ledger
    lines.append(
        f"step {status.step}, version {status.version}; attempts: {ledger.issued} issued, {ledger.trained} trained, "
        f"{ledger.queued} queued ({status.queued_bytes} bytes), {ledger.in_flight} in flight, "
        f"{ledger.superseded} superseded, dropped {ledger.dropped or 'none'}; draws given up: {status.num_given_up}"
    )
    return lines


def _ending(folder: RunFolder) -> str:
    """Why no hub answers."""
    if not folder.summary.exists():
        return f"the run was killed: nothing runs in {folder.path}, and it left no summary.json; {_resume(folder)}"
    ending = json.loads(folder.summary.read_text())["exit"]
    if ending["status"] == "finished":
        return f"the run has finished; its result is in {folder.summary}"
    return f"the run is over: {ending['status']} ({ending['reason']}); {_resume(folder)}"


def _resume(folder: RunFolder) -> str:
    return f"go on with `soliton train --resume {folder.path}`"


async def _ask(connection: Connection) -> StoreStatus:
    clock = RealClock(connection.clock_origin_s)
    async with HubStore(
        connection.url, connection.token, connection.run_id, "doctor", clock, ClientLimits(gone_after_s=2.0)
    ) as store:
        return await store.status()


def _progress(folder: RunFolder) -> list[str]:
    rows = folder.read_all_metrics()
    if not rows:
        return ["no step of any stage is finished"]
    last = rows[-1]
    ago_s = seconds_since_change(folder.metrics)
    return [f"the last step: {last['stage']} {last['step']}, {ago_s:.0f} s ago"]


def _processes(controller: int) -> list[str]:
    """The roles, where the system has /proc: children of the fork server, which is the controller's child."""
    lines = []
    for pid in [role for server in _children(controller) for role in _children(server)]:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended while we looked
        cpu_s = (int(state[11]) + int(state[12])) / os.sysconf("SC_CLK_TCK")
        lines.append(f"process {pid}, {name}: state {state[0]}, {cpu_s:.1f} s of CPU")
    return lines


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _log_tail(folder: RunFolder) -> list[str]:
    log = folder.logs / "run.log"
    if not log.exists():
        return []
    return [f"log: {line}" for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]]
