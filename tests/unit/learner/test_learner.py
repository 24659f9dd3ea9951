"""One step of the learner: gradients, order, counts, warm-up, no signal, alarms."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.errors import ConfigError, RunError
from soliton.learner.config import LearnerConfig
from soliton.learner.learner import Learner
from soliton.learner.method import CriticUse
from soliton.losses.result import LossResult
from soliton.models import Critic
from soliton.types import Role, Sampling
from tests.unit.learner.learner_toys import (
    batch_of,
    item,
    learner,
    method,
    micro_model,
    moved,
    one_step,
    trajectory,
    weights,
)


def gradients_seen(target, trainer):
    """Record the gradient that each optimiser step of `trainer` is given, before the clip."""
    seen = []
    original = trainer.optimiser.step

    def step(scene):
        seen.append({n: p.grad.clone() for n, p in trainer.optimiser.parameters.items() if p.grad is not None})
        return original(scene)

    trainer.optimiser.step = step
    return seen


def slow_logprobs(model, t):
    """One trajectory alone, full logits, no shift but the obvious one."""
    ids = torch.from_numpy(t.token_ids.astype(np.int64))
    logits = model(input_ids=ids[None]).logits[0] / t.sampling.temperature
    return torch.stack([logits[k - 1].log_softmax(-1)[ids[k]] for k in range(1, len(ids)) if t.action_mask[k]])


def slow_values(critic, t):
    ids = torch.from_numpy(t.token_ids.astype(np.int64))
    values = critic.values(ids[None])[0]
    return torch.stack([values[k - 1] for k in range(1, len(ids)) if t.action_mask[k]])


def slow_advantages(values, reward, lam):
    """GAE over action tokens, reward at the last one, gamma 1."""
    advantages, after, following = [], 0.0, 0.0
    for k in range(len(values) - 1, -1, -1):
        delta = (reward if k == len(values) - 1 else 0.0) + following - values[k]
        after = delta + lam * after
        following = values[k]
        advantages.append(after)
    return advantages[::-1]


def trained_critic(target, seed=5):
    """A critic whose values are not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        target.critic.model.value_head.weight.copy_(torch.randn(1, 16, generator=generator))
    return target


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradients_equal_a_whole_batch_reference_in_plain_torch(tie, temperature):  # faults C3, E1, E2
    rng = np.random.default_rng(1)
    items = [
        item(trajectory(rng, draw, turns=1 + draw % 3, sampling=Sampling(temperature=temperature))) for draw in range(5)
    ]
    target = trained_critic(learner(method(critic_updates=1, critic_trainable="all"), tie=tie))
    model, critic = micro_model(0, tie=tie), Critic.from_causal_lm(micro_model(0, tie=tie))
    critic.load_state_dict(target.critic.model.state_dict())
    actor_gradient, critic_gradient = gradients_seen(target, target.actor), gradients_seen(target, target.critic)
    one_step(target, items)

    total = sum(i.trajectory.num_action_tokens for i in items)
    actor_loss, critic_loss = torch.zeros(()), torch.zeros(())
    for i in items:
        t, n = i.trajectory, i.trajectory.num_action_tokens
        values, logprobs = slow_values(critic, t), slow_logprobs(model, t)
        lam = max(0.0, 1 - 1 / (1.5 * n))
        advantages = torch.tensor(slow_advantages(values.tolist(), t.total_reward, lam))
        recorded = torch.from_numpy(t.rollout_logprobs[t.action_mask])
        ratio = (logprobs - recorded).exp().detach()
        weight = torch.where((ratio > 0.2) & (ratio < 4.0), ratio, 0.0)
        actor_loss = actor_loss - (weight * advantages * logprobs).sum() / total
        critic_loss = critic_loss + (values - t.total_reward).square().sum() / total
    actor_loss.backward()
    critic_loss.backward()
    for seen, slow in [(actor_gradient, model), (critic_gradient, critic)]:
        assert len(seen) == 1
        for name, parameter in slow.named_parameters():
            torch.testing.assert_close(
                seen[0][name], parameter.grad, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
            )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 300), st.randoms(use_true_random=False))
