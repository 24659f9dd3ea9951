"""What every store does with a trajectory whose reward comes later, from outside."""

from __future__ import annotations

import pytest

from soliton.awaited import AwaitedReward
from soliton.errors import RunError
from soliton.reasons import Status
from soliton.store.config import StoreConfig
from soliton.store.rewards import TooEarlyError, awaits_reward
from soliton.types import AttemptId
from tests.contracts.stores import IMPLEMENTATIONS, blocks, finish, start
from tests.fakes.trajectories import publication, trajectory


@pytest.fixture(params=IMPLEMENTATIONS)
def run(request):
    def run_body(body, **config):
        settings = StoreConfig(**{"batch_size": 1, "max_staleness": 3} | config)
        IMPLEMENTATIONS[request.param](settings, publication(0), body)

    return run_body


async def hand_in(store, within_s=1000.0, **awaited):
    """Lease one attempt and commit it with a reward to come."""
    (lease,) = await store.lease(1)
    record = trajectory(
        lease.attempt,
        (lease.version,) * 2,
        reward_values=[0.25],
        awaited=AwaitedReward(within_s=within_s, **awaited),
    )
    return lease.attempt, record, await store.commit(record)


def test_it_waits_outside_the_queue_and_counts_as_in_flight_until_its_reward_comes(run):
    async def body(store, clock):
        attempt, _, ack = await hand_in(store)
        assert ack == "queued"
        ledger = (await store.status()).ledger
        assert (ledger.in_flight, ledger.queued, ledger.balance) == (1, 0, 0)
        assert await blocks(clock, store.take())
        taking = await start(clock, store.take())
        assert "1 await their reward" in (await store.status()).waiting["learner"].reason
        assert await store.reward(attempt, 0.5) == "accepted"
        (item,) = await taking
        assert item.trajectory.attempt == attempt
        assert item.trajectory.total_reward == 0.75
        assert item.trajectory.awaited.value == 0.5
        assert not awaits_reward(item.trajectory)
        await finish(store, [item], 1)
        assert (await store.status()).ledger.trained == 1

    run(body)


def test_the_same_reward_again_is_acknowledged_and_another_one_is_refused(run):
    async def body(store, clock):
        attempt, _, _ = await hand_in(store)
        assert await store.reward(attempt, 1.0) == "accepted"

        async def post_again():
            assert await store.reward(attempt, 1.0) == "repeated"
            with pytest.raises(RunError, match=r"was rewarded with 1\.0; it cannot be rewarded again with 0\.5"):
                await store.reward(attempt, 0.5)

        await post_again()  # queued
        items = await store.take()
        await post_again()  # taken
        assert [item.trajectory.total_reward for item in items] == [1.25]
        await finish(store, items, 1)
        await post_again()  # trained

    run(body)


def test_without_its_reward_at_the_deadline_it_is_dropped_with_a_reason_and_tried_again(run):
    async def body(store, clock):
        attempt, record, _ = await hand_in(store, within_s=5.0)
        taking = await start(clock, store.take())
        await clock.sleep_until(clock.now() + 6.0)
        ledger = (await store.status()).ledger
        assert ledger.dropped == {"reward_timeout": 1}
        assert (ledger.in_flight, ledger.balance) == (0, 0)
        with pytest.raises(RunError, match="awaits no reward: it is over, or its deadline has passed"):
            await store.reward(attempt, 1.0)
        assert await store.commit(record) == "queued"  # as the first time
        (again,) = await store.lease(1)
        assert again.attempt == AttemptId(attempt.draw, attempt.sample, 1)
        await store.commit(trajectory(again.attempt, (again.version,)))
        assert [item.trajectory.attempt for item in await taking] == [again.attempt]

    run(body)


