"""From running sessions to one flat tick: who feeds how many tokens, and the tensors that say so to the model.

Owns: the sharing of the prefill budget and the layout of `SlotBatch`. Does not know: sampling, requests, weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from soliton.engines.session import Session
from soliton.engines.slots import SlotPool
from soliton.models.slot_attention import Extension, SlotBatch


@dataclass(frozen=True)
class Tick:
    """One forward: `sampling[i]` draws its next token from row `sampling_rows[i]` of the flat batch."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    slot: SlotBatch
    sampling: list[Session]
    sampling_rows: torch.Tensor


def share_budget(running: Sequence[Session], budget: int) -> dict[int, int]:
    """Extension tokens per slot: the sessions admitted first take what they need of the tick's prefill budget.

    Slots that only decode are absent. Every running session feeds one decode token besides.
    """
    extra: dict[int, int] = {}
    for session in running:
        wanted = session.num_pending - 1
        if wanted > 0 and budget > 0:
            assert session.slot is not None
            extra[session.slot] = min(wanted, budget)
            budget -= extra[session.slot]
    return extra


def build_tick(running: Sequence[Session], pool: SlotPool, budget: int, group: int) -> Tick:
    """Lay out the next forward of `running` (admission order) and mark the fed tokens as cached.

    `group` is the number of query heads per KV head.
    """
    extra = share_budget(running, budget)
    rows = sorted(running, key=_slot)
    slots = np.array([_slot(session) for session in rows], dtype=np.int64)
    num_extra = np.array([extra.get(slot, 0) for slot in slots.tolist()], dtype=np.int64)
    starts = np.array([session.num_cached for session in rows], dtype=np.int64)
    positions = starts + num_extra
    pool.ensure(int(positions.max()) + 1)
    ids = [session.tokens[position] for session, position in zip(rows, positions.tolist(), strict=True)]
    flat_slots, flat_positions, extension = slots, positions, None
    if extra:
        extended = np.flatnonzero(num_extra)
        counts, begin = num_extra[extended], starts[extended]
        for i in extended.tolist():
            ids += rows[i].tokens[starts[i] : positions[i]]
        offsets = _ranges(counts)
        flat_slots = np.concatenate([slots, np.repeat(slots[extended], counts)])
        flat_positions = np.concatenate([positions, np.repeat(begin, counts) + offsets])
        extension = _extension(slots[extended], begin, counts, first_row=len(rows), group=group, pool=pool)
    batch = SlotBatch(
        keys=pool.keys,
        values=pool.values,
        write_rows=torch.from_numpy(flat_slots * pool.capacity + flat_positions).to(pool.keys.device),
        decode_slots=None if slots[-1] == len(slots) - 1 else torch.from_numpy(slots).to(pool.keys.device),
        decode_mask=_mask(positions[:, None], int(positions.max()) + 1, group, pool),
        extension=extension,
    )
    sampling, sampling_rows = [], []
    for row, (session, position) in enumerate(zip(rows, positions.tolist(), strict=True)):
        session.num_cached = position + 1
        if session.num_cached == len(session.tokens):
            sampling.append(session)
            sampling_rows.append(row)
    device = pool.keys.device
    return Tick(
        input_ids=torch.tensor([ids], device=device),
        position_ids=torch.from_numpy(flat_positions)[None].to(device),
        slot=batch,
        sampling=sampling,
        sampling_rows=torch.tensor(sampling_rows, dtype=torch.int64, device=device),
    )


def _slot(session: Session) -> int:
    assert session.slot is not None
    return session.slot


def _ranges(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[2, 3] -> [0, 1, 0, 1, 2]."""
    ends = counts.cumsum()
    return np.arange(ends[-1]) - np.repeat(ends - counts, counts)


def _extension(
    slots: NDArray[np.int64],
    begin: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    first_row: int,
    group: int,
    pool: SlotPool,
) -> Extension:
    """Lay `counts` extension tokens per slot, at positions from `begin`, into one padded rectangle."""
    width = int(counts.max())
    column = np.minimum(np.arange(width), counts[:, None] - 1)  # padding repeats the slot's last extension token
    first = first_row + counts.cumsum() - counts
    order = np.repeat(np.arange(len(counts)) * width, counts) + _ranges(counts)
    device = pool.keys.device
    return Extension(
        slots=torch.from_numpy(slots).to(device),
        rows=torch.from_numpy(first[:, None] + column).to(device),
        order=torch.from_numpy(order).to(device),
        mask=_mask(begin[:, None] + column, int((begin + counts).max()), group, pool),
    )


def _mask(positions: NDArray[np.int64], length: int, group: int, pool: SlotPool) -> torch.Tensor:
    """Additive mask [rows, 1, queries * group, length] of queries at `positions` [rows, queries]."""
    hidden = np.arange(length) > positions[:, :, None]
    mask = torch.from_numpy(np.where(hidden, np.float32(-np.inf), np.float32(0)))
    mask = mask[:, None, :, None].expand(-1, -1, -1, group, -1).flatten(2, 3)
    return mask.to(pool.keys)
