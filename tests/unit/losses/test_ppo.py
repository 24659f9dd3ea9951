"""ppo_clip_loss by hand numbers, limiting cases, gradient flow and refusals."""

import math

import pytest
import torch

from soliton.losses import ppo_clip_loss

NAN, INF = math.nan, math.inf
CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bool)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.56, 0.0),  # clipped above
        (0.5, 2.0, 1.0, 1.0),  # low with a good action: not clipped
        (0.5, -2.0, -1.6, 0.0),  # clipped below
        (1.5, -2.0, -3.0, -3.0),  # high with a bad action: not clipped
    ],
)
def test_the_clip_acts_only_where_moving_pays(ratio: float, advantage: float, objective: float, slope: float) -> None:
    policy = f32(math.log(ratio) - 1, grad=True)
    result = ppo_clip_loss(policy, f32(-1.0), f32(advantage), ones(1), **CLIP)
    result.loss.backward()
    assert result.loss.item() == pytest.approx(-objective, rel=1e-6)
    assert policy.grad.item() == pytest.approx(-slope, rel=1e-6)
    clipped = result.metrics["clipped_low"] + result.metrics["clipped_high"]
    assert clipped == (slope == 0)


def test_the_latest_pi_old_is_plain_advantage_actor_critic() -> None:
    policy, advantages = f32(-1.0, -2.0, -0.5, grad=True), f32(0.5, -1.5, 2.0)
    result = ppo_clip_loss(policy, policy.detach(), advantages, ones(3), **CLIP)
    (gradient,) = torch.autograd.grad(result.loss, policy)
    torch.testing.assert_close(gradient, -advantages / 3)
    assert result.metrics["proximal_ratio_sum"] == 3


def test_only_the_policy_receives_a_gradient() -> None:
    policy, proximal, advantages = (f32(-1, -2, grad=True) for _ in range(3))
    ppo_clip_loss(policy, proximal, advantages, ones(2), **CLIP).loss.backward()
    assert policy.grad is not None
    assert proximal.grad is None
    assert advantages.grad is None


@pytest.mark.parametrize("filler", [0.0, 1.0, -100.0, NAN, INF, -INF])
def test_masked_slots_are_not_read(filler: float) -> None:  # faults B15, C10, E6
    mask = torch.tensor([True, False, True])
    clean = ppo_clip_loss(f32(-1, -9, -2), f32(-1.5, -9, -2), f32(1, 9, -1), mask, **CLIP)
    policy = f32(-1, filler, -2, grad=True)
    result = ppo_clip_loss(policy, f32(-1.5, filler, -2), f32(1, filler, -1), mask, **CLIP)
    result.loss.backward()
    assert torch.equal(result.loss, clean.loss)
    assert result.metrics == clean.metrics
    assert policy.grad[1] == 0
    assert torch.isfinite(policy.grad).all()


@pytest.mark.parametrize(
    ("policy_logprob", "proximal_logprob"),
    [(0.0, -1000.0), (-1000.0, 0.0), (-INF, -1.0), (-1.0, -INF), (-INF, -INF)],
)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_extreme_logprobs_leave_loss_and_gradient_finite(
    policy_logprob: float, proximal_logprob: float, advantage: float
) -> None:  # fault C11
    policy = f32(policy_logprob, -1.0, grad=True)
    result = ppo_clip_loss(policy, f32(proximal_logprob, -1.0), f32(advantage, 1.0), ones(2), **CLIP)
    result.loss.backward()
    assert math.isfinite(result.loss.item())
    assert policy.grad.tolist() == [0, -0.5]
    assert all(math.isfinite(number) for number in result.metrics.values())


def test_an_untrusted_token_has_no_gradient_and_stays_in_the_denominator() -> None:
    policy = f32(-1, -1, grad=True)
    result = ppo_clip_loss(policy, f32(-1, -1), f32(1, 1), ones(2), **CLIP, trusted=torch.tensor([True, False]))
    result.loss.backward()
    assert policy.grad.tolist() == [-0.5, 0]
    assert (result.metrics["tokens"], result.metrics["untrusted"]) == (2, 1)


@pytest.mark.parametrize("size", [0, 3])
def test_no_action_tokens_give_zero_with_a_graph(size: int) -> None:  # fault E3
    policy = torch.full((size,), NAN, requires_grad=True)
    result = ppo_clip_loss(policy, policy.detach(), policy.detach(), torch.zeros(size, dtype=torch.bool), **CLIP)
    result.loss.backward()
    assert result.loss.item() == 0
    assert policy.grad.tolist() == [0] * size


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy_logprobs": f32(0, NAN)}, r"policy_logprobs\[1\]"),
        ({"proximal_logprobs": f32(0, NAN)}, r"proximal_logprobs\[1\]"),
        ({"advantages": f32(INF, 0)}, r"advantages\[0\]"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_low": -0.1}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"clip_high": NAN}, "clip_high"),
        ({"num_action_tokens": 1}, "whole optimiser batch"),
        ({"action_mask": ones(3)}, "packed"),
    ],
)
def test_bad_arguments_are_refused_by_name(change: dict[str, object], message: str) -> None:
    two = torch.zeros(2)
    arguments = {"policy_logprobs": two, "proximal_logprobs": two, "advantages": two, "action_mask": ones(2), **CLIP}
    with pytest.raises(ValueError, match=message):
        ppo_clip_loss(**(arguments | change))  # type: ignore[arg-type]
