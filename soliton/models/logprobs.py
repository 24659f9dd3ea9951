"""Log-probabilities and entropies of tokens, in chunks over the vocabulary projection.

The logits of T tokens over V words are never alive at once: forward and backward each walk through the tokens in
chunks of at most `CHUNK_ELEMENTS` logits, and the backward pass recomputes them. At 151,936 words this needs about 4 %
of the memory of full logits for 1.2-1.4 times the time; at 96 words everything is one chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_ELEMENTS = 8 * 1024 * 1024
"""Logits alive at a time (32 MiB in float32): 55 tokens at 151,936 words."""


def token_logprobs(
    hidden: Tensor, lm_head_weight: Tensor, labels: Tensor, temperatures: Tensor, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each label, and the entropy of the distribution it stands in.

        logits_n = hidden_n W^T / T_n,    logprob_n = logits_n[label_n] - logsumexp(logits_n),
        entropy_n = -sum_v p_v log p_v    (from shifted logits)

    The temperature divides the logits before the softmax: the result is of the distribution that was sampled from
    (fault C3). Gradients of `hidden` and `lm_head_weight` equal those of the full computation.

    Args:
        hidden: [N, H], output at the position before each label (`soliton.models.shift`).
        lm_head_weight: [V, H], same dtype as `hidden`.
        labels: int64 [N], in [0, V).
        temperatures: float [N], > 0; what each token was sampled with.
        entropy_gradient: whether the entropies carry a gradient, too; the backward pass then holds a second array of
            logits.

    Returns:
        Log-probs and entropies in nats, [N] each, float32 (float64 for float64 inputs).

    Raises:
        ValueError: lengths or widths that differ (`gather` would silently take wrong rows: fault B14), a label outside
            the vocabulary, a temperature that is not a finite number > 0.
    """
    _check(hidden, lm_head_weight, labels, temperatures)
    chunked: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLogprobs.apply
    return chunked(hidden, lm_head_weight, labels, temperatures, entropy_gradient)


def _check(hidden: Tensor, weight: Tensor, labels: Tensor, temperatures: Tensor) -> None:
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            f"hidden must be [N, H] and lm_head_weight [V, H], got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    for name, tensor in (("labels", labels), ("temperatures", temperatures)):
        if tensor.shape != hidden.shape[:1]:
            raise ValueError(
                f"{name} must have one entry per row of hidden [{len(hidden)}], got shape {tuple(tensor.shape)}"
            )
    if labels.dtype != torch.int64:
        raise ValueError(f"labels must be int64, got {labels.dtype}")
    if bad := _first(labels, (labels < 0) | (labels >= len(weight))):
        raise ValueError(f"labels must be in [0, {len(weight)}), got {bad}")
    if bad := _first(temperatures, ~((temperatures > 0) & torch.isfinite(temperatures))):
        raise ValueError(f"temperatures must be finite and > 0 (greedy tokens have no log-prob to train on), got {bad}")


def _first(values: Tensor, bad: Tensor) -> str:
    if not bool(bad.any()):
        return ""
    index = int(bad.nonzero()[0])
    return f"{values[index].item()} at index {index}"


class _ChunkedLogprobs(torch.autograd.Function):
    """Saves one number per token (the log-normaliser) instead of V."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, temperatures: Tensor, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        logprobs = torch.empty(len(hidden), dtype=dtype, device=hidden.device)
        entropies, normalisers = torch.empty_like(logprobs), torch.empty_like(logprobs)
        for rows in _chunks(len(hidden), len(weight)):
            logits = _scaled_logits(hidden[rows], weight, temperatures[rows], dtype)
            highest = logits.amax(dim=-1)
            # Shifted logits: at an entropy of 11 nats the error halves against unshifted ones.
            shifted = logits.sub_(highest[:, None])
            probabilities = shifted.exp()
            total = probabilities.sum(dim=-1)
            log_total = total.log()
            logprobs[rows] = shifted.gather(1, labels[rows, None]).squeeze(1) - log_total
            entropies[rows] = log_total - probabilities.mul_(shifted).sum(dim=-1) / total
            normalisers[rows] = log_total + highest
        kept = (entropies,) if entropy_gradient else ()
        ctx.save_for_backward(hidden, weight, labels, temperatures, normalisers, *kept)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        hidden, weight, labels, temperatures, normalisers, *kept = ctx.saved_tensors
        grad_logprobs, grad_entropies = grad_outputs
        hidden_wanted, weight_wanted = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if hidden_wanted else None
        # Accumulated in at least float32: bfloat16 sums over chunks would lose 3 digits.
        grad_weight = torch.zeros_like(weight, dtype=normalisers.dtype) if weight_wanted else None
        for rows in _chunks(len(hidden), len(weight)):
            logits = _scaled_logits(hidden[rows], weight, temperatures[rows], normalisers.dtype)
            log_p = logits.sub_(normalisers[rows, None])
            slopes = [_entropy_slopes(log_p, entropies[rows]) for entropies in kept]
            grad_logits = log_p.exp_().neg_()  # minus the probabilities
            grad_logits.scatter_add_(1, labels[rows, None], torch.ones_like(grad_logits[:, :1]))
            grad_logits.mul_((grad_logprobs[rows] / temperatures[rows].to(normalisers.dtype))[:, None])
            for slope in slopes:
                scale = grad_entropies[rows] / temperatures[rows].to(normalisers.dtype)
                grad_logits.add_(slope.mul_(scale[:, None]))
            grad_logits = grad_logits.to(hidden.dtype)
            if grad_hidden is not None:
                torch.mm(grad_logits, weight, out=grad_hidden[rows])
            if grad_weight is not None:
                grad_weight += grad_logits.T @ hidden[rows]
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None, None, None


def _entropy_slopes(log_p: Tensor, entropies: Tensor) -> Tensor:
    """Derivative of the entropy with respect to the scaled logits: -p_v (log p_v + H)."""
    return (log_p + entropies[:, None]).mul_(log_p.exp()).neg_()


def _chunks(num_tokens: int, num_words: int) -> list[slice]:
    size = max(1, CHUNK_ELEMENTS // num_words)
    return [slice(start, start + size) for start in range(0, num_tokens, size)]


def _scaled_logits(hidden: Tensor, weight: Tensor, temperatures: Tensor, dtype: torch.dtype) -> Tensor:
    return (hidden @ weight.T).to(dtype).div_(temperatures[:, None].to(dtype))
