"""Presets of the follow-up methods, and the pieces that a recipe chooses: what a method is made of."""

import math

import pytest
import torch

from soliton.algorithms.build import PRESETS, build_method
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.pieces import actor_terms, minus_entropy, positive_examples, reference_kl
from soliton.algorithms.traits import TRAITS
from soliton.learner.method import ActorLossInputs, PackedBatch, ValueLossInputs
from soliton.learner.truncation import BOOTSTRAP, DROP, MASK_ACTOR, TERMINAL

BAND = {"eps_low": 0.5, "eps_high": 4.0}
VALUES = torch.tensor([0.2, 0.5, 9.0, 0.6, 0.4, 0.3])


def options(**more) -> MethodOptions:
    return MethodOptions(**BAND, **more)


def batch(**more) -> PackedBatch:
    """Three actions with an observation inside (R = 1), two actions (R = 0)."""
    return PackedBatch(
        rewards=torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        action_mask=torch.tensor([True, True, False, True, True, True]),
        segment_ids=torch.tensor([0, 0, 0, 0, 1, 1]),
        groups=torch.tensor([0, 1]),
        values=VALUES,
        **more,
    )


def value_inputs(outputs: torch.Tensor, values: torch.Tensor, before: torch.Tensor) -> ValueLossInputs:
    everywhere = torch.ones(len(values), dtype=torch.bool)
    return ValueLossInputs(outputs, values, torch.zeros(len(values)), before, everywhere, len(values))


def test_by_default_a_method_has_no_pieces_beyond_its_own():
    for name in PRESETS:
        made = build_method(name, options())
        assert made.truncation is TERMINAL
        assert made.actor_terms == ()
        assert made.normalise(VALUES, VALUES > 0, torch.zeros(6)) is VALUES


@pytest.mark.parametrize(("name", "record"), [("bootstrap", BOOTSTRAP), ("drop", DROP), ("mask_actor", MASK_ACTOR)])
def test_truncation_is_a_record_chosen_by_name(name, record):
    assert build_method("sao", options(truncated=name)).truncation is record


def test_terms_are_those_with_a_weight():
    chosen = actor_terms(options(kl_weight=0.1, nll_weight=0.2))
    assert [(t.loss, t.weight, t.metric) for t in chosen] == [
        (reference_kl, 0.1, "reference_kl"),
        (positive_examples, 0.2, "positive_nll"),
    ]
    (entropy,) = actor_terms(options(entropy_weight=0.3))
    assert (entropy.loss, entropy.metric, entropy.needs) == (minus_entropy, None, {"entropies"})


def test_value_losses_by_name_are_what_they_say():
    outputs, before = torch.tensor([0.5, 3.0]), torch.tensor([0.5, 1.0])
    inputs = value_inputs(outputs, outputs, before)

    def loss(**more) -> float:
        return build_method("sao", options(**more)).value_loss(inputs).loss.item()

    assert loss() == (0.25 + 9) / 2
    assert loss(value_loss="huber") == (0.25 + 5) / 2
    assert loss(value_loss="huber", huber_delta=2.0) == (0.25 + 8) / 2
    assert loss(value_loss="clipped") == (0.25 + 9) / 2  # moved away from its return: not clipped
    towards = value_inputs(before, before, outputs)
    clipped = build_method("sao", options(value_loss="clipped", value_clip=0.5)).value_loss(towards)
    assert clipped.loss.item() == (0.25 + 2.5**2) / 2
    assert loss(value_loss="bce") == pytest.approx((math.log1p(math.exp(0.5)) + math.log1p(math.exp(3))) / 2)


def test_the_cross_entropy_brings_its_head_and_a_recipe_may_name_another_for_other_losses():
    bce = build_method("sao", options(value_loss="bce")).critic
    assert (bce.loss, bce.head) == ("bce", "sigmoid")
    arctan = build_method("sao", options(value_head="arctan", value_bound=2.0)).critic
    assert (arctan.loss, arctan.head, arctan.bound) == ("mse", "arctan", 2.0)
    again = build_method("pact", options(value_loss="mse", value_head="linear")).critic
    assert (again.loss, again.head) == ("mse", "linear")


def test_states_replace_all_action_tokens():
    mask, segments = batch().action_mask, batch().segment_ids
    assert build_method("sao", options()).value_tokens(mask, segments).tolist() == mask.tolist()
    one_each = build_method("sao", options(value_states=1)).value_tokens(mask, segments)
    assert one_each.nonzero().flatten().tolist() == [1, 5]


