"""What every store does, whoever implements it. A new implementation is one more entry of IMPLEMENTATIONS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import pytest

from soliton.errors import RunError
from soliton.reasons import DropReason
from soliton.runtime.clock import VirtualClock
from soliton.store.config import StoreConfig
from soliton.store.ledger import STORE_REASONS
from soliton.store.limits import HubLimits
from soliton.store.memory import MemoryStore
from soliton.store.store import BatchItem, Store
from soliton.types import AttemptId, Clock, Lease, Publication
from tests.fakes.hub import over_http
from tests.fakes.sqlite import open_sqlite
from tests.fakes.trajectories import failed, publication, trajectory


class OwnedStore(Store, Protocol):
    def close(self) -> None: ...

    def lose(self, holder: str | None) -> list[AttemptId]: ...


Body = Callable[[OwnedStore, Clock], Awaitable[None]]
Make = Callable[[StoreConfig, Clock, Publication | None], Any]
Run = Callable[[StoreConfig, Publication | None, Body], None]


def run_memory(config: StoreConfig, initial: Publication | None, body: Body) -> None:
    clock = VirtualClock(0)

    async def main() -> None:
        await body(MemoryStore(config, clock, initial), clock)

    clock.run(main())


def run_sqlite(config: StoreConfig, initial: Publication | None, body: Body) -> None:
    clock = VirtualClock(0)

    async def main() -> None:
        store = open_sqlite(config, clock, initial)
        await body(store, clock)
        store.close_file()

    clock.run(main())


def over_hub(make: Make) -> Run:
    """The same store, reached through a real hub on loopback; virtual time jumps when nothing is under way on it."""

    def run_over_hub(config: StoreConfig, initial: Publication | None, body: Body) -> None:
        clock = VirtualClock(0, quiet_s=0.02)

        async def main() -> None:
            async with over_http(make(config, clock, initial), clock, hub=HubLimits(retry_after_s=0.01)) as store:
                await body(store, clock)

        clock.run(main())

    return run_over_hub


IMPLEMENTATIONS = {
    "memory": run_memory,
    "sqlite": run_sqlite,
    "memory over HTTP": over_hub(MemoryStore),
    "sqlite over HTTP": over_hub(open_sqlite),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def run(request):
    def run_body(body: Body, first_step: int | None = 0, **config: Any) -> None:
        """`first_step` None: no policy is published yet."""
        settings = StoreConfig(**{"batch_size": 2, "max_staleness": 1} | config)
        initial = None if first_step is None else publication(first_step, first=first_step)
        IMPLEMENTATIONS[request.param](settings, initial, body)

    return run_body


async def commit(store: Store, lease: Lease, *versions: int) -> str:
    return await store.commit(trajectory(lease.attempt, versions or (lease.version,)))


async def commit_all(store: Store, leases: list[Lease]) -> None:
    for lease in leases:
        await commit(store, lease)


async def finish(store: Store, items: list[BatchItem], step: int | None) -> None:
    await store.finish_step(ids(items), None if step is None else publication(step))


def ids(items: list[BatchItem]) -> list[AttemptId]:
    return [item.trajectory.attempt for item in items]


def attempts(leases: list[Lease]) -> list[str]:
    return [str(lease.attempt) for lease in leases]


async def start(clock: Clock, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a call and give it time to finish or to block."""
    task = asyncio.create_task(call)
    await clock.sleep_until(clock.now() + 0.01)
    return task


async def blocks(clock: Clock, call: Coroutine[Any, Any, Any]) -> bool:
    """Whether a call waits; it is cancelled then."""
    task = await start(clock, call)
    waits = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return waits


async def train_batches(store: Store, first_step: int, count: int) -> None:
    """Lease, commit and train `count` whole batches of new draws."""
    for step in range(first_step, first_step + count):
        items: list[BatchItem] = []
        while not items:
            await commit_all(store, await store.lease(2))
            items = await store.take()
        await finish(store, items, step)


# -- leasing ----------------------------------------------------------------------------------------------------------


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


# -- committing -------------------------------------------------------------------------------------------------------


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


# -- lost workers -----------------------------------------------------------------------------------------------------


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


# -- limits on bytes --------------------------------------------------------------------------------------------------

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


# -- taking -----------------------------------------------------------------------------------------------------------


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


# -- staleness --------------------------------------------------------------------------------------------------------


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


# -- finishing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["unknown", "missing", "twice", "other"])
def test_a_step_finishes_exactly_its_batch(run, wrong):
    async def body(store, clock):
        leases = await store.lease(4)
        await commit_all(store, leases)
        items = await store.take()
        good = ids(items)
        named = {
            "unknown": [*good, AttemptId(99)],
            "missing": good[:1],
            "twice": [good[0], *good],
            "other": [good[0], leases[3].attempt],
        }[wrong]
        with pytest.raises(RunError, match="name each member of the batch once"):
            await store.finish_step(named, publication(1))
        status = await store.status()
        assert (status.step, status.ledger.trained, status.ledger.queued) == (0, 0, 4)
        await store.finish_step(good[::-1], publication(1))
        assert (await store.status()).ledger.trained == 2

    run(body)


