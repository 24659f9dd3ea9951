"""Random calls in random order: whatever happens, every attempt is accounted for and nothing is consumed twice.

Both stores, with resumes; the SQLite store also with kills (its files as they lie are opened by the next process) and
with returns to earlier checkpoints.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from soliton.store.config import StoreConfig
from soliton.store.history import consumed_batches, ledger_at_rest
from soliton.store.memory import MemoryStore
from soliton.store.sqlite import SqliteStore
from soliton.types import Publication
from tests.fakes.sqlite import killed
from tests.fakes.trajectories import failed, publication, trajectory

picks = st.integers(0, 1000)


class HandClock:
    def __init__(self):
        self.time_s = 0.0

    def now(self):
        return self.time_s

    async def sleep_until(self, when):
        self.time_s = max(self.time_s, when)


class Calls(RuleBasedStateMachine):
    """Keeps its own books of what it was told, and compares them with the store's after each call."""

    @initialize(
        group_size=st.sampled_from([1, 1, 2, 3]),
        groups=st.integers(1, 3),
        bound=st.sampled_from([0, 1, 2, None]),
        when_too_old=st.sampled_from(["drop", "wait", "mask_tokens"]),
        max_attempts=st.integers(1, 3),
        num_draws=st.sampled_from([None, None, 5, 20]),
        max_queued_bytes=st.sampled_from([None, None, 1, 200]),
    )
    def open_store(self, group_size, groups, bound, when_too_old, max_attempts, num_draws, max_queued_bytes):
        batch_size = group_size * groups
        self.config = StoreConfig(
            batch_size=batch_size,
            group_size=group_size,
            max_staleness=bound,
            when_too_old="drop" if bound is None else when_too_old,
            max_outstanding=3 * batch_size if bound is None else None,
            max_attempts=max_attempts,
            num_draws=num_draws,
            max_queued_bytes=max_queued_bytes,
        )
        self.loop = asyncio.new_event_loop()
        self.clock = HandClock()
        self.store = self.new_store()
        self.call(self.store.finish_step([], publication(0)))
        self.steps = {0: 0}  # version -> step, of this lineage
        self.in_flight = []  # attempts this test holds, also those that another attempt has superseded since
        self.committed = {}  # attempt -> (record, first answer)
        self.batch = None
        self.trained = []  # per batch, in this lineage
        self.issued = 0
        self.failed = 0
        self.checkpoints = [(0, 0)]

    def new_store(self):
        return MemoryStore(self.config, self.clock)

    def teardown(self):
        if hasattr(self, "loop"):
            self.loop.close()

    def call(self, coroutine):
        """The answer of a call, or None if it waits; it is cancelled then."""

        async def attempt():
            task = asyncio.create_task(coroutine)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                return None
            return task.result()

        self.clock.time_s += 1
        return self.loop.run_until_complete(attempt())

    def samples_trained(self):
        return [(attempt.draw, attempt.sample) for batch in self.trained for attempt in batch]

    @rule(limit=st.integers(1, 8), holder=st.sampled_from(["", "a", "b"]))
    def lease(self, limit, holder):
        leases = self.call(self.store.lease(limit, holder)) or []
        assert len(leases) <= limit
        trained = set(self.samples_trained())
        for lease in leases:
            assert lease.version == self.store.newest.version
            assert lease.holder == holder
            assert lease.attempt not in self.committed
            assert lease.attempt not in self.in_flight
            assert (lease.attempt.draw, lease.attempt.sample) not in trained
            self.in_flight.append(lease.attempt)
        self.issued += len(leases)

    @precondition(lambda self: self.in_flight)
    @rule(pick=picks, age=st.integers(0, 3), length=st.integers(1, 3))
    def commit(self, pick, age, length):
        attempt = self.in_flight[pick % len(self.in_flight)]
        newest = self.store.newest.version
        oldest = max([version for version in self.steps if version <= newest - age], default=0)
        self.send(trajectory(attempt, (oldest,) * length + (newest,)))

    @precondition(lambda self: self.in_flight)
    @rule(pick=picks)
    def fail(self, pick):
        self.send(failed(self.in_flight[pick % len(self.in_flight)]))

    def send(self, record):
        ack = self.call(self.store.commit(record))
        if ack is None:
            assert not self.store.has_room
            assert record.reason is None
            return
        self.in_flight.remove(record.attempt)
        self.committed[record.attempt] = (record, ack)
        self.failed += ack == "dropped"
        assert (ack == "dropped") <= (record.reason is not None)
        assert (ack == "queued") <= (record.reason is None)

    @precondition(lambda self: self.committed)
    @rule(pick=picks)
    def commit_again(self, pick):
        before = self.call(self.store.status()).ledger
        record, ack = list(self.committed.values())[pick % len(self.committed)]
        assert self.call(self.store.commit(record)) == ack
        assert self.call(self.store.status()).ledger == before

    @rule()
    def take(self):
        items = self.call(self.store.take())
        if not items:
            assert self.batch is None
            return
        attempts = [item.trajectory.attempt for item in items]
        assert self.batch in (None, attempts)  # the same batch until it is finished
        first_time = self.batch is None
        self.batch = attempts
        draws = list(dict.fromkeys(attempt.draw for attempt in attempts))
        assert len(draws) == self.config.draws_per_batch
        if self.config.group_size == 1:
            assert len(items) == self.config.batch_size
        for item in items:
            record = item.trajectory
            assert record.status.value == "terminated"
            assert self.committed[record.attempt][1] == "queued"
            assert set(record.versions[record.action_mask].tolist()) <= set(self.steps)  # ancestors only
            assert item.staleness == self.store.newest.step - self.steps[record.oldest_version]
            if self.config.max_staleness is not None and self.config.when_too_old != "mask_tokens":
                assert item.staleness <= self.config.max_staleness
        order = [
            (min(item.trajectory.oldest_version for item in items if item.trajectory.attempt.draw == draw), draw)
            for draw in draws
        ]
        assert not first_time or order == sorted(order)  # oldest first, then by draw

    @precondition(lambda self: self.batch is not None)
    @rule(moved=st.booleans(), lost_answer=st.booleans())
    def finish(self, moved, lost_answer):
        newest = self.store.newest
        row = Publication(self.store.next_version, newest.version, newest.step + 1, f"{newest.step}") if moved else None
        for _ in range(1 + lost_answer):
            self.call(self.store.finish_step(self.batch, row))
        if row is not None:
            self.steps[row.version] = row.step
        done = set(self.samples_trained())
        for attempt in self.batch:
            assert (attempt.draw, attempt.sample) not in done  # consumed exactly once
        self.trained.append(self.batch)
        self.batch = None

    @rule()
    def publish_again(self):
        if self.batch is None:
            newest = self.store.newest
            row = Publication(self.store.next_version, newest.version, newest.step, newest.sha256)
            self.call(self.store.finish_step([], row))
            self.steps[row.version] = row.step

    @rule(before=st.integers(0, 50))
    def lose_old(self, before):
        self.store.reissue_lost(issued_before_s=self.clock.now() - before)

    @rule(holder=st.sampled_from(["a", "b", None]))
    def lose(self, holder):
        self.store.lose(holder)

    @precondition(lambda self: self.batch is None)
    @rule()
    def checkpoint(self):
        self.checkpoints.append((len(self.trained), self.store.newest.version))

    @precondition(lambda self: self.batch is None)
    @rule()
    def resume(self):
        data = self.store.snapshot()
        self.store = MemoryStore.restore(data, self.config, self.clock)
        assert self.store.snapshot() == data

    @invariant()
    def every_attempt_is_somewhere(self):
        if not hasattr(self, "store"):
            return
        status = self.call(self.store.status())
        ledger = status.ledger
        assert ledger.balance == 0
        assert ledger.issued == self.issued
        assert ledger.trained == sum(len(batch) for batch in self.trained)
        assert status.batches == len(self.trained)
        assert ledger.in_flight <= len(self.in_flight)
        assert ledger.in_flight + ledger.superseded >= len(self.in_flight)
        assert ledger.queued >= len(self.batch or ())
        assert ledger.dropped.get("env_error", 0) == self.failed
        if self.config.max_staleness is None:
            assert "stale" not in ledger.dropped
        if self.config.group_size == 1:
            assert "group_too_small" not in ledger.dropped
        self.check_queue(ledger)

    def check_queue(self, ledger):
        assert ledger.queued <= self.config.outstanding_limit


