"""band_metrics, merge_metrics and token_mean."""

import math

import pytest
import torch

from soliton.losses import band_metrics, merge_metrics, token_mean

NAN, INF = math.nan, math.inf


def f32(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def test_every_action_token_is_counted_on_its_side_of_the_open_band() -> None:
    mask = torch.tensor([True, True, True, True, False])
    metrics = band_metrics(f32(0.7, 0.8, 2.0, 6.0, 9.0).log(), torch.zeros(5), mask, low=0.7, high=6.0)
    assert metrics == pytest.approx(
        {
            "tokens": 4,
            "masked_low": 1,
            "masked_high": 1,
            "masked_undefined": 0,
            "finite_tokens": 4,
            "log_ratio_sum": math.log(0.7 * 0.8 * 2 * 6),
            "abs_log_ratio_sum": math.log(2 * 6 / 0.7 / 0.8),
            "ratio_sum": 9.5,
            "ratio_sq_sum": 41.13,
            "ratio_max": 6.0,
        },
        rel=1e-6,
    )


def test_broken_tokens_are_counted_and_leave_every_number_finite() -> None:
    policy, rollout = f32(0, -INF, -1, -INF, -1), f32(-1000, -1, -INF, -INF, -1)
    metrics = band_metrics(policy, rollout, torch.ones(5, dtype=torch.bool), low=0.7, high=6.0)
    assert all(math.isfinite(number) for number in metrics.values())
    sides = ("masked_low", "masked_high", "masked_undefined", "finite_tokens")
    assert [metrics[key] for key in sides] == [1, 2, 1, 2]
    assert metrics["ratio_max"] == pytest.approx(math.exp(20))


def test_no_lower_bound_and_no_tokens() -> None:
    one = torch.ones(1, dtype=torch.bool)
    assert band_metrics(f32(-50), f32(0), one, low=0.0, high=6.0)["masked_low"] == 0
    assert set(band_metrics(f32(NAN), f32(NAN), ~one, low=0.7, high=6.0).values()) == {0.0}


def test_a_nan_on_an_action_and_a_band_that_is_none_are_refused() -> None:
    one = torch.ones(1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"rollout_logprobs\[0\]"):
        band_metrics(f32(0), f32(NAN), one, low=0.7, high=6.0)
    for low, high in ((2.0, 1.0), (-1.0, 0.0), (0.5, NAN), (0.5, INF)):
        with pytest.raises(ValueError, match="band"):
            band_metrics(f32(0), f32(0), one, low=low, high=high)


def test_no_gradient_flows_through_metrics() -> None:
    policy = torch.zeros(2, requires_grad=True)
    metrics = band_metrics(policy, torch.zeros(2), torch.ones(2, dtype=torch.bool), low=0.7, high=6.0)
    assert all(type(number) is float for number in metrics.values())


def test_parts_merge_by_sum_and_maxima_by_maximum() -> None:
    parts = [{"tokens": 1.0, "ratio_max": 3.0}, {"tokens": 2.0, "ratio_max": 2.0, "extra": 1.0}]
    assert merge_metrics(parts) == {"tokens": 3.0, "ratio_max": 3.0, "extra": 1.0}
    assert merge_metrics([]) == {}


def test_the_mean_is_over_the_whole_batch_and_not_over_micro_batches() -> None:  # fault E2
    first = token_mean(f32(1), torch.ones(1), 10)
    second = token_mean(torch.zeros(9), torch.ones(9), 10)
    assert (first + second).item() == pytest.approx(0.1)


def test_only_what_is_counted_is_summed() -> None:  # fault E6
    per_token = f32(1, 25).requires_grad_()
    mean = token_mean(per_token, torch.tensor([True, False]), None)
    mean.backward()
    assert mean.item() == 1
    assert per_token.grad.tolist() == [1, 0]


def test_nothing_to_average_is_zero_with_a_graph() -> None:  # fault E3
    for count in (None, 0, 8):
        per_token = torch.zeros(3, requires_grad=True)
        mean = token_mean(per_token, torch.zeros(3, dtype=torch.bool), count)
        mean.backward()
        assert mean.item() == 0
        assert per_token.grad.tolist() == [0, 0, 0]


def test_a_count_below_the_calls_own_is_refused() -> None:
    for count in (0, 1, -1):
        with pytest.raises(ValueError, match="whole optimiser batch"):
            token_mean(torch.zeros(2), torch.ones(2), count)
