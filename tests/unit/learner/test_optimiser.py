import math

import pytest
import torch

from soliton.errors import RunError
from soliton.learner.alarms import Scene
from soliton.learner.optimiser import Optimiser, warm_up, warm_up_then_cosine

SCENE = Scene("step 7", ("d1s0a0", "d2s0a0"))


def make(parameters: dict[str, torch.nn.Parameter], **settings: object) -> Optimiser:
    defaults = {"lr": 0.1, "schedule": warm_up(0), "betas": (0.9, 0.95), "weight_decay": 0.0, "grad_clip": 1.0}
    return Optimiser(parameters, **(defaults | settings))


def parameter(*numbers: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(numbers))


def test_warm_up_rises_linearly_and_the_first_update_is_not_zero():
    assert [warm_up(4)(u) for u in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert [warm_up(0)(u) for u in range(3)] == [1.0, 1.0, 1.0]


def test_the_cosine_falls_from_one_to_nearly_zero_and_its_last_update_still_moves():
    factor = warm_up_then_cosine(2, 12)
    assert factor(0) == 0.5
    assert factor(2) == 1.0
    assert factor(7) == pytest.approx(0.5)
    assert 0 < factor(11) < 0.05
    falling = [factor(u) for u in range(2, 12)]
    assert falling == sorted(falling, reverse=True)


def test_a_schedule_counts_the_updates_of_its_own_optimiser():
    one, other = make({"p": parameter(1.0)}, schedule=warm_up(4)), make({"p": parameter(1.0)}, schedule=warm_up(4))
    for _ in range(3):
        one.step(SCENE)
    assert (one.updates, one.lr) == (3, pytest.approx(0.1))
    assert (other.updates, other.lr) == (0, pytest.approx(0.025))


def test_one_step_equals_adamw_by_hand_on_the_clipped_gradient():
    p = parameter(1.0, 2.0)
    optimiser = make({"p": p}, weight_decay=0.5)
    p.grad = torch.tensor([3.0, 4.0])
    assert optimiser.step(SCENE) == pytest.approx(5.0)
    # First Adam step: m / (sqrt(v) + eps) = g / |g| = 1 whatever the clip; decay is lr * wd * weight.
    expected = [1.0 * (1 - 0.1 * 0.5) - 0.1, 2.0 * (1 - 0.1 * 0.5) - 0.1]
    assert p.detach().tolist() == pytest.approx(expected, abs=1e-6)
    assert optimiser.state()["p/exp_avg"].tolist() == pytest.approx([0.1 * 0.6, 0.1 * 0.8], abs=1e-6)


def test_gradients_are_cleared_by_a_step_and_by_discarding():
    p = parameter(1.0)
    optimiser = make({"p": p})
    p.grad = torch.tensor([2.0])
    optimiser.step(SCENE)
    assert p.grad is None
    p.grad = torch.tensor([2.0])
    before = p.detach().clone()
    optimiser.discard_gradients()
    assert p.grad is None
    assert optimiser.updates == 1
    assert torch.equal(before, p.detach())


def test_a_non_finite_gradient_stops_the_run_before_anything_moves():  # fault C11
    p = parameter(1.0, 2.0)
    optimiser = make({"p": p})
    p.grad = torch.tensor([math.nan, 1.0])
    with pytest.raises(RunError, match=r"step 7: gradient norm is not finite .*nan.*d1s0a0, d2s0a0"):
        optimiser.step(SCENE)
    assert p.detach().tolist() == [1.0, 2.0]


def test_a_parameter_that_overflows_stops_the_run():  # fault C11
    p = parameter(3e38)
    optimiser = make({"p": p}, lr=3e38)
    p.grad = torch.tensor([-1.0])
    with pytest.raises(RunError, match="parameters after the update"):
        optimiser.step(SCENE)


def test_state_round_trips_and_goes_on_bit_equal():  # fault J5
    def train(optimiser: Optimiser, p: torch.nn.Parameter, steps: range) -> None:
        for u in steps:
            p.grad = torch.tensor([math.sin(u + 1.0), math.cos(u)])
            optimiser.step(SCENE)

    p, q = parameter(1.0, -1.0), parameter(0.0, 0.0)
    first, second = make({"p": p}, schedule=warm_up(6)), make({"p": q}, schedule=warm_up(6))
    train(first, p, range(3))
    saved = {name: tensor.clone() for name, tensor in first.state().items()}
    assert set(saved) == {"p/step", "p/exp_avg", "p/exp_avg_sq"}
    assert all(bool(tensor.any()) for tensor in saved.values())
    with torch.no_grad():
        q.copy_(p)
    second.load_state(saved, first.updates)
    train(first, p, range(3, 6))
    train(second, q, range(3, 6))
    assert torch.equal(p.detach(), q.detach())
    assert all(torch.equal(first.state()[name], second.state()[name]) for name in saved)


def test_missing_unknown_and_misshapen_moments_are_errors():  # fault J5
    p = parameter(1.0)
    optimiser = make({"p": p})
    p.grad = torch.tensor([1.0])
    optimiser.step(SCENE)
    saved = optimiser.state()
    fresh = make({"p": parameter(1.0)})
    with pytest.raises(RunError, match="3 missing"):
        fresh.load_state({}, 1)
    with pytest.raises(RunError, match="1 unknown"):
        fresh.load_state(saved | {"q/step": torch.tensor(1.0)}, 1)
    with pytest.raises(RunError, match="shape"):
        fresh.load_state(saved | {"p/exp_avg": torch.zeros(2)}, 1)
    assert fresh.updates == 0
