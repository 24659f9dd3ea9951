"""REINFORCE, DCPO, GSPO and the two-ratio losses: hand numbers, limiting cases, slow references, gradient flow."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.losses import (
    LossResult,
    dcpo_bounds,
    dcpo_clip_loss,
    dis_loss,
    gspo_loss,
    merge_metrics,
    ppo_clip_loss,
    reinforce_loss,
    two_ratio_clip_loss,
)

NAN, INF = math.nan, math.inf
CLIP = {"clip_low": 0.2, "clip_high": 0.28}
WEIGHT = {"weight_low": 0.5, "weight_high": 5.0}
PROPERTY = settings(max_examples=300, deadline=None, database=None, derandomize=True)
JUNK = np.array([0.0, 1.0, -100.0, NAN, INF, -INF], dtype=np.float32)


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bool)


def gradient(result: LossResult, policy: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(result.loss, policy)
    return found


class Case:
    """Tokens of two trajectories; `numbers` are policy, old, rollout log-probs and advantages, float32 [4, T]."""

    def __init__(self, numbers: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor) -> None:
        self.numbers, self.mask, self.segments = numbers, mask, segments

    def at(self, index: torch.Tensor) -> "Case":
        return Case(self.numbers[:, index], self.mask[index], self.segments[index])


def case(shape: bytes, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    code = np.frombuffer(shape, dtype=np.uint8)
    numbers = np.concatenate([-np.abs(rng.normal(size=(3, len(code)))), rng.normal(size=(1, len(code)))])
    segments = torch.from_numpy(code // 4 % 2).long()
    return Case(torch.from_numpy(numbers.astype(np.float32)), torch.from_numpy(code % 4 > 0), segments)


CASE = st.builds(case, st.binary(min_size=1, max_size=20), st.integers(0, 2**32))
Loss = Callable[[torch.Tensor, Case, bool], LossResult]


def reinforce(row: torch.Tensor, c: Case, whole: bool = True) -> LossResult:
    return reinforce_loss(row, c.numbers[3], c.mask, num_action_tokens=None if whole else 20)


def dcpo(row: torch.Tensor, c: Case, whole: bool = True) -> LossResult:
    count = None if whole else 20
    return dcpo_clip_loss(
        row, c.numbers[1], c.numbers[3], c.mask, clip_low=0.16, clip_high=0.2, num_action_tokens=count
    )


def two_ratios(row: torch.Tensor, c: Case, whole: bool = True) -> LossResult:
    old, rollout, advantages = c.numbers[1:]
    count = None if whole else 20
    return two_ratio_clip_loss(row, old, rollout, advantages, c.mask, **CLIP, **WEIGHT, num_action_tokens=count)


def gspo(row: torch.Tensor, c: Case, whole: bool = True) -> LossResult:
    old, advantages, count = c.numbers[1], c.numbers[3], None if whole else 2
    return gspo_loss(row, old, advantages, c.mask, c.segments, **CLIP, num_trajectories=count)


LOSSES: list[Loss] = [reinforce, dcpo, two_ratios, gspo]


def evaluate(loss: Loss, c: Case, whole: bool = True) -> tuple[LossResult, torch.Tensor]:
    row = c.numbers[0].clone().requires_grad_()
    result = loss(row, c, whole)
    return result, gradient(result, row)


# --- shared properties


@PROPERTY
@given(CASE)
def test_whole_trajectories_split_over_micro_batches_add_up(c: Case) -> None:  # faults E1, E2, E3
    for loss in LOSSES:
        whole, whole_gradient = evaluate(loss, c, whole=False)
        parts = []
        for here in (c.segments == 0, c.segments == 1):
            result, part_gradient = evaluate(loss, c.at(here), whole=False)
            parts.append(result)
            torch.testing.assert_close(part_gradient, whole_gradient[here], atol=1e-7, rtol=1e-5)
        assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item(), rel=1e-4, abs=1e-5)
        merged = merge_metrics(part.metrics for part in parts)
        assert merged == pytest.approx(whole.metrics, rel=1e-5, abs=1e-5)


@PROPERTY
@given(CASE, st.integers(0, 2**32))
def test_masked_slots_change_nothing_bit_for_bit(c: Case, seed: int) -> None:  # faults B15, C10, C11, E6
    junk = torch.from_numpy(np.random.default_rng(seed).choice(JUNK, size=c.numbers.shape))
    poisoned = Case(torch.where(c.mask, c.numbers, junk), c.mask, c.segments)
    for loss in LOSSES:
        clean, clean_gradient = evaluate(loss, c)
        result, found = evaluate(loss, poisoned)
        assert torch.equal(result.loss, clean.loss)
        assert torch.equal(found, clean_gradient)
        assert result.metrics == clean.metrics


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bad", [INF, -INF])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_infinite_logprobs_leave_loss_and_gradient_finite(loss: Loss, bad: float, row: int) -> None:  # fault C11
    numbers = torch.full((4, 3), -1.0)
    numbers[row, 1] = bad
    result, found = evaluate(loss, Case(numbers, ones(3), torch.tensor([0, 1, 0])))
    assert math.isfinite(result.loss.item())
    assert torch.isfinite(found).all()
    if row < 2 - (loss is reinforce):
        assert found[1] == 0
        assert found[0] != 0


@pytest.mark.parametrize("loss", LOSSES)
def test_only_the_policy_receives_a_gradient(loss: Loss) -> None:
    numbers = torch.full((4, 2), -1.0, requires_grad=True)
    policy = f32(-1.0, -2.0, grad=True)
    loss(policy, Case(numbers, ones(2), torch.tensor([0, 0])), True).loss.backward()
    assert policy.grad is not None
    assert numbers.grad is None


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [0, 3])
def test_no_action_tokens_give_zero_with_a_graph(loss: Loss, size: int) -> None:  # fault E3
    nothing = Case(
        torch.full((4, size), NAN), torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.int64)
    )
    result, found = evaluate(loss, nothing)
    assert result.loss.item() == 0
    assert found.tolist() == [0] * size


@pytest.mark.parametrize("loss", LOSSES)
def test_nan_on_an_action_token_is_refused_by_name(loss: Loss) -> None:
    for row, name in enumerate(["policy_logprobs", "proximal_logprobs", "rollout_logprobs", "advantages"]):
        numbers = torch.full((4, 2), -1.0)
        numbers[row, 1] = NAN
        c = Case(numbers, ones(2), torch.tensor([0, 0]))
        reads = {reinforce: (0, 3), dcpo: (0, 1, 3), gspo: (0, 1, 3), two_ratios: (0, 1, 2, 3)}[loss]  # type: ignore[index]
        if row in reads:
            with pytest.raises(ValueError, match=rf"{name}\[1\]"):
                loss(numbers[0], c, True)
        else:
            loss(numbers[0], c, True)


# --- REINFORCE


def test_reinforce_is_minus_the_mean_of_advantage_times_logprob() -> None:
    policy = f32(-1.0, -2.0, grad=True)
    result = reinforce_loss(policy, f32(3.0, -1.0), ones(2))
    assert result.loss.item() == pytest.approx(-(3 * -1 + -1 * -2) / 2)
    assert gradient(result, policy).tolist() == [-1.5, 0.5]


@PROPERTY
@given(CASE)
def test_dis_at_ratio_one_is_reinforce(c: Case) -> None:  # sao at r = 1 is advantage actor-critic
    row = c.numbers[0].clone().requires_grad_()
    dis = dis_loss(row, c.numbers[0], c.numbers[3], c.mask, eps_low=0.3, eps_high=5.0)
    result, found = evaluate(reinforce, c)
    torch.testing.assert_close(gradient(dis, row), found, atol=1e-7, rtol=1e-6)
    assert dis.loss.item() == pytest.approx(result.loss.item(), abs=1e-6)


# --- DCPO


@pytest.mark.parametrize(
    ("probability", "low", "high"),
    [
        (1.0, 0.8, (1 + math.sqrt(1.8)) / 2),
        (0.64, 0.5, (1 + math.sqrt(2.25)) / 2),  # q = 4 * 0.16: the lower bound stops falling
        (0.1, 0.5, 2.0),
        (0.001, 0.5, 10.0),  # the cap
        (0.0, 0.5, 10.0),
    ],
)
def test_bounds_widen_for_rare_tokens(probability: float, low: float, high: float) -> None:
    logprob = math.log(probability) if probability else -INF
    found = dcpo_bounds(f32(logprob), clip_low=0.16, clip_high=0.2)
    assert [bound.item() for bound in found] == pytest.approx([low, high], rel=1e-3)


@PROPERTY
@given(st.floats(1e-2, 1.0))
def test_at_a_bound_the_weighted_move_of_probability_is_the_clip(probability: float) -> None:
    low, high = (
        bound.item() for bound in dcpo_bounds(torch.tensor([probability]).double().log(), clip_low=0.16, clip_high=0.2)
    )
    assert 0.5 <= low <= 1 <= high
    assert (high - 1) * high * probability == pytest.approx(0.2)
    if low > 0.5:
        assert (1 - low) * low * probability == pytest.approx(0.16)


@PROPERTY
@given(CASE)
def test_dcpo_equals_a_slow_loop_over_tokens(c: Case) -> None:
    result, _ = evaluate(dcpo, c)
    total = 0.0
    for policy, old, _, advantage, action in zip(*c.numbers.tolist(), c.mask.tolist(), strict=True):
        if action:
            q, ratio = math.exp(old), math.exp(policy - old)
            low = 0.5 + 0.5 * math.sqrt(max(0.0, 1 - 4 * 0.16 / q))
            high = min(10.0, 0.5 + 0.5 * math.sqrt(1 + 4 * 0.2 / q))
            total -= min(ratio * advantage, min(max(ratio, low), high) * advantage)
    assert result.loss.item() == pytest.approx(total / max(1, int(c.mask.sum())), rel=1e-4, abs=1e-5)


# --- two ratios


def test_the_weight_multiplies_the_clipped_surrogate_and_drops_beyond_its_bounds() -> None:
    rollout = torch.log(f32(1 / 0.4, 1 / 0.5, 1 / 2.0, 1 / 5.0, 1 / 6.0))  # weights .4, .5, 2, 5, 6 at proximal 1
    policy = f32(0, 0, 0, 0, 0, grad=True)
    result = two_ratio_clip_loss(policy, torch.zeros(5), rollout, torch.ones(5), ones(5), **CLIP, **WEIGHT)
    torch.testing.assert_close(gradient(result, policy), -f32(0, 0.5, 2, 5, 0) / 5)
    assert result.metrics["weight_dropped"] == 2
    assert result.metrics["weight_sum"] == pytest.approx(7.5)


def test_without_a_lower_bound_small_weights_stay() -> None:
    policy = f32(0.0, grad=True)
    bounds = {"weight_low": 0.0, "weight_high": 5.0}
    result = two_ratio_clip_loss(policy, f32(0), f32(math.log(1000)), f32(1), ones(1), **CLIP, **bounds)
    assert gradient(result, policy).item() == pytest.approx(-0.001, rel=1e-4)


@PROPERTY
@given(CASE)
def test_proximal_equal_to_rollout_is_the_ppo_clip(c: Case) -> None:
    row = c.numbers[0].clone().requires_grad_()
    _, old, _, advantages = c.numbers
    both = two_ratio_clip_loss(row, old, old, advantages, c.mask, **CLIP, **WEIGHT)
    ppo = ppo_clip_loss(row, old, advantages, c.mask, **CLIP)
    assert torch.equal(gradient(both, row), gradient(ppo, row))
    assert torch.equal(both.loss, ppo.loss)


@PROPERTY
@given(CASE)
def test_proximal_equal_to_the_policy_has_the_gradient_of_dis(c: Case) -> None:
    row = c.numbers[0].clone().requires_grad_()
    _, _, rollout, advantages = c.numbers
    both = two_ratio_clip_loss(row, row.detach(), rollout, advantages, c.mask, **CLIP, **WEIGHT)
    dis = dis_loss(row, rollout, advantages, c.mask, eps_low=0.5, eps_high=4.0)
    torch.testing.assert_close(gradient(both, row), gradient(dis, row), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("bounds", [(0.5, 0.4), (-0.1, 1.0), (0.0, 0.0), (0.0, INF)])
def test_bad_bounds_of_the_weight_are_refused(bounds: tuple[float, float]) -> None:
    two = torch.zeros(2)
    with pytest.raises(ValueError, match="bounds"):
        two_ratio_clip_loss(two, two, two, two, ones(2), **CLIP, weight_low=bounds[0], weight_high=bounds[1])


# --- GSPO


def test_the_ratio_is_the_geometric_mean_over_the_trajectory() -> None:
    policy = f32(-1.0, -1.0, -1.0, grad=True)
    old = policy.detach() - torch.log(f32(1.1, 1.1, 2.0))  # token ratios 1.1, 1.1 and 2
    result = gspo_loss(policy, old, f32(1, 1, 1), ones(3), torch.tensor([0, 0, 1]), **CLIP)
    assert result.loss.item() == pytest.approx(-(1.1 + 1.28) / 2, rel=1e-5)  # the second is clipped
    torch.testing.assert_close(gradient(result, policy), f32(-1.1 / 4, -1.1 / 4, 0))
    assert (result.metrics["clipped_high"], result.metrics["trajectories"]) == (1, 2)


@PROPERTY
@given(CASE)
def test_gspo_with_one_token_per_trajectory_is_the_ppo_clip(c: Case) -> None:
    row = c.numbers[0].clone().requires_grad_()
    _, old, _, advantages = c.numbers
    ppo = ppo_clip_loss(row, old, advantages, c.mask, **CLIP)
    gspo_one = gspo_loss(row, old, advantages, c.mask, torch.arange(len(row)), **CLIP)
    torch.testing.assert_close(gradient(gspo_one, row), gradient(ppo, row), atol=1e-7, rtol=1e-5)
    assert gspo_one.loss.item() == pytest.approx(ppo.loss.item(), rel=1e-5, abs=1e-6)


@PROPERTY
@given(CASE)
def test_gspo_equals_a_slow_loop_over_trajectories(c: Case) -> None:
    result, _ = evaluate(gspo, c)
    total, count = 0.0, 0
    for segment in (0, 1):
        here = c.mask & (c.segments == segment)
        if here.any():
            policy, old, _, advantages = c.numbers[:, here].double().numpy()
            ratio, advantage = math.exp((policy - old).mean()), advantages.mean()
            total -= min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)
            count += 1
    assert result.loss.item() == pytest.approx(total / max(1, count), rel=1e-4, abs=1e-5)


def test_an_untrusted_token_keeps_its_share_of_the_ratio_but_has_no_gradient() -> None:
    policy, segments = f32(-1, -1, grad=True), torch.tensor([0, 0])
    arguments = (policy, f32(-1, -1.1), f32(1, 1), ones(2), segments)
    trusted = torch.tensor([True, False])
    result, all_trusted = gspo_loss(*arguments, **CLIP, trusted=trusted), gspo_loss(*arguments, **CLIP)
    assert result.loss.item() == all_trusted.loss.item()
    found = gradient(result, policy)
    assert found[0] == gradient(all_trusted, policy)[0]
    assert found[1] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segment_ids": torch.zeros(2)}, "segment_ids"),
        ({"segment_ids": torch.tensor([-1, 0])}, "segment_ids"),
        ({"segment_ids": torch.tensor([0])}, "segment_ids"),
        ({"num_trajectories": 1, "segment_ids": torch.tensor([0, 1])}, "whole optimiser batch"),
        ({"clip_low": 1.5}, "clip_low"),
    ],
)
def test_bad_arguments_of_gspo_are_refused_by_name(change: dict[str, object], message: str) -> None:
    two = torch.zeros(2)
    arguments = {
        "policy_logprobs": two,
        "proximal_logprobs": two,
        "advantages": two,
        "action_mask": ones(2),
        "segment_ids": torch.tensor([0, 0]),
        **CLIP,
    }
    with pytest.raises(ValueError, match=message):
        gspo_loss(**(arguments | change))  # type: ignore[arg-type]