@pytest.mark.parametrize("moved", [True, False])
def test_a_step_finished_again_after_a_lost_answer_changes_nothing(run, moved):
    async def body(store, clock):
        await commit_all(store, await store.lease(4))
        items = await store.take()
        await finish(store, items, 1 if moved else None)
        before = await store.status()
        await finish(store, items, 1 if moved else None)
        assert await store.status() == before
        second = await store.take()  # a late repetition, after the learner has gone on
        await finish(store, items, 1 if moved else None)
        assert ids(await store.take()) == ids(second)
        status = await store.status()
        assert (status.ledger.trained, status.batches, status.step) == (2, 1, int(moved))

    run(body)


def test_a_batch_cannot_be_finished_again_with_another_publication(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        await finish(store, items, 1)
        with pytest.raises(RunError, match=r"batch 0 was finished with .*version=1.*cannot be finished again"):
            await finish(store, items, 2)
        with pytest.raises(RunError, match="neither a batch nor a publication"):
            await store.finish_step([], None)
        status = await store.status()
        assert (status.ledger.trained, status.batches, status.step) == (2, 1, 1)

    run(body)


def test_a_resumed_learner_publishes_its_policy_again_under_a_new_number(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(4))
        await finish(store, await store.take(), 1)
        again = Publication(version=2, parent=1, step=1, sha256=publication(1).sha256)
        await store.finish_step([], again)
        await store.finish_step([], again)  # its answer was lost
        status = await store.status()
        assert (status.version, status.step, status.batches, status.ledger.trained) == (2, 1, 1, 2)
        items = await store.take()
        assert [item.staleness for item in items] == [1, 1]
        (lease,) = await store.lease(1)
        assert lease.version == 2
        await store.finish_step(ids(items), Publication(version=3, parent=2, step=2, sha256="x"))
        assert (await store.status()).step == 2

    run(body)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Publication(1, 0, 1, "x"), "comes without a batch, so it must be version 0 again"),
        (Publication(1, 0, 0, "another"), "hash another"),
        (Publication(1, -1, 0, f"{0:064x}"), "its parent is -1; the newest version is 0"),
    ],
)
def test_without_a_batch_nothing_but_the_newest_policy_can_be_published(run, wrong, message):
    async def body(store, clock):
        with pytest.raises(RunError, match=message):
            await store.finish_step([], wrong)
        assert (await store.status()).version == 0

    run(body)


def test_a_batch_cannot_be_skipped_by_a_publication(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        with pytest.raises(RunError, match="comes without a batch, so it must be version 0 again"):
            await store.finish_step([], publication(1))
        await finish(store, items, 1)
        assert (await store.status()).ledger.trained == 2

    run(body)


def test_a_batch_that_went_to_a_dead_learner_is_given_back_when_the_next_one_begins(run):
    """The last call of a killed learner may be answered after the store has gone back for the next one."""

    async def body(store, clock):
        await commit_all(store, await store.lease(4))
        late = await store.take()
        again = Publication(version=1, parent=0, step=0, sha256=publication(0).sha256)
        await store.finish_step([], again)
        with pytest.raises(RunError, match="names 2 attempts, the batch has 0"):
            await store.finish_step(ids(late), publication(2))
        items = await store.take()
        assert ids(items) == ids(late)
        await store.finish_step(ids(items), Publication(version=2, parent=1, step=1, sha256="x"))
        status = await store.status()
        assert (status.ledger.trained, status.ledger.queued, status.ledger.balance) == (2, 2, 0)

    run(body)


def test_rollouts_wait_for_the_first_policy_and_say_so(run):
    async def body(store, clock):
        assert (await store.status()).version == -1
        leasing = await start(clock, store.lease(1))
        await clock.sleep_until(clock.now() + 3)
        wait = (await store.status()).waiting["rollouts"]
        assert wait.reason == "rollouts wait: no policy has been published yet"
        assert wait.for_s == pytest.approx(3, abs=0.5)
        with pytest.raises(RunError, match="its parent is 3; the newest version is -1"):
            await store.finish_step([], Publication(4, 3, 0, "x"))
        await store.finish_step([], publication(0))
        (lease,) = await leasing
        assert (lease.version, lease.attempt.draw) == (0, 0)
        assert (await store.status()).version == 0

    run(body, first_step=None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Publication(0, -1, 1, "x"), "versions grow, none is reused"),
        (Publication(2, 1, 1, "x"), "its parent is 1; the newest version is 0"),
        (Publication(1, 0, 2, "x"), "the step after 0 is due"),
        (Publication(1, 0, 0, "x"), "the step after 0 is due"),
    ],
)
def test_a_publication_follows_the_newest_one(run, wrong, message):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        items = await store.take()
        with pytest.raises(RunError, match=message):
            await store.finish_step(ids(items), wrong)
        assert (await store.status()).ledger.trained == 0
        await finish(store, items, 1)

    run(body)


