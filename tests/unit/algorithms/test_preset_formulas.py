"""Every preset's gradients equal those of its formula, written out per token in the plainest torch.

Nothing here comes from the library's losses, advantages or packing: only models, trajectories and the numbers of the
papers. The data are stale, with ratios on both sides of every bound under advantages of both signs.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from torch import Tensor

from soliton.algorithms.build import PRESETS
from soliton.algorithms.traits import TRAITS
from soliton.learner.learner import Learner
from soliton.reasons import Status
from soliton.types import AttemptId, Role, Sampling, Times, Trajectory
from tests.unit.learner.learner_toys import VOCAB, item, learner, method, micro_model, one_step

GAMMA, CRITIC_LAMBDA, PRIOR = 0.95, 0.9, 0.3
BAND = (0.7, 1.4)
CLIPS = {"gspo": (0.05, 0.08), "dcpo": (0.002, 0.02), "bpco": (0.01, 0.015)}
"""Bounds that these ratios reach. All others: those of clip-higher."""


def clips(name: str) -> tuple[float, float]:
    return CLIPS.get(name, (0.2, 0.28))


# --- trajectories: p is a token of the prompt, a an action token, o an observation

SHAPES = ["ppaaaooaa", "paoaa", "ppaa", "paooaoa"]
REWARDS = [{5: 0.25, 8: 0.5}, {4: 0.0}, {3: 1.0}, {2: 0.25, 6: 0.0}]
"""By position: one on an observation, which belongs to the action before it."""


def trajectories(policy: torch.nn.Module) -> list[Trajectory]:
    rng = np.random.default_rng(3)
    made = []
    for i, (shape, rewards) in enumerate(zip(SHAPES, REWARDS, strict=True)):
        ids = rng.integers(1, VOCAB, len(shape))
        actions = np.array([letter == "a" for letter in shape])
        with torch.no_grad():
            now = logprobs_of(policy, torch.from_numpy(ids), actions).numpy()
        recorded = np.full(len(shape), np.nan, dtype=np.float32)
        recorded[actions] = now + np.resize([0.1, 0.6, -0.5, -0.15, -0.05, 0.28], actions.sum())
        roles = [{"p": Role.TEMPLATE, "a": Role.ACTION, "o": Role.OBSERVATION}[letter] for letter in shape]
        made.append(
            Trajectory(
                attempt=AttemptId(i // 2, i % 2),  # two groups of two
                prompt_id=f"p{i // 2}",
                status=Status.TERMINATED,
                token_ids=ids,
                roles=np.array(roles),
                rollout_logprobs=recorded,
                versions=np.where(actions, 0, -1),
                reward_positions=np.array(list(rewards)),
                reward_values=np.array(list(rewards.values())),
                times=Times(0.0, 0.0, 1.0),
                sampling=Sampling(),
            )
        )
    return made


def logprobs_of(policy: torch.nn.Module, ids: Tensor, actions: np.ndarray) -> Tensor:
    logits = policy(input_ids=ids[None]).logits[0]
    return torch.stack([logits[t - 1].log_softmax(-1)[ids[t]] for t in range(len(ids)) if actions[t]])


@dataclass
class Slow:
    """One trajectory: what its formulas speak of, by action token, and every token from the first action on."""

    logprobs: Tensor
    mu: list[float]
    rewards: list[float]
    turns: list[int]
    draw: int
    everything: list[tuple[bool, float, Tensor | None]]
    """Whether it is an action token, the reward on it, V before it."""

    @property
    def values(self) -> list[float]:
        return [v.item() for is_action, _, v in self.everything if is_action and v is not None]

    @property
    def with_gradient(self) -> list[Tensor]:
        return [v for is_action, _, v in self.everything if is_action and v is not None]

    @property
    def total(self) -> float:
        return sum(self.rewards)

    @property
    def length(self) -> int:
        return len(self.mu)


def slow(t: Trajectory, policy: torch.nn.Module, critic: torch.nn.Module | None) -> Slow:
    ids, actions = torch.from_numpy(t.token_ids.astype(np.int64)), t.action_mask
    earned = dict(zip(t.reward_positions.tolist(), t.reward_values.tolist(), strict=True))
    values = critic.values(ids[None])[0] if critic is not None else None
    rewards: list[float] = []
    turns: list[int] = []
    everything: list[tuple[bool, float, Tensor | None]] = []
    for k in range(len(ids)):
        if actions[k]:
            turns.append(turns[-1] if turns and actions[k - 1] else (turns[-1] + 1 if turns else 0))
            rewards.append(0.0)
        if rewards:
            rewards[-1] += earned.get(k, 0.0)
            everything.append((bool(actions[k]), earned.get(k, 0.0), None if values is None else values[k - 1]))
    mu = t.rollout_logprobs[actions].tolist()
    return Slow(logprobs_of(policy, ids, actions), mu, rewards, turns, t.attempt.draw, everything)


# --- advantages and critic targets


def gae(values: list[float], rewards: list[float], lam: float) -> list[float]:
    """A_k = delta_k + gamma lam A_{k+1}, delta_k = r_k + gamma V_{k+1} - V_k, and 0 after the end."""
    found: list[float] = []
    for k in reversed(range(len(values))):
        following = values[k + 1] if k + 1 < len(values) else 0.0
        found.insert(0, rewards[k] + GAMMA * following - values[k] + GAMMA * lam * (found[0] if found else 0.0))
    return found


def adaptive(alpha: float, length: int) -> float:
    return max(0.0, 1 - 1 / (alpha * length))


def token_gae(lam: Callable[[Slow], float]) -> Callable[[Slow], list[float]]:
    return lambda s: gae(s.values, s.rewards, lam(s))


def through_observations(s: Slow) -> list[float]:
    values, rewards = [v.item() for _, _, v in s.everything if v is not None], [r for _, r, _ in s.everything]
    found = gae(values, rewards, adaptive(1.5, s.length))
    return [a for a, (is_action, _, _) in zip(found, s.everything, strict=True) if is_action]


def of_turns(s: Slow, value: Callable[[list[float]], float], lam: float | None = None) -> tuple[list[float], ...]:
    """Advantage and return of the turn of each token."""
    count = s.turns[-1] + 1
    values = [value([v for v, turn in zip(s.values, s.turns, strict=True) if turn == i]) for i in range(count)]
    rewards = [sum(r for r, turn in zip(s.rewards, s.turns, strict=True) if turn == i) for i in range(count)]
    found = gae(values, rewards, adaptive(1.5, count) if lam is None else lam)
    return [found[turn] for turn in s.turns], [found[turn] + values[turn] for turn in s.turns]


def last(values: list[float]) -> float:
    return values[-1]


def v_trace(s: Slow) -> tuple[list[float], list[float]]:
    """v_k = V_k + rho_k delta_k + gamma c_k (v_{k+1} - V_{k+1}), A_k = rho_k (r_k + gamma v_{k+1} - V_k)."""
    targets, advantages = [0.0] * (s.length + 1), [0.0] * s.length
    values = [*s.values, 0.0]
    for k in reversed(range(s.length)):
        ratio = math.exp(s.logprobs[k].item() - s.mu[k])
        rho, c = min(1.0, ratio), CRITIC_LAMBDA * min(1.0, ratio)
        delta = s.rewards[k] + GAMMA * values[k + 1] - values[k]
        targets[k] = values[k] + rho * delta + GAMMA * c * (targets[k + 1] - values[k + 1])
        advantages[k] = rho * (s.rewards[k] + GAMMA * targets[k + 1] - values[k])
    return targets[:-1], advantages


def lambda_returns(s: Slow) -> list[float]:
    return [a + v for a, v in zip(gae(s.values, s.rewards, CRITIC_LAMBDA), s.values, strict=True)]


def discounted(s: Slow) -> list[float]:
    return gae([0.0] * s.length, s.rewards, 1.0)


def of_groups(batch: list[Slow], scale: Callable[[list[float], float], float]) -> list[list[float]]:
    """One number per trajectory from the rewards of its group and its own."""
    groups = {s.draw: [other.total for other in batch if other.draw == s.draw] for s in batch}
    return [[scale(groups[s.draw], s.total)] * s.length for s in batch]


def normalised(group: list[float], own: float) -> float:
    return (own - fmean(group)) / (stdev(group) + 1e-6)


def against_the_others(group: list[float], own: float) -> float:
    return own - (sum(group) - own) / (len(group) - 1)


def above_the_prior(batch: list[Slow], normalise: bool) -> list[list[float]]:
    gaps = [s.total - PRIOR for s in batch]
    return [[normalised(gaps, gap) if normalise else gap] * s.length for gap, s in zip(gaps, batch, strict=True)]


Advantages = Callable[[list[Slow]], list[list[float]]]


def each(formula: Callable[[Slow], list[float]]) -> Advantages:
    return lambda batch: [formula(s) for s in batch]


ADAPTIVE = each(token_gae(lambda s: adaptive(1.5, s.length)))
FIXED = each(token_gae(lambda s: 0.95))
GROUPS: Advantages = lambda batch: of_groups(batch, normalised)  # noqa: E731
ADVANTAGES: dict[str, Advantages] = {
    **dict.fromkeys(["sao", "sao-k1", "sao-full-critic", "sao-post-fit", "sao-dis-only", "vapo"], ADAPTIVE),
    **dict.fromkeys(["grpo", "grpo-dis", "decoupled-ppo", "icepop", "gspo", "dcpo"], GROUPS),
    "sao-step-average": each(lambda s: of_turns(s, fmean)[0]),
    "sao-step-last": each(lambda s: of_turns(s, last)[0]),
    "sao-no-skip": each(through_observations),
    "ppo": FIXED,
    "sp3o": FIXED,
    "bpco": each(token_gae(lambda s: adaptive(0.4, s.length))),
    "pact": each(token_gae(lambda s: 1.0)),
    "rloo": lambda batch: of_groups(batch, against_the_others),
    "reinforce": each(discounted),
    "vtrace": each(lambda s: v_trace(s)[1]),
    "running-mean": lambda batch: above_the_prior(batch, normalise=False),
    "spo": lambda batch: above_the_prior(batch, normalise=True),
}
TARGETS: dict[str, Callable[[Slow], list[float]]] = {
    "sao-step-average": lambda s: of_turns(s, fmean, CRITIC_LAMBDA)[1],
    "sao-step-last": lambda s: of_turns(s, last, CRITIC_LAMBDA)[1],
    "vtrace": lambda s: v_trace(s)[0],
    "pact": lambda s: v_trace(s)[0],
}
"""Of the critic, where they are not the lambda-returns."""


# --- actor losses of one token: log pi with gradient, log mu, A

Loss = Callable[[Tensor, float, float], Tensor]


def dis(logprob: Tensor, mu: float, advantage: float) -> Tensor:
    ratio = math.exp(logprob.item() - mu)
    return -(ratio if BAND[0] < ratio < BAND[1] else 0.0) * advantage * logprob


def reinforce(logprob: Tensor, mu: float, advantage: float) -> Tensor:
    return -advantage * logprob


def clipped(ratio: Tensor, advantage: float, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def clip_against_the_sampler(low: float, high: float) -> Loss:
    return lambda logprob, mu, advantage: clipped((logprob - mu).exp(), advantage, 1 - low, 1 + high)


def clip_against_the_latest(low: float, high: float) -> Loss:
    return lambda logprob, mu, a: clipped((logprob - logprob.detach()).exp(), a, 1 - low, 1 + high)


def weighted(weight_low: float, low: float, high: float) -> Loss:
    """AReaL and IcePop: the clip against the latest policy, times pi_latest / mu within bounds."""

    def loss(logprob: Tensor, mu: float, advantage: float) -> Tensor:
        weight = math.exp(logprob.item() - mu)
        kept = weight if weight_low <= weight <= BAND[1] else 0.0
        return kept * clip_against_the_latest(low, high)(logprob, mu, advantage)

    return loss


def dynamic(low: float, high: float) -> Loss:
    """DCPO."""

    def loss(logprob: Tensor, mu: float, advantage: float) -> Tensor:
        q = math.exp(mu)
        lower = 0.5 + 0.5 * math.sqrt(max(0.0, 1 - 4 * low / q))
        upper = min(10.0, 0.5 + 0.5 * math.sqrt(1 + 4 * high / q))
        return clipped((logprob - mu).exp(), advantage, lower, upper)

    return loss


def bounded_move(low: float, high: float) -> Loss:
    """BPCO: the probability moves by at most so much."""
    return lambda logprob, mu, advantage: clipped(
        (logprob - mu).exp(), advantage, max(0.0, 1 - low / math.exp(mu)), 1 + high / math.exp(mu)
    )


def token_loss(name: str) -> Loss:
    low, high = clips(name)
    return {
        "grpo": clip_against_the_latest(low, high),
        "vapo": clip_against_the_latest(low, high),
        "ppo": clip_against_the_sampler(low, high),
        "sp3o": clip_against_the_sampler(low, high),
        "spo": clip_against_the_sampler(low, high),
        "decoupled-ppo": weighted(0.0, low, high),
        "icepop": weighted(BAND[0], low, high),
        "dcpo": dynamic(low, high),
        "bpco": bounded_move(low, high),
        "rloo": reinforce,
        "reinforce": reinforce,
        "vtrace": reinforce,
    }.get(name, dis)


def actor_loss(name: str, batch: list[Slow], advantages: list[list[float]]) -> Tensor:
    loss = torch.zeros(())
    for s, own in zip(batch, advantages, strict=True):
        if name == "gspo":  # one ratio per trajectory, mean over trajectories
            low, high = clips(name)
            ratio = torch.stack([p - mu for p, mu in zip(s.logprobs, s.mu, strict=True)]).mean().exp()
            loss = loss + clipped(ratio, own[0], 1 - low, 1 + high) / len(batch)
            continue
        for logprob, mu, advantage in zip(s.logprobs, s.mu, own, strict=True):
            loss = loss + token_loss(name)(logprob, mu, advantage) / sum(other.length for other in batch)
    return loss


# --- critic losses


def valued(name: str, s: Slow) -> list[int]:
    """The action tokens that the critic learns on."""
    if name == "sao-step-last":
        return [k for k in range(s.length) if k + 1 == s.length or s.turns[k + 1] != s.turns[k]]
    if name == "sp3o":
        return sorted({math.floor((j + 0.5) * s.length / 3) for j in range(3)})
    return list(range(s.length))


def critic_loss(name: str, batch: list[Slow]) -> Tensor:
    terms: list[Tensor] = []
    for s in batch:
        targets = TARGETS.get(name, lambda_returns)(s)
        for k in valued(name, s):
            value, target = s.with_gradient[k], targets[k]
            cross_entropy = -(target * value.log() + (1 - target) * (1 - value).log()) if name == "pact" else None
            terms.append((value - target).square() if cross_entropy is None else cross_entropy)
    return torch.stack(terms).mean()


# --- the comparison


def options(name: str) -> dict[str, object]:
    chosen: dict[str, object] = {"eps_low": 1 - BAND[0], "eps_high": BAND[1] - 1, "gamma": GAMMA}
    chosen |= {"critic_lambda": CRITIC_LAMBDA, "baseline_prior": PRIOR}
    if "clip_low" in TRAITS[name].reads:
        chosen |= dict(zip(("clip_low", "clip_high"), clips(name), strict=True))
    return chosen | ({"group_size": 2} if TRAITS[name].compares else {})


def gradients_seen(trainer: object) -> list[dict[str, Tensor]]:
    """The gradient that each optimiser step is given, before the clip."""
    seen: list[dict[str, Tensor]] = []
    optimiser = trainer.optimiser
    original = optimiser.step

    def step(scene: object) -> float:
        seen.append({n: p.grad.clone() for n, p in optimiser.parameters.items() if p.grad is not None})
        return original(scene)

    optimiser.step = step
    return seen


def with_values(target: Learner) -> Learner:
    """A critic whose values are not all the same."""
    if target.critic is not None:
        with torch.no_grad():
            target.critic.model.value_head.weight.normal_(generator=torch.Generator().manual_seed(5))
    return target


def assert_same(found: dict[str, Tensor], model: torch.nn.Module) -> None:
    expected = {name: parameter.grad for name, parameter in model.named_parameters() if name in found}
    assert any(bool(gradient.any()) for gradient in expected.values() if gradient is not None)
    for name, gradient in expected.items():
        there = torch.zeros_like(found[name]) if gradient is None else gradient
        torch.testing.assert_close(found[name], there, rtol=1e-4, atol=2e-6, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_gradients_of_a_preset_are_those_of_its_formula(name: str):
    target = with_values(learner(method(name, **options(name))))
    policy = micro_model(0)
    critic = copy.deepcopy(target.critic.model) if target.critic is not None else None
    data = trajectories(policy)
    of_actor = gradients_seen(target.actor)
    of_critic = gradients_seen(target.critic) if target.critic is not None else []
    one_step(target, [item(t) for t in data])

    before = [slow(t, policy, critic) for t in data]
    judged = before
    if name == "sao-post-fit":
        assert target.critic is not None
        judged = [slow(t, policy, target.critic.model) for t in data]  # after the last fit
    actor_loss(name, before, ADVANTAGES[name](judged)).backward()
    assert len(of_actor) == 1
    assert_same(of_actor[0], policy)
    if critic is not None:
        critic_loss(name, before).backward()
        assert_same(of_critic[0], critic)


def test_the_data_reach_both_sides_of_the_band_under_both_signs():
    """Otherwise the comparison above would not see a bound."""
    policy = micro_model(0)
    batch = [slow(t, policy, None) for t in trajectories(policy)]
    for formula in (GROUPS, ADVANTAGES["rloo"]):
        sides = {
            (advantage > 0, ratio < BAND[0], ratio > BAND[1])
            for s, own in zip(batch, formula(batch), strict=True)
            for ratio, advantage in ratios(s, own)
        }
        assert sides == {(sign, low, high) for sign in (True, False) for low, high in ((0, 0), (1, 0), (0, 1))}


def ratios(s: Slow, advantages: list[float]) -> Iterator[tuple[float, float]]:
    for logprob, mu, advantage in zip(s.logprobs.tolist(), s.mu, advantages, strict=True):
        yield math.exp(logprob - mu), advantage


# --- limiting cases, of whole methods


def one_step_gradient(name: str, data: list[Trajectory], **changes: object) -> dict[str, Tensor]:
    target = with_values(learner(method(name, **(options(name) | changes))))
    seen = gradients_seen(target.actor)
    one_step(target, [item(t) for t in data])
    return seen[0]


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert any(bool(gradient.any()) for gradient in one.values())
    for name, gradient in one.items():
        torch.testing.assert_close(gradient, other[name], rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("name", ["sao-step-average", "sao-step-last"])
def test_with_turns_of_one_token_the_step_variants_are_sao(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "SHAPES", ["paoaoa", "paoa", "ppa", "paooaoa"])
    monkeypatch.setitem(globals(), "REWARDS", [{2: 0.25, 5: 0.5}, {3: 0.0}, {2: 1.0}, {6: 0.25}])
    data = trajectories(micro_model(0))
    close(one_step_gradient(name, data), one_step_gradient("sao", data))


def test_with_trajectories_of_one_token_gspo_is_the_clip_of_ppo(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(globals(), "SHAPES", ["pa", "ppa", "pppa", "pa"])
    monkeypatch.setitem(globals(), "REWARDS", [{1: 0.0}, {2: 1.0}, {3: 0.5}, {1: 0.25}])
    policy = micro_model(0)
    data = trajectories(policy)
    found = one_step_gradient("gspo", data, clip_low=0.2, clip_high=0.28)
    batch = [slow(t, policy, None) for t in data]
    loss = clip_against_the_sampler(0.2, 0.28)
    total = torch.zeros(())
    for s, own in zip(batch, GROUPS(batch), strict=True):
        total = total + loss(s.logprobs[0], s.mu[0], own[0]) / len(batch)
    total.backward()
    assert_same(found, policy)


def test_on_policy_every_method_with_a_critic_is_advantage_actor_critic(monkeypatch: pytest.MonkeyPatch):
    """At ratio 1 the losses of sao, vapo, ppo and vtrace are one; at lambda 1 so are their advantages."""
    policy = micro_model(0)
    data = []
    for t in trajectories(policy):
        recorded = np.full(len(t.token_ids), np.nan, dtype=np.float32)
        with torch.no_grad():
            recorded[t.action_mask] = logprobs_of(policy, torch.from_numpy(t.token_ids.astype(np.int64)), t.action_mask)
        fields = {field: getattr(t, field) for field in t.__struct_fields__} | {"rollout_logprobs": recorded}
        data.append(Trajectory(**fields))
    lam = {"policy_lambda": 1.0, "critic_lambda": 1.0}
    sao = one_step_gradient("sao", data, **lam)
    for name in ("vapo", "ppo", "vtrace"):
        close(sao, one_step_gradient(name, data, **lam))
    target = with_values(learner(method("sao")))
    assert target.critic is not None
    batch = [slow(t, policy, target.critic.model) for t in data]
    total = sum(s.length for s in batch)
    loss = torch.zeros(())
    for s in batch:
        for logprob, advantage in zip(s.logprobs, gae(s.values, s.rewards, 1.0), strict=True):
            loss = loss - advantage * logprob / total
    loss.backward()
    assert_same(sao, policy)


def test_every_preset_has_its_formula_here():
    assert set(PRESETS) <= set(ADVANTAGES)
