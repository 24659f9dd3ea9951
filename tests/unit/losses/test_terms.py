"""Entropy, KL and positive-example terms; and the clip of probabilities: hand numbers, limits, gradients, refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.losses import (
    entropy_loss,
    positive_example_loss,
    ppo_clip_loss,
    probability_bounds,
    probability_clip_loss,
    reference_kl_loss,
)

NAN, INF = math.nan, math.inf
YES, NO = True, False


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def mask(*bits: bool) -> torch.Tensor:
    return torch.tensor(bits)


def gradient(loss: torch.Tensor, of: torch.Tensor) -> list[float]:
    return torch.autograd.grad(loss, of)[0].tolist()


def test_entropy_is_minus_its_mean_and_untrusted_tokens_stay_in_the_denominator():
    entropies = f32(1.0, NAN, 2.0, grad=True)
    result = entropy_loss(entropies, mask(YES, NO, YES), trusted=mask(YES, YES, NO))
    assert result.loss.item() == -0.5
    assert gradient(result.loss, entropies) == [-0.5, 0, 0]
    assert result.metrics == {"tokens": 1, "entropy_sum": 1}


def test_kl_by_hand_and_its_gradient():
    policy = f32(math.log(0.5), math.log(0.25), grad=True)
    result = reference_kl_loss(policy, f32(math.log(0.25), math.log(0.25)), mask(YES, YES))
    assert result.loss.item() == pytest.approx((0.5 + math.log(2) - 1) / 2)  # d = log(1/2)
    assert gradient(result.loss, policy) == pytest.approx([(1 - 0.5) / 2, 0])


def test_the_mean_of_the_kl_estimate_over_what_the_policy_samples_is_the_kl():
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    each = torch.stack([reference_kl_loss(p[i : i + 1].log(), q[i : i + 1].log(), mask(YES)).loss for i in range(3)])
    assert float((p * each).sum()) == pytest.approx(float((p * (p / q).log()).sum()), rel=1e-5)


def test_an_infinite_distance_has_no_gradient_and_stays_finite():
    policy = f32(-1.0, -INF, -1000.0, grad=True)
    result = reference_kl_loss(policy, f32(-INF, -1.0, 0.0), mask(YES, YES, YES))
    assert math.isfinite(result.loss.item())
    assert gradient(result.loss, policy) == [0, 0, 0]


def test_positive_examples_by_hand():
    policy = f32(-1.0, -2.0, -4.0, NAN, grad=True)
    result = positive_example_loss(policy, mask(YES, YES, NO, YES), mask(YES, YES, YES, NO))
    assert result.loss.item() == 1.5
    assert gradient(result.loss, policy) == [-0.5, -0.5, 0, 0]
    assert result.metrics == {"tokens": 2, "logprob_sum": -3}


def test_without_a_success_there_is_nothing_to_imitate():
    policy = f32(-1.0, grad=True)
    result = positive_example_loss(policy, mask(NO), mask(YES), num_positive_tokens=0)
    assert (result.loss.item(), gradient(result.loss, policy)) == (0, [0])


def test_what_is_no_number_on_an_action_is_refused_by_index():
    with pytest.raises(ValueError, match=r"entropies\[0\] = inf"):
        entropy_loss(f32(INF), mask(YES))
    with pytest.raises(ValueError, match=r"reference_logprobs\[0\] = nan"):
        reference_kl_loss(f32(-1.0), f32(NAN), mask(YES))
    with pytest.raises(ValueError, match=r"policy_logprobs\[0\] = nan"):
        positive_example_loss(f32(NAN), mask(YES), mask(YES))


def test_a_global_count_below_the_own_one_is_refused():
    with pytest.raises(ValueError, match="num_action_tokens is 1 but this call alone has 2"):
        entropy_loss(f32(1.0, 1.0), mask(YES, YES), num_action_tokens=1)


def each_term(policy, other, positive, mask_, trusted, count, num_positive):
    return {
        "entropy": entropy_loss(policy, mask_, num_action_tokens=count, trusted=trusted),
        "kl": reference_kl_loss(policy, other, mask_, num_action_tokens=count, trusted=trusted),
        "positive": positive_example_loss(policy, positive, mask_, num_positive_tokens=num_positive, trusted=trusted),
    }


@settings(max_examples=100, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_terms_equal_slow_loops_do_not_read_masked_entries_and_add_up_over_micro_batches(seed: int, size: int):
    rng = np.random.default_rng(seed)  # faults B15, E1, E2
    policy = torch.from_numpy(-rng.exponential(1, size)).requires_grad_()
    other = torch.from_numpy(-rng.exponential(1, size))
    positive, action, trusted = (torch.from_numpy(rng.random(size) < 0.7) for _ in range(3))
    count, num_positive = max(int(action.sum()), 1), max(int((action & positive).sum()), 1)
    whole = each_term(policy, other, positive, action, trusted, None, None)
    slow = dict.fromkeys(whole, 0.0)
    for i in range(size):
        if action[i] and trusted[i]:
            p, q = policy[i].item(), other[i].item()
            slow["entropy"] -= p / count
            slow["kl"] += (math.exp(q - p) - (q - p) - 1) / count
            slow["positive"] -= p / num_positive if positive[i] else 0.0
    poisoned = torch.where(action, policy.detach(), NAN).requires_grad_()
    other_poisoned = torch.where(action, other, NAN)
    junk = each_term(poisoned, other_poisoned, positive, action, trusted, None, None)
    half = torch.arange(size) % 2 == 0
    parts = [
        each_term(policy[h], other[h], positive[h], action[h], trusted[h], count, num_positive) for h in (half, ~half)
    ]
    for name, result in whole.items():
        assert result.loss.item() == pytest.approx(slow[name])
        assert torch.equal(junk[name].loss, result.loss)
        assert sum(part[name].loss.item() for part in parts) == pytest.approx(result.loss.item())
        slopes = gradient(result.loss, policy)
        assert gradient(junk[name].loss, poisoned) == slopes
        assert not torch.tensor(slopes)[~(action & trusted)].any()


# --- the clip of probabilities


def test_bounds_keep_the_probability_within_the_clip():
    low, high = probability_bounds(f32(math.log(0.5), math.log(0.1), 0.0), clip_low=0.2, clip_high=0.2)
    assert low.tolist() == pytest.approx([0.6, 0.0, 0.8])
    assert high.tolist() == pytest.approx([1.4, 3.0, 1.2])


@pytest.mark.parametrize(
    ("new", "old", "advantage", "is_clipped"),
    [(0.75, 0.5, 1.0, True), (0.65, 0.5, 1.0, False), (0.75, 0.5, -1.0, False), (0.2, 0.5, -1.0, True)],
)
def test_a_token_loses_its_gradient_once_its_probability_moved_as_far_as_it_may(new, old, advantage, is_clipped):
    policy = f32(math.log(new), grad=True)
    arguments = policy, f32(math.log(old)), f32(advantage), mask(YES)
    (slope,) = gradient(probability_clip_loss(*arguments, clip_low=0.2, clip_high=0.2).loss, policy)
    assert slope == pytest.approx(0 if is_clipped else -advantage * new / old)


def test_a_rare_token_has_no_lower_bound_and_may_grow_many_times():
    policy = f32(math.log(0.15), math.log(1e-6), grad=True)
    arguments = policy, f32(math.log(0.01), math.log(0.01)), f32(1.0, -1.0), mask(YES, YES)
    result = probability_clip_loss(*arguments, clip_low=0.2, clip_high=0.2)
    assert gradient(result.loss, policy) == pytest.approx([-7.5, 5e-5], rel=1e-4)
    assert result.metrics["clipped_low"] == result.metrics["clipped_high"] == 0


def test_at_an_old_probability_of_one_it_is_the_clip_of_ppo():
    policy = f32(-0.1, -0.5, -1.0, grad=True)
    arguments = policy, torch.zeros(3), f32(1.0, -1.0, -1.0), mask(YES, YES, YES)
    ours, theirs = (loss(*arguments, clip_low=0.3, clip_high=0.3) for loss in (probability_clip_loss, ppo_clip_loss))
    assert ours.loss.item() == pytest.approx(theirs.loss.item())
    assert gradient(ours.loss, policy) == pytest.approx(gradient(theirs.loss, policy))


def test_bounds_that_are_no_probabilities_are_refused():
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 0.2 and 1.5"):
        probability_clip_loss(f32(-1.0), f32(-1.0), f32(1.0), mask(YES), clip_low=0.2, clip_high=1.5)


def test_extreme_old_probabilities_keep_everything_finite():
    policy = f32(-1.0, -1.0, -1.0, grad=True)
    old = f32(-INF, -200.0, 0.0)
    result = probability_clip_loss(policy, old, f32(1.0, -1.0, 1.0), mask(YES, YES, YES), clip_low=0.2, clip_high=0.2)
    assert all(math.isfinite(slope) for slope in gradient(result.loss, policy))