# --- presets


def gradient(name: str, policy: list[float], rollout: list[float], advantages: list[float]) -> list[float]:
    row, everywhere = torch.tensor(policy, requires_grad=True), torch.ones(len(policy), dtype=torch.bool)
    inputs = ActorLossInputs(
        row, torch.tensor(rollout), torch.tensor(advantages), everywhere, everywhere, len(policy),
        torch.zeros(len(policy), dtype=torch.int64), 1,
    )  # fmt: skip
    return torch.autograd.grad(build_method(name, options()).actor_loss(inputs).loss, row)[0].tolist()


def test_bpco_clips_by_the_change_of_the_probability_and_bounds_its_values():
    new, old = [math.log(0.75), math.log(0.65), math.log(0.04)], [math.log(0.5), math.log(0.5), math.log(0.01)]
    assert gradient("bpco", new, old, [1.0, 1.0, 1.0]) == pytest.approx([0, -1.3 / 3, -4 / 3])
    made = build_method("bpco", options())
    assert (made.critic.head, made.critic.bound) == ("arctan", 1.0)
    lam = 1 - 1 / (0.4 * 3)  # alpha 0.4
    deltas = [0.3, 0.1, 0.4]
    expected = [deltas[0] + lam * (deltas[1] + lam * deltas[2]), deltas[1] + lam * deltas[2], deltas[2]]
    assert made.advantages(batch())[[0, 1, 3]].tolist() == pytest.approx(expected)


def test_pact_has_lambda_one_and_targets_that_lean_towards_the_value_where_the_data_are_off_policy():
    pact, sao = build_method("pact", options()), build_method("sao", options())
    on_policy = batch(log_ratios=torch.zeros(6))
    torch.testing.assert_close(pact.returns(on_policy), sao.returns(batch()))
    assert pact.advantages(on_policy)[[0, 1, 3]].tolist() == pytest.approx([0.8, 0.5, 0.4])
    halved = batch(log_ratios=torch.full((6,), math.log(0.5)))
    third = 0.6 + 0.5 * (1 - 0.6)
    second = 0.5 + 0.5 * (third - 0.5)
    assert pact.returns(halved)[[0, 1, 3]].tolist() == pytest.approx([0.2 + 0.5 * (second - 0.2), second, third])
    assert (pact.critic.loss, pact.critic.head) == ("bce", "sigmoid")


def test_pact_targets_stay_probabilities_whatever_the_ratios():
    ratios = torch.tensor([5.0, -3.0, 0.0, 2.0, -8.0, 0.1])
    values = torch.tensor([0.01, 0.99, 0.5, 0.2, 0.9, 0.05])
    made = build_method("pact", options())
    targets = made.returns(PackedBatch(**{**vars(batch(log_ratios=ratios)), "values": values}))
    assert bool(((targets >= 0) & (targets <= 1)).all())


def test_sp3o_is_ppo_whose_critic_learns_on_three_states():
    sp3o, ppo = build_method("sp3o", options()), build_method("ppo", options())
    segments = torch.tensor([0] * 9 + [1] * 2)
    chosen = sp3o.value_tokens(torch.ones(11, dtype=torch.bool), segments)
    assert chosen.nonzero().flatten().tolist() == [1, 4, 7, 9, 10]
    assert torch.equal(sp3o.advantages(batch()), ppo.advantages(batch()))
    assert (sp3o.critic.loss, ppo.critic.loss) == ("mse", "clipped")


def test_vtrace_bootstraps_behind_the_last_action():
    made = build_method("vtrace", options())
    with_next = batch(log_ratios=torch.zeros(6), bootstrap_values=torch.tensor([0.5, 0.0]))
    assert made.returns(with_next)[[0, 1, 3]].tolist() == pytest.approx([1.5, 1.5, 1.5])
    assert made.advantages(with_next)[3].item() == pytest.approx(0.9)


def test_every_key_of_a_preset_is_a_key_of_recipes():
    from soliton.algorithms.traits import CRITIC_ONLY, READ_BY_ALL

    known = set(MethodOptions.model_fields)
    assert known >= READ_BY_ALL | CRITIC_ONLY
    without_critic = [traits.reads for traits in TRAITS.values() if traits.critic is None]
    assert all(not reads & CRITIC_ONLY for reads in without_critic)
