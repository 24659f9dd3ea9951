"""What every store does: samples of one draw are consumed together."""

from __future__ import annotations

import pytest

from soliton.types import Lease
from tests.contracts.stores import attempts, blocks, commit, ids, start, train_batches
from tests.fakes.trajectories import failed


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
