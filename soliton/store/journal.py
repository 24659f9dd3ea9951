"""Changes as rows: all of a call in one transaction, or none.

Owns the writing connection's statements. Guarantees: `write` either made everything last or nothing; a full disk is
told apart from a broken one.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import errno
import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter

from soliton.errors import RunError, StorageFullError
from soliton.failpoints import failpoint
from soliton.store.changes import (
    Accepted,
    BatchFinished,
    Change,
    DrawMoved,
    Dropped,
    Failed,
    Issued,
    Published,
    RewardAwaited,
    Rewound,
    Superseded,
    Trained,
)
from soliton.store.codec import encode_trajectory
from soliton.store.payloads import PayloadWriter, payload_hash
from soliton.store.schema import microseconds
from soliton.types import AttemptId, Trajectory

FULL_CODES = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE}
)
"""What SQLite says when a write finds no space: at once, late, or in the shared index of its log."""

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The same from the system, for the file of payloads."""

Statement = tuple[str, tuple[str | int | None, ...]]
"""A query and its values. Equal queries in a row go to SQLite together."""

_KEY = "draw = ? AND sample = ? AND attempt = ?"
_PAYLOAD = "payload_start = ?, payload_bytes = ?, payload_hash = ?"
_ACCEPTED = (
    "UPDATE attempts SET state = 'queued', committed_us = ?, versions = ?, num_action_tokens = ?, num_bytes = ?, "
    f"{_PAYLOAD} WHERE {_KEY}"
)


