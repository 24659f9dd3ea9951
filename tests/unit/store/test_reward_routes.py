"""Rewards posted from outside: who may, in what form, and what survives a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from soliton.awaited import AwaitedReward
from soliton.runtime.clock import RealClock, VirtualClock
from soliton.store.config import StoreConfig
from soliton.store.memory import MemoryStore
from soliton.store.sqlite import SqliteStore
from soliton.types import AttemptId
from tests.fakes.hub import RUN_ID, TOKEN, over_http, post_reward
from tests.fakes.sqlite import at_once, killed, overwrite_payload
from tests.fakes.trajectories import publication, trajectory

CONFIG = StoreConfig(batch_size=1, max_staleness=3)


def with_hub(body):
    """`body(store, url)` beside a hub in which attempt d0s0a0 awaits its reward."""

    async def main():
        clock = RealClock()
        async with over_http(MemoryStore(CONFIG, clock, publication(0)), clock) as store:
            await hand_in(store)
            await body(store, store.url)

    asyncio.run(main())


async def hand_in(store):
    (lease,) = await store.lease(1)
    awaited = AwaitedReward(within_s=1000.0, key="ticket-17", low=0.0, high=1.0)
    await store.commit(trajectory(lease.attempt, (0,), awaited=awaited))


def test_what_awaits_its_reward_is_listed_and_rewarded_by_its_id():
    async def body(store, url):
        headers = {"authorization": f"Bearer {TOKEN}", "x-soliton-run": RUN_ID}
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/reward", headers=headers) as answer:
            (row,) = await answer.json()
        assert 990 < row.pop("seconds_left") <= 1000
        assert row == {"attempt": "d0s0a0", "key": "ticket-17", "prompt_id": "prompt", "low": 0.0, "high": 1.0}
        assert await post_reward(url, {"attempt": row["attempt"], "reward": 1}) == (200, accepted())
        assert [item.trajectory.total_reward for item in await store.take()] == [2.0]

    with_hub(body)


def accepted():
    return {"result": "accepted", "reason": ""}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "expected"),
        (b"[1]", 400, "expected"),
        ({"attempt": "d0s0a0"}, 400, "missing required field `reward`"),
        ({"attempt": "d0s0a0", "reward": "1"}, 400, "Expected `float`"),
        ({"attempt": "d0s0a0", "reward": None}, 400, "Expected `float`"),
        (b'{"attempt": "d0s0a0", "reward": NaN}', 400, "expected"),
        ({"attempt": "d0s0a0", "reward": [1.0, 1.0]}, 400, "Expected `float`"),
        ({"attempt": "d0s0a0", "reward": 1.0, "token": "x"}, 400, "unknown field `token`"),
        ({"attempt": "0", "reward": 1.0}, 400, "an id looks like 'd3s0a0'"),
        ({"attempt": "d0s0a0", "reward": 1e9}, 422, "allows 0 to 1"),
        ({"attempt": "d99s0a0", "reward": 1.0}, 409, "never issued"),
    ],
)
def test_a_post_that_is_no_reward_is_refused_with_its_reason_and_changes_nothing(body, status, reason):  # fault L5
    async def check(store, url):
        got, answer = await post_reward(url, body)
        assert got == status
        assert answer["result"] == "refused"
        assert reason in answer["reason"]
        assert (await store.status()).ledger.in_flight == 1
        assert await post_reward(url, {"attempt": "d0s0a0", "reward": 0.5}) == (200, accepted())

    with_hub(check)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"authorization": "Bearer wrong"}, 401), ({"x-soliton-run": "another"}, 409), ({"origin": "http://x"}, 403)],
)
def test_nobody_but_this_runs_graders_may_reward(headers, status):  # faults K3, L5, M2
    async def check(store, url):
        got, _ = await post_reward(url, {"attempt": "d0s0a0", "reward": 1.0}, **headers)
        assert got == status
        assert (await store.status()).ledger.in_flight == 1

    with_hub(check)


def test_an_awaited_reward_survives_a_kill_of_the_store(tmp_path: Path):
    clock = VirtualClock(0)
    store = SqliteStore.open(tmp_path / "store.sqlite", CONFIG, clock)
    at_once(store.finish_step([], publication(0)))
    at_once(hand_in(store))
    again = SqliteStore.open(killed(tmp_path / "store.sqlite", tmp_path / "b/store.sqlite"), CONFIG, clock)
    assert again.findings == ()
    ((waiting, seconds_left),) = again.awaiting_rewards()
    assert (str(waiting.attempt), seconds_left) == ("d0s0a0", 1000.0)
    assert at_once(again.status()).ledger.in_flight == 1
    assert [lease.attempt.draw for lease in at_once(again.lease(1))] == [1]  # nobody tries it a second time
    assert at_once(again.reward(AttemptId(0), 0.5)) == "accepted"
    assert [item.trajectory.total_reward for item in at_once(again.take())] == [1.5]
    last = SqliteStore.open(killed(tmp_path / "b/store.sqlite", tmp_path / "c/store.sqlite"), CONFIG, clock)
    assert at_once(last.reward(AttemptId(0), 0.5)) == "repeated"


def test_a_deadline_that_passed_while_nobody_ran_drops_the_attempt(tmp_path: Path):
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path, CONFIG, VirtualClock(0))
    at_once(store.finish_step([], publication(0)))
    at_once(hand_in(store))
    later = SqliteStore.open(killed(path, tmp_path / "b/store.sqlite"), CONFIG, VirtualClock(0, 2000.0))
    ledger = at_once(later.status()).ledger
    assert ledger.dropped == {"reward_timeout": 1}
    assert ledger.balance == 0
    assert [str(lease.attempt) for lease in at_once(later.lease(1))] == ["d0s0a1"]


def test_a_damaged_trajectory_that_awaits_its_reward_is_tried_again(tmp_path: Path):
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path, CONFIG, VirtualClock(0))
    at_once(store.finish_step([], publication(0)))
    at_once(hand_in(store))
    overwrite_payload(path, 0, b"\0")
    again = SqliteStore.open(killed(path, tmp_path / "b/store.sqlite"), CONFIG, VirtualClock(0))
    assert "its reward was awaited, and it is tried again" in again.findings[0]
    assert again.awaiting_rewards() == []
    assert [str(lease.attempt) for lease in at_once(again.lease(1))] == ["d0s0a1"]


def test_a_snapshot_keeps_what_awaits_its_reward():
    clock = VirtualClock(0)
    store = MemoryStore(CONFIG, clock, publication(0))
    at_once(hand_in(store))
    again = MemoryStore.restore(store.snapshot(), CONFIG, clock)
    assert at_once(again.reward(AttemptId(0), 0.5)) == "accepted"
    assert len(at_once(again.take())) == 1
