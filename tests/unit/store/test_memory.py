"""What the in-memory store adds to the contract: lost leases, snapshots, determinism, costs."""

import asyncio
import pathlib
import sys

import msgspec
import pytest

import soliton.store
from soliton.errors import ConfigError, RunError
from soliton.reasons import DropReason
from soliton.runtime.clock import VirtualClock
from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from soliton.types import AttemptId
from tests.fakes.trajectories import failed, publication, trajectory

CONFIG = StoreConfig(batch_size=2, max_staleness=1)


def run(body, **changes):
    clock = VirtualClock(0)
    config = StoreConfig(**{"batch_size": 2, "max_staleness": 1} | changes)
    clock.run(body(MemoryStore(config, clock, publication(0)), clock))


# -- lost attempts (fault H1) -----------------------------------------------------------------------------------------


def test_a_lost_attempt_is_issued_again_and_the_first_commit_wins():
    async def body(store, clock):
        (first,) = await store.lease(1)
        await clock.sleep_until(10)
        assert store.reissue_lost(issued_before_s=5) == [first.attempt]
        (second,) = await store.lease(1)
        assert second.attempt == AttemptId(0, 0, 1)
        assert await store.commit(trajectory(second.attempt)) == "queued"
        assert await store.commit(trajectory(first.attempt)) == "superseded"
        assert await store.commit(trajectory(first.attempt)) == "superseded"
        ledger = (await store.status()).ledger
        assert (ledger.queued, ledger.superseded, ledger.in_flight, ledger.balance) == (1, 1, 0, 0)

    run(body)


def test_a_lost_attempt_that_comes_back_first_wins_and_its_successor_is_superseded():
    async def body(store, clock):
        (first,) = await store.lease(1)
        store.reissue_lost(issued_before_s=1)
        (second,) = await store.lease(1)
        assert await store.commit(trajectory(first.attempt)) == "queued"
        assert await store.commit(trajectory(second.attempt)) == "superseded"

    run(body)


def test_a_lost_attempt_that_comes_back_before_it_is_issued_again_needs_no_successor():
    async def body(store, clock):
        (first,) = await store.lease(1)
        store.reissue_lost(issued_before_s=1)
        await store.commit(trajectory(first.attempt))
        assert [lease.attempt for lease in await store.lease(1)] == [AttemptId(1)]

    run(body)


def test_only_old_leases_are_lost_and_each_is_issued_again_once():
    async def body(store, clock):
        (old,) = await store.lease(1)
        await clock.sleep_until(10)
        (young,) = await store.lease(1)
        assert store.reissue_lost(issued_before_s=10) == [old.attempt]
        assert store.reissue_lost(issued_before_s=10) == []
        (again,) = await store.lease(1)
        assert again.attempt.draw == 0
        assert store.reissue_lost(issued_before_s=10) == []
        assert store.reissue_lost(issued_before_s=11) == [young.attempt, again.attempt]

    run(body)


def test_workers_that_never_return_do_not_stop_the_run():
    async def body(store, clock):
        trained = 0
        for step in range(1, 30):
            taking = asyncio.create_task(store.take())
            while not taking.done():
                leases = await store.lease(1)
                for lease in leases:
                    if lease.attempt.draw % 5 or lease.attempt.attempt:  # the first try of each fifth draw is lost
                        await store.commit(trajectory(lease.attempt, (lease.version,)))
                await clock.sleep_until(clock.now() + 1)
                store.reissue_lost(issued_before_s=clock.now() - 1.5)
            items = taking.result()
            await store.finish_step([item.trajectory.attempt for item in items], publication(step))
            trained += len(items)
        ledger = (await store.status()).ledger
        assert ledger.trained == trained == 58
        assert ledger.superseded >= 9
        assert ledger.balance == 0

    run(body, when_too_old="wait", max_staleness=3)


def test_when_a_sample_is_given_up_what_is_lost_of_it_is_superseded():
    async def body(store, clock):
        (first,) = await store.lease(1)
        store.reissue_lost(issued_before_s=1)
        (second,) = await store.lease(1)
        await store.commit(failed(second.attempt))
        assert store.num_given_up == 1
        assert await store.commit(trajectory(first.attempt)) == "superseded"
        ledger = (await store.status()).ledger
        assert (ledger.superseded, ledger.dropped, ledger.in_flight) == (1, {"env_error": 1}, 0)

    run(body, max_attempts=1)