class Journal:
    """Writes changes through `connection`, which must be in autocommit mode.

    Args:
        connection: of the store's file.
        payloads: takes the trajectories' bytes.
        path: for messages.
    """

    def __init__(self, connection: sqlite3.Connection, payloads: PayloadWriter, path: str) -> None:
        self._connection = connection
        self._payloads = payloads
        self._path = path
        self._encoded: dict[int, bytes] = {}

    @contextmanager
    def encoded(self, trajectories: Sequence[Trajectory], bodies: Sequence[bytes]) -> Iterator[None]:
        """While this lasts, the bytes of `trajectories` are known and need not be made."""
        self._encoded = {id(trajectory): body for trajectory, body in zip(trajectories, bodies, strict=False)}
        try:
            yield
        finally:
            self._encoded = {}

    def write(self, changes: Sequence[Change]) -> None:
        """Make `changes` last, in order, in one transaction.

        Raises:
            StorageFullError: there was no space. Nothing was written; try again later.
            RunError: the database failed otherwise. Nothing was written.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            statements = (statement for change in changes for statement in self._statements(change))
            for query, rows in itertools.groupby(statements, key=itemgetter(0)):
                self._connection.executemany(query, [values for _, values in rows])
            self._payloads.write()
            failpoint("store.before_commit")
            self._connection.execute("COMMIT")
            self._payloads.keep()
            failpoint("store.after_commit")
        except (sqlite3.Error, OSError) as error:
            self._payloads.forget()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise write_error(self._path, error) from error

    def _statements(self, change: Change) -> list[Statement]:
        statement: Statement
        match change:
            case Issued(lease):
                statement = (
                    "INSERT INTO attempts (draw, sample, attempt, state, holder, issued_us, lease_version) "
                    "VALUES (?, ?, ?, 'in_flight', ?, ?, ?)",
                    (*_key(lease.attempt), lease.holder, microseconds(lease.issued_s), lease.version),
                )
            case RewardAwaited(trajectory, committed_s):
                statement = (
                    f"UPDATE attempts SET committed_us = ?, versions = '', {_PAYLOAD} WHERE {_KEY}",
                    (microseconds(committed_s), *self._append(trajectory, ""), *_key(trajectory.attempt)),
                )
            case Accepted(queued, trajectory):
                versions = ",".join(map(str, queued.versions))
                statement = (
                    _ACCEPTED,
                    (
                        microseconds(queued.committed_s),
                        versions,
                        queued.num_action_tokens,
                        queued.num_bytes,
                        *self._append(trajectory, versions),
                        *_key(queued.attempt),
                    ),
                )
            case Failed(trajectory, reason, committed_s):
                statement = (
                    "UPDATE attempts SET state = 'dropped', reason = ?, committed_us = ?, versions = '', "
                    f"{_PAYLOAD} WHERE {_KEY}",
                    (
                        reason.value,
                        microseconds(committed_s),
                        *self._append(trajectory, ""),
                        *_key(trajectory.attempt),
                    ),
                )
            case Superseded(attempt):
                statement = (f"UPDATE attempts SET state = 'superseded' WHERE {_KEY}", _key(attempt))
            case Dropped(attempt, reason):
                statement = (
                    f"UPDATE attempts SET state = 'dropped', reason = ? WHERE {_KEY}",
                    (reason.value, *_key(attempt)),
                )
            case Trained(taken, batch, position):
                statement = (
                    "UPDATE attempts SET state = 'trained', batch = ?, position = ?, staleness = ?, "
                    f"min_trusted_version = ?, queued_us = ? WHERE {_KEY}",
                    (
                        batch,
                        position,
                        taken.staleness,
                        taken.min_trusted_version,
                        microseconds(taken.queued_s),
                        *_key(taken.queued.attempt),
                    ),
                )
            case DrawMoved(number, state):
                statement = ("INSERT OR REPLACE INTO draws (number, state) VALUES (?, ?)", (number, state))
            case Published(row):
                statement = (
                    "INSERT INTO publications (version, parent, step, sha256) VALUES (?, ?, ?, ?)",
                    (row.version, row.parent, row.step, row.sha256),
                )
            case BatchFinished(number, version):
                statement = ("INSERT INTO batches (number, version) VALUES (?, ?)", (number, version))
            case Rewound(batches, version):
                return _rewinding(batches, version)
        return [statement]

    def _append(self, trajectory: Trajectory, versions: str) -> tuple[int, int, int]:
        """Values of the columns that say where the payload is, and what."""
        body = self._encoded.get(id(trajectory)) or encode_trajectory(trajectory)
        return self._payloads.append(body), len(body), payload_hash(trajectory.attempt, versions, body)


def _rewinding(batches: int, version: int) -> list[Statement]:
    return [
        ("UPDATE publications SET rolled_back = 1 WHERE version > ?", (version,)),
        (
            "UPDATE draws SET state = 'open' WHERE number IN (SELECT draw FROM attempts WHERE batch >= ?)",
            (batches,),
        ),
        (
            "UPDATE attempts SET state = 'queued', batch = NULL, position = NULL, staleness = NULL, "
            "min_trusted_version = NULL, queued_us = NULL WHERE batch >= ?",
            (batches,),
        ),
        ("DELETE FROM batches WHERE number >= ?", (batches,)),
    ]


def is_full(error: sqlite3.Error | OSError) -> bool:
    """Whether a write found no space. Errors that Python makes itself carry no code."""
    if isinstance(error, OSError):
        return error.errno in FULL_ERRORS
    return getattr(error, "sqlite_errorcode", None) in FULL_CODES


def write_error(path: str, error: sqlite3.Error | OSError) -> RunError:
    """What a failed write means: no space, which may return, or a broken disk or file."""
    if is_full(error):
        return StorageFullError(
            f"no space left to write to {path} ({error}); nothing is lost: rollouts wait and go on when "
            "there is space. Free some, or move the run to a larger disk and resume it there"
        )
    return RunError(
        f"cannot write to {path}: {getattr(error, 'sqlite_errorname', 'error')} ({error}); the last call was not "
        "recorded. Check the disk, then resume: the file is verified when it is opened"
    )


def _key(attempt: AttemptId) -> tuple[int, int, int]:
    return attempt.draw, attempt.sample, attempt.attempt
