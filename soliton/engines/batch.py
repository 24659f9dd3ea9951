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
from soliton.engines.slots import Shelf, SlotPool
from soliton.models.slot_attention import DecodeGroup, ExtensionGroup, SlotBatch

Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class Tick:
    """One forward: `sampling[i]` draws its next token from row `sampling_rows[i]` of the flat batch."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    slot: SlotBatch
    sampling: list[Session]
    sampling_rows: torch.Tensor


def share_budget(running: Sequence[Session], budget: int) -> dict[Session, int]:
    """Extension tokens per session: those admitted first take what they need of the tick's prefill budget.

    Sessions that only decode are absent. Every running session feeds one decode token besides.
    """
    extra: dict[Session, int] = {}
    for session in running:
        wanted = len(session.tokens) - session.num_cached - 1
        if wanted > 0 and budget > 0:
            extra[session] = min(wanted, budget)
            budget -= extra[session]
    return extra


def build_tick(running: Sequence[Session], pool: SlotPool, budget: int, heads_per_kv: int) -> Tick:
    """Lay out the next forward of `running` (admission order) and mark the tokens it feeds as cached.

    The decode tokens come first, shelf by shelf; then the extension tokens, shelf by shelf.
    """
    extra = share_budget(running, budget)
    for session in running:
        if session.num_cached + extra.get(session, 0) >= session.capacity:
            pool.reserve(session, session.num_cached + extra.get(session, 0) + 1)
    decode = _Part(pool, [[s for s in shelf.occupants if s.is_running] for shelf in pool.shelves])
    starts = [session.num_cached + extra.get(session, 0) for session in decode.sessions]
    positions = np.array(starts, dtype=np.int64)
    ids = [session.tokens[start] for session, start in zip(decode.sessions, starts, strict=True)]
    all_positions, write_rows, extensions = positions, decode.base_rows, []
    if extra:
        part = _Part(pool, [[s for s in shelf.occupants if s in extra] for shelf in pool.shelves])
        counts = np.array([extra[session] for session in part.sessions], dtype=np.int64)
        begin = np.array([session.num_cached for session in part.sessions], dtype=np.int64)
        offset = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        for session in part.sessions:
            ids += session.tokens[session.num_cached : session.num_cached + extra[session]]
        all_positions = np.concatenate([positions, np.repeat(begin, counts) + offset])
        write_rows = np.concatenate([decode.base_rows, np.repeat(part.base_rows, counts, axis=0)])
        extensions = _extension_groups(part, begin, counts, first_row=len(positions), heads_per_kv=heads_per_kv)
    device = pool.keys.device
    batch = SlotBatch(
        keys=pool.keys,
        values=pool.values,
        write_rows=torch.from_numpy((write_rows + all_positions[:, None]).ravel()).to(device),
        decode=_decode_groups(decode, positions),
        extension=extensions,
        num_decode=len(positions),
    )
    for session, start in zip(decode.sessions, starts, strict=True):
        session.num_cached = start + 1
    rows = [row for row, session in enumerate(decode.sessions) if session.num_cached == len(session.tokens)]
    return Tick(
        input_ids=torch.from_numpy(np.array(ids, dtype=np.int64)).to(device),
        position_ids=torch.from_numpy(all_positions).to(device),
        slot=batch,
        sampling=[decode.sessions[row] for row in rows],
        sampling_rows=torch.from_numpy(np.array(rows, dtype=np.int64)).to(device),
    )


class _Part:
    """Sessions of a tick, shelf by shelf, and where their slots lie.

    Attributes:
        sessions: all of them, in order.
        shelves: (shelf, first index, end) of each shelf that has any.
        slots: int64 [sessions].
        base_rows: int64 [sessions, kv heads], KV row of position 0.
    """

    def __init__(self, pool: SlotPool, by_shelf: list[list[Session]]) -> None:
        self.pool = pool
        self.sessions: list[Session] = []
        self.shelves: list[tuple[Shelf, int, int]] = []
        first_rows: list[int] = []
        for shelf, sessions in zip(pool.shelves, by_shelf, strict=True):
            if sessions:
                first = len(self.sessions)
                self.sessions += sessions
                self.shelves.append((shelf, first, len(self.sessions)))
                stride = pool.kv_heads * shelf.capacity
                first_rows += [shelf.first_row + session.slot * stride for session in sessions]
        self.slots = np.array([session.slot for session in self.sessions], dtype=np.int64)
        capacities = np.array([session.capacity for session in self.sessions], dtype=np.int64)
        self.base_rows = np.array(first_rows, dtype=np.int64)[:, None] + capacities[:, None] * np.arange(pool.kv_heads)


def _decode_groups(part: _Part, positions: Int64Array) -> list[DecodeGroup]:
    """One query per session, at `positions`."""
    groups = []
    kv_heads = part.pool.kv_heads
    for shelf, first, end in part.shelves:
        slots = part.slots[first:end]
        mask = part.pool.masks(np.repeat(positions[first:end], kv_heads)[:, None])
        kv, select = shelf.heads[..., : mask.shape[-1], :], None
        if slots[-1] + 1 == len(slots):
            kv = kv[:, :, : len(mask)]
        else:
            heads = slots[:, None] * kv_heads + np.arange(kv_heads)
            select = torch.from_numpy(heads.ravel()).to(kv.device)
        groups.append(DecodeGroup(keys=kv[0], values=kv[1], select=select, rows=slice(first, end), mask=mask))
    return groups


def _extension_groups(
    part: _Part, begin: Int64Array, counts: Int64Array, *, first_row: int, heads_per_kv: int
) -> list[ExtensionGroup]:
    """`counts` queries per session at positions from `begin`, padded per shelf (with the last real one, repeated)."""
    ends = first_row + counts.cumsum()
    groups = []
    for shelf, first, end in part.shelves:
        count = counts[first:end]
        width = int(count.max())
        column = np.minimum(np.arange(width), count[:, None] - 1)
        is_real = np.arange(width) < count[:, None]
        device = shelf.kv.device
        groups.append(
            ExtensionGroup(
                keys=shelf.kv[0],
                values=shelf.kv[1],
                select=torch.from_numpy(part.slots[first:end]).to(device),
                rows=torch.from_numpy(((ends[first:end] - count)[:, None] + column).ravel()).to(device),
                mask=part.pool.masks(np.repeat(begin[first:end, None] + column, heads_per_kv, axis=1))[:, None],
                order=torch.from_numpy(np.flatnonzero(is_real)).to(device),
            )
        )
    return groups