def test_the_micro_batch_plan_and_the_order_of_items_change_nothing(seed, count, budget, random):  # faults A11, E1, C7
    items = batch_of(seed, count)
    shuffled = list(items)
    random.shuffle(shuffled)
    one, other = (trained_critic(learner(micro_batch_tokens=n)) for n in (10_000, budget))
    first, second = [], []
    for target, given_items, gradients in [(one, items, first), (other, shuffled, second)]:
        seen = [gradients_seen(target, target.actor), gradients_seen(target, target.critic)]
        metrics = one_step(target, given_items)
        gradients += [g for trainer in seen for g in trainer]
        gradients.append({k: torch.tensor(v) for k, v in metrics.items()})
    assert len(first) == 4  # one of the actor, two of the critic, the metrics
    for a, b in zip(first[:2], second[:2], strict=True):  # before anything moved the plans must agree closely
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-3, atol=1e-5, msg=name)
    for name, number in first[-1].items():
        if not name.startswith(("critic/grad", "actor/grad")):
            torch.testing.assert_close(number, second[-1][name], rtol=1e-3, atol=1e-4, equal_nan=True, msg=name)


def test_at_ratio_one_the_gradient_is_plain_advantage_actor_critic():
    rng = np.random.default_rng(2)
    target = trained_critic(learner())
    made = [trajectory(rng, draw, turns=2) for draw in range(4)]
    on_policy = []
    for t in made:
        recorded = np.full(len(t.token_ids), np.nan, dtype=np.float32)
        recorded[t.action_mask] = slow_logprobs(target.actor.model, t).detach().numpy()
        fields = {f: getattr(t, f) for f in t.__struct_fields__} | {"rollout_logprobs": recorded}
        on_policy.append(item(type(t)(**fields)))
    seen = gradients_seen(target, target.actor)
    target.start_step(on_policy)
    advantages = target._step.advantages
    batch = target._step.batch
    model = micro_model(0)
    total = batch.num_action_tokens
    loss = sum(
        -(advantages[(batch.segment_ids == s) & batch.action_mask] * slow_logprobs(model, t)).sum() / total
        for s, t in enumerate(batch.trajectories)
    )
    loss.backward()
    target.update_actor()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            seen[0][name], parameter.grad, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_advantages_use_values_from_before_this_batchs_fits():  # fault of other code: baseline read after the fit
    items = batch_of(0)
    target = trained_critic(learner(critic_lr=5e-2))
    before = Critic.from_causal_lm(micro_model(0))
    before.load_state_dict(target.critic.model.state_dict())
    target.start_step(items)
    batch, advantages = target._step.batch, target._step.advantages
    for s, t in enumerate(batch.trajectories):
        mine = advantages[(batch.segment_ids == s) & batch.action_mask].tolist()
        lam = 1 - 1 / (1.5 * t.num_action_tokens)
        assert mine == pytest.approx(slow_advantages(slow_values(before, t).tolist(), t.total_reward, lam), abs=1e-4)


def test_post_fit_advantages_come_from_after_all_updates():
    items = batch_of(0)
    target = trained_critic(learner(method(advantage_values="post_fit", critic_updates=3), critic_lr=5e-2))
    target.start_step(items)
    assert target.critic_updates == 3
    batch, advantages = target._step.batch, target._step.advantages
    pre_fit = trained_critic(learner(method(), critic_lr=5e-2))
    pre_fit.start_step(items)
    assert not torch.allclose(advantages, pre_fit._step.advantages, atol=1e-3)
    for s, t in enumerate(batch.trajectories):
        mine = advantages[(batch.segment_ids == s) & batch.action_mask].tolist()
        lam = 1 - 1 / (1.5 * t.num_action_tokens)
        after = slow_values(target.critic.model, t).tolist()
        assert mine == pytest.approx(slow_advantages(after, t.total_reward, lam), abs=1e-4)
    target.update_actor()
    target.finish_step()
    assert target.critic_updates == 3


