"""What the engine tests share: models, a way to drive an engine tick by tick, and the slow reference."""

from __future__ import annotations

import asyncio
import functools

import numpy as np
import torch
from transformers import GPT2Config, LlamaConfig

from soliton.engines.engine import Completion, GenerateRequest
from soliton.engines.local import LocalEngine
from soliton.models.load import new_causal_lm
from soliton.models.tiny import tiny_qwen3_config, tiny_qwen3_moe_config
from soliton.types import Sampling

VOCAB = 50
PLAIN = Sampling()


class Letters:
    """Token i is the letter i of the alphabet, over and over."""

    def decode(self, token_ids, *, skip_special_tokens=False):
        return "".join(chr(ord("a") + token % 26) for token in token_ids)


@functools.cache
def tiny_model(kind="dense", tie=True, seed=0, vocab=VOCAB):
    if kind == "llama":
        config = LlamaConfig(
            vocab_size=vocab,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            tie_word_embeddings=tie,
            max_position_embeddings=512,
            initializer_range=0.1,
        )
    elif kind == "gpt2":  # learnt positions, heads in a fused Conv1D, layers under another name
        config = GPT2Config(
            vocab_size=vocab,
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=256,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            bos_token_id=0,
            eos_token_id=0,
            initializer_range=0.2,
        )
    else:
        config = {"dense": tiny_qwen3_config, "moe": tiny_qwen3_moe_config}[kind](vocab, tie=tie)
        config.initializer_range = 0.1
    return new_causal_lm(config, seed)


def engine_of(model=None, tokenizer=None, **options) -> LocalEngine:
    return LocalEngine(
        model or tiny_model(), tokenizer, **{"num_slots": 4, "max_context": 256, "prefill_budget": 16} | options
    )


def request(session="s", ids=(1, 2, 3), new=8, **fields) -> GenerateRequest:
    fields = {"action_start": len(ids), "seed": 7, "sampling": Sampling()} | fields
    return GenerateRequest(session=session, token_ids=tuple(ids), max_new_tokens=new, **fields)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def drive(engine, *coroutines):
    """Tick until every coroutine has ended; the list of their results."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    await settle()
    while not all(task.done() for task in tasks):
        assert engine.step() or all(task.done() for task in tasks), "nobody can move"
        await settle()
    return [task.result() for task in tasks]


def play(engine, *requests) -> list[Completion]:
    async def main():
        return await drive(engine, *(engine.generate(r) for r in requests))

    return asyncio.run(main())


async def episode(engine, name, prompt, turns, sampling=PLAIN, seed=0):
    """A session of several turns: [(new tokens, observation that follows)]; returns context, positions, log-probs."""
    context, positions, logprobs = tuple(prompt), [], []
    for new, observation in turns:
        done = await engine.generate(request(name, context, new, sampling=sampling, seed=seed))
        positions += range(len(context), len(context) + len(done.token_ids))
        logprobs += done.logprobs
        context += done.token_ids + tuple(observation)
    return context, positions, logprobs


@torch.no_grad()
def reference_logprobs(model, context, positions, sampling=PLAIN) -> np.ndarray:
    """Full forward of the untouched model, then the sampling distribution in float64, written out slowly."""
    logits = model(torch.tensor([context])).logits[0].double().numpy()
    return np.array([np.log(slow_distribution(logits[p - 1], sampling)[context[p]]) for p in positions])


def slow_distribution(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    scaled = logits / sampling.temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    order = sorted(range(len(probs)), key=lambda i: -probs[i])
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        total, kept, mass = sum(probs[i] for i in order), [], 0.0
        for i in order:
            if kept and mass >= sampling.top_p:
                break
            kept.append(i)
            mass += probs[i] / total
        order = kept
    out = np.zeros_like(probs)
    out[order] = probs[order]
    return out / out.sum()


def assert_parity(ours, reference) -> None:
    """Engine and learner agree: mean <= 1e-5, max <= 1e-3 (DESIGN section 3)."""
    gap = np.abs(np.asarray(ours) - np.asarray(reference))
    assert len(gap)
    assert gap.mean() <= 1e-5, gap.mean()
    assert gap.max() <= 1e-3, gap.max()
