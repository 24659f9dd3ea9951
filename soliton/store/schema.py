"""The tables of the SQLite store, and how a row says that it is the row that was written.

Payloads lie in a file of their own (`payloads.py`); an attempt's row says where, and carries their hash. Every row
carries a seal: a sum over its numbers that SQLite computes when it writes the row and that a check computes again.
"""

# ruff: noqa: S608  (queries are put together from constants of this package; values are always bound)

from __future__ import annotations

from soliton.reasons import DropReason

SCHEMA_VERSION = 2
APPLICATION_ID = 0x50_17_0A_01
"""Marks the file as ours for `file` and other tools."""

STATES = ("in_flight", "queued", "superseded", "dropped", "trained")
DRAW_STATES = ("open", "trained", "given_up")

_ATTEMPT_NUMBERS = (
    "draw",
    "sample",
    "attempt",
    "issued_us",
    "lease_version",
    "committed_us",
    "num_action_tokens",
    "num_bytes",
    "batch",
    "position",
    "staleness",
    "min_trusted_version",
    "queued_us",
    "payload_start",
    "payload_bytes",
)
_PRIMES = (31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
ATTEMPT_SEAL = " + ".join(
    f"coalesce({column}, -1) * {prime}" for column, prime in zip(_ATTEMPT_NUMBERS, _PRIMES, strict=True)
)
"""One changed number changes the sum; small factors keep it inside 64 bits."""
DRAW_SEAL = "number * 31 + unicode(state)"
PUBLICATION_SEAL = "version * 31 + parent * 37 + step * 41 + rolled_back * 43"
BATCH_SEAL = "number * 31 + coalesce(version, -1) * 37"

TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE publications (
    version INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    step INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    rolled_back INTEGER NOT NULL DEFAULT 0,
    seal INTEGER GENERATED ALWAYS AS ({PUBLICATION_SEAL}) STORED
);
CREATE TABLE draws (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    seal INTEGER GENERATED ALWAYS AS ({DRAW_SEAL}) STORED
);
CREATE INDEX open_draws ON draws (number) WHERE state = 'open';
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    draw INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    holder TEXT NOT NULL,
    issued_us INTEGER NOT NULL,
    lease_version INTEGER NOT NULL,
    committed_us INTEGER,
    versions TEXT,
    num_action_tokens INTEGER,
    num_bytes INTEGER,
    batch INTEGER,
    position INTEGER,
    staleness INTEGER,
    min_trusted_version INTEGER,
    queued_us INTEGER,
    payload_start INTEGER,
    payload_bytes INTEGER,
    payload_hash INTEGER,
    seal INTEGER GENERATED ALWAYS AS ({ATTEMPT_SEAL}) STORED,
    UNIQUE (draw, sample, attempt)
);
CREATE INDEX attempts_by_state ON attempts (state, reason);
CREATE INDEX attempts_by_batch ON attempts (batch, position) WHERE batch IS NOT NULL;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY,
    version INTEGER,
    seal INTEGER GENERATED ALWAYS AS ({BATCH_SEAL}) STORED
);
"""


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


BROKEN_ROWS = {
    "attempts": (
        f"SELECT 'd' || draw || 's' || sample || 'a' || attempt FROM attempts WHERE seal IS NOT ({ATTEMPT_SEAL}) "
        f"OR state NOT IN ({_quoted(STATES)}) OR (state = 'dropped') IS NOT (reason IS NOT NULL) "
        f"OR reason NOT IN ({_quoted(tuple(reason.value for reason in DropReason))}) "
        "OR (state = 'trained') IS NOT (batch IS NOT NULL)"
    ),
    "draws": f"SELECT number FROM draws WHERE seal IS NOT ({DRAW_SEAL}) OR state NOT IN ({_quoted(DRAW_STATES)})",
    "publications": f"SELECT version FROM publications WHERE seal IS NOT ({PUBLICATION_SEAL})",
    "batches": f"SELECT number FROM batches WHERE seal IS NOT ({BATCH_SEAL})",
}
"""Table -> query for the rows that are not as they were written."""


def microseconds(seconds: float) -> int:
    """Times are whole microseconds in the file."""
    return round(seconds * 1e6)
