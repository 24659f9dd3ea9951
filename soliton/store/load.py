"""Rows back into draws and attempts: what a store held when its file was last written.

Only draws that are open are loaded, and no payload; the ids of what is over stay on disk.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

import sqlite3

from soliton.store.changes import Queued
from soliton.store.config import StoreConfig
from soliton.store.groups import Draw, Sample
from soliton.store.ledger import BLAMELESS_REASONS, AttemptBook
from soliton.store.payloads import PayloadReader
from soliton.store.queries import count, read_payload, read_publications
from soliton.store.versions import VersionTable
from soliton.store.work import Work
from soliton.types import NO_VERSION, AttemptId, Lease

_OPEN = "SELECT number FROM draws WHERE state = 'open'"
_UNDONE = "SELECT draw FROM attempts WHERE batch >= ?"
_BLAMELESS = frozenset(reason.value for reason in BLAMELESS_REASONS)


def load_work(connection: sqlite3.Connection, payloads: PayloadReader, config: StoreConfig) -> Work:
    """The decisions so far. Every lease is lost, its holder was part of a session that is over; unless it was handed in
    and only its reward is awaited.
    """
    publications = read_publications(connection)
    highest = count(connection, "SELECT coalesce(max(version), ?) FROM publications", (NO_VERSION,))
    work = Work(config, VersionTable(publications, highest))
    work.next_draw = count(connection, "SELECT coalesce(max(number), -1) + 1 FROM draws")
    work.batches = count(connection, "SELECT COUNT(*) FROM batches")
    work.num_given_up = count(connection, "SELECT COUNT(*) FROM draws WHERE state = 'given_up'")
    lengths = "SELECT num_action_tokens, COUNT(*) FROM attempts WHERE num_action_tokens IS NOT NULL"
    by_length = " GROUP BY num_action_tokens"
    work.lengths.committed = dict(connection.execute(lengths + by_length).fetchall())
    stale = " AND state = 'dropped' AND reason = 'stale'"
    work.lengths.dropped = dict(connection.execute(lengths + stale + by_length).fetchall())
    work.readmit(_load_draws(connection, payloads, config, work.book, _OPEN, ()))
    return work


def load_undone(
    connection: sqlite3.Connection, payloads: PayloadReader, config: StoreConfig, book: AttemptBook, batches: int
) -> list[Draw]:
    """The draws of all batches from number `batches` on, as they were before they were trained; puts them in `book`."""
    return _load_draws(connection, payloads, config, book, _UNDONE, (batches,))


def _load_draws(
    connection: sqlite3.Connection,
    payloads: PayloadReader,
    config: StoreConfig,
    book: AttemptBook,
    numbers: str,
    values: tuple[int, ...],
) -> list[Draw]:
    draws: dict[int, Draw] = {
        number: Draw(number, [Sample() for _ in range(config.group_size)])
        for (number,) in connection.execute(f"SELECT DISTINCT * FROM ({numbers}) ORDER BY 1", values)
    }
    rows = connection.execute(
        "SELECT draw, sample, attempt, state, reason, holder, issued_us, lease_version, committed_us, versions, "
        f"num_action_tokens, num_bytes FROM attempts WHERE draw IN ({numbers}) ORDER BY draw, sample, attempt",
        values,
    )
    for number, member, attempt, state, reason, holder, issued_us, version, *committed in rows:
        sample = draws[number].samples[member]
        sample.next_attempt = attempt + 1
        attempt_id = AttemptId(number, member, attempt)
        if state in ("queued", "trained"):
            sample.accepted = attempt
            committed_us, versions, length, size = committed
            book.put(Queued(attempt_id, committed_us / 1e6, _versions(versions), length, size))
        elif state == "in_flight":
            sample.in_flight.append(attempt)
            book.in_flight[attempt_id] = Lease(attempt_id, issued_us / 1e6, version, holder)
            if committed[0] is not None and (trajectory := read_payload(connection, payloads, attempt_id)) is not None:
                assert trajectory.awaited is not None
                book.awaiting[attempt_id] = trajectory, committed[0] / 1e6 + trajectory.awaited.within_s
        elif state == "dropped" and reason not in _BLAMELESS:
            sample.tries += 1
    for draw in draws.values():
        for index, sample in enumerate(draw.samples):
            handed_in = [n for n in sample.in_flight if AttemptId(draw.number, index, n) in book.awaiting]
            sample.lost = [n for n in sample.in_flight if n not in handed_in]
            sample.waiting = sample.accepted is None and sample.tries < config.max_attempts and not handed_in
    return list(draws.values())


def _versions(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
