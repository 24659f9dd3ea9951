"""One rollout in fifty takes fifty times as long (fault G6): the bound holds for each trajectory, not on average.

Rollouts and a learner as events in time, with a fast fake model. Weights change while a rollout samples, so that many
trajectories hold several versions; workers die and some of their work comes back late; the store is restarted and, if
it is durable, goes back to a checkpoint, with the trajectories of what was rolled back still on their way.
"""

import asyncio
import heapq
from pathlib import Path

import numpy as np
import pytest

from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from soliton.store.sqlite import SqliteStore
from soliton.types import Publication
from tests.fakes.sqlite import killed
from tests.fakes.trajectories import publication, trajectory

BOUNDS = [0, 1, 4, 16]
MODES = ["drop", "wait", "mask_tokens"]
BATCH = 20
STEP_S = 1.0
WORKERS = 4


class EventClock:
    time_s = 0.0

    def now(self):
        return self.time_s

    async def sleep_until(self, when):
        self.time_s = max(self.time_s, when)


class Simulation:
    """Checks every batch when it is handed out, without the store's help.

    Attributes:
        batches: per batch of the surviving lineage, the attempts consumed.
        staleness: of every trajectory ever handed out.
    """

    def __init__(self, bound, when_too_old, *, group_size=1, folder=None, seed=0):
        self.config = StoreConfig(
            batch_size=BATCH, group_size=group_size, max_staleness=bound, when_too_old=when_too_old, max_attempts=100
        )
        self.clock = EventClock()
        self.folder = folder
        self.restarts = 0
        self.store = MemoryStore(self.config, self.clock) if folder is None else self.open(folder / "store.sqlite")
        self.rng = np.random.default_rng([bound, seed])
        self.events = []  # (time, order, duration, lease or None for "the learner is done")
        self.order = 0
        self.steps = {0: 0}  # version -> step, of this lineage
        self.all_versions = [0]
        self.batches = []
        self.staleness = []
        self.mixed = 0
        self.batch = None
        self.leasing = self.taking = None

    def open(self, path):
        self.path = path
        return SqliteStore.open(path, self.config, self.clock)

    async def run(self, total, accidents=()):
        """Train until `total` trajectories are trained; `accidents` maps a number of batches to what happens then."""
        await self.store.finish_step([], publication(0))
        accidents = dict(accidents)
        while sum(map(len, self.batches)) < total:
            await self.start_calls()
            if self.leasing.done():
                self.roll_out(self.leasing.result())
            elif self.taking is not None and self.taking.done():
                self.check(self.taking.result())
            else:
                await self.next_event()
                due = [at for at in accidents if at <= len(self.batches)]
                if due and self.batch is None and len(self.events) >= 2:  # some are on their way
                    accident = accidents.pop(due[0])
                    await self.stop_calls()
                    await accident(self)
        await self.stop_calls()
        assert not accidents
        return self

    async def start_calls(self):
        worker = f"worker-{self.order % WORKERS}"
        self.leasing = self.leasing or asyncio.create_task(self.store.lease(BATCH // 2, worker))
        if self.taking is None and self.batch is None:
            self.taking = asyncio.create_task(self.store.take())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def stop_calls(self):
        for task in (self.leasing, self.taking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.leasing = self.taking = None

    def roll_out(self, leases):
        for lease in leases:
            duration = self.rng.exponential() * (50 if self.rng.random() < 0.02 else 1)
            self.push(duration, lease)
        self.leasing = None

    def push(self, duration, lease):
        self.order += 1
        heapq.heappush(self.events, (self.clock.time_s + duration, self.order, duration, lease))

    def check(self, items):
        self.taking = None
        step = max(self.steps.values())
        for item in items:
            record = item.trajectory
            versions = record.versions[record.action_mask].tolist()
            assert set(versions) <= set(self.steps), "a version of another lineage"
            staleness = step - min(self.steps[version] for version in versions)
            assert item.staleness == staleness
            self.staleness.append(staleness)
            self.mixed += len(set(versions)) > 1
            if self.config.when_too_old == "mask_tokens":
                old = [step - self.steps[v] > self.config.max_staleness for v in versions]
                assert old == [version < item.min_trusted_version for version in versions]
            else:
                assert staleness <= self.config.max_staleness
        self.batch = [item.trajectory.attempt for item in items]
        self.push(STEP_S, None)

    async def next_event(self):
        self.clock.time_s, _, duration, lease = heapq.heappop(self.events)
        if lease is not None:
            here = [version for version in self.all_versions if version >= lease.version]
            length = max(len(here), min(40, 1 + int(duration)))
            await self.store.commit(trajectory(lease.attempt, tuple(np.resize(here, length).tolist())))
        elif self.batch is not None:
            newest = self.store.newest
            step = newest.step + 1
            row = Publication(self.store.next_version, newest.version, step, str(step))
            await self.store.finish_step(self.batch, row)
            self.steps[row.version] = row.step
            self.all_versions.append(row.version)
            self.batches.append(self.batch)
            self.batch = None

    async def lose_a_worker(self):
        """Half of its rollouts never come back, the others come late."""
        self.store.lose("worker-1")
        self.events = [
            event
            for event in self.events
            if event[3] is None or event[3].holder != "worker-1" or self.rng.random() < 0.5
        ]
        heapq.heapify(self.events)

    async def restart(self):
        """The store's process is killed and another one goes on (in memory: from a snapshot)."""
        self.restarts += 1
        if self.folder is None:
            self.store = MemoryStore.restore(self.store.snapshot(), self.config, self.clock)
            return
        path = killed(self.path, Path(self.folder) / str(self.restarts) / "store.sqlite")
        self.store._connection.close()
        self.store = self.open(path)

    async def go_back(self):
        """A new process, and a checkpoint of three batches ago."""
        await self.restart()
        keep = len(self.batches) - 3
        version = [version for version, step in self.steps.items() if step == keep][-1]
        self.store.rewind(keep, version)
        del self.batches[keep:]
        self.steps = {known: step for known, step in self.steps.items() if known <= version}
        row = Publication(self.store.next_version, version, keep, self.store.newest.sha256)
        await self.store.finish_step([], row)
        self.steps[row.version] = keep
        self.all_versions.append(row.version)


def check_books(simulation):
    samples = [(attempt.draw, attempt.sample) for batch in simulation.batches for attempt in batch]
    assert len(samples) == len(set(samples))  # none consumed twice
    status = asyncio.run(simulation.store.status())
    assert status.ledger.balance == 0
    assert status.ledger.trained == len(samples)
    return status


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("when_too_old", ["drop", "wait"])
def test_not_one_of_ten_thousand_trajectories_passes_the_bound(bound, when_too_old):
    simulation = asyncio.run(Simulation(bound, when_too_old).run(10_000 // len(BOUNDS)))
    assert max(simulation.staleness) == bound  # reached, and not passed
    status = check_books(simulation)
    if when_too_old == "wait" or bound == 0:
        assert status.ledger.dropped == {}  # a synchronous run has nothing to drop either
    if when_too_old == "wait" and bound:
        assert status.hold_wait_s > 0
    if when_too_old == "drop" and bound:
        deciles = status.dropped_by_length_decile
        assert sum(deciles) == status.ledger.dropped["stale"] > 0
        assert sum(deciles[8:]) > 0.9 * sum(deciles)  # the length bias is seen


ACCIDENTS = {
    4: Simulation.lose_a_worker,
    9: Simulation.restart,
    14: Simulation.lose_a_worker,
    20: Simulation.go_back,
    24: Simulation.lose_a_worker,
}


def check_through_accidents(bound, when_too_old, total, folder):
    simulation = Simulation(bound, when_too_old, folder=folder)
    accidents = {at: what for at, what in ACCIDENTS.items() if folder is not None or what is not Simulation.go_back}
    asyncio.run(simulation.run(total, accidents))
    status = check_books(simulation)
    assert status.ledger.superseded > 0  # lost work came back
    assert simulation.mixed > 0 or bound == 0
    if folder is not None and bound:
        assert status.ledger.dropped.get("rolled_back", 0) > 0
    if when_too_old == "wait" and folder is None:
        # Undone batches come on top of what was admitted, so that after going back some cannot be trained in time.
        assert "stale" not in status.ledger.dropped


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("when_too_old", MODES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_accident_lets_a_trajectory_pass_the_bound(bound, when_too_old, kind, tmp_path):  # fault G6
    check_through_accidents(bound, when_too_old, 800, tmp_path if kind == "sqlite" else None)


@pytest.mark.slow
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("when_too_old", MODES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_not_one_of_ten_thousand_passes_the_bound_through_accidents(bound, when_too_old, kind, tmp_path):
    check_through_accidents(bound, when_too_old, 10_000, tmp_path if kind == "sqlite" else None)


@pytest.mark.parametrize("when_too_old", ["drop", "wait"])
def test_groups_keep_the_bound_too(when_too_old):
    simulation = asyncio.run(Simulation(2, when_too_old, group_size=5).run(1000))
    assert max(simulation.staleness) == 2
    ledger = check_books(simulation).ledger
    assert (ledger.dropped == {}) == (when_too_old == "wait")
