"""length_adaptive_lambda by hand numbers, its slow reference and its refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.advantages import length_adaptive_lambda


@pytest.mark.parametrize(("length", "expected"), [(1, 1 / 3), (2, 2 / 3), (3, 7 / 9), (1000, 1 - 1 / 1500)])
def test_the_papers_numbers(length: int, expected: float) -> None:
    assert length_adaptive_lambda(length) == pytest.approx(expected, abs=1e-15)


def test_a_window_shorter_than_a_token_clamps_to_zero() -> None:
    assert length_adaptive_lambda(1, alpha=0.5) == 0.0
    assert length_adaptive_lambda(torch.tensor([1, 2, 4]), alpha=0.5).tolist() == [0.0, 0.0, 0.5]


def test_a_tensor_gives_float64_of_the_same_shape() -> None:
    lengths = torch.tensor([[1, 3], [1000, 131_072]], dtype=torch.int32)
    lambdas = length_adaptive_lambda(lengths)
    assert lambdas.dtype == torch.float64
    assert lambdas.shape == lengths.shape
    assert lambdas.flatten().tolist() == [length_adaptive_lambda(n) for n in lengths.flatten().tolist()]


def test_a_thousand_tokens_are_not_one_as_in_bfloat16() -> None:
    lam = length_adaptive_lambda(torch.tensor([1000]))
    assert lam.item() < 1.0
    assert lam.bfloat16().item() == 1.0


def test_integers_of_numpy_are_integers() -> None:
    assert length_adaptive_lambda(np.int64(3)) == length_adaptive_lambda(3)


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.integers(1, 10**7), st.floats(0.01, 100))
def test_it_stays_in_the_unit_interval_and_grows_with_length(length: int, alpha: float) -> None:
    lam, longer = length_adaptive_lambda(length, alpha=alpha), length_adaptive_lambda(length + 1, alpha=alpha)
    assert 0.0 <= lam <= longer < 1.0


@pytest.mark.parametrize("length", [0, -1, 1.5, "3", None])
def test_a_length_below_one_or_not_an_integer_is_refused(length: object) -> None:
    with pytest.raises(ValueError, match="num_action_tokens"):
        length_adaptive_lambda(length)  # type: ignore[call-overload]


def test_a_trajectory_without_actions_is_refused_by_index() -> None:
    with pytest.raises(ValueError, match=r"num_action_tokens\[2\] = 0"):
        length_adaptive_lambda(torch.tensor([4, 1, 0]))
    for bad in (torch.tensor([1.0]), torch.tensor([True])):
        with pytest.raises(ValueError, match="integers"):
            length_adaptive_lambda(bad)


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_alpha_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha"):
        length_adaptive_lambda(3, alpha=alpha)