def test_the_step_runs_in_the_papers_order():
    events = []
    target = learner(method(critic_updates=3))
    for name, trainer in [("critic", target.critic), ("actor", target.actor)]:
        original = trainer.optimiser.step
        trainer.optimiser.step = lambda scene, original=original, name=name: (events.append(name), original(scene))[1]
    target.start_step(batch_of(0))
    events.append("started")
    assert target.update_actor()
    events.append("publish")
    target.finish_step()
    assert events == ["critic", "started", "actor", "publish", "critic", "critic"]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_updates_of_the_critic_go_with_one_of_the_actor(k):
    target = learner(method(critic_updates=k))
    for seed in range(3):
        one_step(target, batch_of(seed))
    assert (target.steps, target.actor_updates, target.critic_updates) == (3, 3, 3 * k)


def test_schedules_count_updates_of_their_own_optimiser():  # fault of other code: K > 1 speeds up the schedule
    target = learner(method(critic_updates=2), actor_lr_warmup_updates=4, critic_lr_warmup_updates=4)
    metrics = [one_step(target, batch_of(seed)) for seed in range(3)]
    assert [m["actor/lr"] for m in metrics] == pytest.approx([0.0025, 0.005, 0.0075])
    assert [m["critic/lr"] for m in metrics] == pytest.approx([0.0025, 0.0075, 0.01])
    assert target.actor.optimiser.lr == pytest.approx(0.01)


def test_in_the_warm_up_the_critic_trains_and_the_actor_waits():  # fault of other code: inverted critic warm-up
    target = learner(critic_warmup_steps=2)
    for seed in range(2):
        actor, critic = weights(target.actor.model), weights(target.critic.model)
        target.start_step(batch_of(seed))
        assert target.update_actor() is False
        metrics = target.finish_step()
        assert moved(actor, target.actor.model) == set()
        assert "value_head.weight" in moved(critic, target.critic.model)
        assert "actor/loss" not in metrics
        assert "critic/loss" in metrics
    actor = weights(target.actor.model)
    target.start_step(batch_of(2))
    assert target.update_actor() is True
    assert moved(actor, target.actor.model)
    assert (target.actor_updates, target.no_signal_steps) == (1, 0)


def test_frozen_parts_never_move_and_the_actor_is_never_frozen():  # fault A14; shared freeze flag
    target = learner(weight_decay=0.1)
    actor, critic = weights(target.actor.model), weights(target.critic.model)
    frozen = target.critic.frozen_sha256
    for seed in range(20):
        one_step(target, batch_of(seed, 3))
    target.state()
    assert target.critic.frozen_sha256 == frozen
    assert moved(actor, target.actor.model) == set(actor)
    trained = moved(critic, target.critic.model)
    assert trained == set(target.critic.trainable)
    assert not any(word in name for name in trained for word in ("attn", "norm", "embed"))
    assert "backbone.layers.0.mlp.up_proj.weight" in trained


def test_writing_to_a_frozen_part_is_found_at_the_checkpoint():  # fault A14
    target = learner()
    with torch.no_grad():
        target.critic.model.backbone.embed_tokens.weight[0, 0] += 1
    with pytest.raises(RunError, match="have moved"):
        target.state()


def test_the_frozen_prefix_changes_no_bit_of_a_step():
    cached, plain = trained_critic(learner()), trained_critic(learner())
    for seed in range(2):
        cached_metrics = one_step(cached, batch_of(seed))
        plain.start_step(batch_of(seed))
        plain.update_actor()
        plain._step.fits._prefix._kept.clear()  # the second fit recomputes everything
        assert cached_metrics == plain.finish_step()
    assert moved(weights(cached.critic.model), plain.critic.model) == set()


def test_a_critic_that_shares_parameters_with_the_actor_is_refused():
    actor = micro_model()
    with pytest.raises(ValueError, match="from_causal_lm"):
        Learner(actor=actor, critic=Critic(actor.base_model), method=method(), config=LearnerConfig())


