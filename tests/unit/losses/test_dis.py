"""dis_loss by hand numbers, limiting cases, gradient flow and refusals."""

import inspect
import math

import pytest
import torch

from soliton.losses import dis_loss

NAN, INF = math.nan, math.inf
MATH_BAND = {"eps_low": 0.3, "eps_high": 5.0}


def f32(*numbers: float, grad: bool = False) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=grad)


def ones(size: int) -> torch.Tensor:
    return torch.ones(size, dtype=torch.bool)


def weights_of(ratios: torch.Tensor, **band: float) -> list[float]:
    """f(r), read off the gradient: with advantage 1 it is -f(r) / number of tokens."""
    policy = ratios.log().requires_grad_()
    size = len(ratios)
    dis_loss(policy, torch.zeros_like(policy), torch.ones_like(policy), ones(size), **band).loss.backward()
    assert policy.grad is not None
    return [round(-size * g, 5) + 0.0 for g in policy.grad.tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_papers_ratios_get_the_papers_weights(dtype: torch.dtype) -> None:
    assert weights_of(torch.tensor([0.7, 0.8, 2.0, 6.0], dtype=dtype), **MATH_BAND) == [0, 0.8, 2, 0]
    assert weights_of(torch.tensor([0.2, 0.3, 3.9, 4.0], dtype=dtype), eps_low=0.8, eps_high=3.0) == [0, 0.3, 3.9, 0]


def test_loss_and_metrics_of_the_papers_ratios() -> None:
    policy = f32(0.7, 0.8, 2.0, 6.0).log()
    result = dis_loss(policy, torch.zeros(4), f32(1, -1, 1, -1), ones(4), **MATH_BAND)
    numerator = 0.8 * math.log(0.8) - 2 * math.log(2)
    assert result.loss.item() == pytest.approx(numerator / 4, abs=1e-6)
    metrics = result.metrics
    assert metrics["loss_sum"] == pytest.approx(numerator, abs=1e-6)
    counts = ("tokens", "kept", "masked_low", "masked_high", "masked_undefined", "untrusted")
    assert [metrics[key] for key in counts] == [4, 2, 1, 1, 0, 0]
    assert (metrics["masked_positive"], metrics["masked_negative"]) == (1, 1)
    assert metrics["weight_sum"] == pytest.approx(2.8)
    assert metrics["ratio_sum"] == pytest.approx(9.5, rel=1e-6)
    assert metrics["ratio_sq_sum"] == pytest.approx(0.49 + 0.64 + 4 + 36, rel=1e-6)


def test_the_band_ignores_the_sign_of_the_advantage() -> None:
    policy, rollout = f32(0.5, 0.9, 3.0, 9.0).log(), torch.zeros(4)
    plus = dis_loss(policy, rollout, torch.ones(4), ones(4), **MATH_BAND)
    minus = dis_loss(policy, rollout, -torch.ones(4), ones(4), **MATH_BAND)
    assert plus.loss == -minus.loss
    assert plus.metrics["kept"] == minus.metrics["kept"] == 2


def test_ratio_one_is_plain_advantage_actor_critic() -> None:
    policy, advantages = f32(-1.0, -2.0, -0.5, grad=True), f32(0.5, -1.5, 2.0)
    result = dis_loss(policy, policy.detach(), advantages, ones(3), **MATH_BAND)
    (gradient,) = torch.autograd.grad(result.loss, policy)
    (plain,) = torch.autograd.grad(-(advantages * policy).mean(), policy)
    assert torch.equal(gradient, plain)


def test_the_weight_is_detached() -> None:
    policy = f32(math.log(2.0) - 0.1, grad=True)
    dis_loss(policy, f32(-0.1), f32(3.0), ones(1), **MATH_BAND).loss.backward()
    assert policy.grad.item() == pytest.approx(-2.0 * 3.0)  # with a live weight: times 1 + log pi


def test_only_the_policy_receives_a_gradient() -> None:
    policy, rollout, advantages = (f32(-1, -2, grad=True) for _ in range(3))
    dis_loss(policy, rollout, advantages, ones(2), **MATH_BAND).loss.backward()
    assert policy.grad is not None
    assert rollout.grad is None
    assert advantages.grad is None


def test_a_token_outside_the_band_has_a_gradient_of_exactly_zero() -> None:  # fault C10
    policy = f32(0.1, 0.69, 1.0, 6.1, 100.0).log().requires_grad_()
    dis_loss(policy, torch.zeros(5), f32(1, -2, 3, -4, 5), ones(5), **MATH_BAND).loss.backward()
    assert [g != 0 for g in policy.grad.tolist()] == [False, False, True, False, False]


def test_the_ratio_is_against_the_recorded_logprob_and_sees_the_lag() -> None:  # fault C8
    rollout = f32(-1.0, -1.0, -1.0)
    on_policy = dis_loss(rollout.clone(), rollout, torch.ones(3), ones(3), **MATH_BAND).metrics
    moved = dis_loss(f32(-1.0, -2.0, -0.5), rollout, torch.ones(3), ones(3), **MATH_BAND).metrics

    def variance(m: dict[str, float]) -> float:
        return m["ratio_sq_sum"] / m["tokens"] - (m["ratio_sum"] / m["tokens"]) ** 2

    assert (variance(on_policy), on_policy["masked_low"]) == (0, 0)
    assert variance(moved) > 0.1
    assert moved["masked_low"] == 1


def test_exp_comes_after_the_mask() -> None:  # fault C11
    for band in (MATH_BAND, {"eps_low": 0.2, "eps_high": 0.2}):
        policy = f32(-1.0, -1.0, -2.0, grad=True)
        result = dis_loss(policy, f32(-100.0, -1.1, -2.1), torch.ones(3), ones(3), **band)
        result.loss.backward()
        assert math.isfinite(result.loss.item())
        assert policy.grad[0] == 0
        assert torch.isfinite(policy.grad).all()
        assert all(math.isfinite(number) for number in result.metrics.values())


@pytest.mark.parametrize(
    ("policy_logprob", "rollout_logprob", "counted"),
    [
        (0.0, -1000.0, "masked_high"),
        (-1.0, -INF, "masked_high"),
        (INF, -1.0, "masked_high"),
        (-INF, -1.0, "masked_low"),
        (-1.0, INF, "masked_low"),
        (-INF, -INF, "masked_undefined"),
    ],
)
@pytest.mark.parametrize("eps_low", [0.3, 1.0])
def test_an_infinite_logprob_has_weight_zero(
    policy_logprob: float, rollout_logprob: float, counted: str, eps_low: float
) -> None:  # fault C11
    policy = f32(policy_logprob, -1.0, grad=True)
    result = dis_loss(policy, f32(rollout_logprob, -1.0), f32(1, 1), ones(2), eps_low=eps_low, eps_high=5.0)
    result.loss.backward()
    assert result.loss.item() == 0.5
    assert policy.grad.tolist() == [0, -0.5]
    assert result.metrics[counted] == 1
    assert all(math.isfinite(number) for number in result.metrics.values())


def test_a_policy_logprob_of_minus_infinity_leaves_the_logits_gradient_finite() -> None:  # fault C11
    logits = torch.tensor([[0.0, -INF], [0.0, 0.0]], requires_grad=True)
    policy = logits.log_softmax(-1)[:, 1]
    dis_loss(policy, f32(-1.0, -0.7), f32(1, 1), ones(2), **MATH_BAND).loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[1].abs().sum() > 0


def test_eps_low_of_one_or_more_is_no_lower_bound() -> None:
    for eps_low in (1.0, 2.0, INF):
        assert weights_of(f32(1e-4, 0.5, 5.9, 6.0), eps_low=eps_low, eps_high=5.0) == [1e-4, 0.5, 5.9, 0]


@pytest.mark.parametrize("which", ["policy", "rollout"])
def test_a_nan_logprob_on_an_action_is_refused_by_index(which: str) -> None:
    good, bad = f32(NAN, -1, -1), f32(NAN, -1, NAN)
    mask = torch.tensor([False, True, True])
    tensors = (bad, good) if which == "policy" else (good, bad)
    with pytest.raises(ValueError, match=rf"{which}_logprobs\[2\] = nan"):
        dis_loss(*tensors, torch.zeros(3), mask, **MATH_BAND)


@pytest.mark.parametrize("filler", [0.0, 1.0, -100.0, NAN, INF, -INF])
def test_the_filler_of_masked_slots_changes_neither_loss_nor_metrics(filler: float) -> None:  # faults B15, E6
    mask = torch.tensor([True, False, True])
    clean = dis_loss(f32(-1, -9, -2), f32(-1.5, -9, -2), f32(1, 9, -1), mask, **MATH_BAND)
    policy = f32(-1, filler, -2, grad=True)
    result = dis_loss(policy, f32(-1.5, filler, -2), f32(1, filler, -1), mask, **MATH_BAND)
    result.loss.backward()
    assert torch.equal(result.loss, clean.loss)
    assert result.metrics == clean.metrics
    assert policy.grad[1] == 0
    assert torch.isfinite(policy.grad).all()


def test_a_long_observation_leaves_the_loss_as_it_was() -> None:  # fault B16
    short = dis_loss(f32(-1, -2), f32(-1.2, -2.1), f32(1, -1), ones(2), **MATH_BAND)
    gap = torch.full((10_000,), NAN)
    mask = torch.cat([ones(1), torch.zeros(10_000, dtype=torch.bool), ones(1)])
    pieces = [torch.cat([t[:1], gap, t[1:]]) for t in (f32(-1, -2), f32(-1.2, -2.1), f32(1, -1))]
    long = dis_loss(*pieces, mask, **MATH_BAND)
    torch.testing.assert_close(long.loss, short.loss)
    assert long.metrics == short.metrics


def test_masked_tokens_stay_in_the_denominator() -> None:
    alone = dis_loss(f32(-1.0), f32(-1.0), f32(1.0), ones(1), **MATH_BAND).loss
    diluted = dis_loss(f32(-1, 0, 0, 0), f32(-1, -9, -9, -9), torch.ones(4), ones(4), **MATH_BAND).loss
    assert diluted.item() == alone.item() / 4


def test_an_untrusted_token_has_no_gradient_and_stays_in_the_denominator() -> None:
    policy = f32(-1, -1, grad=True)
    result = dis_loss(policy, f32(-1, -1), f32(1, 1), ones(2), **MATH_BAND, trusted=torch.tensor([True, False]))
    result.loss.backward()
    assert policy.grad.tolist() == [-0.5, 0]
    assert (result.metrics["kept"], result.metrics["untrusted"], result.metrics["tokens"]) == (1, 1, 2)


@pytest.mark.parametrize("size", [0, 3])
def test_no_action_tokens_give_zero_with_a_graph(size: int) -> None:  # fault E3
    policy = torch.full((size,), NAN, requires_grad=True)
    result = dis_loss(policy, policy.detach(), policy.detach(), torch.zeros(size, dtype=torch.bool), **MATH_BAND)
    result.loss.backward()
    assert result.loss.item() == 0
    assert policy.grad.tolist() == [0] * size
    assert set(result.metrics.values()) == {0.0}


def test_the_eps_have_no_default() -> None:
    parameters = inspect.signature(dis_loss).parameters
    for name in ("eps_low", "eps_high"):
        assert parameters[name].default is inspect.Parameter.empty
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps_low": -0.1}, "eps_low"),
        ({"eps_low": NAN}, "eps_low"),
        ({"eps_high": 0.0}, "eps_high"),
        ({"eps_high": INF}, "eps_high"),
        ({"num_action_tokens": 1}, "whole optimiser batch"),
        ({"num_action_tokens": 2.5}, "integer"),
        ({"advantages": f32(0, NAN)}, r"advantages\[1\]"),
        ({"advantages": f32(0)}, "packed"),
        ({"rollout_logprobs": torch.zeros(2, 1)}, "packed"),
        ({"action_mask": torch.tensor([1.0, 0.5])}, r"action_mask\[1\]"),
        ({"trusted": torch.tensor([2, 1])}, r"trusted\[0\]"),
    ],
)
def test_bad_arguments_are_refused_by_name(change: dict[str, object], message: str) -> None:
    two = torch.zeros(2)
    arguments = {
        "policy_logprobs": two,
        "rollout_logprobs": two,
        "advantages": two,
        "action_mask": ones(2),
        **MATH_BAND,
    }
    with pytest.raises(ValueError, match=message):
        dis_loss(**(arguments | change))  # type: ignore[arg-type]


def test_a_mask_of_numbers_is_the_same_mask() -> None:
    tensors = (f32(-1, -2, -3), f32(-1, -2, -3), f32(1, 2, 3))
    expected = dis_loss(*tensors, torch.tensor([True, False, True]), **MATH_BAND).loss
    for dtype in (torch.uint8, torch.int64, torch.float32):
        assert torch.equal(dis_loss(*tensors, torch.tensor([1, 0, 1], dtype=dtype), **MATH_BAND).loss, expected)
