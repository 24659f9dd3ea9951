"""What every store does when the stream ends, and what it says of itself."""

from __future__ import annotations

import asyncio

import pytest

from soliton.reasons import DropReason
from soliton.store.ledger import STORE_REASONS
from soliton.types import AttemptId
from tests.contracts.stores import attempts, blocks, commit, commit_all, finish, ids, start
from tests.fakes.trajectories import failed

# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_finite_stream_ends_with_its_last_full_batch(run):
    async def body(store, clock):
        trained: list[int] = []
        while leases := await store.lease(2):
            await commit_all(store, leases)
            items = await store.take()
            trained += [attempt.draw for attempt in ids(items)]
            await finish(store, items, len(trained) // 2)
        assert trained == [0, 1, 2, 3]
        assert await store.take() == []

    run(body, num_draws=5)


def test_a_lease_waits_at_the_end_of_the_stream_while_something_may_have_to_be_tried_again(run):
    async def body(store, clock):
        leases = await store.lease(9)
        assert len(leases) == 2
        leasing = await start(clock, store.lease(9))
        assert "no draw is left" in (await store.status()).waiting["rollouts"].reason
        await store.commit(failed(leases[0].attempt))
        assert attempts(await leasing) == ["d0s0a1"]

    run(body, num_draws=2)


def test_rollouts_end_while_the_last_batch_is_still_being_trained(run):  # fault H8
    async def body(store, clock):
        await commit_all(store, await store.lease(9))
        items = await store.take()
        assert await store.lease(9) == []
        await finish(store, items, 1)
        assert await store.take() == []

    run(body, num_draws=2)


def test_everybody_is_told_when_failures_leave_too_little_for_a_batch(run):
    async def body(store, clock):
        leases = await store.lease(9)
        await commit(store, leases[0])
        taking, leasing = await start(clock, store.take()), await start(clock, store.lease(1))
        await store.commit(failed(leases[1].attempt))
        assert (await taking, await leasing) == ([], [])
        ledger = (await store.status()).ledger
        assert (ledger.queued, ledger.dropped, ledger.balance) == (1, {"env_error": 1}, 0)

    run(body, num_draws=2, max_attempts=1)


def test_a_stream_shorter_than_a_batch_invents_nothing(run):  # fault F7
    async def body(store, clock):
        assert await store.lease(5) == []
        assert await store.take() == []

    run(body, num_draws=1)


def test_closing_ends_every_wait_and_still_accepts_commits(run):  # fault H8
    async def body(store, clock):
        leases = await store.lease(4)
        calls = [await start(clock, store.lease(1)), await start(clock, store.take())]
        assert not any(call.done() for call in calls)
        store.close()
        assert [await call for call in calls] == [[], []]
        assert await store.lease(1) == []
        assert await store.take() == []
        assert await commit(store, leases[0]) == "queued"

    run(body)


# -- looking on --------------------------------------------------------------------------------------------------------


def test_the_ledger_says_where_each_attempt_is(run):
    async def body(store, clock):
        leases = await store.lease(6)
        await commit_all(store, leases[:3])
        await store.commit(failed(leases[3].attempt))
        items = await store.take()
        ledger = (await store.status()).ledger
        assert (ledger.issued, ledger.in_flight, ledger.queued, ledger.trained) == (6, 2, 3, 0)  # taken ones are queued
        await finish(store, items, 1)
        ledger = (await store.status()).ledger
        assert (ledger.in_flight, ledger.queued, ledger.trained, ledger.superseded) == (2, 1, 2, 0)
        assert ledger.dropped == {"env_error": 1}
        assert ledger.balance == 0

    run(body, max_staleness=2)


def test_each_wait_is_measured_and_says_its_reason(run):  # fault H10
    async def body(store, clock):
        assert (await store.status()).waiting == {}
        leases = await store.lease(4)
        first, second = await start(clock, store.lease(1)), await start(clock, store.lease(1))
        taking = await start(clock, store.take())
        await clock.sleep_until(clock.now() + 10)
        status = await store.status()
        assert {role: wait.reason for role, wait in status.waiting.items()} == {
            "rollouts": "rollouts wait: 4 of 4 outstanding",
            "learner": "learner waits: 0 of 2 trajectories ready",
        }
        assert [wait.for_s for wait in status.waiting.values()] == pytest.approx([10, 10], abs=0.5)
        assert status.admission_wait_s == pytest.approx(10, abs=0.5)  # two callers at once count once
        assert status.batch_wait_s == pytest.approx(10, abs=0.5)
        assert status.hold_wait_s == 0
        await commit_all(store, leases[:2])
        await finish(store, await taking, 1)
        await asyncio.gather(first, second)
        await clock.sleep_until(clock.now() + 50)
        after = await store.status()
        assert after.waiting == {}
        assert after.admission_wait_s == pytest.approx(10, abs=0.5)

    run(body)


def test_a_paused_learner_loses_nothing_of_thousands_of_commits(run):  # fault G3
    async def body(store, clock):
        leases = await store.lease(2000)
        await asyncio.gather(*(commit(store, lease) for lease in leases))
        assert (await store.status()).ledger.queued == 2000
        assert await blocks(clock, store.lease(1))
        seen: list[AttemptId] = []
        for step in range(1, 6):
            items = await store.take()
            seen += ids(items)
            await finish(store, items, step)
        assert seen == [lease.attempt for lease in leases]

    run(body, batch_size=400, max_staleness=None, max_outstanding=2000)


def test_every_reason_of_a_worker_is_counted_under_itself(run):
    async def body(store, clock):
        reasons = [reason for reason in DropReason if reason not in STORE_REASONS]
        for reason, lease in zip(reasons, await store.lease(len(reasons)), strict=True):
            await store.commit(failed(lease.attempt, reason.value))
        assert (await store.status()).ledger.dropped == {reason.value: 1 for reason in reasons}

    run(body, batch_size=8)
