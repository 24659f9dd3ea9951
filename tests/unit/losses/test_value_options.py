"""Value losses beyond the squared error: hand numbers, a slow reference, limits, gradient flow, refusals."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.losses import bce_value_loss, clipped_value_loss, huber_value_loss, separated_states, value_loss

NAN = math.nan
YES = torch.ones(3, dtype=torch.bool)


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> list[float]:
    return torch.autograd.grad(loss, of)[0].tolist()


# --- clipped against values from before the fit


def test_a_value_that_moved_past_the_clip_towards_its_return_has_no_gradient_and_one_that_moved_away_has():
    values = f32(0.9, 0.9, 0.1, grad=True)  # before: 0.5, so they moved by +-0.4; the clip is 0.2
    result = clipped_value_loss(values, f32(1.0, 0.0, 0.0), f32(0.5, 0.5, 0.5), YES, clip=0.2)
    # (0.9 - 1)^2 < (0.7 - 1)^2: the clipped one counts; (0.9 - 0)^2 > (0.7 - 0)^2; (0.1 - 0)^2 < (0.3 - 0)^2
    assert result.loss.item() == pytest.approx((0.09 + 0.81 + 0.09) / 3)
    assert gradient(result.loss, values) == pytest.approx([0, 2 * 0.9 / 3, 0])
    assert result.metrics["clipped"] == 2


def test_before_the_first_fit_the_clipped_loss_is_the_squared_error_bit_for_bit():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(50, generator=generator).requires_grad_()
    returns, mask = torch.randn(50, generator=generator), torch.rand(50, generator=generator) > 0.3
    clipped = clipped_value_loss(values, returns, values.detach(), mask, clip=0.2)
    plain = value_loss(values, returns, mask)
    assert torch.equal(clipped.loss, plain.loss)
    assert gradient(clipped.loss, values) == gradient(plain.loss, values)
    assert clipped.metrics == plain.metrics | {"clipped": 0}


def test_stored_values_receive_no_gradient_and_are_checked():
    before, values = f32(0.5, grad=True), f32(0.6, grad=True)
    clipped_value_loss(values, f32(1.0), before, torch.tensor([True]), clip=0.2).loss.backward()
    assert before.grad is None
    with pytest.raises(ValueError, match=r"pre_fit_values\[0\] = nan"):
        clipped_value_loss(values, f32(1.0), f32(NAN), torch.tensor([True]), clip=0.2)
    with pytest.raises(ValueError, match="clip must be > 0, got 0"):
        clipped_value_loss(values, f32(1.0), before, torch.tensor([True]), clip=0)


# --- Huber


def test_huber_is_the_squared_error_near_zero_and_linear_beyond():
    values = f32(0.5, 3.0, -3.0, grad=True)
    result = huber_value_loss(values, torch.zeros(3), YES, delta=1.0)
    assert result.loss.item() == pytest.approx((0.25 + 5 + 5) / 3)  # 2 * 3 - 1
    assert gradient(result.loss, values) == pytest.approx([1 / 3, 2 / 3, -2 / 3])


def test_a_wide_huber_is_the_squared_error():
    values, returns = f32(0.5, 3.0, -3.0, grad=True), f32(1.0, 0.0, 0.0)
    wide, plain = huber_value_loss(values, returns, YES, delta=100.0), value_loss(values, returns, YES)
    assert wide.loss.item() == pytest.approx(plain.loss.item())
    assert gradient(wide.loss, values) == pytest.approx(gradient(plain.loss, values))


@pytest.mark.parametrize("delta", [0.0, -1.0, math.inf, NAN])
def test_a_bad_delta_is_refused(delta: float):
    with pytest.raises(ValueError, match="delta must be finite and > 0"):
        huber_value_loss(f32(1.0), f32(1.0), torch.tensor([True]), delta=delta)


# --- cross-entropy


def test_cross_entropy_by_hand_and_its_gradient_is_v_minus_r():
    logits = f32(0.0, math.log(3.0), grad=True)
    result = bce_value_loss(logits, f32(1.0, 0.25), torch.tensor([True, True]))
    expected = [math.log(2), -(0.25 * math.log(0.75) + 0.75 * math.log(0.25))]
    assert result.loss.item() == pytest.approx(sum(expected) / 2)
    assert gradient(result.loss, logits) == pytest.approx([-0.5 / 2, 0.5 / 2])
    assert result.metrics["value_sum"] == pytest.approx(1.25)


def test_a_confident_mistake_keeps_its_gradient_and_stays_finite():
    logits = f32(200.0, -200.0, grad=True)
    result = bce_value_loss(logits, f32(0.0, 1.0), torch.tensor([True, True]))
    assert result.loss.item() == pytest.approx(200)
    assert gradient(result.loss, logits) == pytest.approx([0.5, -0.5])


@pytest.mark.parametrize("bad", [-0.01, 1.01])
def test_returns_that_are_no_probability_are_refused_by_index(bad: float):
    with pytest.raises(ValueError, match=r"returns\[1\] = .*in \[0, 1\]"):
        bce_value_loss(f32(0, 0), f32(0.5, bad), torch.tensor([True, True]))
    bce_value_loss(f32(0, 0), f32(0.5, bad), torch.tensor([True, False]))  # masked: not read


# --- all of them


def slow(name: str, v: float, r: float, before: float) -> float:
    if name == "clipped":
        bounded = before + max(-0.2, min(0.2, v - before))
        return max((v - r) ** 2, (bounded - r) ** 2)
    if name == "huber":
        e = abs(v - r)
        return e * e if e <= 0.3 else 2 * 0.3 * e - 0.3**2
    p = 1 / (1 + math.exp(-v))
    return -(r * math.log(p) + (1 - r) * math.log(1 - p))


def of_name(name, values, returns, before, mask, count=None):
    if name == "clipped":
        return clipped_value_loss(values, returns, before, mask, clip=0.2, num_action_tokens=count)
    if name == "huber":
        return huber_value_loss(values, returns, mask, delta=0.3, num_action_tokens=count)
    return bce_value_loss(values, returns, mask, num_action_tokens=count)


@pytest.mark.parametrize("name", ["clipped", "huber", "bce"])
@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_a_value_loss_equals_a_slow_loop_masks_junk_and_splits_into_micro_batches(name: str, seed: int, size: int):
    rng = np.random.default_rng(seed)  # faults B15, E1, E2
    values, before = (torch.from_numpy(rng.normal(0, 1, size)).requires_grad_() for _ in range(2))
    returns, mask = torch.from_numpy(rng.uniform(0, 1, size)), torch.from_numpy(rng.random(size) < 0.7)
    whole = of_name(name, values, returns, before, mask)
    count = max(int(mask.sum()), 1)
    rows = zip(*(t.tolist() for t in (values, returns, before, mask)), strict=True)
    expected = [slow(name, *numbers) for *numbers, is_action in rows if is_action]
    assert whole.loss.item() == pytest.approx(sum(expected) / count)
    poisoned = [torch.where(mask, tensor.detach(), NAN) for tensor in (values, returns, before)]
    poisoned[0].requires_grad_()
    other = of_name(name, *poisoned, mask)
    assert torch.equal(other.loss, whole.loss)
    assert gradient(other.loss, poisoned[0]) == gradient(whole.loss, values)
    half = torch.arange(size) % 2 == 0
    parts = [of_name(name, values[h], returns[h], before[h], mask[h], count) for h in (half, ~half)]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item())


# --- states


def test_three_states_of_nine_are_the_middles_of_thirds_and_observations_do_not_count():
    mask = torch.tensor([True] * 4 + [False] * 3 + [True] * 5)
    chosen = separated_states(mask, torch.zeros(12, dtype=torch.int64), num_states=3)
    assert chosen.nonzero().flatten().tolist() == [1, 7, 10]  # action tokens 1, 4 and 7


@settings(max_examples=200, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), num_states=st.integers(1, 5))
def test_states_are_as_many_as_asked_for_or_all_and_far_apart_in_every_trajectory(seed: int, num_states: int):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 20, 4)
    segments = torch.from_numpy(np.repeat(np.arange(4), lengths))
    mask = torch.from_numpy(rng.random(len(segments)) < 0.7)
    chosen = separated_states(mask, segments, num_states=num_states)
    assert not (chosen & ~mask).any()
    for s in range(4):
        places = chosen[(segments == s) & mask].nonzero().flatten().tolist()
        length = int(mask[segments == s].sum())
        assert len(places) == min(num_states, length)
        assert all(b - a >= max(1, length // num_states) for a, b in pairwise(places))


def test_fewer_than_one_state_is_refused():
    with pytest.raises(ValueError, match="num_states must be >= 1, got 0"):
        separated_states(YES, torch.zeros(3, dtype=torch.int64), num_states=0)
