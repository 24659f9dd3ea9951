"""The learner's store: a batch that is ready travels while the critic is fitted."""

import asyncio
import threading

import pytest

from soliton.runtime.clock import RealClock
from soliton.runtime.local.connection import Connection
from soliton.runtime.local.learner import LearnersStore, tell_while_fitting
from soliton.store.config import StoreConfig
from soliton.store.hub import hub_app
from soliton.store.memory import MemoryStore
from soliton.store.serving import serve
from tests.fakes.hub import RUN_ID, TOKEN
from tests.fakes.trajectories import publication, trajectory


def with_learners_store(body):
    """Run `body(remote, owned, stop)` with a hub of batches of two."""

    async def main():
        owned = MemoryStore(StoreConfig(batch_size=2, max_staleness=4), RealClock(), publication(0))
        app = hub_app(owned, token=TOKEN, run_id=RUN_ID)
        async with serve(app) as url:
            connection = Connection(url=url, token=TOKEN, run_id=RUN_ID, controller=1, clock_origin_s=0.0)
            async with LearnersStore(connection, stop := asyncio.Event()) as remote:
                await body(remote, owned, stop)

    asyncio.run(main())


async def roll_out(owned, n):
    for lease in await owned.lease(n):
        await owned.commit(trajectory(lease.attempt))


def attempts(items):
    return [item.trajectory.attempt for item in items]


def test_the_next_batch_is_there_before_it_is_asked_for():
    async def body(remote, owned, stop):
        await roll_out(owned, 4)
        first = await remote.take()
        await remote.finish_step(attempts(first), publication(1))
        ahead = attempts(await owned.take())  # what the hub has handed out; a batch comes until it is finished
        second = await remote.take()
        assert attempts(second) == ahead
        assert set(attempts(first)) & set(ahead) == set()
        assert [item.staleness for item in second] == [1, 1]
        await remote.finish_step(attempts(second), publication(2))
        assert (await remote.status()).ledger.trained == 4

    with_learners_store(body)


def test_no_batch_ahead_is_no_wait_for_one():
    async def body(remote, owned, stop):
        await roll_out(owned, 2)
        first = await remote.take()
        await remote.finish_step(attempts(first), publication(1))
        await asyncio.sleep(0.3)  # the critic is fitted, nothing is ready
        assert (await remote.status()).batch_wait_s < 0.1
        taking = asyncio.ensure_future(remote.take())
        await asyncio.sleep(0.3)
        assert "learner" in (await remote.status()).waiting
        await roll_out(owned, 2)
        assert len(await taking) == 2

    with_learners_store(body)


def test_a_learner_that_shall_stop_gets_no_batch_that_came_ahead_and_it_comes_again():
    async def body(remote, owned, stop):
        await roll_out(owned, 4)
        await remote.finish_step(attempts(await remote.take()), publication(1))
        stop.set()
        assert await remote.take() == []
        assert len(await owned.take()) == 2

    with_learners_store(body)


def test_the_store_is_told_while_the_fit_runs_and_a_refusal_is_not_lost():
    told, fitted = threading.Event(), []

    async def tell():
        told.set()

    def fit():
        fitted.append(told.wait(5))  # would never be told if the fit held the loop
        return {"critic/loss": 0.5}

    assert asyncio.run(tell_while_fitting(tell, fit)) == {"critic/loss": 0.5}
    assert fitted == [True]

    async def refused():
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        asyncio.run(tell_while_fitting(refused, dict))
