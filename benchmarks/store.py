"""Opening the SQLite store of a long run, every row and payload verified: `python -m benchmarks store`.

A child process writes 100,000 trajectories of 600 tokens (98 % trained, the rest queued) and is killed with kill -9
while its log still holds the last of them. The first opening finds that; the later ones find a file that was closed.
The median of five counts for those. What was written is in the page cache, as it is after a crash of a process.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.trajectories import trajectory
from soliton.runtime.clock import RealClock
from soliton.store.changes import (
    Accepted,
    BatchFinished,
    Change,
    DrawMoved,
    Issued,
    Published,
    Taken,
    Trained,
    index_record,
)
from soliton.store.config import StoreConfig
from soliton.store.payloads import payload_path
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId, Lease, Publication, Trajectory

TRAJECTORIES, BATCH = 100_000, 250
QUEUED = 2_000
IN_LOG = 5_000
"""Trajectories that are only in the log when the process is killed."""
OPENINGS = 5
CONFIG = StoreConfig(batch_size=BATCH, max_staleness=7)


def batch_of(number: int, template: Trajectory) -> list[Change]:
    """What one batch left in the journal; the last batches are still queued."""
    changes: list[Change] = []
    is_trained = (number + 1) * BATCH <= TRAJECTORIES - QUEUED
    for position in range(BATCH):
        record = copy.copy(template)  # its checks were made once; only whose it is differs
        msgspec.structs.force_setattr(record, "attempt", AttemptId(number * BATCH + position))
        queued = index_record(record, 1.0)
        changes += [
            DrawMoved(record.attempt.draw, "open"),
            Issued(Lease(record.attempt, 0.0, 0, "worker-0")),
            Accepted(queued, record),
        ]
        if is_trained:
            changes += [Trained(Taken(queued, 0, 0, 1.0), number, position), DrawMoved(record.attempt.draw, "trained")]
    return [*changes, BatchFinished(number, None)] if is_trained else changes


def write_and_die(path: Path) -> None:
    """Fill a store and end as kill -9 ends it."""
    store = SqliteStore.open(path, CONFIG, RealClock())
    journal, template = store._journal, trajectory(AttemptId(0), np.random.default_rng(0))
    journal.write([Published(Publication(version=0, parent=-1, step=0, sha256="0" * 64))])
    for number in range(TRAJECTORIES // BATCH):
        if number * BATCH == TRAJECTORIES - IN_LOG:
            store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            store._connection.execute("PRAGMA wal_autocheckpoint = 0")
        journal.write(batch_of(number, template))
    os.kill(os.getpid(), signal.SIGKILL)


def opening_s(path: Path) -> float:
    """Seconds until the store can be used; what it holds is compared with what was written."""
    start = time.perf_counter()
    store = SqliteStore.open(path, CONFIG, RealClock())
    seconds = time.perf_counter() - start
    ledger = store._ledger()
    if (ledger.trained, ledger.queued, ledger.balance, store.findings) != (TRAJECTORIES - QUEUED, QUEUED, 0, ()):
        raise SystemExit(f"the store holds something else than was written: {ledger}, {store.findings}")
    store.close_file()
    return seconds


def measure() -> dict[str, float]:
    """Seconds to open, and the sizes behind them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        writer = multiprocessing.get_context("spawn").Process(target=write_and_die, args=(path,))
        writer.start()
        writer.join()
        if writer.exitcode != -signal.SIGKILL:
            raise SystemExit(f"the writer ended with {writer.exitcode} instead of being killed")
        log_bytes = Path(f"{path}-wal").stat().st_size
        after_kill_s = opening_s(path)
        openings = [opening_s(path) for _ in range(OPENINGS)]
        return {
            "store_open_s": statistics.median(openings),
            "store_open_after_kill_s": after_kill_s,
            "store_trajectories": float(TRAJECTORIES),
            "store_index_mb": path.stat().st_size / 1e6,
            "store_payloads_mb": payload_path(path).stat().st_size / 1e6,
            "store_log_at_kill_mb": log_bytes / 1e6,
        }
