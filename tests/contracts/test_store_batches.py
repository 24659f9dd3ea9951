"""What every store does: which trajectories make a batch, and which are too old for one."""

from __future__ import annotations

import pytest

from soliton.store.store import Store
from soliton.types import Lease
from tests.contracts.stores import attempts, blocks, commit, commit_all, finish, ids, start, train_batches
from tests.fakes.trajectories import failed

# -- taking ------------------------------------------------------------------------------------------------------------


def test_a_batch_is_full_or_not_there(run):  # fault F5
    async def body(store, clock):
        leases = await store.lease(8)
        waiting = await start(clock, store.take())
        for lease in leases[:3]:
            await commit(store, lease)
        await store.commit(failed(leases[3].attempt))
        await clock.sleep_until(clock.now() + 100)
        assert not waiting.done()
        await commit(store, leases[4])
        assert len(await waiting) == 4

    run(body, batch_size=4)


def test_a_cancelled_take_has_taken_nothing(run):
    async def body(store, clock):
        leases = await store.lease(2)
        await commit(store, leases[0])
        assert await blocks(clock, store.take())
        await commit(store, leases[1])
        assert len(await store.take()) == 2

    run(body)


def test_a_batch_holds_the_oldest_versions_first_and_then_the_lowest_draws(run):
    async def body(store, clock):
        leases = await store.lease(8)
        await commit(store, leases[0])
        await commit(store, leases[1])
        await finish(store, await store.take(), 1)
        for lease, versions in zip(leases[2:], [(1,), (1, 1), (0, 1), (1,), (0,), (1, 0)], strict=True):
            await commit(store, lease, *versions)
        assert [attempt.draw for attempt in ids(await store.take())] == [4, 6]

    run(body, max_staleness=3)