def test_a_learner_that_waits_alone_sees_the_deadline_pass(run):
    async def body(store, clock):
        await hand_in(store, within_s=5.0)
        leasing = await start(clock, store.lease(8))
        assert len(await leasing) == 3  # the admission limit holds the place of the one that waits
        assert [lease.attempt.attempt for lease in await store.lease(8)] == [1]
        assert (await store.status()).ledger.dropped == {"reward_timeout": 1}

    run(body)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39, 1.5, -0.1])
def test_a_reward_that_is_no_number_of_the_allowed_range_is_refused_and_still_awaited(run, value):  # fault L5
    async def body(store, clock):
        attempt, _, _ = await hand_in(store, low=0.0, high=1.0)
        with pytest.raises(ValueError):
            await store.reward(attempt, value)
        assert (await store.status()).ledger.in_flight == 1
        assert await store.reward(attempt, 1.0) == "accepted"

    run(body)


def test_a_reward_for_an_attempt_that_awaits_none_is_refused_with_its_reason(run):  # fault L5
    async def body(store, clock):
        with pytest.raises(RunError, match="which this store never issued"):
            await store.reward(AttemptId(7), 1.0)
        (lease,) = await store.lease(1)
        with pytest.raises(TooEarlyError, match="is still running"):
            await store.reward(lease.attempt, 1.0)
        await store.commit(trajectory(lease.attempt, (lease.version,)))
        with pytest.raises(RunError, match="awaits no reward"):
            await store.reward(lease.attempt, 1.0)
        ledger = (await store.status()).ledger
        assert (ledger.queued, ledger.balance) == (1, 0)

    run(body)


def test_it_is_not_lost_with_its_worker(run):
    async def body(store, clock):
        attempt, record, _ = await hand_in(store)
        assert store.lose(None) == []
        assert await store.commit(record) == "queued"  # handed in twice, once over
        assert (await store.status()).ledger.in_flight == 1
        assert await store.reward(attempt, 1.0) == "accepted"
        assert len(await store.take()) == 1

    run(body)


def test_it_is_superseded_by_another_attempt_of_its_sample_that_is_accepted_first(run):
    async def body(store, clock):
        (lease,) = await store.lease(1)
        store.lose(None)
        (other,) = await store.lease(1)
        assert other.attempt == AttemptId(0, 0, 1)
        record = trajectory(lease.attempt, (0,), awaited=AwaitedReward(within_s=1000.0))
        await store.commit(record)
        await store.commit(trajectory(other.attempt, (0,)))
        assert (await store.status()).ledger.superseded == 1
        with pytest.raises(RunError, match="awaits no reward"):
            await store.reward(lease.attempt, 1.0)

    run(body)


def test_members_of_a_group_wait_for_each_others_rewards(run):
    async def body(store, clock):
        leases = await store.lease(2)
        for lease in leases:
            await store.commit(trajectory(lease.attempt, (0,), awaited=AwaitedReward(within_s=1000.0)))
        await store.reward(leases[0].attempt, 0.0)
        assert await blocks(clock, store.take())
        await store.reward(leases[1].attempt, 1.0)
        assert [item.trajectory.total_reward for item in await store.take()] == [1.0, 2.0]

    run(body, batch_size=2, group_size=2)


def test_a_truncated_trajectory_cannot_await_a_reward_and_a_failed_one_awaits_none():
    with pytest.raises(ValueError, match="a truncated trajectory awaits no reward"):
        trajectory(status=Status.TRUNCATED, reason="turn_limit", awaited=AwaitedReward(within_s=1.0))
    failed = trajectory(
        status=Status.FAILED,
        reason="env_error",
        reward_positions=[],
        reward_values=[],
        awaited=AwaitedReward(within_s=1.0),
    )
    assert not awaits_reward(failed)


@pytest.mark.parametrize(
    "fields", [{"within_s": 0.0}, {"within_s": float("inf")}, {"within_s": 1.0, "low": 2.0, "high": 1.0}]
)
def test_a_reward_that_could_never_come_cannot_be_asked_for(fields):
    with pytest.raises(ValueError):
        AwaitedReward(**fields)
