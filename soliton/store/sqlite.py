"""The durable store: the same decisions as the store in memory, in a SQLite file that survives a kill.

Owns the file, and the one of payloads beside it. Long queues cost disk and no memory: payloads are written at commit
and read at take, and attempts that are over are asked of the file. Guarantees: what a call answered is on disk before
it answers, all of a call in one transaction; memory is never behind the file, and never ahead of it for what was
answered. When the disk is full, calls raise `StorageFullError`, what could not be written is kept, and the next call
writes it first: a repeated call is answered once there is space, and nothing is lost or doubled.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from soliton.atomic import Durability
from soliton.errors import ConfigError, RunError
from soliton.store.awaiting import AwaitingStore
from soliton.store.changes import Change
from soliton.store.config import StoreConfig
from soliton.store.integrity import DamagedPayload, refusal, verify
from soliton.store.journal import Journal, is_full, write_error
from soliton.store.load import load_undone, load_work
from soliton.store.log_damage import lost_transactions
from soliton.store.payloads import PayloadWriter
from soliton.store.queries import UNREADABLE, count, read_ack, read_ledger, read_payload
from soliton.store.schema import APPLICATION_ID, SCHEMA_VERSION, TABLES
from soliton.store.store import CommitAck
from soliton.store.work import Work
from soliton.types import AttemptId, Clock, Ledger, Trajectory

log = logging.getLogger(__name__)

CHECKPOINT_PAGES = 4_000
"""Pages in the log (16 MB) before SQLite moves them into the file: four times its default, a quarter of the flushes."""


class SqliteStore(AwaitingStore):
    """`soliton.store.store.Store` in a file. Made by `open`; one process at a time may have it open for writing.

    Attributes:
        findings: what the check at opening found and did, one sentence each; empty for a sound file.
        run_id: drawn when the file was made.
    """

    findings: tuple[str, ...]
    run_id: str

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        clock: LaterClock,
        connection: sqlite3.Connection,
        payloads: PayloadWriter,
    ) -> None:
        super().__init__(config, clock, Work(config))
        self._later = clock
        self._path = path
        self._connection = connection
        self._payloads = payloads
        self._journal = Journal(connection, payloads, str(path))
        self._pending: list[Change] = []
        self.findings = ()

    @classmethod
    def open(
        cls, path: Path, config: StoreConfig, clock: Clock, *, durability: Durability = "process", identity: str = ""
    ) -> SqliteStore:
        """The store in `path`, made if there is none, verified if there is one.

        Every row and payload is checked. A queued trajectory whose bytes are damaged is dropped and its draw issued
        again; a trained one is reported, and so are transactions that SQLite left out. All leases of the session before
        are lost, and its clock goes on.

        Args:
            path: of the database file.
            config: limits; they may differ from the last time, `group_size` may not.
            clock: stamps leases and measures waits.
            durability: "process" survives a kill of the process, "power" also one of the machine.
            identity: whose prompts these are; a file made with another text is refused.

        Raises:
            ConfigError: another group size or identity.
            RunError: not a store, a store of another version of Soliton, or one whose index is damaged.
        """
        is_new = not path.exists() or not path.stat().st_size
        connection = _connect(path, durability)
        payloads: PayloadWriter | None = None
        try:
            if is_new:
                _create(connection, config, identity)
            run_id = _check_meta(connection, path, config, identity)
            lost = lost_transactions(connection, path)
            damaged = [] if is_new else verify(path)
            _drop_damaged(connection, damaged)
            payloads = PayloadWriter(path, _payloads_end(connection), durable=durability == "power")
            store = cls(path, config, LaterClock(clock, _last_s(connection)), connection, payloads)
            store._work = load_work(connection, payloads, config)
            store._save()
        except BaseException as error:
            connection.close()
            if payloads is not None:
                payloads.close()
            if isinstance(error, sqlite3.Error | OSError) and is_full(error):
                raise write_error(str(path), error) from error
            if isinstance(error, UNREADABLE):
                raise refusal(path, str(error)) from error
            raise
        store.run_id = run_id
        store.findings = (*_lost(path, lost), *(_finding(path, damage) for damage in damaged))
        for finding in store.findings:
            log.warning(finding)
        return store

    def rewind(self, batches: int, version: int) -> None:
        """Go back to a checkpoint: `batches` were consumed, `version` (-1: none) is the newest policy.

        Publications after it are rolled back; their numbers stay used. What the undone batches trained is queued again,
        or dropped as `rolled_back` and its draw issued again if it holds a rolled-back version; a batch that is taken
        goes back to the queue. One transaction.

        Raises:
            RunError: this store was never there. Nothing has changed then.
        """
        self._save()
        work = self._work
        work.rewind(batches, version)
        undone = load_undone(self._connection, self._payloads, self._config, work.book, batches)
        work.readmit(undone)
        work.drop_rolled_back(undone)
        self._handed = {}
        self._save()
        self._wake()

    def reissue_lost(self, issued_before_s: float) -> list[AttemptId]:
        """Presume, as `lose` does, that attempts leased before `issued_before_s` of the caller's clock are lost."""
        return super().reissue_lost(issued_before_s + self._later.offset_s)

    def commit_many(self, trajectories: Sequence[Trajectory], encoded: Sequence[bytes] = ()) -> list[CommitAck]:
        """As `WaitingStore.commit_many`."""
        with self._journal.encoded(trajectories, encoded):
            return super().commit_many(trajectories)

    def close_file(self) -> None:
        """Close the store and its file. Nothing can be asked of it afterwards.

        Raises:
            StorageFullError: something is still unwritten, and there is no space for it; the file stays open.
        """
        self.close()
        self._save()
        self._payloads.close()
        self._connection.close()

    # -- what `WaitingStore` wants ------------------------------------------------------------------------------------

    def _save(self) -> None:
        self._pending += self._work.drain()
        if self._pending:
            self._journal.write(self._pending)
            self._pending = []

    def _payload(self, attempt: AttemptId) -> Trajectory | None:
        try:
            trajectory = read_payload(self._connection, self._payloads, attempt)
        except UNREADABLE:
            trajectory = None
        if trajectory is None:
            finding = _finding(self._path, DamagedPayload(attempt, "queued"))
            self.findings += (finding,)
            log.warning(finding)
        return trajectory

    def _finished_ack(self, attempt: AttemptId) -> CommitAck | None:
        return read_ack(self._connection, attempt)

    def _reward_of(self, attempt: AttemptId) -> float | None:
        trajectory = read_payload(self._connection, self._payloads, attempt)
        return None if trajectory is None or trajectory.awaited is None else trajectory.awaited.value

    def _ledger(self) -> Ledger:
        return read_ledger(self._connection)


