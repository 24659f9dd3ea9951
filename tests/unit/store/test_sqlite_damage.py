"""Flipped bytes in the file of a SQLite store: named, and repaired or refused. Nothing wrong is ever handed out."""

import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from soliton.errors import RunError, SolitonError
from soliton.store.config import StoreConfig
from soliton.store.history import Wanted, consumed_batches, stored_attempts
from soliton.store.payloads import payload_path
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId
from tests.fakes.manual_clock import ManualClock
from tests.fakes.sqlite import at_once, commit_new, killed, overwrite_payload, train
from tests.fakes.trajectories import failed, publication, trajectory

CONFIG = StoreConfig(batch_size=2, max_staleness=8)
LENGTH = 500
"""Action tokens."""


def opened(path):
    return SqliteStore.open(path, CONFIG, ManualClock())


@pytest.fixture
def path(tmp_path):
    """Attempts 0-1 trained, 2-5 queued, 6 failed, 7 in flight."""
    store = opened(tmp_path / "store.sqlite")
    at_once(store.finish_step([], publication(0)))
    for lease in at_once(store.lease(6)):
        token_ids = np.arange(LENGTH + 1) + 1000 * lease.attempt.draw
        store.commit_many([trajectory(lease.attempt, (0,) * LENGTH, token_ids=token_ids)])
    train(store)
    bad, _ = at_once(store.lease(2))
    store.commit_many([failed(bad.attempt)])
    store.close_file()
    return tmp_path / "store.sqlite"


def flip(path, offset, mask=0x10):
    """Change a byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def flip_payload(path, draw, inside=0.5):
    """Change a byte among the token ids of `draw`, which are found nowhere else."""
    pattern = np.arange(LENGTH + 1, dtype="<i4") + 1000 * draw
    token = int(inside * LENGTH)
    whole = payload_path(path).read_bytes()
    piece = pattern[token : token + 3].tobytes()
    assert whole.count(piece) == 1
    flip(payload_path(path), whole.index(piece) + 5)


@pytest.mark.parametrize("inside", [0.0, 0.3, 0.9])
def test_a_damaged_queued_trajectory_is_dropped_under_its_own_reason_and_its_draw_issued_again(path, inside):
    flip_payload(path, 3, inside)
    store = opened(path)
    (finding,) = store.findings
    assert "the bytes of d3s0a0 (queued) are not those that were written" in finding
    assert "its draw is issued again" in finding
    ledger = at_once(store.status()).ledger
    assert (ledger.dropped, ledger.queued, ledger.balance) == ({"damaged": 1, "env_error": 1}, 3, 0)
    again = at_once(store.lease(1))
    assert [lease.attempt for lease in again] == [AttemptId(3, 0, 1)]
    assert [attempt.draw for attempt in train(store)] == [2, 4]
    store.close_file()
    (finding,) = opened(path).findings
    assert "d3s0a0 (dropped)" in finding


def test_damage_uses_up_no_try(path):
    flip_payload(path, 3)
    config = StoreConfig(batch_size=2, max_staleness=8, max_attempts=1)
    store = SqliteStore.open(path, config, ManualClock())
    assert at_once(store.lease(1))[0].attempt == AttemptId(3, 0, 1)


def test_a_damaged_trained_trajectory_is_reported_and_replay_refuses_it(path):
    assert [number for number, _, _ in consumed_batches(path)] == [0]
    flip_payload(path, 1)
    store = opened(path)
    (finding,) = store.findings
    assert "d1s0a0 (trained)" in finding
    assert "replay will refuse it" in finding
    assert at_once(store.status()).ledger.trained == 2  # it was
    assert len(train(store)) == 2
    with pytest.raises(RunError, match=r"store\.sqlite: the bytes of d1s0a0 are not those that were written"):
        list(consumed_batches(path))
    with pytest.raises(RunError, match="d1s0a0"):
        list(stored_attempts(path, Wanted(draw=1)))
    assert len(list(stored_attempts(path, Wanted(draw=0)))) == 1


def test_damage_that_comes_while_the_run_goes_on_is_met_when_a_batch_is_taken(path):
    store = opened(path)
    overwrite_payload(path, 2, bytes(10))
    assert [attempt.draw for attempt in train(store)] == [3, 4]
    assert "d2s0a0" in store.findings[0]
    ledger = at_once(store.status()).ledger
    assert (ledger.dropped["damaged"], ledger.balance) == (1, 0)
    assert at_once(store.lease(1))[0].attempt == AttemptId(2, 0, 1)


def test_swapped_payloads_are_noticed(path):
    connection = sqlite3.connect(path)
    columns = "payload_start, payload_bytes, payload_hash"
    rows = [connection.execute(f"SELECT {columns} FROM attempts WHERE draw = ?", (draw,)).fetchone() for draw in (2, 3)]
    for draw, row in ((3, rows[0]), (2, rows[1])):
        connection.execute(f"UPDATE attempts SET ({columns}) = (?, ?, ?) WHERE draw = ?", (*row, draw))
    connection.commit()
    connection.close()
    assert len(opened(path).findings) == 2


def test_payloads_that_are_missing_at_the_end_are_noticed(path):
    os.truncate(payload_path(path), payload_path(path).stat().st_size - 600)  # the failed one is 200 to 400 bytes
    store = opened(path)
    assert [finding.split(" (")[0][-6:] for finding in store.findings] == ["d5s0a0", "d6s0a0"]
    assert at_once(store.status()).ledger.dropped["damaged"] == 1
    assert commit_new(store, 1)  # which lies after the gap
    store.close_file()
    assert len(opened(path).findings) == 2


def test_without_its_file_of_payloads_a_store_names_everything_that_is_missing(path):
    payload_path(path).unlink()
    assert len(opened(path).findings) == 7
    with pytest.raises(RunError, match="the bytes of d0s0a0 are not those that were written"):
        list(consumed_batches(path))


def test_bytes_that_no_index_names_are_overwritten(path, tmp_path):  # killed between the payload and the index
    size = payload_path(path).stat().st_size
    with payload_path(path).open("ab") as file:
        file.write(b"never acknowledged")
    store = opened(path)
    assert store.findings == ()
    assert payload_path(path).stat().st_size == size
    (attempt,) = commit_new(store, 1)
    (stored,) = stored_attempts(
        killed(path, tmp_path / "next" / "store.sqlite"), Wanted(draw=attempt.draw, state="queued")
    )
    assert stored.trajectory.attempt == attempt


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("attempts", "committed_us = committed_us + 1"),
        ("attempts", "num_action_tokens = num_action_tokens - 64"),
        ("attempts", "state = 'qveued'"),
        ("draws", "number = number + 1024"),
        ("publications", "step = 5"),
    ],
)
def test_a_changed_number_in_the_index_is_refused_with_what_to_do(path, table, change):
    change_behind_its_back(path, table, change)
    with pytest.raises(RunError, match=rf"is damaged: rows of {table} are not as they were written.*put back a copy"):
        opened(path)


def change_behind_its_back(path, table, change):
    """As a flipped byte would: the seal stays what it was. The stored seal is turned into a plain column for that."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA writable_schema = ON")
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    start = rows.index("seal INTEGER")
    end = rows.index("STORED", start) + len("STORED")
    plain = rows[:start] + "seal INTEGER" + rows[end:]
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (plain, table))
    connection.commit()
    connection.close()
    connection = sqlite3.connect(path)
    key = {"attempts": "id = 3", "draws": "number = 3", "publications": "version = 0"}[table]
    connection.execute(f"UPDATE {table} SET {change} WHERE {key}")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (rows, table))
    connection.commit()
    connection.close()


