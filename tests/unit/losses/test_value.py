"""value_loss by hand numbers, gradient flow and refusals."""

import math

import pytest
import torch

from soliton.losses import value_loss

NAN, INF = math.nan, math.inf


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def test_it_is_the_mean_square_without_a_half() -> None:
    values = f32(0.5, 9.0, 2.0, grad=True)
    result = value_loss(values, f32(1.0, 0.0, 4.0), torch.tensor([True, False, True]))
    result.loss.backward()
    assert result.loss.item() == (0.25 + 4) / 2
    assert values.grad.tolist() == [-0.5, 0, -2]
    assert result.metrics == {
        "tokens": 2, "squared_error_sum": 4.25, "error_sum": -2.5, "value_sum": 2.5, "return_sum": 5,
    }  # fmt: skip


def test_returns_receive_no_gradient() -> None:
    values, returns = f32(0.5, grad=True), f32(1.0, grad=True)
    value_loss(values, returns, torch.tensor([True])).loss.backward()
    assert values.grad is not None
    assert returns.grad is None


@pytest.mark.parametrize("filler", [0.0, 1.0, -100.0, NAN, INF, -INF])
def test_masked_slots_are_not_read(filler: float) -> None:  # faults B15, E6
    values = f32(0.5, filler, grad=True)
    result = value_loss(values, f32(1.0, filler), torch.tensor([True, False]))
    result.loss.backward()
    assert result.loss.item() == 0.25
    assert values.grad.tolist() == [-1, 0]


def test_what_is_summed_is_what_is_counted() -> None:  # fault E6
    result = value_loss(torch.zeros(2), f32(1, 5), torch.tensor([True, False]))
    assert result.loss.item() == 1.0


def test_one_bad_token_among_ten_weighs_a_tenth_in_two_micro_batches() -> None:  # fault E2
    parts = [
        value_loss(torch.zeros(n), torch.full((n,), target), torch.ones(n, dtype=torch.bool), num_action_tokens=10)
        for n, target in ((1, 1.0), (9, 0.0))
    ]
    assert sum(part.loss.item() for part in parts) == pytest.approx(0.1)


@pytest.mark.parametrize("size", [0, 2])
def test_no_action_tokens_give_zero_with_a_graph(size: int) -> None:  # fault E3
    values = torch.full((size,), NAN, requires_grad=True)
    result = value_loss(values, torch.zeros(size), torch.zeros(size, dtype=torch.bool))
    result.loss.backward()
    assert result.loss.item() == 0
    assert values.grad.tolist() == [0] * size


def test_low_precision_values_are_squared_in_float32() -> None:
    values = torch.tensor([300.0], dtype=torch.float16, requires_grad=True)  # 300 ** 2 is infinite in float16
    result = value_loss(values, f32(0.0), torch.tensor([True]))
    result.loss.backward()
    assert result.loss.item() == 90_000
    assert values.grad.dtype == torch.float16


@pytest.mark.parametrize("bad", [NAN, INF])
def test_what_is_not_finite_on_an_action_is_refused_by_index(bad: float) -> None:
    mask = torch.tensor([False, True])
    with pytest.raises(ValueError, match=r"values\[1\]"):
        value_loss(f32(bad, bad), f32(0, 0), mask)
    with pytest.raises(ValueError, match=r"returns\[1\]"):
        value_loss(f32(0, 0), f32(bad, bad), mask)


def test_shapes_are_never_broadcast() -> None:  # fault B14
    for values, returns in ((torch.zeros(3, 1), torch.zeros(3)), (torch.zeros(3), torch.zeros(1))):
        with pytest.raises(ValueError, match="packed"):
            value_loss(values, returns, torch.ones(3, dtype=torch.bool))
