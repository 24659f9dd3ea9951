"""What every engine does, whoever implements it. A new implementation is one more entry of IMPLEMENTATIONS.

An entry makes an engine that ticks by `step()`, and weights that fit it and make it say something else.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from soliton.types import Sampling
from soliton.weights import published_state
from tests.fakes.scripted_engine import ScriptedEngine
from tests.unit.engines.kit import Letters, engine_of, request, settle, tiny_model


@dataclass(frozen=True)
class Implementation:
    new: Callable[[], Any]
    other_weights: Callable[[], dict[str, Any]]
    an_unknown_name: Any


IMPLEMENTATIONS = {
    "local": Implementation(
        new=lambda: engine_of(tokenizer=Letters()),
        other_weights=lambda: published_state(tiny_model(seed=1)),
        an_unknown_name=torch.zeros(1),
    ),
    "scripted": Implementation(
        new=lambda: ScriptedEngine(lambda context, seed: 31 * sum(context) + 7 * len(context) + seed, Letters().decode),
        other_weights=lambda: {"offset": 3},
        an_unknown_name=0,
    ),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request) -> Implementation:
    return IMPLEMENTATIONS[request.param]


@pytest.fixture
def new_engine(implementation):
    return implementation.new


async def finish(engine, *coroutines):
    """Tick until all have ended; a request nobody can serve would show as a hang, so ticks are counted."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await settle()
    for _ in range(1_000):
        if all(task.done() for task in tasks):
            return [task.result() for task in tasks]
        engine.step()
        await settle()
    raise AssertionError("a request hangs")


def generate(engine, *requests):
    async def main():
        return await finish(engine, *(engine.generate(r) for r in requests))

    return asyncio.run(main())


def test_every_token_has_a_logprob_and_a_version(new_engine):  # fault C8
    engine = new_engine()
    (done,) = generate(engine, request(new=9))
    assert done.finish_reason == "length"
    assert len(done.token_ids) == len(done.logprobs) == len(done.versions) == 9
    assert all(math.isfinite(value) and value <= 0 for value in done.logprobs)
    assert set(done.versions) == {engine.version}


def test_a_sampled_stop_token_belongs_to_the_action(new_engine):
    free = generate(new_engine(), request(new=9))[0]
    stop = free.token_ids[4]
    first = free.token_ids.index(stop)
    (done,) = generate(new_engine(), request(new=9, stop_token_ids=(49, stop)))
    assert done.finish_reason == "stop"
    assert done.token_ids == free.token_ids[: first + 1]


def test_a_stop_string_ends_with_the_token_that_completes_it(new_engine):
    free = generate(new_engine(), request(new=9))[0].token_ids
    stop = Letters().decode(free[3:6])
    (done,) = generate(new_engine(), request(new=9, stop_strings=("nowhere", stop)))
    assert done.finish_reason == "stop"
    end = Letters().decode(free).index(stop) + 3
    assert done.token_ids == free[:end]


def test_results_do_not_depend_on_the_company(new_engine):
    alone = generate(new_engine(), request("s", (4, 5), 8, seed=3))[0]
    others = [request(f"o{i}", range(1, 3 + 5 * i), 5, seed=i) for i in range(6)]
    among = generate(new_engine(), *others[:3], request("s", (4, 5), 8, seed=3), *others[3:])[3]
    assert among.token_ids == alone.token_ids
    assert among.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_another_seed_gives_other_tokens(new_engine):  # fault F11
    engine = new_engine()
    first, second, again = generate(
        engine, request("a", new=12, seed=1), request("b", new=12, seed=2), request("c", new=12, seed=1)
    )
    assert first.token_ids != second.token_ids
    assert first.token_ids == again.token_ids


def test_turns_of_a_session_extend_its_context(new_engine):
    async def main():
        engine = new_engine()
        (first,) = await finish(engine, engine.generate(request(ids=(1, 2), new=3)))
        context = (1, 2, *first.token_ids, 9)
        (second,) = await finish(engine, engine.generate(request(ids=context, new=3)))
        await engine.release("s")
        (cold,) = await finish(engine, engine.generate(request(ids=context, new=3)))
        assert second.token_ids == cold.token_ids
        assert second.logprobs == pytest.approx(cold.logprobs, abs=1e-5)

    asyncio.run(main())