def test_version_numbers_may_leave_gaps(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(2))
        await store.finish_step(ids(await store.take()), Publication(version=50, parent=0, step=1, sha256="x"))
        (lease,) = await store.lease(1)
        assert lease.version == 50
        assert (await store.status()).step == 1

    run(body)


def test_a_step_that_moved_no_actor_ages_nothing(run):
    async def body(store, clock):
        await commit_all(store, await store.lease(4))
        await finish(store, await store.take(), None)
        items = await store.take()
        assert [item.staleness for item in items] == [0, 0]
        status = await store.status()
        assert (status.step, status.version, status.ledger.trained) == (0, 0, 2)

    run(body)


# -- groups -----------------------------------------------------------------------------------------------------------


def test_the_samples_of_a_draw_are_issued_one_after_the_other(run):
    async def body(store, clock):
        names = attempts(await store.lease(3)) + attempts(await store.lease(3))
        assert names == ["d0s0a0", "d0s1a0", "d0s2a0", "d1s0a0", "d1s1a0", "d1s2a0"]

    run(body, batch_size=6, group_size=3)


def test_a_group_is_consumed_whole_once_each_member_is_there(run):
    async def body(store, clock):
        leases = await store.lease(8)
        for lease in (leases[0], leases[1], *leases[3:]):  # d0s2 is missing
            await commit(store, lease)
        taking = await start(clock, store.take())
        assert not taking.done()  # seven of eight trajectories, one of two groups
        await commit(store, leases[2])
        assert ids(await taking) == [lease.attempt for lease in leases]

    run(body, batch_size=8, group_size=4, max_staleness=0)


def test_failed_members_shrink_their_group(run):
    async def body(store, clock):
        leases = await store.lease(4)
        await store.commit(failed(leases[1].attempt))
        await store.commit(failed(leases[2].attempt))
        await commit(store, leases[0])
        await commit(store, leases[3])
        assert [str(attempt) for attempt in ids(await store.take())] == ["d0s0a0", "d0s3a0"]

    run(body, batch_size=4, group_size=4, max_attempts=1)


def test_a_group_with_fewer_than_two_valid_members_is_dropped_and_given_up(run):
    async def body(store, clock):
        leases = await store.lease(3)
        await commit(store, leases[0])
        await store.commit(failed(leases[1].attempt))
        await store.commit(failed(leases[2].attempt))
        assert attempts(await store.lease(1)) == ["d1s0a0"]
        assert (await store.status()).ledger.dropped == {"env_error": 2, "group_too_small": 1}
        assert await commit(store, leases[0]) == "queued"

    run(body, batch_size=3, group_size=3, max_attempts=1, max_staleness=0)


def test_a_group_with_one_stale_member_is_dropped_and_issued_again_whole(run):
    async def body(store, clock):
        await train_batches(store, 1, 1)
        leases = await store.lease(2)
        await commit(store, leases[0], 1)
        await commit(store, leases[1], 0)
        assert await blocks(clock, store.take())
        assert attempts(await store.lease(9)) == ["d1s0a1", "d1s1a1"]
        assert (await store.status()).ledger.dropped == {"stale": 2}

    run(body, batch_size=2, group_size=2, max_staleness=0)


@pytest.mark.parametrize("moment", range(6))
@pytest.mark.parametrize("member", range(3))
def test_a_member_may_fail_at_any_moment_and_the_group_still_becomes_complete(run, moment, member):  # fault G5
    async def body(store, clock):
        """Leases and commits in an order in which `member` of d0 fails after `moment` other events."""
        pending = [f"d0s{sample}" for sample in range(3)] + [f"d1s{sample}" for sample in range(3)]
        leases: dict[str, Lease] = {}
        events = 0
        fail_next = True
        while pending or leases:
            if pending and (events % 2 == 0 or not leases):
                (lease,) = await store.lease(1)
                leases[f"d{lease.attempt.draw}s{lease.attempt.sample}"] = lease
                pending.remove(f"d{lease.attempt.draw}s{lease.attempt.sample}")
            else:
                name = f"d0s{member}"
                if fail_next and events >= moment and name in leases:
                    await store.commit(failed(leases.pop(name).attempt))
                    fail_next = False
                    pending.append(name)
                else:
                    others = [other for other in leases if not (fail_next and other == name)] or list(leases)
                    if fail_next and others == [name]:
                        events = max(events, moment)  # nothing else is left to happen before the failure
                        continue
                    await commit(store, leases.pop(others[0]))
            events += 1
        items = await store.take()
        assert [(a.draw, a.sample) for a in ids(items)] == [(d, s) for d in (0, 1) for s in range(3)]
        assert [a.attempt for a in ids(items)] == [int((d, s) == (0, member)) for d in (0, 1) for s in range(3)]
        assert (await store.status()).ledger.balance == 0

    run(body, batch_size=6, group_size=3, max_staleness=0)


# -- ends -------------------------------------------------------------------------------------------------------------


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


# -- looking on -------------------------------------------------------------------------------------------------------


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
