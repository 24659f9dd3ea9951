"""Reading a SQLite store without owning it: for replay, inspection and summaries, also while a run writes to it.

Guarantees: nothing is written; what is read is one moment of the file; a payload that is not what was written is an
error that names attempt and file.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from soliton.errors import RunError
from soliton.store.codec import decode_trajectory
from soliton.store.queries import open_reader, read_ledger, read_publications
from soliton.store.schema import payload_crc
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Ledger, Publication, Trajectory


class StoredAttempt(msgspec.Struct, frozen=True, eq=False):
    """An attempt as the file knows it.

    Attributes:
        state: in_flight, queued, superseded, dropped or trained.
        reason: why it was dropped, if it was.
        holder: who leased it.
        issued_s, committed_s: run clock; None if it was not committed.
        batch, position: where it was trained (counted from 0), in the surviving lineage.
        staleness: when it was consumed.
        trajectory: None if it was not committed, or superseded.
    """

    attempt: AttemptId
    state: str
    reason: str | None
    holder: str
    issued_s: float
    committed_s: float | None
    batch: int | None
    position: int | None
    staleness: int | None
    trajectory: Trajectory | None


def publications(path: Path) -> list[Publication]:
    """The version table of the surviving lineage, oldest first.

    Raises:
        RunError: no store there.
    """
    with closing(open_reader(path)) as reader:
        return read_publications(reader)


def ledger_at_rest(path: Path) -> Ledger:
    """Where every attempt is. Taken ones count as queued.

    Raises:
        RunError: no store there.
    """
    with closing(open_reader(path)) as reader:
        return read_ledger(reader)


def consumed_batches(path: Path) -> Iterator[tuple[int, list[BatchItem], Publication | None]]:
    """What was trained, batch by batch in order of consumption, as the learner got it (surviving lineage only).

    Yields:
        Number of the batch from 0, its items in their order, what was published after it.

    Raises:
        RunError: no store there, or a trajectory is not what was written; its attempt and the file are named.
    """
    with closing(open_reader(path)) as reader:
        reader.execute("BEGIN")  # one moment of the file, whoever writes to it meanwhile
        rows = {row.version: row for row in read_publications(reader)}
        for number, version in reader.execute("SELECT number, version FROM batches ORDER BY number").fetchall():
            yield number, _items(path, reader, number), None if version is None else rows[version]


def _items(path: Path, reader: sqlite3.Connection, batch: int) -> list[BatchItem]:
    rows = reader.execute(
        "SELECT draw, sample, attempt, versions, crc, body, staleness, min_trusted_version, queued_us "
        "FROM attempts LEFT JOIN payloads USING (id) WHERE batch = ? ORDER BY position",
        (batch,),
    )
    return [
        BatchItem(
            _checked(path, AttemptId(draw, sample, attempt), versions, crc, body), staleness, trusted, queued_us / 1e6
        )
        for draw, sample, attempt, versions, crc, body, staleness, trusted, queued_us in rows
    ]


def stored_attempts(
    path: Path, *, attempt: AttemptId | None = None, state: str | None = None, reason: str | None = None
) -> Iterator[StoredAttempt]:
    """Attempts with their trajectories, in order of issue; all of them, or those that fit every filter given.

    Raises:
        RunError: as `consumed_batches`.
    """
    wanted: dict[str, str | int | None] = {"state": state, "reason": reason}
    if attempt is not None:
        wanted |= {"draw": attempt.draw, "sample": attempt.sample, "attempt": attempt.attempt}
    filters = {column: value for column, value in wanted.items() if value is not None}
    condition = " AND ".join(f"{column} = ?" for column in filters) or "TRUE"
    with closing(open_reader(path)) as reader:
        rows = reader.execute(
            "SELECT draw, sample, attempt, state, reason, holder, issued_us, committed_us, batch, position, staleness, "
            f"versions, crc, body FROM attempts LEFT JOIN payloads USING (id) WHERE {condition} ORDER BY attempts.id",
            tuple(filters.values()),
        )
        for draw, sample, number, at, why, holder, issued, committed, batch, position, staleness, *payload in rows:
            found = AttemptId(draw, sample, number)
            yield StoredAttempt(
                attempt=found,
                state=at,
                reason=why,
                holder=holder,
                issued_s=issued / 1e6,
                committed_s=None if committed is None else committed / 1e6,
                batch=batch,
                position=position,
                staleness=staleness,
                trajectory=None if committed is None else _checked(path, found, *payload),
            )


def _checked(path: Path, attempt: AttemptId, versions: str, crc: int, body: bytes | None) -> Trajectory:
    if body is None or payload_crc(attempt, versions, body) != crc:
        raise RunError(
            f"{path}: the bytes of {attempt} are not those that were written; what was trained on it cannot be "
            "computed again. Put back a copy of the file"
        )
    return decode_trajectory(body)
