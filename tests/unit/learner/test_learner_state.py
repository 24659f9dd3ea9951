"""Checkpoint and resume of the learner (fault J5), and its metrics."""

import json
import math

import numpy as np
import pytest
import torch

from soliton.errors import RunError
from soliton.metrics import METRICS
from soliton.types import Role
from tests.unit.learner.learner_toys import batch_of, item, learner, method, one_step, trajectory


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("name", ["sao", "vapo", "grpo-dis"])
def test_a_resumed_learner_goes_on_bit_equal(name):  # fault J5
    def steps(target, seeds):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            one_step(target, [item(trajectory(rng, i // 2, sample=i % 2, reward=float(i % 3 == 0))) for i in range(6)])

    settings = {"actor_lr_warmup_updates": 5, "critic_lr_warmup_updates": 5}
    straight, before = learner(method(name), **settings), learner(method(name), **settings)
    steps(straight, range(4))
    steps(before, range(2))
    tensors, numbers = before.state()
    numbers = json.loads(json.dumps(numbers))
    resumed = learner(method(name), seed=9, **settings)
    resumed_frozen_differs = resumed.critic is not None and name == "sao"
    if resumed_frozen_differs:
        assert resumed.critic.frozen_sha256 != numbers["critic_frozen_sha256"]
    resumed.load_state(tensors, numbers)
    assert equal(resumed.state()[0], tensors)
    steps(resumed, range(2, 4))
    assert equal(resumed.state()[0], straight.state()[0])
    assert resumed.state()[1] == straight.state()[1]


def test_moments_are_saved_and_not_empty():  # fault J5
    target = learner()
    assert not any("optimiser" in name for name in target.state()[0])
    one_step(target, batch_of(0))
    tensors, numbers = target.state()
    for part, parameters in [("actor", target.actor.optimiser), ("critic", target.critic.optimiser)]:
        moments = {n: t for n, t in tensors.items() if n.startswith(f"{part}_optimiser/")}
        assert len(moments) == 3 * len(parameters.parameters)
        assert any(bool(t.any()) for n, t in moments.items() if n.endswith("exp_avg"))
    assert numbers["actor_updates"] == 1
    assert numbers["critic_updates"] == 2


def test_state_is_a_copy_that_later_steps_do_not_change():
    target = learner()
    one_step(target, batch_of(0))
    tensors, _ = target.state()
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    one_step(target, batch_of(1))
    assert equal(tensors, copies)


def test_loading_is_strict():  # faults J5, A13
    target = learner()
    one_step(target, batch_of(0))
    tensors, numbers = target.state()

    def without(*parts):
        return {n: t for n, t in tensors.items() if not any(part in n for part in parts)}

    cases = [
        (without("value_head.weight"), numbers, "missing"),
        (without("actor_optimiser/"), numbers, "missing"),
        (tensors | {"critic/extra": torch.zeros(1)}, numbers, "unknown"),
        (tensors | {"reward_model/x": torch.zeros(1)}, numbers, "unknown"),
        (tensors | {"critic/value_head.bias": torch.zeros(2)}, numbers, "another model"),
        (tensors, numbers | {"method": "vapo"}, "written by method 'vapo'"),
        (tensors, numbers | {"critic_frozen_sha256": "0" * 64}, "frozen"),
        (tensors | {"critic/backbone.norm.weight": torch.zeros(16)}, numbers, "frozen"),
    ]
    for bad_tensors, bad_numbers, words in cases:
        with pytest.raises(RunError, match=words):
            learner().load_state(bad_tensors, bad_numbers)


def test_metrics_say_what_was_consumed():
    rng = np.random.default_rng(0)
    made = [trajectory(rng, draw, turns=2, truncated=draw == 0, reward=float(draw)) for draw in range(3)]
    metrics = one_step(learner(), [item(t, staleness=draw) for draw, t in enumerate(made)])
    assert metrics["reward/mean"] == 1.0
    assert metrics["trajectory/truncated_share"] == pytest.approx(1 / 3)
    assert metrics["tokens/action"] == sum(t.num_action_tokens for t in made)
    assert metrics["tokens/total"] == sum(len(t.token_ids) for t in made)
    assert (metrics["staleness/mean"], metrics["staleness/max"]) == (1.0, 2.0)
    assert metrics["learner/actor_updates"] == 1.0


def test_versions_are_counted_per_trajectory_and_per_turn():
    t = trajectory(np.random.default_rng(0))
    roles = np.array([0, 2, 2, 1, 2, 2, 1, 2])
    versions = np.array([-1, 3, 3, -1, 3, 4, -1, 5])
    mixed = type(t)(
        attempt=t.attempt, prompt_id="p", status=t.status, token_ids=np.arange(8), roles=roles,
        rollout_logprobs=np.where(roles == Role.ACTION, -1.0, np.nan), versions=versions, reward_positions=[7],
        reward_values=[1.0], times=t.times,
    )  # fmt: skip
    metrics = one_step(learner(), [item(mixed)])
    assert (metrics["versions/mean"], metrics["versions/max"], metrics["versions/share_mixed"]) == (3.0, 3.0, 1.0)
    assert metrics["versions/share_mixed_turns"] == pytest.approx(1 / 3)  # the second turn alone: 3 then 4


@pytest.mark.parametrize("name", ["sao", "grpo", "grpo-dis", "vapo"])
def test_every_method_reports_its_distance_from_the_sampling_policy(name):
    rng = np.random.default_rng(0)
    items = [item(trajectory(rng, i // 4, sample=i % 4, reward=float(i % 2))) for i in range(8)]
    metrics = one_step(learner(method(name, eps_low=0.3, eps_high=0.5)), items)
    assert 0 < metrics["trust_mask/share"] < 1
    assert metrics["trust_mask/share"] == pytest.approx(
        metrics["trust_mask/share_low"] + metrics["trust_mask/share_high"]
    )
    assert metrics["log_ratio/abs_mean"] >= abs(metrics["log_ratio/mean"])
    assert metrics["ratio/max"] > 1.5
    assert all(math.isfinite(number) for number in metrics.values())
    assert ("critic/explained_var" in metrics) == (name in {"sao", "vapo"})
    assert set(metrics) <= set(METRICS)  # each has its row in the table
    assert 0 < metrics["actor/entropy"] <= math.log(20) + 1e-6


def test_explained_variance_of_equal_returns_is_absent_never_zero():
    rng = np.random.default_rng(0)
    metrics = one_step(learner(), [item(trajectory(rng, draw, reward=1.0)) for draw in range(3)])
    assert "critic/explained_var" not in metrics
    assert "critic/loss" in metrics


def test_the_newest_gap_is_near_zero_for_tokens_that_the_policy_itself_sampled():  # fault C1
    from tests.unit.learner.test_learner import slow_logprobs

    target = learner()
    t = trajectory(np.random.default_rng(0))
    recorded = np.full(len(t.token_ids), np.nan, dtype=np.float32)
    recorded[t.action_mask] = slow_logprobs(target.actor.model, t).detach().numpy()
    fields = {f: getattr(t, f) for f in t.__struct_fields__} | {"rollout_logprobs": recorded}
    metrics = one_step(target, [item(type(t)(**fields))])
    assert metrics["parity/newest_gap_max"] < 1e-5
    assert metrics["ratio/max"] == pytest.approx(1.0, abs=1e-4)


def test_groups_with_nothing_to_compare_are_kept_and_counted():
    rng = np.random.default_rng(0)
    rewards = {0: (1.0, 1.0), 1: (0.0, 1.0), 2: (0.0, 0.0), 3: (0.0, 1.0)}
    items = [
        item(trajectory(rng, draw, sample=sample, reward=reward))
        for draw, pair in rewards.items()
        for sample, reward in enumerate(pair)
    ]
    metrics = one_step(learner(method("grpo", group_size=2)), items)
    assert metrics["group/zero_variance_share"] == 0.5
    assert "group/zero_variance_share" not in one_step(learner(), batch_of(0))