def test_a_critic_is_given_exactly_where_the_method_uses_one():
    actor = micro_model()
    with pytest.raises(ValueError, match="has a critic, but critic is absent"):
        Learner(actor=actor, critic=None, method=method(), config=LearnerConfig())
    critic = Critic.from_causal_lm(actor)
    with pytest.raises(ValueError, match="has no critic, but critic is given"):
        Learner(actor=actor, critic=critic, method=method("grpo"), config=LearnerConfig())


def test_an_allow_list_that_matches_nothing_is_a_configuration_error():
    use = CriticUse(updates=1, trainable="mlp", train_router=True)  # no router in a dense model
    with pytest.raises(ConfigError, match="router"):
        learner(replace(method(), critic=use))


def all_outside_the_band(seed=0):
    """Recorded log-prob -0.001: the micro model's ratio is near 1/20, below the band."""
    rng = np.random.default_rng(seed)
    return [item(trajectory(rng, draw, logprob=-0.001)) for draw in range(3)]


def test_without_signal_neither_optimiser_nor_schedule_advances():  # fault E5
    target = learner(method(eps_low=0.3), actor_lr_warmup_updates=10, weight_decay=0.1)
    one_step(target, batch_of(0))  # momentum that would go on moving weights
    actor, lr, updates = weights(target.actor.model), target.actor.optimiser.lr, target.actor_updates
    target.start_step(all_outside_the_band())
    assert target.update_actor() is False
    metrics = target.finish_step()
    assert moved(actor, target.actor.model) == set()
    assert (target.actor.optimiser.lr, target.actor_updates, target.no_signal_steps) == (lr, updates, 1)
    assert metrics["trust_mask/share_low"] == 1.0
    assert metrics["actor/grad_norm"] == 0.0
    assert target.critic_updates == 4  # the critic still learns from the returns


def test_equal_rewards_of_a_group_carry_no_signal():  # fault E5
    rng = np.random.default_rng(0)
    items = [item(trajectory(rng, 0, sample=s, reward=1.0)) for s in range(4)]
    target = learner(method("grpo-dis"))
    assert target.critic is None
    target.start_step(items)
    assert target.update_actor() is False
    assert target.finish_step()["actor/signal_share"] == 0.0


def test_too_many_steps_without_signal_in_a_row_stop_the_run():  # fault E5
    target = learner(method(eps_low=0.3), max_no_signal_steps=3)
    for seed in range(2):
        one_step(target, all_outside_the_band(seed))
    one_step(target, batch_of(0))  # signal: the row starts anew
    for seed in range(2):
        one_step(target, all_outside_the_band(seed))
    target.start_step(all_outside_the_band())
    with pytest.raises(RunError, match="last 3 steps"):
        target.update_actor()
    assert target.no_signal_steps == 5


def test_an_untrusted_token_carries_no_gradient_and_stays_in_the_denominator():
    rng = np.random.default_rng(4)
    made = [trajectory(rng, draw, first_version=5 * draw) for draw in range(2)]
    target = trained_critic(learner(method(eps_low=1.0, eps_high=1e9)))
    target.start_step([item(made[0], min_trusted_version=100), item(made[1])])
    seen, inputs = gradients_seen(target, target.actor), []
    loss = target.actor._loss
    target.actor._loss = lambda given: (inputs.append(given), loss(given))[1]
    target.update_actor()
    total = made[0].num_action_tokens + made[1].num_action_tokens
    assert {given.num_action_tokens for given in inputs} == {total}
    assert sum(int(given.trusted.sum()) for given in inputs) == made[1].num_action_tokens
    alone = trained_critic(learner(method(eps_low=1.0, eps_high=1e9)))
    alone.start_step([item(made[1])])
    reference = gradients_seen(alone, alone.actor)
    alone.update_actor()
    share = made[1].num_action_tokens / total
    for name in seen[0]:
        torch.testing.assert_close(seen[0][name], reference[0][name] * share, rtol=1e-4, atol=1e-6, msg=name)


