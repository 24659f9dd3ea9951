"""What every store does: a step ends with its batch and its publication, or not at all."""

from __future__ import annotations

import pytest

from soliton.errors import RunError
from soliton.types import AttemptId, Publication
from tests.contracts.stores import commit_all, finish, ids, start
from tests.fakes.trajectories import publication


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
