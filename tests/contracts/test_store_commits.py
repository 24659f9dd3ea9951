"""What every store does with what rollouts hand in: once, counted, and only while there is room."""

from __future__ import annotations

import asyncio

import pytest

from soliton.errors import RunError
from soliton.types import AttemptId
from tests.contracts.stores import attempts, commit, commit_all, finish, ids, start
from tests.fakes.trajectories import failed, trajectory

# -- committing --------------------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_counted_under_its_reason_and_issued_again_before_new_draws(run):  # fault F10
    async def body(store, clock):
        leases = await store.lease(3)
        assert await store.commit(failed(leases[1].attempt, "env_timeout")) == "dropped"
        assert await store.commit(failed(leases[0].attempt, "engine_error")) == "dropped"
        assert attempts(await store.lease(3)) == ["d0s0a1", "d1s0a1", "d3s0a0"]
        assert (await store.status()).ledger.dropped == {"env_timeout": 1, "engine_error": 1}

    run(body)


def test_a_failed_attempt_never_reaches_the_learner(run):  # fault B13
    async def body(store, clock):
        leases = await store.lease(4)
        for lease in leases[:2]:
            await store.commit(failed(lease.attempt))
        await commit_all(store, leases[2:])
        items = await store.take()
        assert ids(items) == [lease.attempt for lease in leases[2:]]
        assert all(item.trajectory.reason is None for item in items)

    run(body)


def test_a_draw_is_given_up_after_its_last_attempt_and_the_run_goes_on(run):
    async def body(store, clock):
        for attempt in range(3):
            (lease,) = await store.lease(1)
            assert lease.attempt == AttemptId(0, 0, attempt)
            await store.commit(failed(lease.attempt))
        assert attempts(await store.lease(9)) == ["d1s0a0", "d2s0a0"]
        status = await store.status()
        assert status.ledger.dropped == {"env_error": 3}
        assert status.ledger.balance == 0
        assert status.num_given_up == 1

    run(body, max_staleness=0)


@pytest.mark.parametrize("reason", ["stale", "group_too_small", "rolled_back", "damaged"])
def test_a_worker_cannot_fail_for_a_reason_that_only_a_store_gives(run, reason):
    async def body(store, clock):
        (lease,) = await store.lease(1)
        with pytest.raises(ValueError, match=f"'{reason}', which only a store gives"):
            await store.commit(failed(lease.attempt, reason))
        assert (await store.status()).ledger.in_flight == 1

    run(body)


def test_the_same_commit_again_gets_the_same_answer_and_is_counted_once(run):
    async def body(store, clock):
        good, bad = await store.lease(2)
        for _ in range(3):
            assert await commit(store, good) == "queued"
            assert await store.commit(failed(bad.attempt)) == "dropped"
        ledger = (await store.status()).ledger
        assert (ledger.issued, ledger.queued, ledger.dropped) == (2, 1, {"env_error": 1})

    run(body)


def test_a_commit_repeated_after_training_trains_nothing_again(run):
    async def body(store, clock):
        leases = await store.lease(2)
        await commit_all(store, leases)
        items = await store.take()
        assert await commit(store, leases[0]) == "queued"
        await finish(store, items, 1)
        assert await commit(store, leases[0]) == "queued"
        ledger = (await store.status()).ledger
        assert (ledger.trained, ledger.queued) == (2, 0)

    run(body)


def test_a_commit_after_a_failed_one_of_the_same_attempt_changes_nothing(run):
    async def body(store, clock):
        (lease,) = await store.lease(1)
        await store.commit(failed(lease.attempt))
        assert await commit(store, lease) == "dropped"
        assert (await store.status()).ledger.queued == 0

    run(body)


def test_a_commit_of_an_attempt_that_was_never_issued_is_an_error(run):
    async def body(store, clock):
        await store.lease(1)
        for unknown in (AttemptId(0, 0, 1), AttemptId(0, 1, 0), AttemptId(7, 0, 0)):
            with pytest.raises(RunError, match=f"{unknown}, which this store never issued"):
                await store.commit(trajectory(unknown))
        assert (await store.status()).ledger.balance == 0

    run(body)


# -- limits on bytes ---------------------------------------------------------------------------------------------------


ONE_BYTE = {"max_queued_bytes": 1}


def test_rollouts_wait_for_room_only_while_a_full_batch_is_ready(run):  # fault H7
    async def body(store, clock):
        leases = await store.lease(6)
        await commit(store, leases[0])
        assert await commit(store, leases[1]) == "queued"  # over the limit, but the learner needs a full batch
        assert (await store.status()).queued_bytes > 1
        leasing, committing = await start(clock, store.lease(1)), await start(clock, commit(store, leases[2]))
        assert not leasing.done()
        assert not committing.done()
        wait = (await store.status()).waiting["rollouts"]
        assert "of 1 bytes queued, and a full batch is ready" in wait.reason
        assert await store.commit(failed(leases[3].attempt)) == "dropped"  # takes no room
        assert await commit(store, leases[0]) == "queued"  # neither does a repetition
        items = await store.take()
        await finish(store, items, 1)
        assert await committing == "queued"
        assert attempts(await leasing) == ["d3s0a1"]
        assert (await store.status()).ledger.balance == 0

    run(body, max_staleness=2, **ONE_BYTE)


def test_a_limit_of_one_byte_still_trains_everything(run):
    async def body(store, clock):
        async def roll_out():
            while leases := await store.lease(3):
                await asyncio.gather(*(commit(store, lease) for lease in leases))

        rollouts = asyncio.create_task(roll_out())
        trained: list[int] = []
        while items := await store.take():
            trained += [attempt.draw for attempt in ids(items)]
            await clock.sleep_until(clock.now() + 1)
            await finish(store, items, len(trained) // 2)
        assert trained == list(range(20))
        await rollouts

    run(body, num_draws=20, max_staleness=3, **ONE_BYTE)


def test_what_the_learner_is_held_for_always_has_room(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit_all(store, leases[1:3])
        await finish(store, await store.take(), 1)
        await commit_all(store, await store.lease(2))  # a full batch of version 1; d0 and d3 are due
        taking = await start(clock, store.take())
        assert not taking.done()
        await store.commit(failed(leases[0].attempt))
        assert attempts(await store.lease(1)) == ["d0s0a1"]
        assert await commit(store, leases[3]) == "queued"
        assert 3 in [attempt.draw for attempt in ids(await taking)]

    run(body, when_too_old="wait", **ONE_BYTE)


def test_a_commit_that_waits_for_room_is_let_in_when_the_run_is_closed(run):
    async def body(store, clock):
        leases = await store.lease(3)
        await commit_all(store, leases[:2])
        committing = await start(clock, commit(store, leases[2]))
        assert not committing.done()
        store.close()
        assert await committing == "queued"

    run(body, **ONE_BYTE)
