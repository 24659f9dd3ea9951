"""Is the file of a SQLite store what was written to it? Every row and every payload is looked at.

Guarantees: nothing is repaired here; a broken index is an error that names rows, broken payloads are named and
returned. The index is checked while the payloads are: SQLite leaves Python to another thread.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
from xxhash import xxh3_64_intdigest

from soliton.errors import RunError
from soliton.store.payloads import payload_path
from soliton.store.queries import PAYLOAD, UNREADABLE, open_reader
from soliton.store.schema import BROKEN_ROWS
from soliton.types import AttemptId

SHOWN = 8
"""Names in a message."""


class DamagedPayload(msgspec.Struct, frozen=True):
    """An attempt whose payload is missing or not what was written, and where the attempt is."""

    attempt: AttemptId
    state: str


def verify(path: Path) -> list[DamagedPayload]:
    """Check both files; returns the damaged payloads, in order of issue.

    Raises:
        RunError: the index is damaged; no decision can be taken on it.
    """
    with ThreadPoolExecutor(1) as pool:
        index = pool.submit(_verify_index, path)
        try:
            return _verify_payloads(path)
        except UNREADABLE as error:
            raise refusal(path, f"its index cannot be read ({error})") from error
        finally:
            index.result()  # which names rows


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


def _verify_payloads(path: Path) -> list[DamagedPayload]:
    file = payload_path(path)
    if not file.exists() or not file.stat().st_size:
        return _scan(path, memoryview(b""))
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as payloads,
    ):
        return _scan(path, payloads)


def _scan(path: Path, payloads: memoryview) -> list[DamagedPayload]:
    damaged = []
    with closing(open_reader(path)) as reader:
        rows = reader.execute(
            f"SELECT draw, sample, attempt, state, versions, {PAYLOAD} FROM attempts "
            "WHERE committed_us IS NOT NULL ORDER BY id"
        )
        for draw, sample, attempt, state, versions, start, size, hashed in rows:
            # `payload_hash` written out: this runs for every trajectory of a run.
            owner = xxh3_64_intdigest(f"{draw}/{sample}/{attempt}/{versions}".encode())
            if start is None or xxh3_64_intdigest(payloads[start : start + size], owner) >> 1 != hashed:
                damaged.append(DamagedPayload(AttemptId(draw, sample, attempt), state))
    return damaged
