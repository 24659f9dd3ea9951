"""Sequences packed in ascending length, cut into micro-batches that are contiguous slices of the pack.

Because the pack is sorted before it is cut, every tensor of a micro-batch is a slice of the packed one: no field is
ever permuted alone (fault A11). Only what predicts an action token is computed: a row ends before its last action
token, and padding is on the right, where causal attention never looks, so no attention mask is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class MicroBatch:
    """B sequences with n action tokens between them.

    Attributes:
        segments: which sequences of the pack, a contiguous range.
        tokens: which tokens of the pack, a contiguous range.
        input_ids: int64 [B, L], right-padded with 0.
        action_index: int64 [n], index of each action token in the pack.
        action_segments: int64 [n], sequence of each action token in the pack.
        predicted_from: int64 [n], index into the flattened [B * L] of the position BEFORE each action token: where its
            log-prob and the value of its prefix are read (fault A10).
        labels: int64 [n], the action tokens.
    """

    segments: slice
    tokens: slice
    input_ids: Tensor
    action_index: Tensor
    action_segments: Tensor
    predicted_from: Tensor
    labels: Tensor


def sorted_by_length(action_masks: Sequence[NDArray[np.bool_]]) -> list[int]:
    """Order of ascending computed length, stable: equal lengths keep the order they came in."""
    return sorted(range(len(action_masks)), key=lambda i: int(np.flatnonzero(action_masks[i])[-1]))


def cut(lengths: Sequence[int], max_padded_tokens: int) -> list[slice]:
    """Contiguous ranges of ascending `lengths` with rows x longest <= `max_padded_tokens`; a longer one goes alone."""
    ranges: list[slice] = []
    end = len(lengths)
    while end > 0:  # from the longest down: the first row of a range fixes its width
        start = max(0, end - max(1, max_padded_tokens // lengths[end - 1]))
        ranges.append(slice(start, end))
        end = start
    return ranges[::-1]


def micro_batches(
    token_ids: Sequence[NDArray[np.int32]],
    action_masks: Sequence[NDArray[np.bool_]],
    max_padded_tokens: int,
    device: torch.device,
) -> list[MicroBatch]:
    """Cut sequences that are already in the order of `sorted_by_length`."""
    computed = [int(np.flatnonzero(mask)[-1]) for mask in action_masks]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in token_ids])])
    return [
        _build(segments, token_ids, action_masks, computed, offsets, device)
        for segments in cut(computed, max_padded_tokens)
    ]


def _build(
    segments: slice,
    token_ids: Sequence[NDArray[np.int32]],
    action_masks: Sequence[NDArray[np.bool_]],
    computed: Sequence[int],
    offsets: NDArray[np.int64],
    device: torch.device,
) -> MicroBatch:
    width = computed[segments.stop - 1]
    input_ids = np.zeros((segments.stop - segments.start, width), dtype=np.int64)
    action_index, action_segments, predicted_from, labels = [], [], [], []
    for row, segment in enumerate(range(segments.start, segments.stop)):
        input_ids[row, : computed[segment]] = token_ids[segment][: computed[segment]]
        columns = np.flatnonzero(action_masks[segment])
        action_index.append(offsets[segment] + columns)
        action_segments.append(np.full(len(columns), segment))
        predicted_from.append(row * width + columns - 1)
        labels.append(token_ids[segment][columns])

    def tensor(parts: list[NDArray[np.int64]]) -> Tensor:
        return torch.from_numpy(np.concatenate(parts).astype(np.int64)).to(device)

    return MicroBatch(
        segments=segments,
        tokens=slice(int(offsets[segments.start]), int(offsets[segments.stop])),
        input_ids=torch.from_numpy(input_ids).to(device),
        action_index=tensor(action_index),
        action_segments=tensor(action_segments),
        predicted_from=tensor(predicted_from),
        labels=tensor(labels),
    )
