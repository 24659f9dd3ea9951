"""What can be asked of the SQLite store's file without a store: the ledger, an old answer, one payload.

Each term of the ledger is its own query, none a difference.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import sqlite3
from pathlib import Path

from soliton.errors import RunError
from soliton.reasons import DropReason
from soliton.store.codec import decode_trajectory
from soliton.store.ledger import STORE_REASONS
from soliton.store.payloads import PayloadReader, payload_hash
from soliton.store.store import CommitAck
from soliton.types import AttemptId, Ledger, Publication, Trajectory

PAYLOAD = "payload_start, payload_bytes, payload_hash"
"""Columns that say where a payload is, and what."""
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What a damaged file raises; the second when the damage is in the text of an error."""


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, also while another process has the file open.

    Raises:
        RunError: there is no such file, or it is no store.
    """
    if not path.is_file():
        raise RunError(f"{path}: there is no store; name the folder of a run that was started")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    except UNREADABLE as error:
        connection.close()
        raise RunError(f"{path} cannot be read as a store: {error}; name the file of a run") from error
    return connection


def count(connection: sqlite3.Connection, query: str, values: tuple[str | int, ...] = ()) -> int:
    """The one number that `query` gives."""
    (number,) = connection.execute(query, values).fetchone()
    return int(number)


def read_ledger(connection: sqlite3.Connection) -> Ledger:
    """Where every attempt is, at this moment of the file."""
    in_state = "SELECT COUNT(*) FROM attempts WHERE state = ?"
    dropped = connection.execute(
        "SELECT reason, COUNT(*) FROM attempts WHERE state = 'dropped' GROUP BY reason ORDER BY reason"
    )
    counts = dict(dropped.fetchall())
    return Ledger(
        issued=count(connection, "SELECT COUNT(*) FROM attempts"),
        trained=count(connection, in_state, ("trained",)),
        queued=count(connection, in_state, ("queued",)),
        in_flight=count(connection, in_state, ("in_flight",)),
        superseded=count(connection, in_state, ("superseded",)),
        dropped={reason.value: counts[reason.value] for reason in DropReason if reason.value in counts},
    )


def read_ack(connection: sqlite3.Connection, attempt: AttemptId) -> CommitAck | None:
    """The answer that a commit of an attempt that is over has got; None if it was never issued."""
    row = connection.execute(
        "SELECT state, reason FROM attempts WHERE draw = ? AND sample = ? AND attempt = ?",
        (attempt.draw, attempt.sample, attempt.attempt),
    ).fetchone()
    if row is None:
        return None
    state, reason = row
    if state == "superseded":
        return "superseded"
    return "dropped" if state == "dropped" and DropReason(reason) not in STORE_REASONS else "queued"


def read_payload(connection: sqlite3.Connection, payloads: PayloadReader, attempt: AttemptId) -> Trajectory | None:
    """The trajectory as it was committed; None if its bytes are missing or not those that were written."""
    row = connection.execute(
        f"SELECT versions, {PAYLOAD} FROM attempts WHERE draw = ? AND sample = ? AND attempt = ?",
        (attempt.draw, attempt.sample, attempt.attempt),
    ).fetchone()
    return None if row is None else read_trajectory(payloads, attempt, *row)


def read_trajectory(
    payloads: PayloadReader, attempt: AttemptId, versions: str | None, start: int | None, size: int, hashed: int
) -> Trajectory | None:
    """The same, given what the index says of it."""
    if versions is None or start is None:
        return None
    body = payloads.read(start, size)
    if payload_hash(attempt, versions, body) != hashed:
        return None
    return decode_trajectory(body)


def read_publications(connection: sqlite3.Connection) -> list[Publication]:
    """The version table of the surviving lineage, oldest first."""
    rows = connection.execute(
        "SELECT version, parent, step, sha256 FROM publications WHERE NOT rolled_back ORDER BY version"
    )
    return [Publication(*row) for row in rows]
