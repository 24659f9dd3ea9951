from typing import get_args

import pytest
import torch

from soliton.algorithms.build import PRESETS, build_method
from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.algorithms.traits import TRAITS
from soliton.learner.method import ActorLossInputs, PackedBatch

OPTIONS = MethodOptions(eps_low=0.3, eps_high=5.0)


def packed(values: torch.Tensor | None = None) -> PackedBatch:
    """Two trajectories: three actions with an observation inside (R = 1), two actions (R = 0)."""
    return PackedBatch(
        rewards=torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        action_mask=torch.tensor([True, True, False, True, True, True]),
        segment_ids=torch.tensor([0, 0, 0, 0, 1, 1]),
        groups=torch.tensor([0, 0]),
        values=values,
    )


def actor_inputs(policy: torch.Tensor, rollout: torch.Tensor, advantages: torch.Tensor) -> ActorLossInputs:
    everywhere = torch.ones(len(policy), dtype=torch.bool)
    segments = torch.zeros(len(policy), dtype=torch.int64)
    return ActorLossInputs(policy, rollout, advantages, everywhere, everywhere, len(policy), segments, 1)


def test_every_preset_name_is_known_everywhere():
    assert list(PRESETS) == list(TRAITS) == list(get_args(AlgorithmName))
    for name in PRESETS:
        method = build_method(name, OPTIONS)
        assert method.name == name
        traits = TRAITS[name]
        assert (method.group_size, method.critic) == (traits.group_size, traits.critic)
        assert (method.critic is None) == (method.returns is None)
        assert (method.tracker is not None) == traits.keeps_prompts
        assert traits.reads <= set(MethodOptions.model_fields)
        assert set(traits.defaults) <= traits.reads
        assert method.band == (0.7, 6.0)


def test_sao_advantages_are_the_papers_numbers_and_skip_the_observation():
    values = torch.tensor([0.2, 0.5, 99.0, 0.6, 0.4, 0.3])
    method = build_method("sao", OPTIONS)
    advantages = method.advantages(packed(values))
    expected = torch.tensor([0.61975, 0.41111, 0.0, 0.4, -0.3, -0.3])
    torch.testing.assert_close(advantages, expected, atol=1e-5, rtol=0)


def test_critic_targets_at_lambda_one_are_the_return():
    values = torch.tensor([0.2, 0.5, torch.nan, 0.6, 0.4, 0.3])
    method = build_method("sao", OPTIONS)
    assert method.returns is not None
    targets = method.returns(packed(values))
    torch.testing.assert_close(targets, torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0]))


def test_a_fixed_lambda_replaces_the_length_adaptive_one():
    values = torch.tensor([0.2, 0.5, 0.0, 0.6, 0.4, 0.3])
    method = build_method("sao", MethodOptions(eps_low=0.3, eps_high=5.0, policy_lambda=1.0))
    advantages = method.advantages(packed(values))
    torch.testing.assert_close(advantages, torch.tensor([0.8, 0.5, 0.0, 0.4, -0.4, -0.3]))


def test_grpo_advantages_are_group_normalised_and_zero_off_the_mask():
    advantages = build_method("grpo", OPTIONS).advantages(packed())
    assert advantages[2] == 0
    assert advantages[0] > 0 > advantages[4]
    assert torch.equal(advantages[[0, 1, 3]], advantages[0].expand(3))


@pytest.mark.parametrize(("name", "expected"), [("sao", [0.0, 0.8, 2.0, 0.0]), ("grpo-dis", [0.0, 0.8, 2.0, 0.0])])
def test_dis_methods_weight_by_the_ratio_against_the_recorded_logprobs(name, expected):  # fault C8
    policy = torch.log(torch.tensor([0.7, 0.8, 2.0, 6.0])).requires_grad_()
    loss = build_method(name, OPTIONS).actor_loss(actor_inputs(policy, torch.zeros(4), torch.ones(4))).loss
    loss.backward()
    torch.testing.assert_close(policy.grad, -torch.tensor(expected) / 4)


@pytest.mark.parametrize("name", ["grpo", "vapo"])
def test_methods_with_the_latest_policy_never_see_the_lag(name):
    policy = torch.log(torch.tensor([0.7, 0.8, 2.0, 6.0])).requires_grad_()
    loss = build_method(name, OPTIONS).actor_loss(actor_inputs(policy, torch.zeros(4), torch.ones(4))).loss
    loss.backward()
    torch.testing.assert_close(policy.grad, -torch.ones(4) / 4)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_tokens_older_than_the_bound_get_no_gradient_and_stay_in_the_denominator(name):
    policy = torch.full((4,), -1.0, requires_grad=True)
    inputs = ActorLossInputs(
        policy,
        torch.full((4,), -1.0),
        torch.ones(4),
        torch.ones(4, dtype=torch.bool),
        torch.tensor([True, False, True, False]),
        4,
        torch.zeros(4, dtype=torch.int64),
        1,
    )
    build_method(name, OPTIONS).actor_loss(inputs).loss.backward()
    torch.testing.assert_close(policy.grad, -torch.tensor([1.0, 0.0, 1.0, 0.0]) / 4)


def test_a_recipe_can_change_how_the_critic_is_used():
    method = build_method("sao", MethodOptions(eps_low=0.3, eps_high=5.0, critic_updates=1, critic_trainable="all"))
    assert method.critic is not None
    assert (method.critic.updates, method.critic.trainable) == (1, "all")
    vapo = build_method("vapo", OPTIONS).critic
    assert vapo is not None
    assert (vapo.updates, vapo.trainable) == (1, "all")
