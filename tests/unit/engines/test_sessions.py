"""Sessions, slots, queue order, interruptions."""

from __future__ import annotations

import asyncio

import pytest

from soliton.engines.batch import share_budget
from soliton.engines.session import Session
from soliton.errors import ConfigError
from soliton.types import Sampling
from tests.unit.engines.kit import (
    Letters,
    assert_parity,
    drive,
    engine_of,
    episode,
    play,
    reference_logprobs,
    request,
    settle,
    tiny_model,
)


def test_requests_beyond_the_slots_are_served_in_the_order_of_arrival():
    async def main():
        engine = engine_of(num_slots=2)
        order = []

        async def one(i):
            await engine.generate(request(f"s{i}", new=2 + i % 2))
            order.append(i)

        tasks = [asyncio.ensure_future(one(i)) for i in range(6)]
        await settle()
        most = 0
        while engine.step():
            most = max(most, engine.num_active)
            await settle()
        assert all(task.done() for task in tasks)
        assert most == 2
        return order

    assert asyncio.run(main()) == [0, 1, 2, 3, 4, 5]


def test_only_what_the_cache_lacks_is_fed():
    async def main():
        engine = engine_of(num_slots=1, prefill_budget=0)  # one token per tick: ticks count the tokens fed
        (first,) = await drive(engine, engine.generate(request(ids=range(10), new=3)))
        assert engine.ticks == 10 + 2
        context = (*range(10), *first.token_ids, 7, 8)
        await drive(engine, engine.generate(request(ids=context, new=1)))
        assert engine.ticks == 12 + 3  # the last sampled token and two of the observation

    asyncio.run(main())


def test_a_parked_session_is_not_prefilled_again():
    async def main():
        engine = engine_of(num_slots=1, prefill_budget=0)
        await drive(engine, engine.generate(request("a", range(10), 1)))
        await drive(engine, engine.generate(request("b", range(5), 1)))  # takes the slot of a
        (parked,) = [s for s in engine._sessions.values() if s.parked is not None]
        assert parked.name == "a"
        assert parked.parked.shape[3] == 10  # exact length
        ticks = engine.ticks
        context = (*range(10), engine._sessions["a"].tokens[-1], 3)
        (done,) = await drive(engine, engine.generate(request("a", context, 2)))
        assert engine.ticks == ticks + 3  # two new tokens, then the first sampled one
        assert_parity(done.logprobs, reference_logprobs(tiny_model(), context + done.token_ids, [12, 13]))

    asyncio.run(main())


def test_the_budget_goes_to_those_who_came_first():
    sessions = [
        Session(str(i), tokens=[0] * n, num_cached=c) for i, (n, c) in enumerate([(9, 0), (4, 3), (9, 4), (9, 0)])
    ]
    extra = share_budget(sessions, 10)
    assert [extra.get(s) for s in sessions] == [8, None, 2, None]
    assert share_budget(sessions, 0) == {}


def test_forced_tokens_do_not_hold_up_those_who_decode():
    async def main():
        engine = engine_of(prefill_budget=4)
        short = asyncio.ensure_future(engine.generate(request("short", (1,), 10)))
        long = asyncio.ensure_future(engine.generate(request("long", [1] * 60, 1)))
        await settle()
        for _ in range(10):
            assert engine.step()
        await settle()
        assert short.done()  # one token per tick all the while
        assert not long.done()
        for _ in range(2):  # 12 ticks x (4 + 1) tokens
            assert engine.step()
        await settle()
        assert long.done()
        assert not engine.step()

    asyncio.run(main())


@pytest.mark.parametrize("cut", [1, 4, 11])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 0.9, 12)])
def test_an_aborted_turn_goes_on_as_if_it_had_not_been(cut, sampling):
    whole = play(engine_of(), request(ids=(4, 5, 6), new=12, sampling=sampling))[0]

    async def main():
        engine = engine_of()
        others = [asyncio.ensure_future(engine.generate(request(f"o{i}", [i] * 9, 6, seed=i))) for i in range(3)]
        task = asyncio.ensure_future(engine.generate(request(ids=(4, 5, 6), new=12, sampling=sampling)))
        await settle()
        while len(engine._sessions["s"].tokens) < 3 + cut:
            engine.step()
        await engine.abort("s")
        part = await task
        assert part.finish_reason == "abort"
        assert part.token_ids == whole.token_ids[:cut]
        resumed = request(ids=(4, 5, 6, *part.token_ids), new=12 - cut, action_start=3, sampling=sampling)
        (rest,) = await drive(engine, engine.generate(resumed))
        await asyncio.gather(*others)
        return part, rest

    part, rest = asyncio.run(main())
    assert part.token_ids + rest.token_ids == whole.token_ids
    assert part.logprobs + rest.logprobs == pytest.approx(whole.logprobs, abs=1e-5)
    assert rest.finish_reason == whole.finish_reason == "length"


