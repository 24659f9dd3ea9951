"""kill -9 of the process that owns the store, and a disk that is really full."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from soliton.errors import StorageFullError
from soliton.store.config import StoreConfig
from soliton.store.history import consumed_batches
from soliton.store.sqlite import SqliteStore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, commit_new, train
from tests.fakes.trajectories import publication, trajectory

CONFIG = StoreConfig(batch_size=8, max_staleness=4)

WRITER = """
    import sys
    from pathlib import Path
    from soliton.store.config import StoreConfig
    from soliton.store.sqlite import SqliteStore
    from tests.fakes.manual_clock import ManualClock
    from tests.fakes.sqlite import at_once, republish, train, waits
    from tests.fakes.trajectories import failed, publication, trajectory

    store = SqliteStore.open(Path(sys.argv[1]), StoreConfig(batch_size=8, max_staleness=4), ManualClock())
    if store.publications():
        republish(store)
    else:
        at_once(store.finish_step([], publication(0)))
    print("ready", flush=True)
    while True:
        records = [
            failed(lease.attempt) if lease.attempt.draw % 7 == 0 and lease.attempt.attempt == 0
            else trajectory(lease.attempt, (lease.version,) * 300)
            for lease in at_once(store.lease(3))
        ]
        acks = store.commit_many(records)
        print("\\n".join(f"{record.attempt} {ack}" for record, ack in zip(records, acks)), flush=True)
        if store._work.num_ready >= 8:
            print("batch", store.batches, *train(store), flush=True)
"""


def run_and_kill(path, after_s):
    """Lines that the writer had printed, each after its call had returned, when it was killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "ready\n"
    killer = subprocess.Popen(["sleep", str(after_s)])
    killer.wait()
    os.kill(writer.pid, signal.SIGKILL)
    lines = writer.stdout.read().splitlines(keepends=True)
    writer.wait()
    return [line.split() for line in lines if line.endswith("\n")]


def check_rounds(path, rounds):
    rng = np.random.default_rng(rounds)
    acknowledged, batches = {}, {}
    for _ in range(rounds):
        for line in run_and_kill(path, float(rng.uniform(0.0, 0.4))):
            if line[0] == "batch":
                batches[int(line[1])] = line[2:]
            else:
                acknowledged[line[0]] = line[1]
        store = SqliteStore.open(path, CONFIG, ManualClock())
        assert store.findings == ()
        assert at_once(store.status()).ledger.balance == 0
        kept = dict(
            store._connection.execute(
                "SELECT 'd' || draw || 's' || sample || 'a' || attempt, state FROM attempts"
            ).fetchall()
        )
        fitting = {"queued": {"queued", "trained"}, "dropped": {"dropped"}, "superseded": {"superseded"}}
        for attempt, ack in acknowledged.items():
            assert kept[attempt] in fitting[ack], (attempt, ack)
        store.close_file()
        read = {number: [str(item.trajectory.attempt) for item in items] for number, items, _ in consumed_batches(path)}
        assert {number: read[number] for number in batches} == batches
        assert list(read) == list(range(len(read)))
        assert len(read) <= len(batches) + rounds  # at most one a kill was finished and not told
        draws = [attempt.partition("s")[0] for batch in read.values() for attempt in batch]
        assert len(draws) == len(set(draws))
    assert len(acknowledged) > 10 * rounds


def test_whatever_was_acknowledged_survives_kill_9_at_random_moments(tmp_path):
    check_rounds(tmp_path / "store.sqlite", rounds=4)


@pytest.mark.slow
def test_whatever_was_acknowledged_survives_forty_kills(tmp_path):
    check_rounds(tmp_path / "store.sqlite", rounds=40)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_is_really_full_stops_nothing_for_good(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    path = small_disk / "store.sqlite"
    store = SqliteStore.open(path, StoreConfig(batch_size=32, max_staleness=3), ManualClock())
    at_once(store.finish_step([], publication(0)))
    leases = at_once(store.lease(128))
    done = []

    def commit_the_rest():
        for lease in leases[len(done) :]:
            store.commit_many([trajectory(lease.attempt, (0,) * 600)])
            done.append(lease.attempt)

    with pytest.raises(StorageFullError, match="Free some"):
        commit_the_rest()
    assert 0 < len(done) < 128
    for _ in range(3):
        with pytest.raises(StorageFullError):
            commit_the_rest()
    assert at_once(store.status()).ledger.queued == len(done)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    commit_the_rest()
    trained = [attempt for _ in range(4) for attempt in train(store)]
    assert trained == [lease.attempt for lease in leases]
    ledger = at_once(store.status()).ledger
    assert (ledger.trained, ledger.balance) == (128, 0)
    store.close_file()


def test_a_store_killed_while_the_disk_is_full_opens_with_what_was_acknowledged(small_disk, tmp_path):
    path = small_disk / "store.sqlite"
    store = SqliteStore.open(path, StoreConfig(batch_size=32, max_staleness=9), ManualClock())
    at_once(store.finish_step([], publication(0)))
    done = []
    with pytest.raises(StorageFullError):  # noqa: PT012
        while True:
            done += commit_new(store, 1, *[0] * 600)
    store._connection.close()
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    resumed = SqliteStore.open(path, StoreConfig(batch_size=32, max_staleness=9), ManualClock())
    assert resumed.findings == ()
    assert list(resumed._work.book.queued) == done
    resumed.close_file()
