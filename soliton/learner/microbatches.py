"""Sequences packed in ascending length, cut into micro-batches that are contiguous slices of the pack.

Because the pack is sorted before it is cut, every tensor of a micro-batch is a slice of the packed one: no field is
ever permuted alone (fault A11). A row ends with its last action token, since nothing later is trained (with its
last token, where the value after it is wanted). Padding is on the right, where causal attention never looks, so no
attention mask is needed.
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

    The n action tokens come in row-major order, which is the order of the pack.

    Attributes:
        index: which micro-batch of its batch this is.
        segments: which sequences of the pack, a contiguous range.
        tokens: which tokens of the pack, a contiguous range.
        input_ids: int64 [B, L], right-padded with 0.
        action_mask: bool [B, L], False on padding.
        labels: int64 [n], the action tokens.
        action_index: int64 [n], index of each action token in the pack.
        action_segments: int64 [n], sequence of each action token in the pack.
        lengths: int64 [B], tokens that each row holds.
    """

    index: int
    segments: slice
    tokens: slice
    input_ids: Tensor
    action_mask: Tensor
    labels: Tensor
    action_index: Tensor
    action_segments: Tensor
    lengths: Tensor

    def up_to_last_action(self) -> tuple[Tensor, Tensor]:
        """All tokens of each sequence from its second to its last action: bool [B, L], and their index in the pack."""
        length = self.action_mask.shape[1]
        columns = torch.arange(length, device=self.action_mask.device)
        last = torch.where(self.action_mask, columns, -1).amax(1, keepdim=True)
        wanted = (columns >= 1) & (columns <= last)
        rows, _ = self.action_mask.nonzero(as_tuple=True)
        first_index = torch.zeros(len(self.action_mask), dtype=torch.int64, device=columns.device)
        first_index[rows] = self.action_index - self.action_mask.nonzero(as_tuple=True)[1]
        return wanted, (first_index[:, None] + columns)[wanted]


def trained_length(action_mask: NDArray[np.bool_]) -> int:
    """Tokens up to and including the last action token."""
    return int(np.flatnonzero(action_mask)[-1]) + 1


def sorted_by_length(lengths: Sequence[int]) -> list[int]:
    """Order of ascending length, stable: equal lengths keep the order they came in."""
    return sorted(range(len(lengths)), key=lengths.__getitem__)


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
    lengths: Sequence[int],
    max_padded_tokens: int,
    device: torch.device,
) -> list[MicroBatch]:
    """Cut sequences that are already in the order of `sorted_by_length` into micro-batches.

    Args:
        token_ids: of each sequence, [T_i].
        action_masks: likewise.
        lengths: tokens of each that its row shall hold, ascending; at least `trained_length`.
        max_padded_tokens: budget of a micro-batch.
        device: where the tensors go.
    """
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in token_ids])])
    return [
        _build(index, segments, token_ids, action_masks, lengths, offsets, device)
        for index, segments in enumerate(cut(lengths, max_padded_tokens))
    ]


def _build(
    index: int,
    segments: slice,
    token_ids: Sequence[NDArray[np.int32]],
    action_masks: Sequence[NDArray[np.bool_]],
    lengths: Sequence[int],
    offsets: NDArray[np.int64],
    device: torch.device,
) -> MicroBatch:
    rows = range(segments.start, segments.stop)
    shape = (len(rows), lengths[rows[-1]])
    input_ids, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    for row, segment in enumerate(rows):
        length = lengths[segment]
        input_ids[row, :length] = token_ids[segment][:length]
        mask[row, :length] = action_masks[segment][:length]
    action_row, action_column = mask.nonzero()
    action_segments = action_row + segments.start
    return MicroBatch(
        index=index,
        segments=segments,
        tokens=slice(int(offsets[segments.start]), int(offsets[segments.stop])),
        input_ids=torch.from_numpy(input_ids).to(device),
        action_mask=torch.from_numpy(mask).to(device),
        labels=torch.from_numpy(input_ids[mask]).to(device),
        action_index=torch.from_numpy(offsets[action_segments] + action_column).to(device),
        action_segments=torch.from_numpy(action_segments).to(device),
        lengths=torch.tensor(lengths[segments], device=device),
    )
