"""Random calls in random order: whatever happens, every attempt is accounted for and nothing is consumed twice."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
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
    )
    def open_store(self, group_size, groups, bound, when_too_old, max_attempts, num_draws):
        batch_size = group_size * groups
        self.config = StoreConfig(
            batch_size=batch_size,
            group_size=group_size,
            max_staleness=bound,
            when_too_old="drop" if bound is None else when_too_old,
            max_outstanding=3 * batch_size if bound is None else None,
            max_attempts=max_attempts,
            num_draws=num_draws,
        )
        self.loop = asyncio.new_event_loop()
        self.clock = HandClock()
        self.store = MemoryStore(self.config, self.clock, publication(0))
        self.in_flight = []  # attempts this test holds, also those that another attempt has superseded since
        self.committed = {}  # attempt -> (record, first answer)
        self.batch = None
        self.trained = set()
        self.issued = 0
        self.failed = 0

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

    @rule(limit=st.integers(1, 8))
    def lease(self, limit):
        leases = self.call(self.store.lease(limit)) or []
        assert len(leases) <= limit
        for lease in leases:
            assert lease.version == self.store.newest.version
            assert lease.attempt not in self.committed
            assert lease.attempt not in self.in_flight
            assert (lease.attempt.draw, lease.attempt.sample) not in self.trained
            self.in_flight.append(lease.attempt)
        self.issued += len(leases)

    @precondition(lambda self: self.in_flight)
    @rule(pick=picks, age=st.integers(0, 3), length=st.integers(1, 3))
    def commit(self, pick, age, length):
        attempt = self.in_flight.pop(pick % len(self.in_flight))
        newest = self.store.newest.version
        self.send(trajectory(attempt, (max(0, newest - age),) * length + (newest,)))

    @precondition(lambda self: self.in_flight)
    @rule(pick=picks)
    def fail(self, pick):
        self.send(failed(self.in_flight.pop(pick % len(self.in_flight))))

    def send(self, record):
        ack = self.call(self.store.commit(record))
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

    @precondition(lambda self: self.batch is None)
    @rule()
    def take(self):
        items = self.call(self.store.take())
        if not items:
            return
        draws = list(dict.fromkeys(item.trajectory.attempt.draw for item in items))
        assert len(draws) == self.config.draws_per_batch
        if self.config.group_size == 1:
            assert len(items) == self.config.batch_size
        for item in items:
            record = item.trajectory
            assert record.status.value == "terminated"
            assert self.committed[record.attempt][1] == "queued"
            assert item.staleness == self.store.newest.step - record.oldest_version  # versions equal steps here
            if self.config.max_staleness is not None and self.config.when_too_old != "mask_tokens":
                assert item.staleness <= self.config.max_staleness
        order = [
            (min(item.trajectory.oldest_version for item in items if item.trajectory.attempt.draw == draw), draw)
            for draw in draws
        ]
        assert order == sorted(order)  # oldest first, then by draw
        self.batch = [item.trajectory.attempt for item in items]

    @precondition(lambda self: self.batch is not None)
    @rule(moved=st.booleans())
    def finish(self, moved):
        step = self.store.newest.step
        self.call(self.store.finish_step(self.batch, publication(step + 1) if moved else None))
        for attempt in self.batch:
            assert (attempt.draw, attempt.sample) not in self.trained  # consumed exactly once
            self.trained.add((attempt.draw, attempt.sample))
        self.batch = None

    @rule(before=st.integers(0, 50))
    def lose(self, before):
        self.store.reissue_lost(issued_before_s=self.clock.now() - before)

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
        ledger = self.call(self.store.status()).ledger
        assert ledger.balance == 0
        assert ledger.issued == self.issued
        assert ledger.trained == len(self.trained)
        assert ledger.in_flight <= len(self.in_flight)
        assert ledger.in_flight + ledger.superseded >= len(self.in_flight)
        assert ledger.queued >= len(self.batch or ())
        assert ledger.dropped.get("env_error", 0) == self.failed
        if self.config.max_staleness is None:
            assert "stale" not in ledger.dropped
        if self.config.group_size == 1:
            assert "group_too_small" not in ledger.dropped
        assert ledger.queued <= self.config.outstanding_limit


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
