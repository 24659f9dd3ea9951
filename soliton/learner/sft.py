"""Supervised fine-tuning on demonstrations: masked cross-entropy, for the warm start of policy and critic.

Owns the order of the demonstrations and the schedule. Does not know what a demonstration shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from soliton.learner.actor import action_logprobs
from soliton.learner.alarms import Scene
from soliton.learner.config import SftConfig
from soliton.learner.microbatches import micro_batches, sorted_by_length, trained_length
from soliton.learner.muon import MuonOptimiser
from soliton.learner.optimiser import Optimiser, warm_up, warm_up_then_cosine
from soliton.losses import token_mean

GROUPED_BATCHES = 16
"""Batches among which demonstrations are grouped by length: enough that a batch needs hardly any padding."""


@dataclass(frozen=True)
class Demonstration:
    """A rendered conversation, token by token.

    Attributes:
        token_ids: int32 [T].
        action_mask: bool [T]; True on the tokens that the model shall learn to write, the stop tokens included.
    """

    token_ids: NDArray[np.int32]
    action_mask: NDArray[np.bool_]


@dataclass(frozen=True)
class SftUpdate:
    """One optimiser step.

    Attributes:
        update: number of this update, from 1.
        total: updates of the whole stage.
        loss: mean cross-entropy in nats over the action tokens of the update's demonstrations, before it.
        grad_norm: before the clip.
        lr: learning rate.
        num_action_tokens: tokens in the mean.
    """

    update: int
    total: int
    loss: float
    grad_norm: float
    lr: float
    num_action_tokens: int


def sft(
    model: PreTrainedModel,
    demonstrations: Sequence[Demonstration],
    config: SftConfig,
    *,
    seed: int,
    progress: Callable[[SftUpdate], None] | None = None,
) -> list[SftUpdate]:
    """Train `model` in place on demonstrations; loss = mean over the update's action tokens of -log pi(token).

    One optimiser step per batch, one token mean over the whole batch. The last batch of an epoch may be smaller.

    Args:
        model: a causal language model; put into evaluation mode, so that there is no dropout.
        demonstrations: at least one.
        config: see `SftConfig`.
        seed: decides the order (with the lengths, if `group_by_length`) and nothing else.
        progress: called after each update.

    Returns:
        All updates, in order.

    Raises:
        ValueError: no demonstration, or one without an action token, or one that begins with an action token.
        RunError: something is not finite.
    """
    _refuse_empty(demonstrations)
    model.train(mode=False)
    per_epoch = -(-len(demonstrations) // config.batch_size)
    total = per_epoch * config.epochs
    optimiser = _optimiser(model, config, total)
    updates: list[SftUpdate] = []
    for chosen in _batches(demonstrations, config, seed):
        scene = Scene(f"SFT update {len(updates) + 1}", tuple(f"demonstration {i}" for i in chosen))
        lr = optimiser.lr
        loss, tokens = _accumulate(model, [demonstrations[i] for i in chosen], config.micro_batch_tokens, scene)
        updates.append(SftUpdate(len(updates) + 1, total, loss, optimiser.step(scene), lr, tokens))
        if progress is not None:
            progress(updates[-1])
    return updates


def _optimiser(model: PreTrainedModel, config: SftConfig, total: int) -> Optimiser | MuonOptimiser:
    cosine = config.lr_schedule == "cosine"
    warmup = config.lr_warmup_updates
    schedule = warm_up_then_cosine(warmup, total) if cosine else warm_up(warmup)
    if config.optimiser == "muon":
        return MuonOptimiser(
            model,
            muon_lr=config.muon_lr,
            lr=config.lr,
            schedule=schedule,
            betas=config.betas,
            weight_decay=config.weight_decay,
            grad_clip=config.grad_clip,
        )
    return Optimiser(
        dict(model.named_parameters()),
        lr=config.lr,
        schedule=schedule,
        betas=config.betas,
        weight_decay=config.weight_decay,
        grad_clip=config.grad_clip,
    )


def _batches(demonstrations: Sequence[Demonstration], config: SftConfig, seed: int) -> Iterator[list[int]]:
    if config.group_by_length:
        lengths = [trained_length(d.action_mask) for d in demonstrations]
        return length_grouped_batches(lengths, config.batch_size, config.epochs, seed)
    return shuffled_batches(len(demonstrations), config.batch_size, config.epochs, seed)


def shuffled_batches(count: int, batch_size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """Indices 0..count-1 in a new seeded order each epoch, cut into batches."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        yield from _cut(rng.permutation(count).tolist(), batch_size)


def length_grouped_batches(lengths: Sequence[int], batch_size: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """The same for batches of like length: every 16 batches of the order are sorted before they are cut.

    The batches of an epoch are shuffled afterwards, so that lengths do not follow a pattern.
    """
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(lengths)).tolist()
        groups = [sorted(group, key=lengths.__getitem__) for group in _cut(order, batch_size * GROUPED_BATCHES)]
        batches = [batch for group in groups for batch in _cut(group, batch_size)]
        yield from (batches[i] for i in rng.permutation(len(batches)))


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _accumulate(
    model: PreTrainedModel, demonstrations: Sequence[Demonstration], max_padded_tokens: int, scene: Scene
) -> tuple[float, int]:
    all_lengths = [trained_length(d.action_mask) for d in demonstrations]
    order = sorted_by_length(all_lengths)
    lengths = [all_lengths[i] for i in order]
    ordered = [demonstrations[i] for i in order]
    masks = [d.action_mask for d in ordered]
    num_tokens = int(sum(mask.sum() for mask in masks))
    temperatures = torch.ones(len(ordered), device=model.device)
    total = 0.0
    for part in micro_batches([d.token_ids for d in ordered], masks, lengths, max_padded_tokens, model.device):
        logprobs, _ = action_logprobs(model, part, temperatures)
        loss: Tensor = token_mean(-logprobs, torch.ones_like(logprobs, dtype=torch.bool), num_tokens)
        scene.require_finite("cross-entropy", loss)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total, num_tokens


def _refuse_empty(demonstrations: Sequence[Demonstration]) -> None:
    if not demonstrations:
        raise ValueError("SFT needs at least one demonstration, got none")
    for i, demonstration in enumerate(demonstrations):
        if not demonstration.action_mask.any():
            raise ValueError(f"demonstration {i} has no action token, so there is nothing to learn from it")
        if demonstration.action_mask[0]:
            raise ValueError(f"demonstration {i} begins with an action token; it needs a prompt before it")
