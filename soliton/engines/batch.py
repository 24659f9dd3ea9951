"""From running sessions to one flat tick: who feeds how many tokens, and the tensors that say so to the model.

Owns: the sharing of the prefill budget and the layout of `SlotBatch`. Does not know: sampling, requests, weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

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
    layout = _Layout(pool, heads_per_kv)
    for shelf in pool.shelves:
        rows = [session for session in shelf.occupants if session.is_running]
        if rows:
            starts = np.array([session.num_cached + extra.get(session, 0) for session in rows], dtype=np.int64)
            layout.add_decode(shelf, rows, starts)
    decoding = layout.sessions
    for shelf in pool.shelves if extra else ():
        rows = [session for session in shelf.occupants if session in extra]
        if rows:
            layout.add_extension(shelf, rows, np.array([extra[session] for session in rows], dtype=np.int64))
    sampling, sampling_rows = [], []
    for row, session in enumerate(decoding):
        session.num_cached += extra.get(session, 0) + 1
        if session.num_cached == len(session.tokens):
            sampling.append(session)
            sampling_rows.append(row)
    return layout.finish(sampling, sampling_rows)


class _Layout:
    """Collects the groups of a tick and the token, position and KV row of each of its tokens."""

    def __init__(self, pool: SlotPool, heads_per_kv: int) -> None:
        self.sessions: list[Session] = []
        self._pool = pool
        self._heads_per_kv = heads_per_kv
        self._heads = np.arange(pool.kv_heads)[:, None]
        self._device = pool.keys.device
        self._ids: list[int] = []
        self._positions: list[Int64Array] = []
        self._write_rows: list[Int64Array] = []
        self._decode: list[DecodeGroup] = []
        self._extension: list[ExtensionGroup] = []

    def add_decode(self, shelf: Shelf, rows: list[Session], positions: Int64Array) -> None:
        """One token for each of `rows`, in the order of their slots."""
        slots = np.arange(len(rows)) if len(rows) == rows[-1].slot + 1 else np.array([r.slot for r in rows])
        first = len(self.sessions)
        self.sessions += rows
        mask = self._mask(positions[:, None])
        self._decode.append(
            DecodeGroup(
                keys=shelf.kv[0],
                values=shelf.kv[1],
                select=None if slots[-1] + 1 == len(rows) else self._tensor(slots),
                rows=slice(first, first + len(rows)),
                mask=mask.expand(-1, self._pool.kv_heads, -1).reshape(-1, 1, mask.shape[-1]),
            )
        )
        ids = [session.tokens[position] for session, position in zip(rows, positions.tolist(), strict=True)]
        self._add_tokens(shelf, slots, ids, positions)

    def add_extension(self, shelf: Shelf, rows: list[Session], counts: Int64Array) -> None:
        """The next `counts` tokens of `rows`, padded to one rectangle (padding repeats the last real token)."""
        slots = np.array([session.slot for session in rows])
        starts = np.array([session.num_cached for session in rows])
        first = len(self._ids)
        ends = counts.cumsum()
        width = int(counts.max())
        column = np.minimum(np.arange(width), counts[:, None] - 1)
        offset = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        order = np.repeat(np.arange(len(rows)) * width, counts) + offset
        query_rows = (first + ends - counts)[:, None] + column
        self._extension.append(
            ExtensionGroup(
                keys=shelf.kv[0],
                values=shelf.kv[1],
                select=self._tensor(slots),
                rows=self._tensor(query_rows.ravel()),
                mask=self._mask(np.repeat(starts[:, None] + column, self._heads_per_kv, axis=1))[:, None],
                order=self._tensor(order),
            )
        )
        ids = chain.from_iterable(
            session.tokens[start : start + count]
            for session, start, count in zip(rows, starts.tolist(), counts.tolist(), strict=True)
        )
        self._add_tokens(shelf, np.repeat(slots, counts), ids, np.repeat(starts, counts) + offset)

    def finish(self, sampling: list[Session], sampling_rows: list[int]) -> Tick:
        """The tick, as tensors."""
        return Tick(
            input_ids=torch.tensor([self._ids], device=self._device),
            position_ids=self._tensor(np.concatenate(self._positions))[None],
            slot=SlotBatch(
                keys=self._pool.keys,
                values=self._pool.values,
                write_rows=self._tensor(np.concatenate(self._write_rows, axis=1)),
                decode=self._decode,
                extension=self._extension,
                num_decode=len(self.sessions),
            ),
            sampling=sampling,
            sampling_rows=torch.tensor(sampling_rows, dtype=torch.int64, device=self._device),
        )

    def _add_tokens(self, shelf: Shelf, slots: Int64Array, ids: Iterable[int], positions: Int64Array) -> None:
        self._ids.extend(ids)
        self._positions.append(positions)
        self._write_rows.append(
            shelf.first_row + (slots * self._pool.kv_heads + self._heads) * shelf.capacity + positions
        )

    def _mask(self, positions: Int64Array) -> torch.Tensor:
        """Additive mask [slots, queries, L]: 0 up to the position [slots, queries] of the query, -inf beyond."""
        hidden = np.arange(int(positions.max()) + 1) > positions[:, :, None]
        return torch.from_numpy(np.where(hidden, np.float32(-np.inf), np.float32(0))).to(self._pool.keys)

    def _tensor(self, array: Int64Array) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
