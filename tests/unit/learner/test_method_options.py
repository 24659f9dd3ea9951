"""What a recipe chooses for any method, in the learner: value losses and heads, truncation, normalisation, terms."""

import json
import math

import numpy as np
import pytest
import torch

from soliton.errors import ConfigError, RunError
from soliton.learner.config import LearnerConfig, ValuePretrainingConfig
from soliton.learner.critic import head_of
from soliton.learner.learner import Learner
from soliton.learner.value_pretraining import pretrain_values
from soliton.models import Critic, ValueHead
from tests.unit.learner.learner_toys import batch_of, item, method, micro_model, moved, one_step, trajectory, weights


def learner_of(chosen, seed: int = 0, **settings) -> Learner:
    """A learner whose critic says something, with the head that the method wants."""
    critic = None
    if chosen.critic is not None:
        critic = Critic.from_causal_lm(micro_model(seed), head_of(chosen.critic))
        with torch.no_grad():
            critic.value_head.weight.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    config = LearnerConfig(**({"actor_lr": 1e-2, "critic_lr": 1e-2, "micro_batch_tokens": 40} | settings))
    return Learner(actor=micro_model(seed), critic=critic, method=chosen, config=config)


def gradients_of(trainer) -> list[dict[str, torch.Tensor]]:
    """Records the gradient of each optimiser step of `trainer`, before the clip."""
    seen, original = [], trainer.optimiser.step

    def step(scene):
        seen.append({n: p.grad.clone() for n, p in trainer.optimiser.parameters.items() if p.grad is not None})
        return original(scene)

    trainer.optimiser.step = step
    return seen


def slow_tokens(model, t) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-prob and entropy of each action token, from full logits of the trajectory alone."""
    log_p = model(input_ids=torch.from_numpy(t.token_ids.astype(np.int64))[None]).logits[0].log_softmax(-1)
    places = np.flatnonzero(t.action_mask)
    taken = torch.stack([log_p[k - 1, int(t.token_ids[k])] for k in places])
    return taken, torch.stack([-(log_p[k - 1].exp() * log_p[k - 1]).sum() for k in places])


def slow_outputs(critic, t) -> torch.Tensor:
    """The critic's output at every position of the trajectory alone."""
    return critic.outputs(torch.from_numpy(t.token_ids.astype(np.int64))[None])[0]


def assert_same_gradient(seen: dict[str, torch.Tensor], model) -> None:
    for name, gradient in seen.items():
        expected = dict(model.named_parameters())[name].grad
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


def copy_of(critic: Critic) -> Critic:
    other = Critic.from_causal_lm(micro_model(0), critic.head)
    other.load_state_dict(critic.state_dict())
    return other


def with_trailing_observation(t, count: int = 2):
    """The trajectory with observation tokens after its last action, as a turn limit leaves them."""
    fields = {name: getattr(t, name) for name in t.__struct_fields__}
    fields["token_ids"] = np.append(t.token_ids, np.arange(1, count + 1))
    fields["roles"] = np.append(t.roles, [1] * count)
    fields["rollout_logprobs"] = np.append(t.rollout_logprobs, [np.nan] * count)
    fields["versions"] = np.append(t.versions, [-1] * count)
    return type(t)(**fields)


# --- truncated trajectories (fault A5)


def mixed_batch(seed: int = 0):
    rng = np.random.default_rng(seed)
    made = [trajectory(rng, d, turns=1 + d % 3, reward=float(d % 2), truncated=d % 2 == 0) for d in range(5)]
    return [item(with_trailing_observation(t) if t.attempt.draw == 2 else t) for t in made]


def test_bootstrap_puts_the_value_after_the_last_token_in_place_of_what_was_cut_off():  # fault A5
    target = learner_of(method(truncated="bootstrap"))
    before = copy_of(target.critic.model)
    target.start_step(mixed_batch())
    step = target._step
    for s, t in enumerate(step.batch.trajectories):
        outputs = slow_outputs(before, t).detach()
        after = float(outputs[-1]) if t.status.value == "truncated" else 0.0
        values = [float(outputs[k - 1]) for k in np.flatnonzero(t.action_mask)] + [after]
        lam, advantage, expected = 1 - 1 / (1.5 * t.num_action_tokens), 0.0, []
        for k in reversed(range(t.num_action_tokens)):
            reward = t.total_reward if k == t.num_action_tokens - 1 else 0.0
            advantage = reward + values[k + 1] - values[k] + lam * advantage
            expected.insert(0, advantage)
        mine = (step.batch.segment_ids == s) & step.batch.action_mask
        assert step.advantages[mine].tolist() == pytest.approx(expected, abs=1e-4)
        assert step.fits._targets[mine].tolist() == pytest.approx([t.total_reward + after] * len(expected), abs=1e-4)