def test_a_context_that_does_not_extend_the_session_is_refused(new_engine):  # fault D2
    async def main():
        engine = new_engine()
        (first,) = await finish(engine, engine.generate(request(ids=(1, 2), new=3)))
        for context in (
            (1, 2, 3),
            (2, *first.token_ids),
            (1,),
            (1, 2, *first.token_ids[:-1], 49 - first.token_ids[-1]),
        ):
            with pytest.raises(ValueError, match="prefix"):
                await engine.generate(request(ids=context))
        context = (1, 2, *first.token_ids, 5)
        (done,) = await finish(engine, engine.generate(request(ids=context, new=2)))
        assert len(done.token_ids) == 2

    asyncio.run(main())


@pytest.mark.parametrize("bad", [{"ids": ()}, {"new": 0}, {"new": 254}, {"ids": [1] * 256, "new": 1}])
def test_a_request_that_cannot_be_served_is_a_value_error(new_engine, bad):
    with pytest.raises(ValueError):
        generate(new_engine(), request(**bad))


def test_a_session_runs_one_request_at_a_time(new_engine):
    async def main():
        engine = new_engine()
        first = asyncio.ensure_future(engine.generate(request(new=3)))
        await settle()
        with pytest.raises(ValueError, match="already runs"):
            await engine.generate(request(new=3))
        await finish(engine)
        while not first.done():
            engine.step()
            await settle()

    asyncio.run(main())


def test_an_aborted_turn_returns_what_it_has_and_goes_on_identically(new_engine):
    whole = generate(new_engine(), request(new=10))[0]

    async def main():
        engine = new_engine()
        task = asyncio.ensure_future(engine.generate(request(new=10)))
        await settle()
        for _ in range(4):
            engine.step()
        await engine.abort("s")
        part = await task
        assert part.finish_reason == "abort"
        assert part.token_ids == whole.token_ids[:4]
        resumed = request(ids=(1, 2, 3, *part.token_ids), new=6, action_start=3)
        (rest,) = await finish(engine, engine.generate(resumed))
        assert part.token_ids + rest.token_ids == whole.token_ids
        assert part.logprobs + rest.logprobs == pytest.approx(whole.logprobs, abs=1e-5)

    asyncio.run(main())


def test_an_abort_before_the_first_token_returns_nothing(new_engine):
    async def main():
        engine = new_engine()
        task = asyncio.ensure_future(engine.generate(request()))
        await settle()
        await engine.abort("s")
        done = await task
        assert (done.token_ids, done.logprobs, done.versions, done.finish_reason) == ((), (), (), "abort")

    asyncio.run(main())


def test_aborting_and_releasing_unknown_sessions_is_fine(new_engine):
    async def main():
        engine = new_engine()
        await engine.abort("nobody")
        await engine.release("nobody")

    asyncio.run(main())


def test_a_cancelled_caller_leaves_the_session_free(new_engine):
    async def main():
        engine = new_engine()
        task = asyncio.ensure_future(engine.generate(request(new=30)))
        await settle()
        engine.step()
        task.cancel()
        await settle()
        assert task.cancelled()
        (done,) = await finish(engine, engine.generate(request(ids=(9, 9), new=2)))
        assert len(done.token_ids) == 2

    asyncio.run(main())


def test_new_weights_reach_running_requests_and_each_token_says_its_version(implementation):  # fault I4
    unchanged = generate(implementation.new(), request(new=12))[0]

    async def main():
        engine = implementation.new()
        task = asyncio.ensure_future(engine.generate(request(new=12)))
        await settle()
        for _ in range(5):
            engine.step()
        await engine.load_weights(implementation.other_weights(), 4)
        assert engine.version == 4
        await finish(engine)
        while not task.done():
            engine.step()
            await settle()
        return await task

    done = asyncio.run(main())
    assert done.versions == (0,) * 5 + (4,) * 7
    assert done.token_ids[:5] == unchanged.token_ids[:5]
    assert done.token_ids[5:] != unchanged.token_ids[5:]


def test_weights_that_do_not_fit_are_refused_and_nothing_changes(implementation):
    good = implementation.other_weights()
    first = next(iter(good))

    async def main():
        engine = implementation.new()
        await engine.load_weights(good, 2)
        for weights, version in (
            (good, 2),
            (good, 1),
            ({**good, "unknown": implementation.an_unknown_name}, 3),
            ({name: value for name, value in good.items() if name != first}, 3),
        ):
            with pytest.raises(ValueError):
                await engine.load_weights(weights, version)
        assert engine.version == 2

    asyncio.run(main())


def test_greedy_sampling_does_not_depend_on_the_seed_of_the_embedded_engine():
    greedy = Sampling(temperature=0)
    done = generate(
        IMPLEMENTATIONS["local"].new(), *(request(f"s{i}", new=6, seed=i, sampling=greedy) for i in range(3))
    )
    assert len({d.token_ids for d in done}) == 1
    assert {d.logprobs for d in done} == {(0.0,) * 6}
