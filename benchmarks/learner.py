"""The learner against plain padding, and what SAO's critic costs: `python -m benchmarks.learner`.

One optimiser batch of 64 trajectories with the calculator's lengths (mean 55, 95th percentile 125, longest 226 tokens,
37 % of them sampled), tiny Qwen3 of 0.31M parameters, float32, one thread.
* learner_vs_padded: the actor's update (packing, length-sorted micro-batches, DIS, band metrics, clip, AdamW) against
  the same update as it is usually written: one right-padded batch through the Hugging Face forward with full logits,
  the same loss, clip and AdamW. `_short_tail` is the same with a longest trajectory of 155, where padding wastes less.
* sao_vs_grpo_dis_step: a whole step of `sao` (K = 2, frozen attention) against one of `grpo-dis` on the same tokens.
Contestants alternate, so that a slow minute of the machine hits both; the ratio is of medians.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import torch
from transformers import PreTrainedModel

from soliton.algorithms.build import build_method
from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.learner.config import LearnerConfig
from soliton.learner.learner import Learner
from soliton.learner.packing import pack_items
from soliton.losses import dis_loss
from soliton.models import Critic, new_causal_lm, tiny_qwen3_config
from soliton.reasons import Status
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Role, Times, Trajectory

VOCAB, TRAJECTORIES, GROUP, ROUNDS = 96, 64, 8, 9
OPTIONS = MethodOptions(eps_low=0.8, eps_high=0.28)
CONFIG = LearnerConfig(actor_lr=1e-6, critic_lr=1e-6)


def lengths(longest: int) -> list[int]:
    """Quantiles of the lognormal with mean 55 and 95th percentile 125, the last one replaced by `longest`."""
    sigma = 0.615
    mu = np.log(55) - sigma**2 / 2
    normal = NormalDist(mu, sigma)
    drawn = [round(float(np.exp(normal.inv_cdf((i + 0.5) / TRAJECTORIES)))) for i in range(TRAJECTORIES)]
    return [min(length, longest) for length in drawn[:-1]] + [longest]


def trajectories(longest: int, seed: int) -> list[BatchItem]:
    """A prompt of about a fifth, then turns of 6 sampled and about 8 other tokens, the last one sampled."""
    rng = np.random.default_rng(seed)
    items = []
    for i, length in enumerate(rng.permutation(lengths(longest)).tolist()):
        from_end = np.arange(length)[::-1]
        actions = (from_end % 14 < 6) & (np.arange(length) >= max(1, length // 5))
        trajectory = Trajectory(
            attempt=AttemptId(i // GROUP, i % GROUP),
            prompt_id=f"p{i // GROUP}",
            status=Status.TERMINATED,
            token_ids=rng.integers(1, VOCAB, length),
            roles=np.where(actions, Role.ACTION, Role.OBSERVATION),
            rollout_logprobs=np.where(actions, rng.normal(-np.log(VOCAB), 0.05, length), np.nan),
            versions=np.where(actions, 0, -1),
            reward_positions=[length - 1],
            reward_values=[float(rng.integers(0, 2))],
            times=Times(0.0, 0.0, 1.0),
        )
        items.append(BatchItem(trajectory=trajectory, staleness=0, min_trusted_version=0, queued_s=0.0))
    return items


def learner(name: AlgorithmName) -> Learner:
    method = build_method(name, OPTIONS)
    actor = new_causal_lm(tiny_qwen3_config(VOCAB), seed=0)
    critic = Critic.from_causal_lm(actor) if method.critic else None
    return Learner(actor=actor, critic=critic, method=method, config=CONFIG)


def whole_step(target: Learner, items: list[BatchItem]) -> None:
    target.start_step(items)
    assert target.update_actor()
    target.finish_step()


def sorted_update(target: Learner, items: list[BatchItem], advantage: float = 0.5) -> None:
    batch = pack_items(items, what="benchmark", max_padded_tokens=CONFIG.micro_batch_tokens, device=torch.device("cpu"))
    assert target.actor.update(batch, torch.where(batch.action_mask, advantage, 0.0)).moved


def padded_update(
    model: PreTrainedModel, optimiser: torch.optim.Optimizer, items: Sequence[BatchItem], advantage: float = 0.5
) -> None:
    longest = max(len(item.trajectory.token_ids) for item in items)
    ids = torch.zeros(len(items), longest, dtype=torch.int64)
    real, actions = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    rollout = torch.zeros(len(items), longest)
    for row, item in enumerate(items):
        length = len(item.trajectory.token_ids)
        ids[row, :length] = torch.from_numpy(item.trajectory.token_ids.astype(np.int64))
        real[row, :length] = 1
        actions[row, :length] = torch.from_numpy(item.trajectory.action_mask)
        rollout[row, :length] = torch.from_numpy(item.trajectory.rollout_logprobs.copy())
    logits = model(input_ids=ids, attention_mask=real).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).flatten()
    mask = actions[:, 1:].flatten()
    advantages = torch.full_like(logprobs, advantage).detach()
    dis_loss(
        logprobs, rollout[:, 1:].flatten(), advantages, mask, eps_low=OPTIONS.eps_low, eps_high=OPTIONS.eps_high
    ).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad()


def alternate(contestants: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds of each over `ROUNDS` rounds, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(ROUNDS + 1):
        for name, contestant in contestants.items():
            start = time.perf_counter()
            contestant()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def against_padding(longest: int) -> dict[str, float]:
    items = trajectories(longest, seed=0)
    target, model = learner("grpo-dis"), new_causal_lm(tiny_qwen3_config(VOCAB), seed=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    taken = alternate(
        {"sorted": lambda: sorted_update(target, items), "padded": lambda: padded_update(model, optimiser, items)}
    )
    tokens = sum(len(item.trajectory.token_ids) for item in items)
    return {
        "ratio": taken["padded"] / taken["sorted"],
        "sorted_s": taken["sorted"],
        "padded_s": taken["padded"],
        "sorted_tokens_per_s": tokens / taken["sorted"],
        "padded_tokens_per_s": tokens / taken["padded"],
        "padded_tokens_per_token": TRAJECTORIES * longest / tokens,
    }


def measure() -> dict[str, float]:
    """Two ratios and what they are made of; seconds are medians of 9."""
    torch.set_num_threads(1)
    full, short = against_padding(226), against_padding(155)
    items = trajectories(226, seed=0)
    sao, grpo_dis = learner("sao"), learner("grpo-dis")
    steps = alternate({"sao": lambda: whole_step(sao, items), "grpo_dis": lambda: whole_step(grpo_dis, items)})
    return {
        "learner_vs_padded": full["ratio"],
        "learner_vs_padded_short_tail": short["ratio"],
        "sao_vs_grpo_dis_step": steps["sao"] / steps["grpo_dis"],
        "sao_step_s": steps["sao"],
        "grpo_dis_step_s": steps["grpo_dis"],
        **{f"actor_{name}": number for name, number in full.items() if name != "ratio"},
        **{f"actor_short_tail_{name}": number for name, number in short.items() if name != "ratio"},
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
