"""The presets beyond the paper's main four: what each is made of, and its limiting cases at the level of a method."""

import json

import numpy as np
import pytest
import torch

from soliton.algorithms.build import PRESETS, build_method
from soliton.algorithms.options import MethodOptions
from soliton.learner.method import ActorLossInputs, PackedBatch
from tests.unit.learner.learner_toys import item, learner, method, one_step, trajectory

OPTIONS = MethodOptions(eps_low=0.5, eps_high=4.0)


def batch(values: list[float] | None = None, **more: torch.Tensor) -> PackedBatch:
    """Two turns with an observation between them, R = 1; then one turn of two tokens, R = 0."""
    return PackedBatch(
        rewards=torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        action_mask=torch.tensor([True, True, False, True, True, True]),
        segment_ids=torch.tensor([0, 0, 0, 0, 1, 1]),
        groups=torch.tensor([0, 0]),
        values=None if values is None else torch.tensor(values),
        **more,
    )


VALUES = [0.2, 0.5, 0.9, 0.6, 0.4, 0.3]


def gradient(name: str, policy: list[float], rollout: list[float], advantages: list[float]) -> torch.Tensor:
    row, everywhere = torch.tensor(policy, requires_grad=True), torch.ones(len(policy), dtype=torch.bool)
    inputs = ActorLossInputs(
        row,
        torch.tensor(rollout),
        torch.tensor(advantages),
        everywhere,
        everywhere,
        len(policy),
        torch.zeros(len(policy), dtype=torch.int64),
        1,
    )
    (found,) = torch.autograd.grad(build_method(name, OPTIONS).actor_loss(inputs).loss, row)
    return found


@pytest.mark.parametrize("name", list(PRESETS))
def test_at_ratio_one_every_actor_loss_is_advantage_actor_critic(name):
    logprobs, advantages = [-1.0, -2.0, -0.5], [1.0, 1.0, 1.0]  # equal: gspo gives a trajectory its mean
    torch.testing.assert_close(gradient(name, logprobs, logprobs, advantages), -torch.ones(3) / 3)


def test_icepop_has_the_gradient_of_grpo_dis_at_one_update_per_batch():
    arguments = [-1.0, -2.0, -0.1], [-1.2, -1.0, -3.0], [1.0, -1.0, 2.0]
    torch.testing.assert_close(gradient("icepop", *arguments), gradient("grpo-dis", *arguments))


def test_decoupled_ppo_keeps_small_weights_that_icepop_drops():
    arguments = [-3.0], [-1.0], [1.0]
    assert gradient("decoupled-ppo", *arguments).item() == pytest.approx(-np.exp(-2))
    assert gradient("icepop", *arguments).item() == 0


def test_ppo_clips_against_the_policy_that_sampled_and_vapo_does_not():
    arguments = [-1.0], [-2.0], [1.0]
    assert gradient("ppo", *arguments).item() == 0
    assert gradient("vapo", *arguments).item() == -1


def test_the_step_variants_share_one_advantage_per_turn():
    average, last = (
        build_method(name, OPTIONS).advantages(batch(VALUES)) for name in ("sao-step-average", "sao-step-last")
    )
    lam = 1 - 1 / (1.5 * 2)
    torch.testing.assert_close(average[:4], torch.tensor([0.25 + lam * 0.4] * 2 + [0.0, 0.4]))
    torch.testing.assert_close(last[:4], torch.tensor([0.1 + lam * 0.4] * 2 + [0.0, 0.4]))
    last_only = build_method("sao-step-last", OPTIONS).value_tokens(batch().action_mask, batch().segment_ids)
    assert last_only.tolist() == [False, True, False, True, False, True]


def test_no_skip_reads_the_value_of_the_observation():  # fault A1
    naive, skipping = (build_method(name, OPTIONS).advantages for name in ("sao-no-skip", "sao"))
    other = [*VALUES[:2], -5.0, *VALUES[3:]]
    assert torch.equal(skipping(batch(VALUES)), skipping(batch(other)))
    assert not torch.equal(naive(batch(VALUES)), naive(batch(other)))


def test_reinforce_carries_the_return_across_observations():  # fault A3
    advantages = build_method("reinforce", OPTIONS).advantages(batch())
    assert advantages.tolist() == [1, 1, 0, 1, 0, 0]


def test_rloo_compares_with_the_others_of_the_group():
    assert build_method("rloo", OPTIONS).advantages(batch()).tolist() == [1, 1, 0, 1, -1, -1]


def test_on_policy_vtrace_learns_the_targets_of_sao():
    vtrace, sao = build_method("vtrace", OPTIONS), build_method("sao", OPTIONS)
    assert vtrace.returns is not None
    assert sao.returns is not None
    on_policy = batch(VALUES, log_ratios=torch.zeros(6))
    torch.testing.assert_close(vtrace.returns(on_policy), sao.returns(batch(VALUES)))


