"""Shelves of slots: dense, zeroed when left, exact when copied."""

from __future__ import annotations

import numpy as np
import torch

from soliton.engines.session import Session
from soliton.engines.slots import SlotPool


def new_pool(num_slots=4, max_context=300):
    return SlotPool(num_slots, max_context, torch.zeros(1), layers=2, kv_heads=3, dim=5)


def held(pool: SlotPool, session: Session) -> torch.Tensor:
    shelf = pool.shelves[session.shelf]
    assert shelf.occupants[session.slot] is session
    return shelf.kv[:, :, session.slot, :, : session.num_cached]


def fill(pool: SlotPool, session: Session, length: int) -> torch.Tensor:
    """Write `length` random tokens through the rows that a tick writes; returns them."""
    pool.reserve(session, length)
    session.tokens += [0] * (length - len(session.tokens))
    session.num_cached = length
    shelf = pool.shelves[session.shelf]
    content = torch.randn(2, 2, 3, length, 5)
    for head in range(3):
        rows = shelf.first_row + (session.slot * 3 + head) * shelf.capacity + torch.arange(length)
        pool.keys[:, rows] = content[0, :, head]
        pool.values[:, rows] = content[1, :, head]
    return content


def test_shelves_double_up_to_the_longest_context():
    assert [shelf.capacity for shelf in new_pool(max_context=300).shelves] == [64, 128, 256, 300]
    assert [shelf.capacity for shelf in new_pool(max_context=10).shelves] == [10]


def test_storage_follows_what_is_used():
    pool = new_pool(num_slots=1_000, max_context=4_096)
    assert pool.keys.shape[1] == 0
    session = Session("a", tokens=[0] * 10)
    assert pool.place(session)
    assert pool.keys.shape[1] == 8 * 3 * 64


def test_moves_parking_and_gaps_change_no_bit_and_leave_nothing():
    """Random comings, growths, goings: each session's KV is always what was written, everything else is zero."""
    rng = np.random.default_rng(0)
    torch.default_generator.manual_seed(0)
    pool = new_pool()
    sessions: dict[Session, torch.Tensor] = {}
    parked = 0
    for step in range(300):
        action = rng.integers(4)
        if action == 0 or not sessions:
            session = Session(f"s{step}", tokens=[0] * int(rng.integers(1, 120)), last_used=step)
            assert pool.place(session)
            sessions[session] = fill(pool, session, int(rng.integers(1, len(session.tokens) + 1)))
        else:
            session = list(sessions)[rng.integers(len(sessions))]
            if action == 1:
                pool.evict(session)
                del sessions[session]
                continue
            session.last_used = step
            assert pool.place(session)
            if action == 2:
                sessions[session] = fill(pool, session, int(rng.integers(session.num_cached, 301)))
        total = 0.0
        for other, content in sessions.items():
            kv = other.parked if other.shelf is None else held(pool, other)
            assert torch.equal(kv, content[:, :, :, : other.num_cached])
            total += 0.0 if other.shelf is None else float(content.abs().double().sum())
        parked += sum(other.shelf is None for other in sessions)
        assert sum(len(shelf.occupants) for shelf in pool.shelves) <= pool.num_slots
        stored = float(pool.keys.abs().double().sum() + pool.values.abs().double().sum())
        assert np.isclose(stored, total, rtol=1e-9)
    assert parked > 50


def test_a_running_session_keeps_its_slot():
    pool = new_pool(num_slots=2)
    sessions = [Session(str(i), tokens=[0]) for i in range(3)]
    for session in sessions[:2]:
        assert pool.place(session)
        session.is_running = True
    assert not pool.place(sessions[2])
    sessions[1].is_running = False
    assert pool.place(sessions[2])
    assert sessions[1].shelf is None
    assert sessions[0].shelf is not None


def test_the_one_idle_for_longest_is_parked_unless_its_next_turn_waits():
    pool = new_pool(num_slots=3)
    waiting, older, newer = (Session(n, tokens=[0], last_used=i) for i, n in enumerate(["waiting", "older", "newer"]))
    for session in (waiting, older, newer):
        assert pool.place(session)
    waiting.turn = object()  # any turn
    assert pool.place(Session("first", tokens=[0], last_used=9))
    assert older.shelf is None
    assert pool.place(Session("second", tokens=[0], last_used=9))
    assert newer.shelf is None
    assert waiting.shelf is not None