def test_a_micro_batch_without_signal_contributes_exactly_nothing():  # fault E3
    rng = np.random.default_rng(6)
    masked, good = item(trajectory(rng, 0, turns=1, logprob=-0.001)), item(trajectory(rng, 1, turns=4))
    target = learner(method(eps_low=0.3), micro_batch_tokens=1)  # each trajectory is its own micro-batch
    seen = gradients_seen(target, target.actor)
    one_step(target, [masked, good])
    alone = learner(method(eps_low=0.3), micro_batch_tokens=1)
    reference = gradients_seen(alone, alone.actor)
    one_step(alone, [good])
    share = good.trajectory.num_action_tokens / (
        good.trajectory.num_action_tokens + masked.trajectory.num_action_tokens
    )
    for name in seen[0]:
        torch.testing.assert_close(seen[0][name], reference[0][name] * share, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("which", ["actor", "critic"])
def test_a_nan_weight_stops_the_run_and_names_step_quantity_and_trajectories(which):  # fault C11
    target = learner()
    one_step(target, batch_of(0))
    model = target.actor.model if which == "actor" else target.critic.model
    with torch.no_grad():
        dict(model.named_parameters())[next(n for n, _ in model.named_parameters() if "up_proj" in n)].fill_(math.nan)
    quantity = "policy log-prob" if which == "actor" else "critic value"
    with pytest.raises(RunError, match=rf"step 1: {quantity} is not finite .*nan.*d\ds0a0"):
        one_step(target, batch_of(1))


def test_a_nan_that_one_trajectory_causes_is_blamed_on_it_alone():  # fault C11
    rng = np.random.default_rng(0)
    items = [item(trajectory(rng, draw)) for draw in range(4)]
    poison = int(items[2].trajectory.token_ids[1])
    target = learner(tie=False)
    with torch.no_grad():
        target.actor.model.get_input_embeddings().weight[poison] = math.nan
    victims = {str(i.trajectory.attempt) for i in items if poison in i.trajectory.token_ids[:-1]}
    with pytest.raises(RunError) as caught:
        one_step(target, items)
    named = str(caught.value).split("trajectories: ")[1].split(".")[0].split(", ")
    assert set(named) <= victims


def test_a_non_finite_actor_loss_stops_the_run_before_the_actor_moves():  # fault C11
    def broken(inputs):
        return LossResult(inputs.policy_logprobs.sum() * math.inf)

    target = learner(replace(method(), actor_loss=broken))
    actor = weights(target.actor.model)
    with pytest.raises(RunError, match="actor loss is not finite"):
        one_step(target, batch_of(0))
    assert moved(actor, target.actor.model) == set()


def test_a_truncated_trajectory_is_terminal_with_the_environments_reward():  # fault A5
    rng_a, rng_b = np.random.default_rng(0), np.random.default_rng(0)
    ended = item(trajectory(rng_a, 0, reward=1.0))
    cut_off = item(trajectory(rng_b, 0, reward=1.0, truncated=True))
    one, other = trained_critic(learner()), trained_critic(learner())
    one.start_step([ended])
    other.start_step([cut_off])
    assert torch.equal(one._step.advantages, other._step.advantages)
    assert other._step.metrics["trajectory/truncated_share"] == 1.0


def test_what_stands_off_the_mask_is_never_read():  # faults A4, B15
    """Observation tokens have NaN log-probs by construction; the step is finite and so is every weight."""
    target = learner()
    items = batch_of(0)
    assert any(np.isnan(i.trajectory.rollout_logprobs).any() for i in items)
    assert any((i.trajectory.roles == Role.OBSERVATION).any() for i in items)
    metrics = one_step(target, items)
    assert all(math.isfinite(number) for number in metrics.values())
    assert all(bool(p.isfinite().all()) for p in target.actor.model.parameters())


def test_zero_learning_rate_is_a_still_actor():
    target = learner(actor_lr=0.0)
    actor = weights(target.actor.model)
    assert one_step(target, batch_of(0))["actor/grad_norm"] > 0
    assert moved(actor, target.actor.model) == set()