# -- snapshots --------------------------------------------------------------------------------------------------------


async def play(store, log, steps, first_step):
    """A deterministic run with failures, mixed versions, stragglers and groups; appends everything seen to `log`.

    Returns:
        The attempts left in flight.
    """
    held = []
    for step in range(first_step, first_step + steps):
        taking = asyncio.create_task(store.take())
        await asyncio.sleep(0)
        while not taking.done():
            leases = asyncio.create_task(store.lease(3))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if leases.done():
                held += [lease.attempt for lease in leases.result()]
            else:
                leases.cancel()
                await asyncio.gather(leases, return_exceptions=True)
            attempt = held.pop((7 * len(log)) % len(held))
            kind = (attempt.draw * 31 + attempt.sample * 7 + attempt.attempt * 3) % 10
            newest = store.newest.version
            record = failed(attempt) if kind == 0 else trajectory(attempt, (max(0, newest - kind // 4), newest))
            log.append((str(attempt), await store.commit(record)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        items = taking.result()
        log.append([(str(i.trajectory.attempt), i.staleness, i.min_trusted_version) for i in items])
        await store.finish_step([item.trajectory.attempt for item in items], publication(step))
        log.append(msgspec.to_builtins(await store.status()))
    return held


@pytest.mark.parametrize("when_too_old", ["drop", "wait", "mask_tokens"])
@pytest.mark.parametrize("group_size", [1, 3])
def test_a_restored_store_goes_on_exactly_like_the_original(when_too_old, group_size):  # faults J1, J2
    config = StoreConfig(batch_size=6, group_size=group_size, max_staleness=2, when_too_old=when_too_old)

    async def scenario():
        clock = VirtualClock(0)
        store = MemoryStore(config, clock, publication(0))
        held = await play(store, [], steps=6, first_step=1)
        data = store.snapshot()
        copy = MemoryStore.restore(data, config, clock)
        assert copy.snapshot() == data
        assert await copy.status() == await store.status()
        logs = []
        for each in (store, copy):
            # Parked episodes commit after the resume.
            log = [await each.commit(trajectory(attempt, (each.newest.version,))) for attempt in held]
            await play(each, log, steps=8, first_step=7)
            logs.append(log)
        assert logs[0] == logs[1]
        assert len(logs[0]) > 50
        assert store.snapshot() == copy.snapshot()

    asyncio.run(scenario())


def test_finished_but_untrained_trajectories_train_once_after_a_resume():  # fault J1
    config = StoreConfig(batch_size=37, max_staleness=1)

    async def scenario():
        clock = VirtualClock(0)
        store = MemoryStore(config, clock, publication(0))
        leases = await store.lease(40)
        for lease in leases[:37]:
            await store.commit(trajectory(lease.attempt))
        resumed = MemoryStore.restore(store.snapshot(), config, clock)
        items = await resumed.take()
        assert [item.trajectory.attempt for item in items] == [lease.attempt for lease in leases[:37]]
        await resumed.finish_step([item.trajectory.attempt for item in items], publication(1))
        ledger = (await resumed.status()).ledger
        assert (ledger.trained, ledger.queued, ledger.in_flight) == (37, 0, 3)
        assert [lease.attempt.draw for lease in await resumed.lease(1)] == [40]
        assert MemoryStore.ledger_of(resumed.snapshot()) == (await resumed.status()).ledger

    asyncio.run(scenario())


def test_a_snapshot_in_the_middle_of_a_step_is_refused():
    async def body(store, clock):
        for lease in await store.lease(2):
            await store.commit(trajectory(lease.attempt))
        items = await store.take()
        with pytest.raises(RunError, match="2 trajectories are taken and not trained"):
            store.snapshot()
        await store.finish_step([item.trajectory.attempt for item in items], None)
        assert store.snapshot()

    run(body)


def test_waits_and_given_up_draws_survive_a_snapshot():
    async def body(store, clock):
        leases = await store.lease(4)
        leasing, taking = asyncio.create_task(store.lease(1)), asyncio.create_task(store.take())
        await clock.sleep_until(7)
        leasing.cancel()
        taking.cancel()
        await asyncio.gather(leasing, taking, return_exceptions=True)
        await store.commit(failed(leases[0].attempt))
        resumed = MemoryStore.restore(store.snapshot(), CONFIG, VirtualClock(1, start=7.0))
        status = await resumed.status()
        assert (status.admission_wait_s, status.batch_wait_s) == (7, 7)
        assert resumed.num_given_up == 1

    run(body, max_attempts=1)


def test_a_closed_store_is_open_again_after_a_restore():
    async def body(store, clock):
        store.close()
        assert await MemoryStore.restore(store.snapshot(), CONFIG, clock).lease(1) != []

    run(body)


def test_another_group_size_cannot_resume():
    async def body(store, clock):
        with pytest.raises(ConfigError, match="group_size: got 2, but the run was started with 1"):
            MemoryStore.restore(store.snapshot(), StoreConfig(batch_size=2, group_size=2, max_staleness=1), clock)

    run(body)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda fields: msgspec.msgpack.encode(fields)[:-9], "damaged store snapshot"),
        (lambda fields: b"", "damaged store snapshot"),
        (lambda fields: msgspec.msgpack.encode(fields | {"schema": 99}), "has schema 99"),
        (lambda fields: msgspec.msgpack.encode(fields | {"num_issued": 5}), "off by 1"),
        (lambda fields: msgspec.msgpack.encode(fields | {"trained": fields["in_flight"]}), "damaged store snapshot"),
    ],
)
def test_a_damaged_snapshot_is_refused(damage, message):
    async def body(store, clock):
        await store.lease(4)
        data = damage(msgspec.msgpack.decode(store.snapshot()))
        with pytest.raises(RunError, match=message):
            MemoryStore.restore(data, CONFIG, clock)

    run(body)


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_the_version_table_can_be_read():
    async def body(store, clock):
        for lease in await store.lease(2):
            await store.commit(trajectory(lease.attempt))
        items = await store.take()
        await store.finish_step([item.trajectory.attempt for item in items], publication(1))
        assert store.publications() == (publication(0), publication(1))
        assert store.newest == publication(1)

    run(body)


def test_no_container_of_the_store_has_a_limit_at_which_it_forgets():  # fault G3
    for path in pathlib.Path(soliton.store.__path__[0]).glob("*.py"):
        assert "maxlen" not in path.read_text(), path


def test_drops_are_remembered_per_reason_in_the_snapshot():
    async def body(store, clock):
        (lease,) = await store.lease(1)
        await store.commit(failed(lease.attempt, "bad_reward"))
        resumed = MemoryStore.restore(store.snapshot(), CONFIG, clock)
        assert (await resumed.status()).ledger.dropped == {DropReason.BAD_REWARD.value: 1}
        assert await resumed.commit(failed(lease.attempt, "bad_reward")) == "dropped"

    run(body)


@pytest.mark.parametrize("when_too_old", ["drop", "wait"])
def test_the_cost_of_a_call_does_not_grow_with_what_is_outstanding(when_too_old):
    """Counts work, not seconds: a longer queue may not make a commit or a lease touch more of it."""

    def cost(batch_size):
        async def scenario():
            config = StoreConfig(batch_size=batch_size, max_staleness=1, when_too_old=when_too_old)
            store = MemoryStore(config, VirtualClock(0), publication(0))
            leases = await store.lease(2 * batch_size - 4)
            for lease in leases[: batch_size // 2]:
                await store.commit(trajectory(lease.attempt))
            record = trajectory(leases[-1].attempt)
            with Lines() as lines:
                await store.lease(1)
                await store.commit(record)
                await store.status()
            return lines.count

        return asyncio.run(scenario())

    small, large = cost(8), cost(2000)
    assert small > 20
    assert large <= small + 60


class Lines:
    """Counts executed lines of Python, comprehensions included."""

    def __enter__(self):
        self.count = 0
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, arg):
        self.count += event == "line"
        return self._trace