def test_baselines_are_subtracted_and_normalised_by_spo_alone():
    with_baselines = batch(baselines=torch.tensor([0.25, 0.5]))
    running = build_method("running-mean", OPTIONS).advantages(with_baselines)
    assert running.tolist() == [0.75, 0.75, 0, 0.75, -0.5, -0.5]
    spo = build_method("spo", OPTIONS).advantages(with_baselines)
    torch.testing.assert_close(spo, torch.tensor([1, 1, 0, 1, -1, -1]) / 2**0.5, atol=1e-4, rtol=0)


# --- in the learner


def visit(seed: int, draws: list[int]) -> list:
    rng = np.random.default_rng(seed)
    return [item(trajectory(rng, d, reward=float(d % 3 == 0), prompt_id=f"p{d % 3}")) for d in draws]


@pytest.mark.parametrize("name", ["running-mean", "spo"])
def test_a_tracker_lives_in_the_checkpoint(name):
    straight, before = learner(method(name)), learner(method(name))
    for target in (straight, before):
        one_step(target, visit(0, [0, 1, 2, 3]))
    tensors, numbers = before.state()
    resumed = learner(method(name), seed=9)
    resumed.load_state(tensors, json.loads(json.dumps(numbers)))
    for target in (straight, resumed):
        one_step(target, visit(1, [4, 5, 6, 7]))
    left, right = straight.state(), resumed.state()
    assert left[1] == right[1]
    assert left[0].keys() == right[0].keys()
    # NaN stands for an absent log-prob
    assert all(torch.allclose(left[0][n], right[0][n], rtol=0, atol=0, equal_nan=True) for n in left[0])


@pytest.mark.parametrize("name", ["running-mean", "spo"])
def test_what_a_tracker_knows_does_not_depend_on_the_order_of_arrival(name):
    items = visit(0, [0, 1, 2, 3, 4])
    one_way, other_way = learner(method(name)), learner(method(name))
    one_step(one_way, items)
    one_step(other_way, items[::-1])
    rewards = {"running-mean": "rewards", "spo": "values"}[name]
    assert one_way.state()[1]["tracker"][rewards] == other_way.state()[1]["tracker"][rewards]


def test_spo_measures_drift_on_the_last_trajectory_of_the_prompt():
    """The belief after a second visit is the one that a slow computation of the drift gives."""
    target = learner(method("spo"))
    first, second = visit(0, [0]), visit(1, [3])
    one_step(target, first)
    assert target.tracker is not None
    (earlier,) = target.tracker.before([second[0].trajectory])
    assert earlier.attempt.draw == 0
    drift = target._drifts([earlier])["p0"]
    ids = torch.tensor(earlier.token_ids[None].astype(np.int64))
    with torch.no_grad():
        logprobs = torch.log_softmax(target.actor.model(ids).logits[0, :-1], -1)
    taken = logprobs[torch.arange(ids.shape[1] - 1), ids[0, 1:]].numpy()
    gap = np.abs(taken - earlier.rollout_logprobs[1:])[earlier.action_mask[1:]].mean()
    assert drift == pytest.approx(float(gap), rel=1e-5)


def test_the_critic_of_step_last_learns_on_the_last_token_of_each_turn_alone():
    """Its loss is the mean over the turns' last tokens of (0 - return)^2, as the value head starts at zero."""
    rng = np.random.default_rng(0)
    metrics = one_step(
        learner(method("sao-step-last")), [item(trajectory(rng, d, turns=d + 1, reward=2.0 * (d == 0))) for d in (0, 1)]
    )
    assert metrics["critic/loss"] == pytest.approx(4.0 / 3)  # three turns, one with return 2


def test_values_of_observations_reach_the_method_that_asks_for_them():
    target = learner(method("sao-no-skip"))
    seen: list[PackedBatch] = []
    advantages = target.method.advantages
    object.__setattr__(target.method, "advantages", lambda packed: (seen.append(packed), advantages(packed))[1])
    one_step(target, visit(0, [0, 1, 2]))
    with torch.no_grad():
        target.critic.model.value_head.weight.normal_()
    one_step(target, visit(1, [3, 4, 5]))
    values, mask, segments = seen[1].values, seen[1].action_mask, seen[1].segment_ids
    for segment in range(3):
        here = (segments == segment).nonzero().flatten()
        last = here[mask[here]].max()
        inside = here[(here > here[0]) & (here <= last)]
        assert (values[inside] != 0).all()
        assert (values[here[here > last]] == 0).all()
