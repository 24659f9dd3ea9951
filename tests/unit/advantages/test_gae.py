"""skip_observation_gae by hand numbers, limiting cases and refusals."""

import inspect
import math

import pytest
import torch

from soliton.advantages import length_adaptive_lambda, skip_observation_gae

NAN = math.nan


def f32(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32)


def mask_of(*bits: int) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.bool)


def test_three_actions_give_the_papers_numbers() -> None:
    lam = length_adaptive_lambda(3)
    advantages = skip_observation_gae(f32(0.2, 0.5, 0.6), f32(0, 0, 1), mask_of(1, 1, 1), lam=lam)
    torch.testing.assert_close(advantages, f32(0.61975, 0.41111, 0.4), atol=1e-5, rtol=0)


def test_the_critics_lambda_gives_monte_carlo_targets() -> None:
    values = f32(0.2, 0.5, 0.6)
    targets = skip_observation_gae(values, f32(0, 0, 1), mask_of(1, 1, 1), lam=1.0) + values
    torch.testing.assert_close(targets, f32(1, 1, 1))


def test_no_reward_pulls_both_actions_down_alike() -> None:
    advantages = skip_observation_gae(f32(0.4, 0.3), f32(0, 0), mask_of(1, 1), lam=2 / 3)
    torch.testing.assert_close(advantages, f32(-0.3, -0.3))


def test_an_observation_changes_no_advantage() -> None:
    lam = length_adaptive_lambda(3)
    plain = skip_observation_gae(f32(0.2, 0.5, 0.6), f32(0, 0, 1), mask_of(1, 1, 1), lam=lam)
    for junk in (0.0, 100.0, NAN, math.inf):
        inserted = skip_observation_gae(f32(0.2, 0.5, junk, 0.6), f32(0, 0, 0, 1), mask_of(1, 1, 0, 1), lam=lam)
        assert inserted[2] == 0
        assert torch.equal(inserted[[0, 1, 3]], plain)


def test_a_reward_on_the_final_observation_belongs_to_the_action_before_it() -> None:  # fault A1
    values, mask = f32(0.5, 0.6, 0.7, 0.1, 0.1), mask_of(1, 1, 1, 0, 0)
    advantages = skip_observation_gae(values, f32(0, 0, 0, 0, 1), mask, lam=0.95)
    torch.testing.assert_close(advantages, f32(0.46575, 0.385, 0.3, 0, 0), atol=1e-6, rtol=0)
    undiscounted = skip_observation_gae(values, f32(0, 0, 0, 0, 1), mask, gamma=0.0, lam=0.95)
    torch.testing.assert_close(undiscounted, f32(-0.5, -0.6, 0.3, 0, 0))


def test_rewards_on_an_action_and_on_its_observations_add_up() -> None:  # fault A2
    mask = mask_of(0, 1, 0, 0, 1, 0)
    spread = skip_observation_gae(torch.zeros(6), f32(0, 1, 2, 4, 8, 16), mask, gamma=0.0, lam=1.0)
    assert spread.tolist() == [0, 7, 0, 0, 24, 0]


def test_the_mask_has_no_default() -> None:  # fault A2
    assert inspect.signature(skip_observation_gae).parameters["action_mask"].default is inspect.Parameter.empty


