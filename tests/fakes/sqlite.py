"""A SQLite store in a temporary folder, and what a kill would leave of it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from soliton.store.config import StoreConfig
from soliton.store.payloads import payload_path
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId, Clock, Publication
from tests.fakes.trajectories import trajectory


def open_sqlite(config: StoreConfig, clock: Clock, initial: Publication | None = None) -> SqliteStore:
    """A new store; its folder goes when it goes."""
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    store = SqliteStore.open(Path(folder.name) / "store.sqlite", config, clock)
    store.folder = folder
    if initial is not None:
        at_once(store.finish_step([], initial))
    return store


def killed(path: Path, copy: Path) -> Path:
    """The files as they are now, which is what kill -9 leaves to the next process."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    pairs = [(Path(f"{path}{suffix}"), Path(f"{copy}{suffix}")) for suffix in ("", "-wal")]
    for there, here in (*pairs, (payload_path(path), payload_path(copy))):
        if there.exists():
            shutil.copy(there, here)
    return copy


def overwrite_payload(path: Path, draw: int, body: bytes) -> None:
    """Put other bytes over the first ones of the last payload of `draw`, as a bad disk would."""
    with closing(sqlite3.connect(path)) as connection:
        (start,) = connection.execute("SELECT max(payload_start) FROM attempts WHERE draw = ?", (draw,)).fetchone()
    with payload_path(path).open("r+b") as file:
        file.seek(start)
        file.write(body)


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call that has nothing to wait for, without an event loop."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    call.close()
    raise AssertionError(f"{call} waits")


_LOOP = asyncio.new_event_loop()


def waits(call: Coroutine[Any, Any, Any]) -> bool:
    """Whether a call has to wait; it is cancelled then."""

    async def tried() -> bool:
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return waiting

    return _LOOP.run_until_complete(tried())


def commit_new(store: SqliteStore, count: int, *versions: int) -> list[AttemptId]:
    """Lease and commit `count` new trajectories of the newest version (or of these)."""
    leases = at_once(store.lease(count))
    assert len(leases) == count
    records = [trajectory(lease.attempt, versions or (lease.version,) * 2) for lease in leases]
    assert store.commit_many(records) == ["queued"] * count
    return [lease.attempt for lease in leases]


def train(store: SqliteStore, *, moved: bool = True) -> list[AttemptId]:
    """Take and finish one batch; returns what it held."""
    items = at_once(store.take())
    attempts = [item.trajectory.attempt for item in items]
    newest = store.newest
    row = Publication(store.next_version, newest.version, newest.step + 1, f"hash of step {newest.step + 1}")
    at_once(store.finish_step(attempts, row if moved else None))
    return attempts


def republish(store: SqliteStore) -> Publication:
    """What a resumed learner does first."""
    newest = store.newest
    row = Publication(store.next_version, newest.version, newest.step, newest.sha256)
    at_once(store.finish_step([], row))
    return row
