"""Properties that every loss shares: 1,000 random packed batches for each invariance, all losses on each batch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.losses import LossResult, band_metrics, dis_loss, merge_metrics, ppo_clip_loss, value_loss

PROPERTY = settings(max_examples=1_000, deadline=None, database=None, derandomize=True)
BAND = {"eps_low": 0.3, "eps_high": 1.0}
JUNK = np.array([0.0, 1.0, -100.0, math.nan, math.inf, -math.inf], dtype=np.float32)


@dataclass(frozen=True)
class Batch:
    """One row of `numbers` per tensor argument of a loss, float32 [3, T]; the first row receives the gradient."""

    numbers: torch.Tensor
    mask: torch.Tensor
    owner: torch.Tensor

    def at(self, index: torch.Tensor) -> "Batch":
        return Batch(self.numbers[:, index], self.mask[index], self.owner[index])


def batch(shape: bytes, seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    code = np.frombuffer(shape, dtype=np.uint8)
    numbers = rng.normal(size=(3, len(code))).astype(np.float32)
    return Batch(torch.from_numpy(numbers), torch.from_numpy(code % 4 > 0), torch.from_numpy(code // 4 % 2))


BATCH = st.builds(batch, st.binary(min_size=1, max_size=20), st.integers(0, 2**32))


def dis(row: torch.Tensor, b: Batch, count: int | None) -> LossResult:
    return dis_loss(row, b.numbers[1], b.numbers[2], b.mask, **BAND, num_action_tokens=count)


def ppo(row: torch.Tensor, b: Batch, count: int | None) -> LossResult:
    return ppo_clip_loss(row, b.numbers[1], b.numbers[2], b.mask, clip_low=0.2, clip_high=0.28, num_action_tokens=count)


def value(row: torch.Tensor, b: Batch, count: int | None) -> LossResult:
    return value_loss(row, b.numbers[1], b.mask, num_action_tokens=count)


LOSSES: list[Callable[[torch.Tensor, Batch, int | None], LossResult]] = [dis, ppo, value]


def evaluate(
    loss: Callable[[torch.Tensor, Batch, int | None], LossResult], b: Batch, count: int | None = None
) -> tuple[LossResult, torch.Tensor]:
    row = b.numbers[0].clone().requires_grad_()
    result = loss(row, b, count)
    (gradient,) = torch.autograd.grad(result.loss, row)
    return result, gradient


def close(number: float, expected: float) -> bool:
    return math.isclose(number, expected, rel_tol=1e-5, abs_tol=1e-5)


@PROPERTY
@given(BATCH)
def test_any_split_into_micro_batches_adds_up_to_the_whole(b: Batch) -> None:  # faults E1, E2, E3
    count = int(b.mask.sum())
    parts = [b.owner == k for k in range(2)]
    for loss in LOSSES:
        whole, whole_gradient = evaluate(loss, b)
        results = []
        for here in parts:
            result, gradient = evaluate(loss, b.at(here), count)
            results.append(result)
            assert torch.equal(gradient, whole_gradient[here])
        assert close(sum(r.loss.item() for r in results), whole.loss.item())
        merged = merge_metrics(r.metrics for r in results)
        assert merged.keys() == whole.metrics.keys()
        assert all(close(merged[key], whole.metrics[key]) for key in merged)


@PROPERTY
@given(BATCH, st.integers(0, 2**32))
def test_masked_slots_change_nothing_bit_for_bit(b: Batch, seed: int) -> None:  # faults B15, C11, E6
    junk = torch.from_numpy(np.random.default_rng(seed).choice(JUNK, size=b.numbers.shape))
    poisoned = Batch(torch.where(b.mask, b.numbers, junk), b.mask, b.owner)
    for loss in LOSSES:
        clean, clean_gradient = evaluate(loss, b)
        result, gradient = evaluate(loss, poisoned)
        assert torch.equal(result.loss, clean.loss)
        assert torch.equal(gradient, clean_gradient)
        assert result.metrics == clean.metrics


@PROPERTY
@given(BATCH, st.integers(0, 2**32))
def test_neither_packing_order_nor_observations_change_a_gradient(b: Batch, seed: int) -> None:  # fault B16
    rng = np.random.default_rng(seed)
    size = len(b.mask) + int(rng.integers(0, 8))
    place = torch.from_numpy(rng.permutation(size)[: len(b.mask)])  # where each token goes; the rest is inserted
    numbers = torch.from_numpy(rng.choice(JUNK, size=(3, size)))
    numbers[:, place] = b.numbers
    mask = torch.zeros(size, dtype=torch.bool)
    mask[place] = b.mask
    for loss in LOSSES:
        first, first_gradient = evaluate(loss, b)
        moved, gradient = evaluate(loss, Batch(numbers, mask, torch.zeros(size, dtype=torch.uint8)))
        assert torch.equal(gradient[place], first_gradient)
        assert close(moved.loss.item(), first.loss.item())


@settings(PROPERTY, max_examples=300)
@given(BATCH)
def test_dis_equals_a_slow_loop_over_tokens(b: Batch) -> None:  # fault C10
    result, gradient = evaluate(dis, b)
    policy, rollout, advantages = b.numbers.tolist()
    numerator, slopes, low, high = 0.0, [], 0, 0
    for t, is_action in enumerate(b.mask.tolist()):
        ratio = math.exp(policy[t] - rollout[t])
        weight = ratio if is_action and 0.7 < ratio < 2.0 else 0.0
        numerator -= weight * advantages[t] * policy[t]
        slopes.append(-weight * advantages[t])
        low += is_action and ratio <= 0.7
        high += is_action and ratio >= 2.0
    count = max(int(b.mask.sum()), 1)
    assert result.loss.item() == pytest.approx(numerator / count, rel=1e-4, abs=1e-5)
    assert gradient.tolist() == pytest.approx([slope / count for slope in slopes], rel=1e-4, abs=1e-6)
    assert (result.metrics["masked_low"], result.metrics["masked_high"]) == (low, high)
    assert result.metrics["tokens"] == result.metrics["kept"] + low + high
    counted = band_metrics(b.numbers[0], b.numbers[1], b.mask, low=0.7, high=2.0)
    assert {key: result.metrics.get(key, counted["ratio_max"]) for key in counted} == counted
