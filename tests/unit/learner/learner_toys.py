"""Micro models and random trajectories for the learner's tests."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedModel, Qwen3Config

from soliton.algorithms.build import build_method
from soliton.algorithms.options import MethodOptions
from soliton.learner.config import LearnerConfig
from soliton.learner.critic import head_of
from soliton.learner.learner import Learner
from soliton.learner.method import Method
from soliton.models import new_causal_lm
from soliton.models.critic import Critic
from soliton.reasons import Status, TruncationReason
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Role, Sampling, Times, Trajectory

VOCAB = 20


def micro_model(seed: int = 0, *, tie: bool = True) -> PreTrainedModel:
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=256,
        tie_word_embeddings=tie,
        initializer_range=0.2,
        use_cache=False,
    )
    return new_causal_lm(config, seed)


def trajectory(
    rng: np.random.Generator,
    draw: int = 0,
    *,
    turns: int = 2,
    sample: int = 0,
    reward: float | None = None,
    logprob: float | None = None,
    first_version: int = 0,
    sampling: Sampling | None = None,
    truncated: bool = False,
    prompt_id: str | None = None,
) -> Trajectory:
    """Prompt, then `turns` of an action of 1-4 tokens, each but the last followed by 1-3 observation tokens."""
    roles = [Role.TEMPLATE] + [Role.OBSERVATION] * int(rng.integers(1, 4))
    for turn in range(turns):
        roles += [Role.ACTION] * int(rng.integers(1, 5))
        if turn < turns - 1:
            roles += [Role.OBSERVATION] * int(rng.integers(1, 4))
    actions = np.array(roles) == Role.ACTION
    recorded = rng.normal(-3.0, 0.3, len(roles)) if logprob is None else np.full(len(roles), logprob)
    return Trajectory(
        attempt=AttemptId(draw, sample),
        prompt_id=prompt_id or f"p{draw}",
        status=Status.TRUNCATED if truncated else Status.TERMINATED,
        reason=TruncationReason.TURN_LIMIT.value if truncated else None,
        token_ids=rng.integers(1, VOCAB, len(roles)),
        roles=np.array(roles),
        rollout_logprobs=np.where(actions, np.minimum(recorded, -1e-3), np.nan),
        versions=np.where(actions, first_version + np.cumsum(actions) // 3, -1),
        reward_positions=np.array([len(roles) - 1]),
        reward_values=np.array([float(rng.integers(0, 2)) if reward is None else reward]),
        times=Times(0.0, 0.0, 1.0),
        sampling=sampling or Sampling(),
    )


def item(t: Trajectory, *, staleness: int = 0, min_trusted_version: int = 0) -> BatchItem:
    return BatchItem(trajectory=t, staleness=staleness, min_trusted_version=min_trusted_version, queued_s=0.0)


def batch_of(seed: int, count: int = 6) -> list[BatchItem]:
    rng = np.random.default_rng(seed)
    made = [trajectory(rng, draw, turns=int(rng.integers(1, 5)), reward=float(draw % 2)) for draw in range(count)]
    return [item(t) for t in made]


def method(name: str = "sao", **options: object) -> Method:
    return build_method(name, MethodOptions(**({"eps_low": 0.8, "eps_high": 3.0} | options)))


def learner(chosen: Method | None = None, *, seed: int = 0, tie: bool = True, **settings: object) -> Learner:
    chosen = chosen or method()
    actor = micro_model(seed, tie=tie)
    critic = Critic.from_causal_lm(micro_model(seed, tie=tie), head_of(chosen.critic)) if chosen.critic else None
    config = LearnerConfig(**({"actor_lr": 1e-2, "critic_lr": 1e-2, "micro_batch_tokens": 40} | settings))
    return Learner(actor=actor, critic=critic, method=chosen, config=config)


def one_step(target: Learner, items: list[BatchItem]) -> dict[str, float]:
    target.start_step(items)
    target.update_actor()
    return target.finish_step()


def weights(model: object) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def moved(before: dict[str, np.ndarray], model: object) -> set[str]:
    return {name for name, now in weights(model).items() if not np.array_equal(before[name], now)}
