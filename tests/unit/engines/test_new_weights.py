"""New weights between two decode steps: versions, what happens to KV, what a bad publication does."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from soliton.weights import published_state
from tests.unit.engines.kit import (
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


def test_the_version_stamped_is_the_one_whose_logits_were_sampled():  # fault I4
    """Each version has its own weights; every token's log-prob must be that of the version on it, and of no other."""
    models = {v: tiny_model("dense", True, seed=v) for v in range(4)}

    async def main():
        engine = engine_of(models[0], kv_on_update="recompute", prefill_budget=1_000)
        tasks = [asyncio.ensure_future(engine.generate(request(f"s{i}", [i, 3], 20, seed=i))) for i in range(3)]
        await settle()
        for tick in range(20):
            if tick in {5, 6, 13}:
                await engine.load_weights(published_state(models[engine.version + 1]), engine.version + 1)
            engine.step()
        await settle()
        return [task.result() for task in tasks]

    for i, done in enumerate(asyncio.run(main())):
        assert done.versions == (0,) * 5 + (1,) * 1 + (2,) * 7 + (3,) * 7
        context = [i, 3, *done.token_ids]
        positions = list(range(2, 22))
        by_version = np.stack([reference_logprobs(models[v], context, positions) for v in range(4)])
        of_stamp = by_version[list(done.versions), range(20)]
        assert_parity(done.logprobs, of_stamp)
        gap = np.abs(by_version - np.array(done.logprobs))
        assert (gap.argmin(0) == done.versions).all()


@pytest.mark.parametrize("kind", ["dense", "moe"])
@pytest.mark.parametrize("tie", [True, False])
def test_new_weights_are_those_of_the_learner(kind, tie):  # faults I1, I8
    """After an update a cold request equals a full forward of the new model (tied heads included)."""
    engine = engine_of(tiny_model(kind, tie, seed=0))
    new = tiny_model(kind, tie, seed=1)

    async def main():
        await drive(engine, engine.generate(request("warm", new=3)))
        await engine.load_weights(published_state(new), 5)
        return await drive(engine, episode(engine, "cold", [1, 2, 3], [(6, [4, 5]), (6, [])]))

    ((context, positions, logprobs),) = asyncio.run(main())
    assert_parity(logprobs, reference_logprobs(new, context, positions))
    assert engine.version == 5


def test_recompute_equals_a_cold_engine_and_keep_does_not():  # fault I2
    old, new = tiny_model(seed=0), tiny_model(seed=1)

    async def main(kv_on_update):
        """A session in its slot, a parked one and a running one meet an update."""
        engine = engine_of(old, num_slots=2, kv_on_update=kv_on_update)
        contexts = {}
        for name in ("parked", "in slot"):
            (done,) = await drive(engine, engine.generate(request(name, [len(name)] * 20, 4)))
            contexts[name] = (*[len(name)] * 20, *done.token_ids, 2)
        running = asyncio.ensure_future(engine.generate(request("running", [1] * 30, 8)))
        await settle()
        for _ in range(5):
            engine.step()
        await engine.load_weights(published_state(new), 1)
        done = await drive(engine, *(engine.generate(request(name, c, 4)) for name, c in contexts.items()))
        after = [(c, d) for c, d in zip(contexts.values(), done, strict=True)]
        return [*after, ((1,) * 30, await running)]

    for kv_on_update, at_most in (("recompute", 1e-4), ("keep", np.inf)):
        gaps = []
        for context, done in asyncio.run(main(kv_on_update)):
            whole = [*context, *done.token_ids]
            reference = reference_logprobs(new, whole, range(len(context), len(whole)))
            gaps += [
                abs(ours - theirs)
                for ours, theirs, version in zip(done.logprobs, reference, done.versions, strict=True)
                if version == 1
            ]
        assert len(gaps) >= 8
        assert max(gaps) <= at_most
        if kv_on_update == "keep":
            assert max(gaps) > 0.01  # old KV stays: the gap is the behaviour policy's, and recorded as such


def test_a_publication_that_does_not_fit_changes_nothing():
    engine = engine_of()
    good = published_state(tiny_model(seed=1))
    name = "model.layers.0.mlp.up_proj.weight"
    bad = [
        {k: v for k, v in good.items() if k != name},
        {**good, "model.extra": torch.zeros(1)},
        {**good, name: good[name][:-1]},
    ]
    for state in bad:
        with pytest.raises(ValueError, match="nothing was loaded"):
            asyncio.run(engine.load_weights(state, 1))
    assert engine.version == 0
    assert play(engine, request()) == play(engine_of(), request())


@pytest.mark.parametrize("version", [3, 2, -1])
def test_a_version_must_be_newer(version):
    engine = engine_of(version=3)
    with pytest.raises(ValueError, match=f"version {version} is not newer than the engine's 3"):
        asyncio.run(engine.load_weights(published_state(tiny_model()), version))


def test_later_training_of_the_learner_does_not_reach_the_engine():
    model = tiny_model("dense", True, 9)
    engine = engine_of(model)
    before = play(engine, request("a"))[0]
    with torch.no_grad():
        model.model.norm.weight.mul_(3.0)
    try:
        assert play(engine, request("b"))[0].logprobs == pytest.approx(before.logprobs, abs=1e-6)
    finally:
        with torch.no_grad():
            model.model.norm.weight.div_(3.0)