def test_bootstrap_without_a_truncated_trajectory_changes_no_bit():
    plain, bootstrapping = learner_of(method()), learner_of(method(truncated="bootstrap"))
    assert one_step(plain, batch_of(0)) == one_step(bootstrapping, batch_of(0))
    assert moved(weights(plain.actor.model), bootstrapping.actor.model) == set()


def test_post_fit_advantages_bootstrap_from_values_after_the_fits():
    target = learner_of(method(truncated="bootstrap", advantage_values="post_fit", policy_lambda=1.0), critic_lr=5e-2)
    target.start_step(mixed_batch())
    step = target._step
    for s, t in enumerate(step.batch.trajectories):
        outputs = slow_outputs(target.critic.model, t).detach()
        after = float(outputs[-1]) if t.status.value == "truncated" else 0.0
        expected = [t.total_reward + after - float(outputs[k - 1]) for k in np.flatnonzero(t.action_mask)]
        mine = (step.batch.segment_ids == s) & step.batch.action_mask
        assert step.advantages[mine].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["vtrace", "sao-step-average", "sao-step-last"])
def test_every_estimator_with_a_critic_bootstraps(name: str):
    terminal, bootstrapping = (learner_of(method(name, truncated=how)) for how in ("terminal", "bootstrap"))
    for target in (terminal, bootstrapping):
        target.start_step(mixed_batch())
    batch = bootstrapping._step.batch
    cut_off = batch.bootstrapped[batch.segment_ids] & batch.action_mask
    order = {t.attempt: s for s, t in enumerate(terminal._step.batch.trajectories)}
    for s, t in enumerate(batch.trajectories):
        ours = bootstrapping._step.advantages[(batch.segment_ids == s) & batch.action_mask]
        other = terminal._step.batch
        theirs = terminal._step.advantages[(other.segment_ids == order[t.attempt]) & other.action_mask]
        assert torch.allclose(ours, theirs, atol=1e-5) == (not bool(cut_off[batch.segment_ids == s].any()))


def test_dropped_trajectories_are_counted_and_the_rest_is_the_whole_batch():
    items = mixed_batch()
    dropping, short = learner_of(method(truncated="drop")), learner_of(method())
    metrics = one_step(dropping, items)
    kept = [i for i in items if i.trajectory.status.value != "truncated"]
    assert (metrics["trajectory/dropped_truncated"], metrics["trajectory/truncated_share"]) == (3, 0.6)
    alone = one_step(short, kept)
    assert moved(weights(dropping.actor.model), short.actor.model) == set()
    assert metrics["tokens/action"] == alone["tokens/action"]
    assert "trajectory/dropped_truncated" not in alone


def test_a_batch_of_nothing_but_truncated_trajectories_stops_the_run_with_what_to_do():
    rng = np.random.default_rng(0)
    target = learner_of(method("reinforce", truncated="drop"))
    with pytest.raises(RunError, match=r"cut every one of the 2 trajectories.*Raise limits\.max_tokens"):
        target.start_step([item(trajectory(rng, d, truncated=True)) for d in range(2)])


def test_a_masked_actor_learns_nothing_from_truncated_trajectories_and_the_critic_does():
    items = mixed_batch()
    masked, plain = learner_of(method(truncated="mask_actor")), learner_of(method())
    critic_seen, plain_critic_seen = gradients_of(masked.critic), gradients_of(plain.critic)
    inputs, loss = [], masked.actor._loss
    masked.actor._loss = lambda given: (inputs.append(given), loss(given))[1]
    metrics, plain_metrics = one_step(masked, items), one_step(plain, items)
    names = [t.status.value == "truncated" for t in plain_batch(masked, items)]
    for given in inputs:
        assert [not names[s] for s in given.segment_ids.tolist()] == given.trusted.tolist()
    for name, gradient in critic_seen[0].items():
        assert torch.equal(gradient, plain_critic_seen[0][name])
    assert metrics["tokens/action"] == plain_metrics["tokens/action"]  # they stay in the denominator
    assert metrics["actor/signal_share"] < plain_metrics["actor/signal_share"]


