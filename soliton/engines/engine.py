"""The engine protocol: tokens in; tokens, sampled log-probs and a policy version per token out. Imports no torch.

It fits an embedded engine and an HTTP one alike: token ids both ways, an abort that returns what was sampled so far,
weights that change between two decode steps of running requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from soliton.types import Sampling

FinishReason = Literal["stop", "length", "abort"]


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one session.

    Attributes:
        session: names the KV cache to go on with; one session per attempt, never shared between attempts.
        token_ids: the whole context so far (the engine feeds only what its cache of `session` lacks).
        action_start: index in `token_ids` where the current action begins. Equal to `len(token_ids)` for a new turn;
            smaller when an aborted turn goes on, so that stop strings and the uniform stream see the whole action.
        max_new_tokens: >= 1; finish reason "length" when reached without a stop.
        sampling: temperature, top-p, top-k.
        stop_token_ids: sampling one of these ends the turn; the token belongs to the action.
        stop_strings: the turn ends with the token that completes one of these in the decoded action.
        seed: the uniform for the token at context index i is a pure function of (seed, i): results depend neither on
            the batch nor on interruptions.
    """

    session: str
    token_ids: tuple[int, ...]
    action_start: int
    max_new_tokens: int
    sampling: Sampling = Sampling()
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    seed: int = 0


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What one request sampled; three lists of equal length, one entry per new token.

    `logprobs` are those of the distribution actually sampled from (after temperature, top-p and top-k).
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    finish_reason: FinishReason


class Engine(Protocol):
    """Continuous batching over sessions."""

    @property
    def version(self) -> int:
        """Policy version that the next sampled token will carry."""
        ...

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one turn. Returns early with finish reason "abort" after `abort(session)`, with what it has.

        Raises:
            WorldError: reason "engine_error", if the engine cannot do it.
            ValueError: an empty context, `max_new_tokens < 1` or a context beyond the engine's limit.
        """
        ...

    async def abort(self, session: str) -> None:
        """End the running request of `session` (if any) and drop its cache."""
        ...

    async def release(self, session: str) -> None:
        """The attempt is over: drop the session's cache. Unknown sessions are fine."""
        ...

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights (checkpoint names) between two decode steps of running requests.

        Raises:
            ValueError: unknown or missing names, another shape, or a version that is not newer.
        """
        ...
