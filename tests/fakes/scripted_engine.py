"""An engine without a model: the next token is a pure function of the context. Ticks by hand, like the embedded one.

Weights are one number, `{"offset": n}`, added to the token the function names: a new version is visible in the tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soliton.engines.engine import Completion, GenerateRequest


class _Running:
    def __init__(self, request: GenerateRequest) -> None:
        self.request = request
        self.future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.tokens: list[int] = []
        self.versions: list[int] = []

    def end(self, reason) -> None:
        if not self.future.done():
            logprobs = tuple(-0.25 for _ in self.tokens)
            self.future.set_result(
                Completion(
                    token_ids=tuple(self.tokens),
                    logprobs=logprobs,
                    versions=tuple(self.versions),
                    finish_reason=reason,
                )
            )


class ScriptedEngine:
    """Args:
    next_token: context (as a tuple of ids), seed -> id; taken modulo `vocab`.
    decode: ids -> text, for stop strings.
    """

    def __init__(
        self,
        next_token: Callable[[tuple[int, ...], int], int],
        decode: Callable[[Sequence[int]], str],
        *,
        vocab: int = 50,
        max_context: int = 256,
    ) -> None:
        self.version = 0
        self._next_token = next_token
        self._decode = decode
        self._vocab = vocab
        self._max_context = max_context
        self._offset = 0
        self._contexts: dict[str, tuple[int, ...]] = {}
        self._running: dict[str, _Running] = {}

    async def generate(self, request: GenerateRequest) -> Completion:
        ids, known = request.token_ids, self._contexts.get(request.session, ())
        if not ids or request.max_new_tokens < 1 or len(ids) + request.max_new_tokens > self._max_context:
            raise ValueError(f"{len(ids)} context tokens, max_new_tokens {request.max_new_tokens}")
        if request.session in self._running:
            raise ValueError(f"session {request.session!r} already runs a request")
        if ids[: len(known)] != known:
            raise ValueError(f"session {request.session!r}: the cached context is not a prefix")
        running = self._running[request.session] = _Running(request)
        self._contexts[request.session] = ids
        try:
            return await running.future
        except asyncio.CancelledError:
            await self.release(request.session)
            raise

    async def abort(self, session: str) -> None:
        self._contexts.pop(session, None)
        if running := self._running.pop(session, None):
            running.end("abort")

    async def release(self, session: str) -> None:
        await self.abort(session)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        if version <= self.version:
            raise ValueError(f"version {version} is not newer than {self.version}")
        if set(weights) != {"offset"}:
            raise ValueError(f"unknown or missing names: {sorted(weights)}, must be ['offset']")
        self._offset, self.version = int(weights["offset"]), version

    def step(self) -> bool:
        """One token for every running request; False if there is none."""
        for session, running in list(self._running.items()):
            request, context = running.request, self._contexts[session]
            token = (self._next_token(context, request.seed) + self._offset) % self._vocab
            self._contexts[session] = context = (*context, token)
            running.tokens.append(token)
            running.versions.append(self.version)
            text = self._decode(context[request.action_start :])
            stops = token in request.stop_token_ids or any(stop in text for stop in request.stop_strings)
            if stops or len(running.tokens) == request.max_new_tokens:
                del self._running[session]
                running.end("stop" if stops else "length")
        return bool(self._running)
