"""KV slots: who holds which, and the copies of those who had to leave.

Owns: the keys and values `[layers, slots, capacity, kv heads, head dim]`; capacity grows with the longest context.
Does not know: requests' content, scheduling order, sampling.

Guarantees: a slot that changes hands is zeroed first, so no session ever reads keys of another (fault I2) nor a NaN
that a failed one left behind; parking and restoring copy the exact length and change no bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from soliton.engines.session import Session

_FIRST_CAPACITY = 64


class SlotPool:
    """`num_slots` places for the KV of sessions; sessions beyond them are parked."""

    def __init__(self, num_slots: int, max_context: int, like: Tensor, *, layers: int, kv_heads: int, dim: int) -> None:
        self.num_slots = num_slots
        self.max_context = max_context
        self.occupants: list[Session | None] = [None] * num_slots
        shape = (2, layers, num_slots, min(_FIRST_CAPACITY, max_context), kv_heads, dim)
        self._kv = torch.zeros(shape, dtype=like.dtype, device=like.device)

    @property
    def keys(self) -> Tensor:
        """[layers, slots, capacity, kv heads, head dim]."""
        return self._kv[0]

    @property
    def values(self) -> Tensor:
        """[layers, slots, capacity, kv heads, head dim]."""
        return self._kv[1]

    @property
    def capacity(self) -> int:
        """Tokens per slot that fit without growing."""
        return self._kv.shape[3]

    def place(self, session: Session) -> bool:
        """Give `session` a slot with its KV in it: its own, a free one, or that of an idle session, which is parked.

        False if every slot runs.
        """
        if session.slot is None:
            slot = self._free_slot()
            if slot is None:
                return False
            self.occupants[slot] = session
            session.slot = slot
            if session.parked is not None:
                self.ensure(session.num_cached)
                self._kv[:, :, slot, : session.num_cached] = session.parked
                session.parked = None
        return True

    def evict(self, session: Session) -> None:
        """Forget the KV of `session`, in its slot and parked."""
        if session.slot is not None:
            self._vacate(session)
        session.parked = None
        session.num_cached = 0

    def forget_all(self) -> None:
        """Zero every slot (the sessions keep them): all KV will be computed again."""
        self._kv.zero_()

    def ensure(self, length: int) -> None:
        """Grow the capacity to at least `length` tokens, by doubling up to `max_context`."""
        if length > self.capacity:
            assert length <= self.max_context, (length, self.max_context)
            capacity = self.capacity
            while capacity < length:
                capacity = min(2 * capacity, self.max_context)
            old = self._kv
            self._kv = old.new_zeros((*old.shape[:3], capacity, *old.shape[4:]))
            self._kv[:, :, :, : old.shape[3]] = old

    def _free_slot(self) -> int | None:
        for slot, occupant in enumerate(self.occupants):
            if occupant is None:
                return slot
        idle = [session for session in self.occupants if session is not None and not session.is_running]
        if not idle:
            return None
        # One whose next turn already waits would have to be restored soon: take it last.
        victim = min(idle, key=lambda session: (session.turn is not None, session.last_used))
        assert victim.slot is not None
        victim.parked = self._kv[:, :, victim.slot, : victim.num_cached].clone()
        return self._vacate(victim)

    def _vacate(self, session: Session) -> int:
        slot, session.slot = session.slot, None
        assert slot is not None
        self._kv[:, :, slot, : session.num_cached] = 0
        self.occupants[slot] = None
        return slot
