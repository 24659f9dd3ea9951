"""What every store does: who gets which attempt, when there is none, and what becomes of it when its worker dies."""

from __future__ import annotations

import pytest

from tests.contracts.stores import attempts, blocks, commit, commit_all, finish, start, train_batches
from tests.fakes.trajectories import failed

# -- leasing -----------------------------------------------------------------------------------------------------------


def test_draws_are_issued_in_order_and_none_twice(run):
    async def body(store, clock):
        assert attempts(await store.lease(1)) == ["d0s0a0"]
        assert attempts(await store.lease(2)) == ["d1s0a0", "d2s0a0"]
        assert attempts(await store.lease(5)) == ["d3s0a0"]

    run(body)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_lease_of_fewer_than_one_attempt_is_an_error(run, limit):
    async def body(store, clock):
        with pytest.raises(ValueError, match=f"at least 1; got {limit}"):
            await store.lease(limit)

    run(body)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_outstanding_samples_never_pass_the_admission_limit_wherever_they_are(run, bound):
    async def body(store, clock):
        limit = (bound + 1) * 4
        leases = await store.lease(1000)
        assert len(leases) == limit
        assert await blocks(clock, store.lease(1))  # all leased
        await commit_all(store, leases)
        assert await blocks(clock, store.lease(1))  # all queued
        items = await store.take()
        assert await blocks(clock, store.lease(1))  # four taken
        await finish(store, items, 1)
        assert len(await store.lease(1000)) == 4

    run(body, batch_size=4, max_staleness=bound)


def test_without_a_bound_outstanding_samples_have_their_own_limit(run):
    async def body(store, clock):
        assert len(await store.lease(1000)) == 7
        assert await blocks(clock, store.lease(1))

    run(body, max_staleness=None, max_outstanding=7)


def test_a_waiting_lease_goes_on_as_soon_as_a_step_is_finished(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        waiting = await start(clock, store.lease(5))
        assert not waiting.done()
        await finish(store, items, 1)
        assert attempts(await waiting) == ["d2s0a0", "d3s0a0"]

    run(body, max_staleness=0)


def test_a_cancelled_lease_has_issued_nothing(run):
    async def body(store, clock):
        leases = await store.lease(2)
        assert await blocks(clock, store.lease(1))
        assert (await store.status()).ledger.issued == 2
        await commit_all(store, leases)
        await finish(store, await store.take(), 1)
        assert attempts(await store.lease(1)) == ["d2s0a0"]

    run(body, max_staleness=0)


def test_a_lease_names_the_newest_version_and_the_time(run):
    async def body(store, clock):
        await train_batches(store, 1, 3)
        await clock.sleep_until(2.0)
        (lease,) = await store.lease(1)
        assert lease.version == 3
        assert lease.issued_s == pytest.approx(2.0, abs=0.5)

    run(body)


def test_a_run_resumed_at_version_1000_admits_no_more_than_a_new_one(run):  # fault G1
    async def body(store, clock):
        leases = await store.lease(10_000)
        assert len(leases) == 8
        assert {lease.version for lease in leases} == {1000}
        await commit_all(store, leases)
        items = await store.take()
        assert [item.staleness for item in items] == [0, 0]
        await finish(store, items, 1001)
        assert len(await store.lease(10_000)) == 2

    run(body, first_step=1000, max_staleness=3)


# -- lost workers ------------------------------------------------------------------------------------------------------


def test_the_attempts_of_a_dead_worker_are_issued_again_and_those_of_others_are_not(run):  # fault H1
    async def body(store, clock):
        mine = await store.lease(2, "worker-0")
        await store.lease(2, "worker-1")
        assert {lease.holder for lease in mine} == {"worker-0"}
        assert store.lose("worker-0") == [lease.attempt for lease in mine]
        assert store.lose("worker-0") == []
        assert store.lose("nobody") == []
        again = await store.lease(9, "worker-2")
        assert attempts(again) == ["d0s0a1", "d1s0a1"]
        assert await commit(store, again[0]) == "queued"
        assert await commit(store, mine[0]) == "superseded"  # it was not dead after all
        ledger = (await store.status()).ledger
        assert (ledger.in_flight, ledger.superseded, ledger.queued, ledger.balance) == (4, 1, 1, 0)

    run(body)


def test_a_retry_that_fails_does_not_wait_for_the_dead(run):  # fault H1
    async def body(store, clock):
        await store.lease(1, "worker-0")
        store.lose("worker-0")
        (again,) = await store.lease(1, "worker-1")
        await store.commit(failed(again.attempt))
        assert attempts(await store.lease(1, "worker-1")) == ["d0s0a2"]

    run(body)


def test_everybody_may_be_lost_at_once(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit(store, leases[0])
        assert store.lose(None) == [lease.attempt for lease in leases[1:]]
        assert attempts(await store.lease(9)) == ["d1s0a1", "d2s0a1", "d3s0a1"]

    run(body)
