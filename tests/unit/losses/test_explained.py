"""explained_variance and its mergeable form."""

import math
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.losses import ExplainedVariance, explained_variance

NAN = math.nan


def f32(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bool)


def test_it_is_one_minus_the_ratio_of_variances() -> None:
    assert explained_variance(f32(0, 1), f32(0, 2), ones(2)) == pytest.approx(0.75)


def test_values_right_up_to_a_constant_explain_everything() -> None:
    assert explained_variance(f32(10, 11, 12), f32(0, 1, 2), ones(3)) == pytest.approx(1.0)


def test_a_constant_value_explains_nothing_and_a_reversed_one_less() -> None:
    assert explained_variance(f32(5, 5, 5), f32(0, 1, 2), ones(3)) == pytest.approx(0.0)
    assert explained_variance(f32(2, 1, 0), f32(0, 1, 2), ones(3)) == pytest.approx(-3.0)


@pytest.mark.parametrize("size", [0, 1, 3, 7])
@pytest.mark.parametrize("target", [0.0, 0.1, -1e9])
def test_constant_returns_give_nan_and_never_zero(size: int, target: float) -> None:
    values = torch.arange(size, dtype=torch.float32)
    assert math.isnan(explained_variance(values, torch.full((size,), target), ones(size)))


def test_constant_returns_whose_mean_rounds_give_nan_and_not_a_ratio_of_rounding_errors() -> None:
    returns = torch.full((3,), 0.1, dtype=torch.float64)
    assert (returns - returns.mean()).square().sum() > 0
    assert math.isnan(explained_variance(torch.arange(3), returns, ones(3)))


def test_constant_returns_stay_nan_after_a_merge_and_two_constants_do_not() -> None:
    part = ExplainedVariance.of(f32(0, 1, 2), f32(0.1, 0.1, 0.1), ones(3))
    assert math.isnan(part.merge(part).value)
    assert math.isnan(ExplainedVariance().merge(ExplainedVariance()).value)
    other = ExplainedVariance.of(f32(0, 1, 2), f32(0.2, 0.2, 0.2), ones(3))
    assert math.isfinite(part.merge(other).value)


def test_masked_slots_are_not_read() -> None:
    mask = torch.tensor([True, False, True])
    for junk in (NAN, math.inf, 100.0):
        assert explained_variance(f32(0, junk, 1), f32(0, junk, 2), mask) == pytest.approx(0.75)


def test_the_documented_example_holds() -> None:
    part = ExplainedVariance.of(f32(0, 1), f32(0, 2), ones(2))
    assert (part.count, part.error_mean, part.error_m2, part.return_mean, part.return_m2) == (2, 0.5, 0.5, 1, 2)


def test_large_returns_lose_no_precision() -> None:
    values, returns = f32(1e6, 1e6 + 1), f32(1e6, 1e6 + 2)
    halves = [ExplainedVariance.of(values[i : i + 1], returns[i : i + 1], ones(1)) for i in range(2)]
    assert halves[0].merge(halves[1]).value == pytest.approx(0.75)


@settings(max_examples=1_000, deadline=None, database=None, derandomize=True)
@given(st.binary(min_size=1, max_size=20), st.integers(0, 2**32))
def test_merging_any_split_gives_the_whole(shape: bytes, seed: int) -> None:  # fault E2
    rng = np.random.default_rng(seed)
    size = len(shape)
    values, returns = torch.from_numpy(rng.normal(size=(2, size)))
    mask = torch.tensor([byte % 4 > 0 for byte in shape])
    owner = torch.tensor([byte // 4 % 3 for byte in shape])
    parts = [ExplainedVariance.of(values[owner == k], returns[owner == k], mask[owner == k]) for k in range(3)]
    whole = explained_variance(values, returns, mask)
    v, r = values[mask].numpy(), returns[mask].numpy()
    if len(r) < 2:
        assert all(math.isnan(ev) for ev in (whole, reduce(ExplainedVariance.merge, parts).value))
        return
    slow = 1 - np.var(r - v) / np.var(r)
    for order in (parts, parts[::-1]):
        assert math.isclose(reduce(ExplainedVariance.merge, order).value, slow, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(whole, slow, rel_tol=1e-9, abs_tol=1e-9)


def test_what_is_not_finite_on_an_action_is_refused_by_index() -> None:
    with pytest.raises(ValueError, match=r"values\[1\]"):
        explained_variance(f32(0, NAN), f32(0, 1), ones(2))
    with pytest.raises(ValueError, match=r"returns\[0\]"):
        explained_variance(f32(0, 1), f32(math.inf, 1), ones(2))
