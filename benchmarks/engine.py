"""Embedded engine against Hugging Face `generate` on multi-turn work: `python -m benchmarks.engine`.

512 requests with the lengths of calculator episodes (played by its noisy expert), tiny Qwen3, one thread.
* engine: 64 in flight over 64 slots, log-probs and Python scheduling included, KV kept across turns.
* generate, its best case: batches of 32, 64 or 128 sorted by prompt length; each turn re-prompts the whole context,
  left padded, finished episodes dropped, no log-probs; the best of the three counts.
Both sample at temperature 1 with forced turn lengths, so both make exactly the same number of tokens. The ratio is of
sampled tokens per second of CPU time (one thread; what else the machine does then counts less); rounds alternate, so
that a slow minute hits both.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from soliton.engines.engine import GenerateRequest
from soliton.engines.local import LocalEngine
from soliton.envs.calculator import demonstration
from soliton.models.load import new_causal_lm
from soliton.models.tiny import tiny_qwen3_config
from soliton.prompts.calculator import CalculatorPrompts
from soliton.types import Sampling

REQUESTS, IN_FLIGHT, VOCAB, ROUNDS = 512, 64, 96, 7
BATCH_SIZES = (32, 64, 128)
NOISE = 0.35


@dataclass(frozen=True)
class Episode:
    """`forced[k]` is fed before turn k (the prompt, then observations), which samples `turn_lengths[k]` tokens."""

    forced: list[list[int]]
    turn_lengths: list[int]

    @property
    def num_sampled(self) -> int:
        return sum(self.turn_lengths)

    @property
    def num_tokens(self) -> int:
        return self.num_sampled + sum(map(len, self.forced))


def calculator_episodes(count: int, seed: int) -> list[Episode]:
    """Episodes with the lengths of noisy demonstrations of the calculator task, one token per character.

    A message costs its text and three tokens of markup (role, end, next role); an action its text and the end token.
    The ids are random: nothing here depends on them.
    """
    rng = np.random.default_rng(seed)
    prompts = CalculatorPrompts(seed)
    episodes = []
    for draw in range(count):
        messages = demonstration(prompts.at(draw), rng, NOISE)
        forced = [len(m.content) + 3 for m in messages if m.role != "assistant"]
        turns = [len(m.content) + 1 for m in messages if m.role == "assistant"]
        episodes.append(Episode([rng.integers(0, VOCAB, size=n).tolist() for n in forced], turns))
    return episodes


async def _play(engine: LocalEngine, name: str, episode: Episode) -> int:
    context: tuple[int, ...] = ()
    sampled = 0
    for forced, length in zip(episode.forced, episode.turn_lengths, strict=True):
        context += tuple(forced)
        completion = await engine.generate(
            GenerateRequest(
                session=name,
                token_ids=context,
                action_start=len(context),
                max_new_tokens=length,
                sampling=Sampling(),
                seed=len(name),
            )
        )
        context += completion.token_ids
        sampled += len(completion.logprobs)
    await engine.release(name)
    return sampled


async def _engine_round(model: PreTrainedModel, episodes: list[Episode]) -> tuple[float, LocalEngine]:
    engine = LocalEngine(model, None, num_slots=IN_FLIGHT, max_context=512, prefill_budget=1024)
    todo = iter(enumerate(episodes))

    async def seat() -> int:
        return sum([await _play(engine, f"episode {i}", episode) for i, episode in todo])

    start = time.process_time()
    seats = [asyncio.ensure_future(seat()) for _ in range(IN_FLIGHT)]
    pump = asyncio.ensure_future(engine.run(_Unused(), 0.0))
    done, _ = await asyncio.wait([asyncio.ensure_future(asyncio.wait(seats)), pump], return_when="FIRST_COMPLETED")
    seconds = time.process_time() - start
    if pump in done:
        pump.result()
    pump.cancel()
    assert sum(seat.result() for seat in seats) == sum(e.num_sampled for e in episodes) == engine.tokens_sampled
    return seconds, engine


class _Unused:
    """A clock for ticks that take no time of it."""

    def now(self) -> float:
        raise AssertionError

    async def sleep_until(self, when: float) -> None:
        raise AssertionError(when)


def engine_seconds(model: PreTrainedModel, episodes: list[Episode]) -> float:
    """CPU seconds (one thread) for all episodes."""
    return asyncio.run(_engine_round(model, episodes))[0]


@torch.inference_mode()
def generate_seconds(model: PreTrainedModel, episodes: list[Episode], batch_size: int) -> float:
    """CPU seconds (one thread) for all episodes with `generate`."""
    ordered = sorted(episodes, key=lambda e: len(e.forced[0]))
    start = time.process_time()
    for first in range(0, len(ordered), batch_size):
        batch = ordered[first : first + batch_size]
        contexts: list[list[int]] = [[] for _ in batch]
        for turn in range(max(len(e.turn_lengths) for e in batch)):
            alive = [i for i, e in enumerate(batch) if turn < len(e.turn_lengths)]
            for i in alive:
                contexts[i] = contexts[i] + batch[i].forced[turn]
            longest = max(len(contexts[i]) for i in alive)
            ids = torch.tensor([[0] * (longest - len(contexts[i])) + contexts[i] for i in alive])
            lengths = torch.tensor([len(contexts[i]) for i in alive])
            mask = (torch.arange(longest) >= longest - lengths[:, None]).long()
            new = max(batch[i].turn_lengths[turn] for i in alive)
            out = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=new,
                eos_token_id=None,
                pad_token_id=0,
                use_cache=True,
            )[:, longest:].tolist()
            for i, tokens in zip(alive, out, strict=True):
                contexts[i] += tokens[: batch[i].turn_lengths[turn]]
        assert [len(c) for c in contexts] == [e.num_tokens for e in batch]
    return time.process_time() - start


def measure() -> dict[str, float]:
    """`engine_vs_generate` and what stands behind it; one thread, median of the rounds."""
    torch.set_num_threads(1)
    model = new_causal_lm(tiny_qwen3_config(VOCAB), seed=0)
    episodes = calculator_episodes(REQUESTS, seed=0)
    engine_seconds(model, episodes[:64])
    generate_seconds(model, episodes[:64], 64)
    sampled = sum(e.num_sampled for e in episodes)
    rates: dict[str, list[float]] = {"engine": [], **{f"generate_{size}": [] for size in BATCH_SIZES}}
    for _ in range(ROUNDS):
        rates["engine"].append(sampled / engine_seconds(model, episodes))
        for size in BATCH_SIZES:
            rates[f"generate_{size}"].append(sampled / generate_seconds(model, episodes, size))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    best = max(value for name, value in medians.items() if name != "engine")
    tokens = np.array([e.num_tokens for e in episodes])
    return {
        "engine_vs_generate": medians["engine"] / best,
        **{f"{name}_sampled_tokens_per_s": value for name, value in medians.items()},
        "mean_tokens": float(tokens.mean()),
        "p95_tokens": float(np.percentile(tokens, 95)),
        "max_tokens": float(tokens.max()),
        "sampled_share": sampled / float(tokens.sum()),
        "mean_turns": float(np.mean([len(e.turn_lengths) for e in episodes])),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