def plain_batch(target: Learner, items):
    target.start_step(items)
    trajectories = target._step.batch.trajectories
    target._step = None
    return trajectories


# --- terms of the actor loss


def test_the_gradient_with_all_three_terms_equals_a_whole_batch_reference_in_plain_torch():
    options = {"entropy_weight": 0.3, "kl_weight": 0.7, "nll_weight": 0.2, "eps_low": 1.0, "eps_high": 1e6}
    target = learner_of(method("reinforce", **options))
    with torch.no_grad():  # away from the reference, or the KL has no gradient
        for parameter in target.actor.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.05)
    slow, reference = micro_model(0), micro_model(0)
    slow.load_state_dict(target.actor.model.state_dict())
    seen, items = gradients_of(target.actor), batch_of(0)
    metrics = one_step(target, items)
    total = sum(i.trajectory.num_action_tokens for i in items)
    positive = sum(i.trajectory.num_action_tokens for i in items if i.trajectory.total_reward > 0)
    terms = {"actor": 0.0, "entropy": 0.0, "kl": 0.0, "nll": 0.0}
    for t in (i.trajectory for i in items):
        taken, entropies = slow_tokens(slow, t)
        gap = slow_tokens(reference, t)[0].detach() - taken
        terms["actor"] = terms["actor"] - (t.total_reward * taken).sum() / total
        terms["entropy"] = terms["entropy"] - entropies.sum() / total
        terms["kl"] = terms["kl"] + (gap.exp() - gap - 1).sum() / total
        terms["nll"] = terms["nll"] - (taken.sum() / positive if t.total_reward > 0 else 0.0)
    loss = terms["actor"] + 0.3 * terms["entropy"] + 0.7 * terms["kl"] + 0.2 * terms["nll"]
    loss.backward()
    assert_same_gradient(seen[0], slow)
    assert metrics["actor/loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["actor/entropy"] == pytest.approx(-terms["entropy"].item(), rel=1e-4)
    assert metrics["actor/reference_kl"] == pytest.approx(terms["kl"].item(), rel=1e-3)
    assert metrics["actor/positive_nll"] == pytest.approx(terms["nll"].item(), rel=1e-4)


def test_weights_of_zero_compute_nothing_and_keep_no_reference():
    target = learner_of(method())
    assert target.method.actor_terms == ()
    assert target.actor.reference is None
    assert not {"actor/reference_kl", "actor/positive_nll"} & set(one_step(target, batch_of(0)))


def test_entropy_alone_is_a_signal_where_advantages_are_none():
    rng = np.random.default_rng(0)
    target = learner_of(method("reinforce", entropy_weight=0.1))
    metrics = one_step(target, [item(trajectory(rng, d, reward=0.0)) for d in range(2)])
    assert metrics["actor/signal_share"] == 1
    assert metrics["actor/grad_norm"] > 0


def test_the_reference_stays_while_the_policy_moves():
    target = learner_of(method("reinforce", kl_weight=0.1))
    start = weights(micro_model(0))
    first, second = one_step(target, batch_of(0)), one_step(target, batch_of(1))
    assert first["actor/reference_kl"] == pytest.approx(0, abs=1e-6)
    assert second["actor/reference_kl"] > 1e-3
    assert moved(start, target.actor.reference) == set()
    assert not any(p.requires_grad for p in target.actor.reference.parameters())


def test_a_resumed_run_measures_against_the_same_reference_and_another_start_is_refused():  # fault J5
    chosen = method("reinforce", kl_weight=0.1)
    straight = learner_of(chosen)
    one_step(straight, batch_of(0))
    tensors, numbers = straight.state()
    numbers = json.loads(json.dumps(numbers))
    resumed = learner_of(chosen)  # built from what the run started from, as every resume is
    resumed.load_state(tensors, numbers)
    assert one_step(resumed, batch_of(1)) == one_step(straight, batch_of(1))
    with pytest.raises(RunError, match="reference policy of the KL term hashes to"):
        learner_of(chosen, seed=7).load_state(tensors, numbers)


# --- the critic


def slow_value_loss(name: str, v: torch.Tensor, r: float, before: torch.Tensor) -> torch.Tensor:
    if name == "clipped":
        return torch.maximum((v - r) ** 2, (before + (v - before).clamp(-0.05, 0.05) - r) ** 2)
    if name == "huber":
        return torch.where((v - r).abs() <= 0.1, (v - r) ** 2, 0.2 * (v - r).abs() - 0.01)
    if name == "bce":
        return -(r * v.log() + (1 - r) * (1 - v).log())
    return (v - r) ** 2


def slow_head(head: ValueHead, z: torch.Tensor) -> torch.Tensor:
    if head.name == "sigmoid":
        return 1 / (1 + torch.exp(-z))
    if head.name == "arctan":
        return 2 * head.bound / math.pi * torch.atan(math.pi * z / (2 * head.bound))
    return z


@pytest.mark.parametrize(
    "options",
    [
        {"value_loss": "clipped", "value_clip": 0.05},
        {"value_loss": "huber", "huber_delta": 0.1},
        {"value_loss": "bce"},
        {"value_head": "arctan", "value_bound": 1.5},
        {"value_head": "sigmoid"},
        {"value_states": 2},
    ],
    ids=str,
)
def test_the_gradients_of_both_fits_equal_slow_references(options: dict):
    target = learner_of(method(critic_updates=2, critic_trainable="all", **options), critic_lr=3e-2)
    seen, items = gradients_of(target.critic), batch_of(0)
    first = copy_of(target.critic.model)
    target.start_step(items)
    second = copy_of(target.critic.model)
    target.update_actor()
    target.finish_step()
    trajectories = [i.trajectory for i in items]
    before = [slow_head(first.head, slow_outputs(first, t)).detach() for t in trajectories]
    for fit, critic in enumerate((first, second)):
        losses = []
        for t, old in zip(trajectories, before, strict=True):
            places = np.flatnonzero(t.action_mask)
            if "value_states" in options:
                places = places[sorted({(2 * j + 1) * len(places) // 4 for j in range(2)})]
            values = slow_head(critic.head, slow_outputs(critic, t))
            name = options.get("value_loss", "mse")
            losses += [slow_value_loss(name, values[k - 1], t.total_reward, old[k - 1]) for k in places]
        torch.stack(losses).mean().backward()
        assert_same_gradient(seen[fit], critic)


def test_a_critic_with_another_head_is_refused():
    with pytest.raises(ConfigError, match=r"value head .*'linear'.*'sao' wants .*'sigmoid'"):
        Learner(
            actor=micro_model(),
            critic=Critic.from_causal_lm(micro_model()),
            method=method(value_loss="bce"),
            config=LearnerConfig(),
        )


@pytest.mark.parametrize(("options", "reward"), [({"value_loss": "bce"}, 2.0), ({"value_head": "arctan"}, -1.5)])
def test_rewards_that_no_value_can_reach_stop_the_run_and_name_the_trajectory(options: dict, reward: float):
    rng = np.random.default_rng(0)
    target = learner_of(method(**options))
    items = [item(trajectory(rng, 0, reward=1.0)), item(trajectory(rng, 1, reward=reward))]
    with pytest.raises(
        RunError, match=r"step 0: the critic's targets reach .*trajectories: d1s0a0\. Scale the rewards"
    ):
        target.start_step(items)


def test_values_are_pretrained_with_the_head_and_the_loss_of_the_method():
    rng = np.random.default_rng(0)
    chosen = method(value_loss="bce")
    corpus = [trajectory(rng, d, reward=float(d % 2)) for d in range(16)]
    critic = Critic.from_causal_lm(micro_model(), head_of(chosen.critic))
    losses = []
    config = ValuePretrainingConfig(max_epochs=2, lr=1e-2, batch_size=8)
    pretrain_values(
        critic, corpus, config, seed=0, progress=lambda e: losses.append(e.loss), value_loss=chosen.value_loss
    )
    assert losses[1] == pytest.approx(math.log(2), abs=0.1)  # a new critic says 1/2; the squared error would be 1/4
    Learner(actor=micro_model(), critic=critic, method=chosen, config=LearnerConfig())


def test_normalised_advantages_reach_the_actor():
    target = learner_of(method("reinforce", advantage_normalisation="action_tokens"))
    metrics = one_step(target, batch_of(0))
    assert metrics["advantage/mean"] == pytest.approx(0, abs=1e-6)
    assert metrics["advantage/std"] == pytest.approx(1, abs=0.05)
