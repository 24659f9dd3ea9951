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
from soliton.store.payloads import PayloadReader
from soliton.store.queries import PAYLOAD, count, open_reader, read_ledger, read_publications, read_trajectory
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
    with closing(open_reader(path)) as reader, PayloadReader(path) as payloads:
        reader.execute("BEGIN")  # one moment of the file, whoever writes to it meanwhile
        rows = {row.version: row for row in read_publications(reader)}
        for number, version in reader.execute("SELECT number, version FROM batches ORDER BY number").fetchall():
            yield number, _items(path, reader, payloads, number), None if version is None else rows[version]


def _items(path: Path, reader: sqlite3.Connection, payloads: PayloadReader, batch: int) -> list[BatchItem]:
    rows = reader.execute(
        f"SELECT staleness, min_trusted_version, queued_us, draw, sample, attempt, versions, {PAYLOAD} "
        "FROM attempts WHERE batch = ? ORDER BY position",
        (batch,),
    )
    return [
        BatchItem(
            _checked(path, payloads, AttemptId(draw, sample, attempt), *payload), staleness, trusted, queued_us / 1e6
        )
        for staleness, trusted, queued_us, draw, sample, attempt, *payload in rows
    ]


class Wanted(msgspec.Struct, frozen=True):
    """Which attempts are wanted, as far as the index knows; None: any.

    Attributes:
        draw, sample, attempt: of its id.
        state: as in `StoredAttempt`.
        reason: why it was dropped.
        min_staleness, max_staleness: when it was consumed, ends included; others have none and do not fit.
    """

    draw: int | None = None
    sample: int | None = None
    attempt: int | None = None
    state: str | None = None
    reason: str | None = None
    min_staleness: int | None = None
    max_staleness: int | None = None

    def condition(self) -> tuple[str, tuple[str | int, ...]]:
        """As SQL with its values."""
        terms = {
            "draw = ?": self.draw,
            "sample = ?": self.sample,
            "attempt = ?": self.attempt,
            "state = ?": self.state,
            "reason = ?": self.reason,
            "staleness >= ?": self.min_staleness,
            "staleness <= ?": self.max_staleness,
        }
        given = {term: value for term, value in terms.items() if value is not None}
        return " AND ".join(given) or "TRUE", tuple(given.values())


ANY = Wanted()


def count_attempts(path: Path, wanted: Wanted) -> int:
    """How many attempts fit; no trajectory is read.

    Raises:
        RunError: no store there.
    """
    condition, values = wanted.condition()
    with closing(open_reader(path)) as reader:
        return count(reader, f"SELECT COUNT(*) FROM attempts WHERE {condition}", values)


def stored_attempts(path: Path, wanted: Wanted = ANY, *, skip: int = 0) -> Iterator[StoredAttempt]:
    """The attempts that fit, in order of issue, without the first `skip`; each trajectory is read when it is asked for.

    Raises:
        RunError: as `consumed_batches`.
    """
    condition, values = wanted.condition()
    with closing(open_reader(path)) as reader, PayloadReader(path) as payloads:
        reader.execute("BEGIN")  # one moment of the file
        ids = reader.execute(
            f"SELECT id FROM attempts WHERE {condition} ORDER BY id LIMIT -1 OFFSET ?", (*values, skip)
        )
        for (number,) in ids:
            yield _stored(path, reader, payloads, number)


def _stored(path: Path, reader: sqlite3.Connection, payloads: PayloadReader, number: int) -> StoredAttempt:
    draw, sample, attempt, state, reason, holder, issued, committed, batch, position, staleness, *payload = (
        reader.execute(
            "SELECT draw, sample, attempt, state, reason, holder, issued_us, committed_us, batch, position, staleness, "
            f"versions, {PAYLOAD} FROM attempts WHERE id = ?",
            (number,),
        ).fetchone()
    )
    found = AttemptId(draw, sample, attempt)
    return StoredAttempt(
        attempt=found,
        state=state,
        reason=reason,
        holder=holder,
        issued_s=issued / 1e6,
        committed_s=None if committed is None else committed / 1e6,
        batch=batch,
        position=position,
        staleness=staleness,
        trajectory=None if committed is None else _checked(path, payloads, found, *payload),
    )


def _checked(
    path: Path,
    payloads: PayloadReader,
    attempt: AttemptId,
    versions: str | None,
    start: int | None,
    size: int,
    hashed: int,
) -> Trajectory:
    trajectory = read_trajectory(payloads, attempt, versions, start, size, hashed)
    if trajectory is None:
        raise RunError(
            f"{path}: the bytes of {attempt} are not those that were written; what was trained on it cannot be "
            "computed again. Put back a copy of the file"
        )
    return trajectory