class DurableCalls(Calls):
    """The same with a file, kills and returns to checkpoints."""

    def new_store(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.path = Path(self.folder.name) / "0" / "store.sqlite"
        self.path.parent.mkdir()
        self.kills = 0
        return SqliteStore.open(self.path, self.config, self.clock)

    def teardown(self):
        super().teardown()
        if hasattr(self, "folder"):
            self.store.close_file()
            self.folder.cleanup()

    @rule()
    def resume(self):
        self.store.close_file()
        self.store = SqliteStore.open(self.path, self.config, self.clock)
        self.batch = None

    @rule(seconds=st.sampled_from([-3600, 0, 3600]))
    def kill(self, seconds):
        before = self.call(self.store.status())
        self.kills += 1
        self.path = killed(self.path, Path(self.folder.name) / str(self.kills) / "store.sqlite")
        self.store._connection.close()
        self.clock.time_s += seconds  # a clock of a new process begins anywhere
        self.store = SqliteStore.open(self.path, self.config, self.clock)
        self.batch = None
        after = self.call(self.store.status())
        assert after.ledger == before.ledger
        assert (after.batches, after.version, after.num_given_up) == (
            before.batches,
            before.version,
            before.num_given_up,
        )

    @rule(pick=picks)
    def rewind(self, pick):
        number = pick % len(self.checkpoints)
        batches, version = self.checkpoints[number]
        del self.checkpoints[number + 1 :]
        self.store.rewind(batches, version)
        self.trained = self.trained[:batches]
        self.steps = {known: step for known, step in self.steps.items() if known <= version}
        self.batch = None
        self.publish_again()

    def check_queue(self, ledger):
        assert ledger_at_rest(self.path) == ledger
        read = [[item.trajectory.attempt for item in items] for _, items, _ in consumed_batches(self.path)]
        assert read == self.trained


TestMemory = Calls.TestCase
TestMemory.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestSqlite = DurableCalls.TestCase
TestSqlite.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
