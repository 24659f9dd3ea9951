"""What the embedded engine knows about one session and its running turn. Plain state, no behaviour of the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from torch import Tensor

from soliton.engines.engine import Completion, FinishReason, GenerateRequest


@dataclass(eq=False, slots=True)
class Turn:
    """A request that waits or runs, and what it has sampled so far."""

    request: GenerateRequest
    future: asyncio.Future[Completion]
    stop_ids: frozenset[int]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def resolve(self, reason: FinishReason) -> None:
        """Hand the completion to the caller, unless the caller is gone."""
        if not self.future.done():
            self.future.set_result(
                Completion(
                    token_ids=tuple(self.token_ids),
                    logprobs=tuple(self.logprobs),
                    versions=tuple(self.versions),
                    finish_reason=reason,
                )
            )

    def fail(self, error: Exception) -> None:
        """Raise `error` in the caller, unless the caller is gone."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(eq=False, slots=True)
class Session:
    """One append-only context.

    Attributes:
        tokens: the context, sampled tokens included; only grows.
        num_cached: how many of them have keys and values (in the slot, or parked).
        shelf: index of the shelf where they are, if it holds a slot.
        slot: its slot on that shelf (meaningless without one).
        capacity: tokens that fit into its slot.
        parked: [2, layers, kv heads, num_cached, head dim], if its slot was needed by another session.
        turn: the request that waits or runs; None between turns.
        is_running: the turn takes part in ticks (and so the session holds a slot).
        last_used: counter of turns ended; the session idle for longest gives its slot first.
    """

    name: str
    tokens: list[int] = field(default_factory=list)
    num_cached: int = 0
    shelf: int | None = None
    slot: int = 0
    capacity: int = 0
    parked: Tensor | None = None
    turn: Turn | None = None
    is_running: bool = False
    last_used: int = 0

    @property
    def num_pending(self) -> int:
        """Tokens that the model has not seen yet; a turn samples once this is 0."""
        return len(self.tokens) - self.num_cached