class LaterClock:
    """The clock of a new session, going on where the one before ended.

    Args:
        clock: begins anywhere.
        last_s: the last moment of the session before.
    """

    def __init__(self, clock: Clock, last_s: float) -> None:
        self._clock = clock
        self.offset_s = max(0.0, last_s - clock.now())

    def now(self) -> float:
        """Seconds since the run's origin, over all sessions."""
        return self._clock.now() + self.offset_s

    async def sleep_until(self, when: float) -> None:
        """Return once `now() >= when`."""
        await self._clock.sleep_until(when - self.offset_s)


def _connect(path: Path, durability: Durability) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        return connection
    except UNREADABLE as error:
        connection.close()
        raise refusal(path, str(error)) from error


def _create(connection: sqlite3.Connection, config: StoreConfig, identity: str) -> None:
    meta = {
        "schema": str(SCHEMA_VERSION),
        "run_id": secrets.token_hex(8),
        "group_size": str(config.group_size),
        "identity": identity,
    }
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.executescript(f"BEGIN; {TABLES} COMMIT;")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    connection.execute("COMMIT")


def _check_meta(connection: sqlite3.Connection, path: Path, config: StoreConfig, identity: str) -> str:
    """Whether this store may be opened here; returns its run id."""
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    schema = meta.get("schema")
    if schema != str(SCHEMA_VERSION):
        raise RunError(
            f"{path} has schema {schema}; this version of Soliton reads {SCHEMA_VERSION}. Use the version that wrote it"
        )
    if meta.get("group_size") != str(config.group_size):
        raise ConfigError(
            f"group_size: got {config.group_size}, but the run in {path} was started with {meta.get('group_size')}; "
            f"resume with {meta.get('group_size')} or start a new run"
        )
    if meta.get("identity") != identity:
        raise ConfigError(
            f"{path} belongs to another stream of prompts, so its draws mean other prompts:\n"
            f"  the run has {meta.get('identity')!r}\n  now given   {identity!r}\n"
            "resume with the configuration it was started with, or start a new run"
        )
    return str(meta["run_id"])


def _last_s(connection: sqlite3.Connection) -> float:
    """The last moment that the file knows of."""
    return (
        count(connection, "SELECT coalesce(max(max(issued_us), coalesce(max(committed_us), 0)), 0) FROM attempts") / 1e6
    )


def _payloads_end(connection: sqlite3.Connection) -> int:
    """Where the last payload ends."""
    return count(connection, "SELECT coalesce(max(payload_start + payload_bytes), 0) FROM attempts")


def _drop_damaged(connection: sqlite3.Connection, damaged: list[DamagedPayload]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE meta SET value = value WHERE key = 'schema'")  # find out now whether it can be written
    connection.executemany(
        "UPDATE attempts SET state = 'dropped', reason = 'damaged' "
        "WHERE draw = ? AND sample = ? AND attempt = ? AND state = 'queued'",
        [(damage.attempt.draw, damage.attempt.sample, damage.attempt.attempt) for damage in damaged],
    )
    connection.execute("COMMIT")


def _lost(path: Path, transactions: int) -> tuple[str, ...]:
    if not transactions:
        return ()
    return (
        f"{path}-wal: its last {transactions} transactions are not as they were written, so they are lost; what they "
        "leased and committed is issued again, and training goes on from a checkpoint that the store knows of",
    )


def _finding(path: Path, damage: DamagedPayload) -> str:
    done = {
        "in_flight": "its reward was awaited, and it is tried again",
        "queued": "it was dropped as damaged and its draw is issued again",
        "trained": "it was trained before that, the run goes on, and replay will refuse it",
    }.get(damage.state, "it was dropped earlier and is not needed")
    return f"{path}: the bytes of {damage.attempt} ({damage.state}) are not those that were written; {done}"
