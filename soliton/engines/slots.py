"""KV slots: who holds which, and the copies of those who had to leave.

Owns: keys and values of up to `num_slots` sessions, in shelves by length: a slot of shelf c holds 64 * 2^c tokens. A
session moves up when it outgrows its shelf, so one long context does not make attention read padding for all others,
and memory follows what is used, not `num_slots * max_context`. All shelves lie in one storage `[2, layers, rows, dim]`
(a row is one position of one head), so a tick writes all its keys with one call.

Does not know: requests, scheduling order, sampling.

Guarantees: a slot that is left is zeroed, so no session ever reads keys of another (fault I2) nor a NaN that a failed
one left behind; parking, restoring and moving copy the exact length and change no bit; slots of a shelf are dense.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from soliton.engines.session import Session

_SMALLEST_SHELF = 64
_FIRST_SLOTS = 8


class Shelf:
    """Slots of one capacity; slot i is held by `occupants[i]`."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_slots = 0
        self.first_row = 0
        self.occupants: list[Session] = []
        self.lay_out(torch.empty((2, 0, 0, 0, capacity, 0)))

    def lay_out(self, kv: Tensor) -> None:
        """Take `kv` [2, layers, slots, kv heads, capacity, head dim], a view of the pool's storage, as the slots."""
        self.kv = kv
        self.heads = kv.flatten(2, 3)
        """[2, layers, slots * kv heads, capacity, head dim], the same."""
        self.by_slot = kv.movedim(2, 0)
        """[slots, 2, layers, kv heads, capacity, head dim], the same."""


class SlotPool:
    """`num_slots` places for the KV of sessions; sessions beyond them are parked."""

    def __init__(self, num_slots: int, max_context: int, like: Tensor, *, layers: int, kv_heads: int, dim: int) -> None:
        self.num_slots = num_slots
        self.max_context = max_context
        self.kv_heads = kv_heads
        capacities = [min(_SMALLEST_SHELF, max_context)]
        while capacities[-1] < max_context:
            capacities.append(min(2 * capacities[-1], max_context))
        self.shelves = [Shelf(capacity) for capacity in capacities]
        self._storage = torch.zeros((2, layers, 0, dim), dtype=like.dtype, device=like.device)
        visible = like.new_zeros(max_context)
        self._ramp = torch.cat([visible, visible - torch.inf])

    @property
    def keys(self) -> Tensor:
        """[layers, rows, head dim]; rows as `write_rows` counts them."""
        return self._storage[0]

    @property
    def values(self) -> Tensor:
        """[layers, rows, head dim]."""
        return self._storage[1]

    def masks(self, positions: NDArray[np.int64]) -> Tensor:
        """Additive masks [*positions.shape, L], L the highest position + 1: 0 up to the position, -inf beyond.

        Rows of one ramp (zeros, then -inf), each read from where its zeros end after `position` + 1 of them.
        """
        length = int(positions.max()) + 1
        first = torch.from_numpy(self.max_context - 1 - positions.ravel()).to(self._ramp.device)
        return self._ramp.unfold(0, length, 1).index_select(0, first).view(*positions.shape, length)

    def place(self, session: Session) -> bool:
        """Give `session` a slot with its KV in it: its own, a free one, or that of an idle session, which is parked.

        False if every slot runs.
        """
        if session.shelf is None:
            if sum(len(shelf.occupants) for shelf in self.shelves) == self.num_slots and not self._park_one():
                return False
            self._enter(session, self._shelf_for(len(session.tokens)), session.parked)
            session.parked = None
        self.reserve(session, len(session.tokens))
        return True

    def reserve(self, session: Session, length: int) -> None:
        """Make room for `length` tokens of `session`: move it to a higher shelf if it outgrows its own."""
        assert session.shelf is not None
        if length > self.shelves[session.shelf].capacity:
            kept = self._copy(session)
            self._leave(session)
            self._enter(session, self._shelf_for(length), kept)

    def evict(self, session: Session) -> None:
        """Forget the KV of `session`, in its slot and parked."""
        if session.shelf is not None:
            self._leave(session)
        session.parked = None
        session.num_cached = 0

    def forget_all(self) -> None:
        """Zero every slot (the sessions keep them): all KV will be computed again."""
        self._storage.zero_()

    def _shelf_for(self, length: int) -> int:
        assert length <= self.max_context, (length, self.max_context)
        return next(i for i, shelf in enumerate(self.shelves) if length <= shelf.capacity)

    def _park_one(self) -> bool:
        idle = [session for shelf in self.shelves for session in shelf.occupants if not session.is_running]
        if not idle:
            return False
        # One whose next turn already waits would have to be restored soon: take it last.
        victim = min(idle, key=lambda session: (session.turn is not None, session.last_used))
        victim.parked = self._copy(victim)
        self._leave(victim)
        return True

    def _enter(self, session: Session, index: int, kv: Tensor | None) -> None:
        shelf = self.shelves[index]
        if len(shelf.occupants) == shelf.num_slots:
            self._grow(shelf)
        session.shelf, session.slot, session.capacity = index, len(shelf.occupants), shelf.capacity
        shelf.occupants.append(session)
        if kv is not None:
            shelf.by_slot[session.slot][..., : session.num_cached, :] = kv

    def _copy(self, session: Session) -> Tensor:
        assert session.shelf is not None
        return self.shelves[session.shelf].by_slot[session.slot][..., : session.num_cached, :].clone()

    def _leave(self, session: Session) -> None:
        """Take the session off its shelf; the last slot fills the gap."""
        assert session.shelf is not None
        shelf, slot = self.shelves[session.shelf], session.slot
        last = shelf.occupants.pop()
        if last is not session:
            shelf.occupants[slot] = last
            shelf.by_slot[slot].copy_(shelf.by_slot[last.slot])
        shelf.by_slot[last.slot].zero_()
        last.slot = slot
        session.shelf = None

    @torch.inference_mode(mode=False)  # a storage made inside a tick must be writable between ticks as well
    def _grow(self, grown: Shelf) -> None:
        """Double the slots of one shelf and lay all shelves out anew."""
        grown.num_slots = min(max(_FIRST_SLOTS, 2 * grown.num_slots), self.num_slots)
        num_rows = sum(shelf.num_slots * self.kv_heads * shelf.capacity for shelf in self.shelves)
        two, layers, _, dim = self._storage.shape
        self._storage = self._storage.new_zeros((two, layers, num_rows, dim))
        first_row = 0
        for shelf in self.shelves:
            shelf.first_row = first_row
            rows = shelf.num_slots * self.kv_heads * shelf.capacity
            old, num_held = shelf.kv, len(shelf.occupants)
            shape = (two, layers, shelf.num_slots, self.kv_heads, shelf.capacity, dim)
            shelf.lay_out(self._storage[:, :, first_row : first_row + rows].view(shape))
            if num_held:
                shelf.kv[:, :, :num_held] = old[:, :, :num_held]
            first_row += rows
