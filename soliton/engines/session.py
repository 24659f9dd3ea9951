"""What the embedded engine knows about one session and its running turn. Plain state and what is allowed."""

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


def check_request(request: GenerateRequest, session: Session, max_context: int, vocab_size: int) -> None:
    """Refuse what cannot be served in `session`.

    Raises:
        ValueError: a session already running, an empty context, a limit or an id out of range, an empty stop string,
            or a context that does not extend the session's.
    """
    ids, known = request.token_ids, len(session.tokens)
    if session.turn is not None:
        raise ValueError(f"session {session.name!r} already runs a request; wait for it or abort it")
    if not ids or request.max_new_tokens < 1:
        raise ValueError(
            f"session {session.name!r}: {len(ids)} context tokens and max_new_tokens {request.max_new_tokens}; "
            "both must be >= 1"
        )
    if not 0 <= request.action_start <= len(ids):
        raise ValueError(f"action_start {request.action_start} must be in [0, {len(ids)}], the context")
    if len(ids) + request.max_new_tokens > max_context:
        raise ValueError(
            f"{len(ids)} context tokens + max_new_tokens {request.max_new_tokens} exceed max_context {max_context}; "
            "shorten the context or ask for fewer tokens"
        )
    if list(ids[:known]) != session.tokens:
        raise ValueError(
            f"session {session.name!r}: its {known} cached tokens are not a prefix of the {len(ids)} given; "
            "contexts only grow. Release the session first to start another context"
        )
    new = ids[known:]
    if new and not (min(new) >= 0 and max(new) < vocab_size):
        raise ValueError(f"token ids {min(new)}..{max(new)} must be in [0, {vocab_size})")
    if "" in request.stop_strings:
        raise ValueError("a stop string is empty and would end every action at once; leave it out")
