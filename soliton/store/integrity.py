"""Is the file of a SQLite store what was written to it? Every row and every payload is looked at.

Guarantees: nothing is repaired here; a broken index is an error that names rows, broken payloads are named and
returned. Two connections work side by side, since both SQLite and the checksum leave Python to its other thread.
"""

from __future__ import annotations

import sqlite3
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from soliton.errors import RunError
from soliton.store.queries import open_reader
from soliton.store.schema import BROKEN_ROWS
from soliton.types import AttemptId

SHOWN = 8
"""Names in a message."""


class DamagedPayload(msgspec.Struct, frozen=True):
    """An attempt whose payload is missing or not what was written, and where the attempt is."""

    attempt: AttemptId
    state: str


def verify(path: Path) -> list[DamagedPayload]:
    """Check the whole file; returns the damaged payloads, in order of issue.

    Raises:
        RunError: the index is damaged; no decision can be taken on it.
    """
    with ThreadPoolExecutor(1) as pool:
        index = pool.submit(_verify_index, path)
        try:
            damaged = _verify_payloads(path)
        finally:
            index.result()
    return damaged


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
    except sqlite3.DatabaseError as error:
        raise refusal(path, f"its index cannot be read ({error})") from error
    finally:
        reader.close()


_COMMITTED = (
    "SELECT draw, sample, attempt, state, versions, crc, body FROM attempts LEFT JOIN payloads USING (id) "
    "WHERE committed_us IS NOT NULL"
)


def _verify_payloads(path: Path) -> list[DamagedPayload]:
    reader = open_reader(path)
    try:
        return _scan(reader)
    except sqlite3.DatabaseError:
        return _scan_one_by_one(path, reader)  # a damaged page ends a scan; find out whose it is
    finally:
        reader.close()


def _scan(reader: sqlite3.Connection) -> list[DamagedPayload]:
    crc32 = zlib.crc32
    damaged = []
    for draw, sample, attempt, state, versions, crc, body in reader.execute(f"{_COMMITTED} ORDER BY attempts.id"):
        if body is None or crc32(body, crc32(f"{draw}/{sample}/{attempt}/{versions}".encode())) != crc:
            damaged.append(DamagedPayload(AttemptId(draw, sample, attempt), state))
    return damaged


def _scan_one_by_one(path: Path, reader: sqlite3.Connection) -> list[DamagedPayload]:
    try:
        rows = reader.execute("SELECT id, draw, sample, attempt, state FROM attempts WHERE committed_us IS NOT NULL")
        attempts = rows.fetchall()
    except sqlite3.DatabaseError as error:
        raise refusal(path, f"its index cannot be read ({error})") from error
    damaged = []
    for number, draw, sample, attempt, state in attempts:
        try:
            found = _scan_of(reader, number)
        except sqlite3.DatabaseError:
            found = [DamagedPayload(AttemptId(draw, sample, attempt), state)]
        damaged += found
    return damaged


def _scan_of(reader: sqlite3.Connection, number: int) -> list[DamagedPayload]:
    crc32 = zlib.crc32
    return [
        DamagedPayload(AttemptId(draw, sample, attempt), state)
        for draw, sample, attempt, state, versions, crc, body in reader.execute(
            f"{_COMMITTED} AND attempts.id = ?", (number,)
        )
        if body is None or crc32(body, crc32(f"{draw}/{sample}/{attempt}/{versions}".encode())) != crc
    ]