def test_an_unfinished_batch_is_given_again_as_it_was_and_a_finished_one_never(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit_all(store, leases)
        items = await store.take()
        await clock.sleep_until(clock.now() + 5)
        again = await store.take()
        facts = [(item.staleness, item.min_trusted_version, item.queued_s) for item in items]
        assert ids(again) == ids(items)
        assert [(item.staleness, item.min_trusted_version, item.queued_s) for item in again] == facts
        await finish(store, items, 1)
        assert ids(await store.take()) == [lease.attempt for lease in leases[2:]]

    run(body)


def test_the_last_batch_of_a_finite_stream_can_be_taken_again(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        assert ids(await store.take()) == ids(items)
        await finish(store, items, 1)
        assert await store.take() == []

    run(body, num_draws=2)


def test_an_item_says_how_long_it_was_queued(run):
    async def body(store, clock):
        leases = await store.lease(2)
        await commit(store, leases[0])
        await clock.sleep_until(clock.now() + 3)
        await commit(store, leases[1])
        items = await store.take()
        assert [item.queued_s for item in items] == pytest.approx([3, 0], abs=0.5)

    run(body)


# -- staleness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0, 1, 4, 16])
def test_staleness_at_the_bound_is_consumed_and_one_more_is_dropped_and_issued_again_once(run, bound):  # fault G8
    async def body(store, clock):
        step = bound + 1
        await train_batches(store, 1, step)
        for lease in await store.lease(2):
            await commit(store, lease, step, step - bound)
        items = await store.take()
        assert [item.staleness for item in items] == [bound, bound]
        await finish(store, items, step + 1)

        late = await store.lease(2)
        for lease in late:
            await commit(store, lease, step + 1, step + 1 - bound - 1)  # one token is too old, and that is enough
        assert await blocks(clock, store.take())
        again = await store.lease(2)
        assert [(lease.attempt.draw, lease.attempt.attempt) for lease in again] == [(x.attempt.draw, 1) for x in late]
        if bound:
            assert not {lease.attempt.draw for lease in late} & {
                lease.attempt.draw for lease in await store.lease(1000)
            }
        before = (await store.status()).ledger
        assert before.dropped == {"stale": 2}
        assert await commit(store, late[0]) == "queued"  # what it heard the first time
        assert (await store.status()).ledger == before

    run(body, max_staleness=bound)


def test_time_in_the_queue_counts_as_staleness(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(6))
        for staleness in (0, 1, 2):
            items = await store.take()
            assert [item.staleness for item in items] == [staleness] * 2
            await finish(store, items, staleness + 1)

    run(body, max_staleness=2)


async def stragglers(store: Store) -> list[Lease]:
    """Two attempts of version 0 in flight at step 2."""
    leases = await store.lease(4)
    await commit_all(store, leases[:2])
    await finish(store, await store.take(), 1)
    await commit_all(store, await store.lease(2))
    await finish(store, await store.take(), 2)
    return leases[2:]


def test_a_queue_full_of_stale_trajectories_does_not_lock_out_new_ones(run):
    async def body(store, clock):
        late = await stragglers(store)
        fresh = await store.lease(2)
        leasing = await start(clock, store.lease(9))
        await commit_all(store, late)  # staleness 2, the bound is 1
        await clock.sleep_until(clock.now() + 1)
        assert not leasing.done()
        taking = await start(clock, store.take())
        assert attempts(await leasing) == ["d2s0a1", "d3s0a1"]
        await commit_all(store, fresh)
        assert len(await taking) == 2

    run(body)


def test_dropped_lengths_are_counted_by_decile_of_all_committed_lengths(run):
    async def body(store, clock):
        late = await stragglers(store)
        await commit(store, late[0], *[0] * 50)
        await commit(store, late[1], *[0] * 60)
        assert await blocks(clock, store.take())
        assert (await store.status()).dropped_by_length_decile == (0, 0, 0, 0, 0, 0, 0, 1, 0, 1)

    run(body)


def test_waiting_holds_the_batch_until_the_old_attempt_is_there_and_consumes_it_first(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit_all(store, leases[1:3])
        await finish(store, await store.take(), 1)
        await commit_all(store, await store.lease(2))  # d4 and d5 of version 1; d0 and d3 of version 0 are in flight
        taking = await start(clock, store.take())
        await commit(store, leases[3])
        await clock.sleep_until(clock.now() + 10)
        assert not taking.done()
        wait = (await store.status()).waiting["learner"]
        assert "d0s0a0 would pass max_staleness 1" in wait.reason
        assert wait.for_s == pytest.approx(10, abs=0.5)
        await commit(store, leases[0])
        items = await taking
        assert [attempt.draw for attempt in ids(items)] == [0, 3]
        assert [item.staleness for item in items] == [1, 1]
        status = await store.status()
        assert status.hold_wait_s == pytest.approx(10, abs=0.5)
        assert status.ledger.dropped == {}

    run(body, when_too_old="wait")


def test_waiting_begins_early_enough_for_everything_that_will_be_due_at_once(run):
    async def body(store, clock):
        first, second, third = await store.lease(3)  # all of version 0, batches of one, bound 2: due at steps 0, 1, 2
        await commit(store, first)
        await finish(store, await store.take(), 1)
        (fresh,) = await store.lease(1)
        await commit(store, fresh)
        # Consuming the fresh one now would leave two that are both due at step 2.
        assert await blocks(clock, store.take())
        await commit(store, third)
        await finish(store, await store.take(), 2)
        assert await blocks(clock, store.take())
        await commit(store, second)
        items = await store.take()
        assert ids(items) == [second.attempt]
        assert items[0].staleness == 2

    run(body, batch_size=1, max_staleness=2, when_too_old="wait")


def test_waiting_ends_when_the_old_attempt_fails(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit_all(store, leases[:2])
        await finish(store, await store.take(), 1)
        await commit_all(store, await store.lease(2))
        taking = await start(clock, store.take())
        assert not taking.done()
        await store.commit(failed(leases[2].attempt))
        await store.commit(failed(leases[3].attempt))
        assert [attempt.draw for attempt in ids(await taking)] == [4, 5]

    run(body, when_too_old="wait")


def test_masking_keeps_the_trajectory_and_says_from_which_version_on_tokens_are_trusted(run):
    async def body(store, clock):
        late = await stragglers(store)
        await commit(store, late[0], 0, 1, 2)
        await commit(store, late[1], 2, 2)
        items = await store.take()
        assert [(item.staleness, item.min_trusted_version) for item in items] == [(2, 1), (0, 1)]
        assert (await store.status()).ledger.dropped == {}

    run(body, when_too_old="mask_tokens")


def test_without_masking_every_version_is_trusted(run):
    async def body(store, clock):
        await train_batches(store, 1, 3)
        await commit_all(store, await store.lease(2))
        assert [item.min_trusted_version for item in await store.take()] == [0, 0]

    run(body)


def test_without_a_bound_nothing_is_too_old(run):
    async def body(store, clock):
        old = await store.lease(2)
        await train_batches(store, 1, 20)
        await commit_all(store, old)
        assert [item.staleness for item in await store.take()] == [20, 20]

    run(body, max_staleness=None, max_outstanding=4)


def test_tokens_of_a_version_outside_this_lineage_are_rolled_back_and_their_draw_is_issued_again(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit(store, leases[0], 0, 9)
        await commit_all(store, leases[1:3])
        assert [attempt.draw for attempt in ids(await store.take())] == [1, 2]
        assert (await store.status()).ledger.dropped == {"rolled_back": 1}
        assert attempts(await store.lease(1)) == ["d0s0a1"]

    run(body)


def test_a_commit_may_come_before_the_publication_of_its_version(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        for lease in await store.lease(2):
            await commit(store, lease, 0, 1)  # the engine has version 1 already, the step is not finished
        await finish(store, items, 1)
        assert [item.staleness for item in await store.take()] == [1, 1]

    run(body)
