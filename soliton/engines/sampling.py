"""Drawing tokens: temperature, top-k, top-p, inverse CDF with one uniform per token.

Owns: the uniform stream and the distribution that is sampled from. Does not know: sessions, slots, stop conditions.

Guarantees: the uniform of a token is a pure function of (seed, context index), so neither the batch nor an interruption
changes it; the log-prob returned is of the distribution sampled from; a token of probability 0 is never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BLOCK = 512
"""Words per block of the two-level CDF: one cumulative sum over 150k words costs 3x two short ones."""


@dataclass(frozen=True)
class SamplingRows:
    """Sampling parameters of R rows (`soliton.types.Sampling`, one row per token to draw).

    Attributes:
        temperature: float32 [R], >= 0; 0 is greedy.
        top_k: int64 [R], 0 keeps everything.
        top_p: float32 [R] in (0, 1], 1 keeps everything.
        uniform: float64 [R] in [0, 1).
    """

    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float32]
    uniform: NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """One token per row; `token_ids` and `logprobs` mean nothing where `finite` is False."""

    token_ids: list[int]
    logprobs: list[float]
    finite: list[bool]


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Hash (seed, context index) to [0, 1): splitmix64 of the seed, then of seed + index (Steele et al. 2014).

    Shapes: two arrays [R] -> float64 [R] with 53 random bits.
    """
    counter = _mix(seeds + _GOLDEN) + (indices.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    return (_mix(counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(logits: Tensor, rows: SamplingRows) -> Draws:
    """Draw one token per row of `logits` [R, V] (any float dtype; computed in float32).

    Order: temperature, top-k, top-p of what is left. Greedy rows (temperature 0) have log-prob 0.0.
    Rows with a non-finite logit are not drawn and say so in `finite`.
    """
    logits = logits.float()
    finite = (logits * 0).sum(-1) == 0  # infinity times 0 is NaN, and NaN equals nothing
    greedy = rows.temperature == 0
    scaled = logits
    if (rows.temperature != 1).any():
        divisor = np.where(greedy, np.float32(1), rows.temperature)
        # Shifted first: a tiny temperature then gives -inf (probability 0), never inf or NaN.
        scaled = (logits - logits.amax(-1, keepdim=True)) / torch.from_numpy(divisor).to(logits.device)[:, None]
    restricted = np.flatnonzero((rows.top_k > 0) | (rows.top_p < 1))
    if len(restricted):
        index = torch.from_numpy(restricted).to(logits.device)
        top_k = torch.from_numpy(rows.top_k[restricted]).to(logits.device)
        top_p = torch.from_numpy(rows.top_p[restricted]).to(logits.device)
        scaled = scaled.index_copy(0, index, _restrict(scaled[index], top_k, top_p))
    logprobs = torch.log_softmax(scaled, -1)
    # Below 1 - 2**-52 the product with the total mass cannot round up to the total.
    uniform = torch.from_numpy(np.minimum(rows.uniform, 1 - 2.0**-52)).to(logits.device)
    tokens = _inverse_cdf(logprobs.exp(), uniform)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0].clamp_(max=0.0)
    if greedy.any():
        is_greedy = torch.from_numpy(greedy).to(logits.device)
        tokens = torch.where(is_greedy, logits.argmax(-1), tokens)
        chosen.masked_fill_(is_greedy, 0.0)
    return Draws(token_ids=tokens.tolist(), logprobs=chosen.tolist(), finite=finite.tolist())


def _restrict(scaled: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Set everything outside the top k, then outside the nucleus of the rest, to -inf."""
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(scaled.shape[-1], device=scaled.device)
    outside_k = (top_k > 0)[:, None] & (rank >= top_k[:, None])
    probs = torch.softmax(ordered.masked_fill(outside_k, -torch.inf), -1)
    mass_before = probs.cumsum(-1) - probs
    outside_p = (top_p < 1)[:, None] & (mass_before >= top_p[:, None]) & (rank > 0)
    dropped = torch.zeros_like(outside_k).scatter_(1, order, outside_k | outside_p)
    return scaled.masked_fill(dropped, -torch.inf)


def _inverse_cdf(probs: Tensor, uniform: Tensor) -> Tensor:
    """Index of the first token whose cumulative probability exceeds the uniform's share of the total mass.

    The sums are float64 of float32 weights, so they grow exactly where a weight is > 0. A large vocabulary is searched
    in two levels, a block of words, then a word in it. Shapes: [R, V], [R] -> int64 [R], in range even for NaN rows.
    """
    num_rows, vocab = probs.shape
    if vocab <= 2 * _BLOCK:
        cdf = probs.cumsum(-1, dtype=torch.float64)
        return _first_above(cdf, uniform * cdf[:, -1])
    blocks = torch.nn.functional.pad(probs, (0, -vocab % _BLOCK)).view(num_rows, -1, _BLOCK)
    cdf = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniform * cdf[:, -1]
    block = _first_above(cdf, target)
    row = torch.arange(num_rows, device=probs.device)
    target -= torch.where(block > 0, cdf[row, block - 1], 0.0)
    words = blocks[row, block].cumsum(-1, dtype=torch.float64)
    # Summed in another order, the block's total may differ by a rounding: keep the target below it.
    target = torch.minimum(target, torch.nextafter(words[:, -1], torch.zeros_like(target)))
    return (block * _BLOCK + _first_above(words, target)).clamp_(max=vocab - 1)


def _first_above(cdf: Tensor, target: Tensor) -> Tensor:
    """First index where `cdf` exceeds `target` >= 0; it has a positive weight, as the sum grows there."""
    return torch.searchsorted(cdf, target[:, None], right=True)[:, 0].clamp_(max=cdf.shape[-1] - 1)
