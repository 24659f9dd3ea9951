"""What breaks, and whom it reaches."""

from __future__ import annotations

import asyncio
import copy

import pytest
import torch
from transformers import BloomConfig, Qwen3Config

from soliton.errors import ConfigError, WorldError
from soliton.models.load import new_causal_lm
from tests.fakes.manual_clock import ManualClock
from tests.unit.engines.kit import engine_of, play, request, settle, tiny_model


def model_with_a_poisonous_token(token: int):
    """NaN for every context that holds `token`, finite for all others."""
    model = copy.deepcopy(tiny_model("dense", False))
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = float("nan")
    return model


def test_non_finite_logits_fail_one_request_and_no_other():  # fault C12
    model = model_with_a_poisonous_token(7)
    alone = play(engine_of(model, num_slots=2), request("good", [1, 2], 4))[0]
    # token 7 itself could be sampled; the seed of `request` does not
    assert 7 not in alone.token_ids

    async def main():
        engine = engine_of(model, num_slots=2)
        bad = asyncio.ensure_future(engine.generate(request("bad", [1, 7, 2] * 5, 4)))
        good = asyncio.ensure_future(engine.generate(request("good", [1, 2], 4)))
        late = asyncio.ensure_future(engine.generate(request("late", [1, 2], 4)))  # gets the poisoned slot
        await settle()
        while engine.step():
            await settle()
        with pytest.raises(WorldError, match="non-finite logits at token 15, version 0") as caught:
            await bad
        assert caught.value.reason == "engine_error"
        assert "bad" not in engine._sessions
        return await good, await late

    for done in asyncio.run(main()):
        assert done.token_ids == alone.token_ids
        assert done.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_a_poisoned_session_that_is_aborted_before_it_samples_leaves_no_nan_behind():
    model = model_with_a_poisonous_token(7)

    async def main():
        engine = engine_of(model, num_slots=1, prefill_budget=4)
        bad = asyncio.ensure_future(engine.generate(request("bad", [7] * 60, 4)))
        await settle()
        engine.step()
        assert torch.isnan(engine._pool.keys).any()
        await engine.abort("bad")
        assert (await bad).token_ids == ()
        assert not torch.isnan(engine._pool.keys).any()
        assert not torch.isnan(engine._pool.values).any()

    asyncio.run(main())


def broken_engine(after: int):
    """An engine whose forward raises at tick `after`."""
    engine = engine_of(num_slots=1)
    forward, calls = engine._forward, []

    def failing(*inputs):
        calls.append(1)
        if len(calls) > after:
            raise RuntimeError("out of memory")
        return forward(*inputs)

    engine._forward = failing
    return engine


def test_an_exception_in_a_tick_fails_every_request_and_ends_run():
    async def main():
        engine, clock = broken_engine(after=2), ManualClock()
        running = asyncio.ensure_future(engine.generate(request("running", new=9)))
        waiting = asyncio.ensure_future(engine.generate(request("waiting", new=9)))
        with pytest.raises(RuntimeError, match="out of memory"):
            await clock.drive(engine.run(clock, 0.1))
        for task in (running, waiting):
            with pytest.raises(WorldError, match="out of memory") as caught:
                await task
            assert caught.value.reason == "engine_error"
        with pytest.raises(WorldError, match="out of memory"):
            await engine.generate(request("later"))

    asyncio.run(main())


def test_run_ticks_on_the_clock_and_waits_without_polling():
    async def main():
        engine, clock = engine_of(), ManualClock()
        pump = asyncio.ensure_future(engine.run(clock, 0.5))
        await settle()
        assert clock.next_wake is None  # idle: it waits for a request, not for time
        done = asyncio.ensure_future(engine.generate(request(new=4)))
        await settle()
        assert engine.ticks == 1
        await clock.advance(1.4)
        assert engine.ticks == 3
        assert not done.done()
        await clock.advance(1.6)
        assert (await done).finish_reason == "length"
        await clock.advance(9.0)
        assert engine.ticks == 4
        assert clock.next_wake is None
        again = asyncio.ensure_future(engine.generate(request("t", new=1)))
        await settle()
        assert again.done()
        pump.cancel()
        await settle()
        assert pump.cancelled()

    asyncio.run(main())


def test_run_as_fast_as_it_goes_lets_others_run_between_ticks():
    async def main():
        engine = engine_of()
        pump = asyncio.ensure_future(engine.run(ManualClock(), 0.0))
        done = asyncio.ensure_future(engine.generate(request(new=30)))
        await asyncio.sleep(0)
        while not done.done():
            seen = engine.ticks
            await asyncio.sleep(0)
            assert engine.ticks <= seen + 1
        pump.cancel()
        return engine.ticks

    assert asyncio.run(main()) == 30


def test_an_architecture_without_plain_full_attention_is_refused():
    sliding = Qwen3Config(
        vocab_size=20,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
    )
    with pytest.raises(ConfigError, match="full attention in every layer"):
        engine_of(new_causal_lm(sliding, 0))


def test_a_model_that_brings_its_own_attention_is_refused():
    config = BloomConfig(
        vocab_size=20, hidden_size=32, n_layer=1, n_head=2, hidden_dropout=0, attention_dropout=0, eos_token_id=0
    )
    with pytest.raises(ConfigError, match="AttentionInterface"):
        engine_of(new_causal_lm(config, 0))
