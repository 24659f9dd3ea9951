"""The uniform stream and the distribution that is sampled from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.engines.sampling import SamplingRows, draw, uniforms
from soliton.types import Sampling
from tests.unit.engines.kit import slow_distribution

BELOW_ONE = float(np.nextafter(1.0, 0.0))


def rows(count, uniform=0.5, temperature=1.0, top_k=0, top_p=1.0) -> SamplingRows:
    return SamplingRows(
        temperature=np.full(count, temperature, dtype=np.float32),
        top_k=np.full(count, top_k, dtype=np.int64),
        top_p=np.full(count, top_p, dtype=np.float32),
        uniform=np.broadcast_to(np.asarray(uniform, dtype=np.float64), (count,)).copy(),
    )


def random_logits(count, vocab, seed=0, scale=3.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, scale, (count, vocab)).astype(np.float32))


def test_uniforms_are_uniform_and_independent_of_each_other():
    index = np.arange(100_000)
    u = uniforms(np.full(100_000, 42, dtype=np.uint64), index)
    assert u.min() >= 0
    assert u.max() < 1
    counts, _ = np.histogram(u, bins=50, range=(0, 1))
    assert ((counts - 2_000) ** 2 / 2_000).sum() < 90  # chi-squared with 49 degrees of freedom: p < 0.0004
    other = uniforms(np.full(100_000, 43, dtype=np.uint64), index)
    for a, b in ((u[:-1], u[1:]), (u, other)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.02


def test_a_uniform_depends_on_seed_and_index_only():
    alone = uniforms(np.array([5], dtype=np.uint64), np.array([17]))
    among = uniforms(np.array([9, 5, 2**64 - 1], dtype=np.uint64), np.array([17, 17, 3]))
    assert alone[0] == among[1]
    assert len(set(among.tolist())) == 3


def test_the_uniform_stream_never_changes():
    """A stored seed must give the same rollout next year."""
    values = uniforms(np.array([0, 0, 1, 2**63], dtype=np.uint64), np.array([0, 1, 0, 10]))
    expected = [_scalar_uniform(s, i) for s, i in ((0, 0), (0, 1), (1, 0), (2**63, 10))]
    assert values.tolist() == expected


def _scalar_uniform(seed: int, index: int) -> float:
    """splitmix64 in Python integers."""

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    return (mix((mix((seed + golden) % 2**64) + (index + 1) * golden) % 2**64) >> 11) * 2.0**-53


@pytest.mark.parametrize("vocab", [7, 96, 3_000])
def test_draws_follow_the_distribution(vocab):
    logits = random_logits(1, vocab)
    n = 200_000 if vocab < 1_000 else 20_000
    u = (np.arange(n) + 0.5) / n  # a regular grid through the inverse CDF gives the probabilities themselves
    tokens = []
    for part in np.array_split(u, 20):
        tokens += draw(logits.expand(len(part), -1), rows(len(part), part)).token_ids
    shares = np.bincount(tokens, minlength=vocab) / n
    probs = torch.softmax(logits[0].double(), 0).numpy()
    assert np.abs(shares - probs).max() <= 2 / n


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 1.5])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.8), (6, 0.7), (1, 1.0), (0, 1e-6), (500, 0.99)])
def test_the_logprob_is_of_the_distribution_sampled_from(temperature, top_k, top_p):  # faults C3, C4
    logits = random_logits(64, 40)
    u = np.random.default_rng(1).random(64)
    drawn = draw(logits, rows(64, u, temperature, top_k, top_p))
    for row, (token, logprob) in enumerate(zip(drawn.token_ids, drawn.logprobs, strict=True)):
        probs = slow_distribution(logits[row].double().numpy(), Sampling(temperature, top_p, top_k))
        assert probs[token] > 0
        assert logprob == pytest.approx(np.log(probs[token]), abs=2e-5)


def test_exactly_k_tokens_are_kept_among_equals():
    logits = torch.zeros(1_000, 10)
    drawn = draw(logits, rows(1_000, (np.arange(1_000) + 0.5) / 1_000, top_k=3))
    assert len(set(drawn.token_ids)) == 3
    assert set(np.round(drawn.logprobs, 5)) == {round(float(np.log(1 / 3)), 5)}


@settings(max_examples=1_000, deadline=None)
@given(
    vocab=st.sampled_from([1, 2, 5, 1_024, 1_025, 1_700]),
    seed=st.integers(0, 10**6),
    uniform=st.sampled_from([0.0, 1e-300, 0.5, 1 - 1e-9, BELOW_ONE]) | st.floats(0, BELOW_ONE),
    scale=st.sampled_from([0.01, 1.0, 30.0, 1e4]),
)
def test_a_token_of_probability_zero_is_never_drawn(vocab, seed, uniform, scale):
    logits = random_logits(2, vocab, seed, scale)
    logits[:, np.random.default_rng(seed).random(vocab) < 0.5] = -1e30
    drawn = draw(logits, rows(2, uniform))
    probs = torch.softmax(logits - logits.amax(-1, keepdim=True), -1)
    assert all(0 <= token < vocab for token in drawn.token_ids)
    assert all(probs[row, token] > 0 for row, token in enumerate(drawn.token_ids))
    assert all(np.isfinite(drawn.logprobs))
    assert all(value <= 0 for value in drawn.logprobs)


def test_zero_probability_at_both_ends_is_skipped_by_extreme_uniforms():
    logits = torch.full((2, 2_000), -1e30)
    logits[:, 700:1_300] = 0.0
    assert draw(logits, rows(2, [0.0, BELOW_ONE])).token_ids == [700, 1_299]


def test_greedy_takes_the_largest_logit_with_logprob_zero():
    logits = random_logits(20, 30)
    drawn = draw(logits, rows(20, BELOW_ONE, temperature=0.0))
    assert drawn.token_ids == logits.argmax(-1).tolist()
    assert drawn.logprobs == [0.0] * 20


def test_a_tiny_temperature_is_the_limit_of_greedy():
    logits = random_logits(20, 30)
    drawn = draw(logits, rows(20, 0.999, temperature=1e-30))
    assert drawn.token_ids == logits.argmax(-1).tolist()
    assert drawn.logprobs == [0.0] * 20


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("vocab", [30, 3_000])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_a_row_with_non_finite_logits_says_so_and_disturbs_no_other(bad, vocab, top_p):  # fault C12
    logits = random_logits(3, vocab)
    clean = draw(logits, rows(3, top_p=top_p))
    logits[1, vocab // 2] = bad
    drawn = draw(logits, rows(3, top_p=top_p))
    assert drawn.finite == [True, False, True]
    for row in (0, 2):
        assert drawn.token_ids[row] == clean.token_ids[row]
        assert drawn.logprobs[row] == clean.logprobs[row]


def test_a_row_does_not_depend_on_the_rows_beside_it():
    logits = random_logits(8, 60)
    u = np.random.default_rng(3).random(8)
    mixed = SamplingRows(
        temperature=np.array([1, 0, 0.5, 1, 1.5, 0, 1, 1], dtype=np.float32),
        top_k=np.array([0, 0, 3, 0, 5, 9, 0, 2]),
        top_p=np.array([1, 1, 1, 0.5, 0.9, 1, 1, 0.7], dtype=np.float32),
        uniform=u,
    )
    together = draw(logits, mixed)
    for i in range(8):
        one = SamplingRows(mixed.temperature[[i]], mixed.top_k[[i]], mixed.top_p[[i]], u[[i]])
        alone = draw(logits[[i]], one)
        assert alone.token_ids[0] == together.token_ids[i]
        assert alone.logprobs[0] == pytest.approx(together.logprobs[i], abs=1e-6)


def test_bfloat16_logits_are_drawn_in_float32():
    logits = random_logits(16, 40).bfloat16()
    assert draw(logits, rows(16, 0.3)) == draw(logits.float(), rows(16, 0.3))
