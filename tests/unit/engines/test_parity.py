"""Engine and learner compute the same log-probs, whatever else is in the batch (faults C1, C4, C13)."""

from __future__ import annotations

import asyncio
import copy
import itertools

import numpy as np
import pytest
import torch

from soliton.types import Sampling
from tests.unit.engines.kit import (
    PLAIN,
    VOCAB,
    assert_parity,
    drive,
    engine_of,
    episode,
    play,
    reference_logprobs,
    request,
    tiny_model,
)


def random_episodes(count, seed, longest_prompt=40):
    rng = np.random.default_rng(seed)

    def ids(most):
        return rng.integers(0, VOCAB, rng.integers(1, most + 1)).tolist()

    return [(ids(longest_prompt), [(int(rng.integers(1, 9)), ids(20)) for _ in range(3)]) for _ in range(count)]


def run_episodes(engine, episodes, sampling=PLAIN):
    async def main():
        return await drive(
            engine, *(episode(engine, f"e{i}", *e, sampling=sampling, seed=i) for i, e in enumerate(episodes))
        )

    return asyncio.run(main())


def assert_all_match(model, results, sampling=PLAIN):
    ours = list(itertools.chain.from_iterable(logprobs for _, _, logprobs in results))
    reference = [reference_logprobs(model, context, positions, sampling) for context, positions, _ in results]
    assert_parity(ours, np.concatenate(reference))


@pytest.mark.parametrize(
    ("kind", "tie"),
    [*itertools.product(["dense", "moe", "llama"], [True, False]), ("gpt2", True)],
)
def test_logprobs_equal_a_full_forward_of_the_learner(kind, tie):
    model = tiny_model(kind, tie)
    assert_all_match(model, run_episodes(engine_of(model), random_episodes(9, seed=1)))


@pytest.mark.parametrize(("num_slots", "prefill_budget"), [(1, 7), (2, 0), (5, 1), (5, 1_000), (8, 7)])
def test_logprobs_do_not_depend_on_slots_parking_or_chunks(num_slots, prefill_budget):
    """8 sessions over 1-8 slots: parked and restored between turns; prompts fed whole or token by token."""
    model = tiny_model()
    episodes = random_episodes(8, seed=2)
    results = run_episodes(engine_of(model, num_slots=num_slots, prefill_budget=prefill_budget), episodes)
    assert_all_match(model, results)
    alone = [run_episodes(engine_of(model, num_slots=8), [e]) for e in episodes[:1]]
    assert alone[0][0][0] == results[0][0]  # the same tokens as without any company


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 1.5])
def test_logprobs_are_of_the_tempered_distribution(temperature):  # fault C3
    sampling = Sampling(temperature=temperature)
    results = run_episodes(engine_of(), random_episodes(6, seed=3), sampling)
    assert_all_match(tiny_model(), results, sampling)


@pytest.mark.parametrize("sampling", [Sampling(0.8, 0.9), Sampling(1.0, 1.0, 5), Sampling(1.2, 0.7, 9)])
def test_logprobs_are_renormalised_over_what_is_kept(sampling):  # fault C4
    results = run_episodes(engine_of(), random_episodes(6, seed=4), sampling)
    assert_all_match(tiny_model(), results, sampling)
    raw = np.concatenate([reference_logprobs(tiny_model(), c, p) for c, p, _ in results])
    ours = np.concatenate([logprobs for _, _, logprobs in results])
    assert np.abs(raw - ours).max() > 0.05  # the test would notice raw log-probs


def test_a_shift_by_one_would_be_noticed():  # fault C1
    context, positions, logprobs = run_episodes(engine_of(), random_episodes(1, seed=5))[0]
    shifted = reference_logprobs(tiny_model(), context, [p - 1 for p in positions])
    assert np.abs(shifted - logprobs).mean() > 0.1


def test_long_contexts_move_through_the_shelves():
    model = tiny_model()
    episodes = [(list(range(i, i + 5 + 30 * i)), [(40, [1, 2]), (30, [3])]) for i in (0, 1, 3)]
    episodes = [([t % VOCAB for t in prompt], turns) for prompt, turns in episodes]
    assert_all_match(model, run_episodes(engine_of(model, num_slots=2), episodes))


def test_bfloat16_stays_within_its_own_rounding():
    """Not equal to the learner, but no more than bfloat16's rounding away (fault C13)."""
    model = copy.deepcopy(tiny_model()).to(torch.bfloat16)
    for context, positions, logprobs in run_episodes(engine_of(model), random_episodes(4, seed=7)):
        assert np.abs(reference_logprobs(model, context, positions) - logprobs).max() < 0.1


def test_greedy_equals_generate_of_transformers():
    model = tiny_model()
    (done,) = play(engine_of(), request(ids=(5, 6, 7), new=20, sampling=Sampling(temperature=0)))
    expected = model.generate(
        torch.tensor([[5, 6, 7]]), do_sample=False, max_new_tokens=20, eos_token_id=None, pad_token_id=0
    )
    assert list(done.token_ids) == expected[0, 3:].tolist()
    assert done.logprobs == (0.0,) * 20


def test_the_learners_model_is_not_touched():
    model = tiny_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    play(engine_of(), request())
    assert model.config._attn_implementation == "sdpa"
    assert model.model.layers[-1].forward.__self__ is model.model.layers[-1]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_the_same_calls_give_bit_equal_results():
    first, second = (run_episodes(engine_of(num_slots=3), random_episodes(7, seed=6)) for _ in range(2))
    assert first == second