def facts(store):
    """Everything that decides."""
    status = at_once(store.status())
    batches = []
    while store._work.num_ready >= 2:
        batches.append([(a.draw, a.attempt) for a in train(store)])
    return status, store.publications()[:2], batches


def opened_or_refused(path):
    try:
        return opened(path)
    except SolitonError as error:
        refusal = str(error)
    assert "damaged" in refusal or "schema" in refusal or "cannot be read" in refusal or "the run" in refusal
    return None


def test_any_flipped_byte_is_harmless_named_or_refused(path, tmp_path):
    """Each byte of the header, and a seeded sample of all others: never another content without a word."""
    original, payloads = path.read_bytes(), payload_path(path).read_bytes()
    rng = np.random.default_rng(0)
    offsets = [*range(100), *rng.integers(100, len(original) + len(payloads), 150).tolist()]
    sound = tmp_path / "sound.sqlite"
    sound.write_bytes(original)
    payload_path(sound).write_bytes(payloads)
    expected = facts(opened(sound))
    outcomes = {"harmless": 0, "named": 0, "refused": 0}
    for offset in offsets:
        copy = tmp_path / "flipped.sqlite"
        for leftover in tmp_path.glob("flipped.*"):
            leftover.unlink()
        copy.write_bytes(original)
        payload_path(copy).write_bytes(payloads)
        inside = offset < len(original)
        flip(copy if inside else payload_path(copy), offset % len(original), mask=1 << int(rng.integers(8)))
        store = opened_or_refused(copy)
        if store is None:
            outcomes["refused"] += 1
            continue
        if store.findings:
            outcomes["named"] += 1
        else:
            assert facts(store) == expected, offset
            outcomes["harmless"] += 1
        store._connection.close()
    assert min(outcomes.values()) > 5, outcomes