def test_returns_are_carried_across_observations() -> None:  # fault A3
    mask = mask_of(1, 1, 0, 0, 1, 1)
    returns = skip_observation_gae(torch.zeros(6), f32(0, 0, 0, 0, 0, 1), mask, lam=1.0)
    assert returns.tolist() == [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("junk", [100.0, NAN, math.inf, -math.inf])
def test_the_value_of_a_padded_slot_bootstraps_nothing(junk: float) -> None:  # fault A4
    advantages = skip_observation_gae(f32(0, 0, junk), f32(0, 1, 0), mask_of(1, 1, 0), lam=0.95)
    torch.testing.assert_close(advantages, f32(0.95, 1.0, 0.0))


def test_only_a_truncated_trajectory_bootstraps() -> None:  # fault A5
    values, rewards, mask = f32(0.5, 0.6, 0.5, 0.6), torch.zeros(4), mask_of(1, 1, 1, 1)
    advantages = skip_observation_gae(
        values, rewards, mask, lam=1.0, segment_ids=torch.tensor([0, 0, 1, 1]), bootstrap_values=f32(0.0, 0.7)
    )
    torch.testing.assert_close(advantages, f32(-0.5, -0.6, 0.2, 0.1))


def test_a_bootstrap_counts_once_per_step_of_discount() -> None:  # fault A5
    advantages = skip_observation_gae(
        f32(0.5, 9.0), f32(0.25, 0), mask_of(1, 0), gamma=0.5, lam=0.0, bootstrap_values=f32(2)
    )
    assert advantages.tolist() == [0.75, 0]


def test_no_signal_crosses_a_segment_border() -> None:  # fault A7
    values, rewards, mask = f32(0.5, 0.6, 0.1, 0.2), f32(0, 1, 0, -1), mask_of(1, 1, 1, 1)
    packed = skip_observation_gae(values, rewards, mask, lam=0.9, segment_ids=torch.tensor([0, 0, 1, 1]))
    alone = [skip_observation_gae(values[s], rewards[s], mask[s], lam=0.9) for s in (slice(0, 2), slice(2, 4))]
    assert torch.equal(packed, torch.cat(alone))


def test_each_segment_has_its_own_lambda() -> None:
    values, rewards, mask = torch.zeros(4), f32(0, 1, 0, 1), mask_of(1, 1, 1, 1)
    lam = torch.tensor([0.25, 0.5], dtype=torch.float64)
    advantages = skip_observation_gae(values, rewards, mask, lam=lam, segment_ids=torch.tensor([0, 0, 1, 1]))
    assert advantages.tolist() == [0.25, 1, 0.5, 1]


def test_lambda_zero_is_the_one_step_error() -> None:
    advantages = skip_observation_gae(f32(0.5, 0.25, 0.125), f32(0, 0, 1), mask_of(1, 1, 1), lam=0.0)
    assert advantages.tolist() == [-0.25, -0.125, 0.875]


def test_a_lambda_that_rounds_to_one_in_float32_still_decays() -> None:
    length = 200_000
    rewards = torch.zeros(length)
    rewards[-1] = 1.0
    lam = length_adaptive_lambda(length)
    first = skip_observation_gae(torch.zeros(length), rewards, torch.ones(length, dtype=torch.bool), lam=lam)[0]
    assert first.item() == pytest.approx(math.exp((length - 1) * math.log(lam)), rel=1e-6)
    assert first.item() == pytest.approx(math.exp(-2 / 3), rel=1e-4)


def test_a_segment_without_actions_gets_zeros_if_it_has_no_reward() -> None:
    ids = torch.tensor([0, 0, 1, 2])
    advantages = skip_observation_gae(
        f32(NAN, NAN, 0.5, NAN), f32(0, 0, 1, 0), mask_of(0, 0, 1, 0), lam=1.0, segment_ids=ids
    )
    assert advantages.tolist() == [0, 0, 0.5, 0]


def test_an_id_that_no_token_has_is_an_empty_segment() -> None:
    lam = torch.tensor([0.5, 0.0, 0.25], dtype=torch.float64)
    advantages = skip_observation_gae(
        torch.zeros(4), f32(0, 1, 0, 1), mask_of(1, 1, 1, 1), lam=lam, segment_ids=torch.tensor([0, 0, 2, 2])
    )
    assert advantages.tolist() == [0.5, 1, 0.25, 1]


def test_no_tokens_give_no_advantages() -> None:
    empty = torch.zeros(0)
    for ids in (None, torch.zeros(0, dtype=torch.int64)):
        assert skip_observation_gae(empty, empty, empty.bool(), lam=1.0, segment_ids=ids).shape == (0,)


def test_the_result_is_float32_without_gradient_on_any_input_precision() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        values = torch.tensor([0.5, 0.25], dtype=dtype, requires_grad=True)
        advantages = skip_observation_gae(values, torch.tensor([0, 1]), torch.tensor([1, 1]), lam=1.0)
        assert advantages.dtype == torch.float32
        assert not advantages.requires_grad
        assert advantages.tolist() == [0.5, 0.75]


def test_the_inputs_are_left_as_they_were() -> None:
    values, rewards, mask = f32(0.5, 0.6, 0.7), f32(0, 0, 1), mask_of(1, 1, 0)
    skip_observation_gae(values, rewards, mask, lam=0.9)
    assert torch.equal(values, f32(0.5, 0.6, 0.7))
    assert torch.equal(rewards, f32(0, 0, 1))


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_a_reward_that_is_not_finite_is_refused_wherever_it_is(bad: float, index: int) -> None:
    rewards = torch.zeros(4)
    rewards[index] = bad
    with pytest.raises(ValueError, match=rf"rewards\[{index}\]"):
        skip_observation_gae(
            torch.zeros(4), rewards, mask_of(0, 1, 1, 0), lam=1.0, segment_ids=torch.tensor([0, 0, 1, 1])
        )


def test_a_reward_before_the_first_action_of_its_segment_is_refused_by_index() -> None:
    ids = torch.tensor([0, 0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"rewards\[3\].*before the first action"):
        skip_observation_gae(torch.zeros(5), f32(0, 0, 0, 2, 0), mask_of(0, 1, 0, 0, 1), lam=1.0, segment_ids=ids)
    with pytest.raises(ValueError, match=r"rewards\[1\].*before the first action"):
        skip_observation_gae(torch.zeros(2), f32(0, 1), mask_of(0, 0), lam=1.0)


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_a_value_that_is_not_finite_on_an_action_is_refused_by_index(bad: float) -> None:
    ids = torch.tensor([0, 1, 1, 1])
    with pytest.raises(ValueError, match=r"values\[3\]"):
        skip_observation_gae(f32(0, 0, NAN, bad), torch.zeros(4), mask_of(1, 1, 0, 1), lam=0.0, segment_ids=ids)


@pytest.mark.parametrize(
    "ids", [[1, 1, 2], [0, 1, 0], [0, -1, 0], [-1, 0, 0]], ids=["from 1", "falls", "negative", "from -1"]
)
def test_segment_ids_that_decrease_or_do_not_start_at_zero_are_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="segment_ids"):
        skip_observation_gae(torch.zeros(3), torch.zeros(3), mask_of(1, 1, 1), lam=1.0, segment_ids=torch.tensor(ids))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segment_ids": torch.zeros(3, dtype=torch.int32)}, "segment_ids"),
        ({"segment_ids": torch.zeros(2, dtype=torch.int64)}, "segment_ids"),
        ({"gamma": 1.01}, "gamma"),
        ({"gamma": NAN}, "gamma"),
        ({"lam": -0.1}, "lam"),
        ({"lam": NAN}, "lam"),
        ({"lam": torch.ones(1)}, "float64"),
        ({"lam": torch.ones(2, dtype=torch.float64)}, "float64"),
        ({"bootstrap_values": torch.zeros(2)}, "bootstrap_values"),
        ({"bootstrap_values": f32(NAN)}, "bootstrap_values"),
        ({"values": torch.zeros(1, 3)}, "values"),
        ({"values": torch.zeros(3, dtype=torch.int64)}, "values"),
        ({"rewards": torch.zeros(2)}, "rewards"),
        ({"action_mask": torch.ones(4, dtype=torch.bool)}, "action_mask"),
        ({"action_mask": torch.tensor([1, 2, 0])}, r"action_mask\[1\]"),
    ],
)
def test_bad_arguments_are_refused_by_name(change: dict[str, object], message: str) -> None:
    arguments = {"values": torch.zeros(3), "rewards": torch.zeros(3), "action_mask": mask_of(1, 1, 1), "lam": 1.0}
    with pytest.raises(ValueError, match=message):
        skip_observation_gae(**(arguments | change))  # type: ignore[arg-type]
