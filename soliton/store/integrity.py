"""Is the file of a SQLite store what was written to it? Every row and every payload is looked at.

Guarantees: nothing is repaired here; a broken index is an error that names rows, broken payloads are named and
returned. Several connections work side by side: SQLite and the checksum both leave Python to another thread.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec

from soliton.errors import RunError
from soliton.store.queries import UNREADABLE, count, open_reader
from soliton.store.schema import BROKEN_ROWS
from soliton.types import AttemptId

SHOWN = 8
"""Names in a message."""
THREADS = 2
PARTS = 8
MAPPED_BYTES = 1 << 40
"""More than any run writes."""


class DamagedPayload(msgspec.Struct, frozen=True):
    """An attempt whose payload is missing or not what was written, and where the attempt is."""

    attempt: AttemptId
    state: str


def verify(path: Path) -> list[DamagedPayload]:
    """Check the whole file; returns the damaged payloads, in order of issue.

    Raises:
        RunError: the index is damaged; no decision can be taken on it.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        index = pool.submit(_verify_index, path)
        parts = list(pool.map(partial(_verify_part, path), _parts(path)))
        index.result()
    return [damage for part in parts for damage in part]


def refusal(path: Path, what: str) -> RunError:
    """The error for a file that cannot be trusted."""
    return RunError(
        f"{path} is damaged: {what}. Nothing can be decided on it: put back a copy of the file, or start a new run "
        "from the newest checkpoint in another folder"
    )


def _verify_index(path: Path) -> None:
    reader = open_reader(path)
    try:
        for table, query in BROKEN_ROWS.items():
            broken = [str(name) for (name,) in reader.execute(query).fetchmany(SHOWN)]
            if broken:
                raise refusal(path, f"rows of {table} are not as they were written: {', '.join(broken)}")
            problems = [str(row[0]) for row in reader.execute(f"PRAGMA integrity_check('{table}')").fetchmany(SHOWN)]
            if problems != ["ok"]:
                raise refusal(path, f"table {table}: {'; '.join(problems)}")
    except UNREADABLE as error:
        raise refusal(path, f"its index cannot be read ({error})") from error
    finally:
        reader.close()


def _parts(path: Path) -> list[range]:
    """The ids of all attempts in a few ranges of equal length."""
    with closing(open_reader(path)) as reader:
        try:
            end = count(reader, "SELECT coalesce(max(id), 0) + 1 FROM attempts")
        except UNREADABLE as error:
            raise refusal(path, f"its index cannot be read ({error})") from error
    borders = [end * part // PARTS for part in range(PARTS + 1)]
    return [range(first, after) for first, after in pairwise(borders)]


def _verify_part(path: Path, ids: range) -> list[DamagedPayload]:
    with closing(open_reader(path)) as reader:
        reader.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")  # saves a copy of every page
        try:
            return _scan(reader, ids)
        except UNREADABLE:
            return _scan_one_by_one(path, reader, ids)  # a damaged page ends a scan; find out whose it is


_COMMITTED = "committed_us IS NOT NULL AND attempts.id BETWEEN ? AND ?"


def _scan(reader: sqlite3.Connection, ids: range) -> list[DamagedPayload]:
    crc32 = zlib.crc32
    rows = reader.execute(
        "SELECT draw, sample, attempt, state, versions, crc, body FROM attempts LEFT JOIN payloads USING (id) "
        f"WHERE {_COMMITTED} ORDER BY attempts.id",
        (ids.start, ids.stop - 1),
    )
    damaged = []
    for draw, sample, attempt, state, versions, crc, body in rows:
        # `payload_crc` written out: this runs for every trajectory of a run.
        if body is None or crc32(body, crc32(f"{draw}/{sample}/{attempt}/{versions}".encode())) != crc:
            damaged.append(DamagedPayload(AttemptId(draw, sample, attempt), state))
    return damaged


def _scan_one_by_one(path: Path, reader: sqlite3.Connection, ids: range) -> list[DamagedPayload]:
    try:
        attempts = reader.execute(
            f"SELECT id, draw, sample, attempt, state FROM attempts WHERE {_COMMITTED} ORDER BY id",
            (ids.start, ids.stop - 1),
        ).fetchall()
    except UNREADABLE as error:
        raise refusal(path, f"its index cannot be read ({error})") from error
    damaged = []
    for number, draw, sample, attempt, state in attempts:
        try:
            damaged += _scan(reader, range(number, number + 1))
        except UNREADABLE:
            damaged.append(DamagedPayload(AttemptId(draw, sample, attempt), state))
    return damaged