def test_a_resumed_action_sees_stop_strings_that_begin_before_the_interruption():
    """'ab' is cut between its letters; the second request sees the whole action."""
    engine = engine_of(tokenizer=Letters())
    whole = play(engine, request(new=8))[0].token_ids
    stop = Letters().decode(whole[2:4])

    async def main():
        engine = engine_of(tokenizer=Letters())
        resumed = request(ids=(1, 2, 3, *whole[:3]), new=5, action_start=3, stop_strings=(stop,))
        fresh = request("t", ids=(1, 2, 3), new=8, stop_strings=(stop,))
        return await drive(engine, engine.generate(resumed), engine.generate(fresh))

    resumed, fresh = asyncio.run(main())
    assert resumed.finish_reason == fresh.finish_reason == "stop"
    assert whole[:3] + resumed.token_ids == fresh.token_ids


def test_stop_strings_in_the_context_before_the_action_do_not_count():
    (done,) = play(engine_of(tokenizer=Letters()), request(ids=(0, 1, 2), new=3, stop_strings=("abc", "bc"), seed=1))
    assert done.finish_reason == "length"


def test_a_session_released_while_it_runs_ends_as_aborted():
    async def main():
        engine = engine_of()
        task = asyncio.ensure_future(engine.generate(request(new=50)))
        await settle()
        engine.step()
        await engine.release("s")
        assert (await task).finish_reason == "abort"
        assert not engine.step()
        assert engine._sessions == {}

    asyncio.run(main())


def test_cancelling_the_caller_frees_the_slot_and_the_queue():
    async def main():
        engine = engine_of(num_slots=1)
        running = asyncio.ensure_future(engine.generate(request("a", new=50)))
        waiting = asyncio.ensure_future(engine.generate(request("b", new=50)))
        last = asyncio.ensure_future(engine.generate(request("c", new=2)))
        await settle()
        engine.step()
        running.cancel()
        waiting.cancel()
        engine.step()  # before the cancelled tasks have had their turn
        await settle()
        assert running.cancelled()
        assert waiting.cancelled()
        while engine.step():
            await settle()
        assert (await last).finish_reason == "length"
        assert not any(shelf.occupants for shelf in engine._pool.shelves if engine._sessions == {})

    asyncio.run(main())


def test_a_slot_keeps_nothing_of_the_session_that_left_it():  # fault I2
    """The same request on a used slot and on a cold engine: bit-equal."""
    cold = play(engine_of(num_slots=1), request("cold", ids=(9, 8), new=6))[0]

    async def main():
        engine = engine_of(num_slots=1)
        await drive(engine, engine.generate(request("old", range(40), 20)))
        await engine.release("old")
        assert not engine._pool.keys.any()
        return (await drive(engine, engine.generate(request("cold", ids=(9, 8), new=6))))[0]

    assert asyncio.run(main()) == cold


def test_many_sessions_share_few_slots():
    async def main():
        engine = engine_of(num_slots=3)
        turns = [(4, [1, 2, 3]), (3, [4]), (2, [])]
        results = await drive(engine, *(episode(engine, f"e{i}", [i, i + 1], turns, seed=i) for i in range(20)))
        assert engine.tokens_sampled == 20 * 9
        for context, positions, logprobs in results:
            assert_parity(logprobs, reference_logprobs(tiny_model(), context, positions))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ids": ()}, "context tokens"),
        ({"new": 0}, "max_new_tokens"),
        ({"ids": (1, 50)}, r"\[0, 50\)"),
        ({"ids": (-1,)}, r"\[0, 50\)"),
        ({"new": 254}, "exceed max_context 256"),
        ({"action_start": 4}, "action_start"),
        ({"stop_strings": ("x",)}, "tokenizer"),
    ],
)
def test_a_bad_request_is_refused_at_once(bad, message):
    engine = engine_of()
    with pytest.raises(ValueError, match=message):
        play(engine, request(**bad))
    assert engine._sessions == {}


@pytest.mark.parametrize(
    "options",
    [{"num_slots": 0}, {"prefill_budget": -1}, {"max_context": 0}, {"max_context": 10**6}, {"kv_on_update": "drop"}],
)
def test_bad_limits_are_config_errors(options):
    with pytest.raises(ConfigError):
        engine_of(**options)