def test_a_log_torn_anywhere_loses_only_what_came_after_the_tear(path, tmp_path):
    store = opened(path)
    acknowledged = [commit_new(store, 1, *[0] * LENGTH)[0] for _ in range(6)]
    whole, log = path.read_bytes(), path.with_name("store.sqlite-wal").read_bytes()
    for number, cut in enumerate(np.linspace(0, len(log), 12).astype(int).tolist()):
        torn = tmp_path / f"torn{number}" / "store.sqlite"
        torn.parent.mkdir()
        torn.write_bytes(whole)
        shutil.copy(payload_path(path), payload_path(torn))
        torn.with_name("store.sqlite-wal").write_bytes(log[:cut])
        resumed = opened(torn)
        queued = [attempt for attempt in acknowledged if attempt in resumed._work.book.queued]
        assert queued == acknowledged[: len(queued)]
        assert resumed.findings == ()
        assert at_once(resumed.status()).ledger.balance == 0
        if cut == len(log):
            assert queued == acknowledged
        resumed.close_file()


LOG_HEADER, FRAME = 32, 24 + 4096
"""Bytes of SQLite's log before its first frame, and of each frame."""


def test_a_changed_byte_anywhere_in_the_log_is_named_or_harmless(path, tmp_path):
    """SQLite itself leaves out all that follows the byte, and says nothing."""
    store = opened(path)
    for _ in range(6):
        commit_new(store, 1, *[0] * LENGTH)
    expected = facts(opened(killed(path, tmp_path / "sound" / "store.sqlite")))
    size = path.with_name("store.sqlite-wal").stat().st_size
    frames = (size - LOG_HEADER) // FRAME
    rng = np.random.default_rng(0)
    in_pages = [LOG_HEADER + frame * FRAME + int(rng.integers(24, FRAME)) for frame in range(frames)]
    in_sums = [LOG_HEADER + frame * FRAME + 16 + int(rng.integers(8)) for frame in range(0, frames, 3)]
    named = 0
    for number, offset in enumerate((*range(LOG_HEADER), *in_pages, *in_sums)):
        copy = killed(path, tmp_path / f"flipped{number}" / "store.sqlite")
        flip(copy.with_name("store.sqlite-wal"), offset, mask=1 << int(rng.integers(8)))
        resumed = opened(copy)
        assert resumed.findings or facts(resumed) == expected, offset
        if resumed.findings:
            named += 1
            assert "transactions are not as they were written, so they are lost" in resumed.findings[0]
            assert at_once(resumed.status()).ledger.balance == 0
        resumed.close_file()
    assert named > LOG_HEADER + frames / 2


def test_a_log_that_sqlite_began_again_holds_nothing_lost(path, tmp_path):
    store = opened(path)
    commit_new(store, 3, *[0] * LENGTH)
    store._connection.execute("PRAGMA wal_checkpoint(FULL)")
    commit_new(store, 1, *[0] * LENGTH)  # at the log's beginning; what is behind it is old
    assert opened(killed(path, tmp_path / "copy" / "store.sqlite")).findings == ()


FIRST_PROCESS = """
import fcntl, sys
with open(sys.argv[1], "r+b") as index:
    fcntl.lockf(index, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)  # who gets this begins the index again
"""


def test_the_check_of_the_log_gives_up_no_lock_of_the_store(path):
    """Another process that finds nobody there truncates the index that this one has mapped: a bus error."""
    store = opened(path)
    commit_new(store, 1, *[0] * LENGTH)
    store = opened(killed(path, path.parent / "copy" / "store.sqlite"))
    command = [sys.executable, "-c", FIRST_PROCESS, str(path.parent / "copy" / "store.sqlite-shm")]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BlockingIOError" in other.stderr
    store.close_file()


def test_a_payload_read_back_is_the_one_that_was_committed(path):
    store = opened(path)
    (lease,) = at_once(store.lease(1))
    record = trajectory(lease.attempt, (0, 3, 7))
    store.commit_many([record])
    (stored,) = stored_attempts(path, Wanted(draw=lease.attempt.draw, attempt=lease.attempt.attempt))
    assert stored.trajectory.versions.tolist() == [-1, 0, 3, 7]
    assert stored.trajectory.rollout_logprobs.tobytes() == record.rollout_logprobs.tobytes()
    assert (stored.state, stored.batch) == ("queued", None)
