"""One rollout in fifty takes fifty times as long (fault G6): the bound holds for each trajectory, not on average."""

import asyncio
import heapq

import numpy as np
import pytest

from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from tests.fakes.trajectories import publication, trajectory

BOUNDS = [0, 1, 4, 16]
NUM_TRAJECTORIES = 10_000 // len(BOUNDS)
BATCH = 50
STEP_S = 1.0


class EventClock:
    time_s = 0.0

    def now(self):
        return self.time_s

    async def sleep_until(self, when):
        self.time_s = max(self.time_s, when)


async def simulate(bound, when_too_old, group_size=1, total=NUM_TRAJECTORIES):
    """Rollouts and a learner as events in time; returns what was consumed as (staleness, attempt), and the store."""
    clock = EventClock()
    config = StoreConfig(batch_size=BATCH, group_size=group_size, max_staleness=bound, when_too_old=when_too_old)
    store = MemoryStore(config, clock, publication(0))
    rng = np.random.default_rng(bound)
    events = []  # (time, order, lease or None for "the learner is done")
    consumed = []
    step, order = 0, 0
    leasing, taking, batch = None, None, None
    while len(consumed) < total:
        leasing = leasing or asyncio.create_task(store.lease(BATCH))
        taking = taking or (None if batch else asyncio.create_task(store.take()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if leasing.done():
            for lease in leasing.result():
                duration = rng.exponential() * (50 if rng.random() < 0.02 else 1)
                order += 1
                heapq.heappush(events, (clock.time_s + duration, order, duration, lease))
            leasing = None
            continue
        if taking is not None and taking.done():
            batch, taking = taking.result(), None
            # Versions equal steps here, so that staleness is computed without the store's help.
            consumed += [(step - item.trajectory.oldest_version, item.trajectory.attempt) for item in batch]
            assert all(item.staleness == step - item.trajectory.oldest_version for item in batch)
            order += 1
            heapq.heappush(events, (clock.time_s + STEP_S, order, 0.0, None))
            continue
        clock.time_s, _, duration, lease = heapq.heappop(events)
        if lease is None:
            step += 1
            await store.finish_step([item.trajectory.attempt for item in batch], publication(step))
            batch = None
        else:
            length = min(40, 1 + int(duration))
            await store.commit(trajectory(lease.attempt, (lease.version,) * length + (step,)))
    for task in (leasing, taking):
        if task is not None:
            task.cancel()
    await asyncio.gather(*(task for task in (leasing, taking) if task is not None), return_exceptions=True)
    return consumed, store


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("when_too_old", ["drop", "wait"])
def test_not_one_of_ten_thousand_trajectories_passes_the_bound(bound, when_too_old):
    consumed, store = asyncio.run(simulate(bound, when_too_old))
    assert len(consumed) >= NUM_TRAJECTORIES
    assert max(staleness for staleness, _ in consumed) == bound  # reached, and not passed
    samples = [(attempt.draw, attempt.sample) for _, attempt in consumed]
    assert len(samples) == len(set(samples))  # none consumed twice
    status = asyncio.run(store.status())
    assert status.ledger.balance == 0
    if when_too_old == "wait" or bound == 0:
        assert status.ledger.dropped == {}  # a synchronous run has nothing to drop either
    if when_too_old == "wait" and bound:
        assert status.hold_wait_s > 0
    if when_too_old == "drop" and bound:
        deciles = status.dropped_by_length_decile
        assert sum(deciles) == status.ledger.dropped["stale"] > 0
        assert sum(deciles[8:]) > 0.9 * sum(deciles)  # the length bias is seen


@pytest.mark.parametrize("when_too_old", ["drop", "wait"])
def test_groups_keep_the_bound_too(when_too_old):
    consumed, store = asyncio.run(simulate(2, when_too_old, group_size=5, total=1000))
    assert max(staleness for staleness, _ in consumed) == 2
    ledger = asyncio.run(store.status()).ledger
    assert ledger.balance == 0
    assert (ledger.dropped == {}) == (when_too_old == "wait")
