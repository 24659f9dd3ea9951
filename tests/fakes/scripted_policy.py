"""An engine that says what the test tells it to: token by token, on a clock, abortable, with a version per token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from soliton.engines.engine import Completion, GenerateRequest
from soliton.envs.calculator import compute
from soliton.types import Clock

Action = str | Sequence[int]
"""Text (the end token is added), or token ids verbatim."""


class ScriptedPolicy:
    """Args:
    tokenizer: encodes texts and decodes contexts.
    say: the context before the action, as text -> the action.
    clock, tick_s: one token takes `tick_s`; 0 samples at once.
    tamper: what `generate` returns instead of its completion.
    """

    def __init__(
        self,
        tokenizer,
        say: Callable[[str], Action],
        *,
        clock: Clock | None = None,
        tick_s: float = 0.0,
        tamper: Callable[[Completion], Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._say = say
        self._clock = clock
        self._tick_s = tick_s
        self._tamper = tamper
        self._aborts: dict[str, asyncio.Event] = {}
        self.version = 0
        self.requests: list[GenerateRequest] = []
        self.aborted: list[str] = []
        self.released: list[str] = []

    async def generate(self, request: GenerateRequest) -> Completion:
        assert request.session not in self._aborts, "one request per session"
        assert request.token_ids
        assert request.max_new_tokens >= 1
        self.requests.append(request)
        abort = self._aborts[request.session] = asyncio.Event()
        try:
            completion = await self._sample(request, abort)
        finally:
            del self._aborts[request.session]
        return self._tamper(completion) if self._tamper else completion

    async def _sample(self, request: GenerateRequest, abort: asyncio.Event) -> Completion:
        context = self._tokenizer.decode(list(request.token_ids[: request.action_start]))
        action = self._say(context)
        if isinstance(action, str):
            action = [*self._tokenizer.encode(action, add_special_tokens=False), request.stop_token_ids[0]]
        left = list(action[len(request.token_ids) - request.action_start :])
        tokens: list[int] = []
        versions: list[int] = []
        finish = "length"
        while len(tokens) < request.max_new_tokens:
            await self._tick(abort)
            if abort.is_set():
                finish = "abort"
                break
            tokens.append(left[len(tokens)])
            versions.append(self.version)
            text = self._tokenizer.decode([*request.token_ids[request.action_start :], *tokens])
            if tokens[-1] in request.stop_token_ids or any(stop in text for stop in request.stop_strings):
                finish = "stop"
                break
        return Completion(
            token_ids=tuple(tokens),
            logprobs=tuple(logprob_at(len(request.token_ids) + i) for i in range(len(tokens))),
            versions=tuple(versions),
            finish_reason=finish,
        )

    async def _tick(self, abort: asyncio.Event) -> None:
        if self._clock is None or self._tick_s == 0:
            return
        waits = [
            asyncio.ensure_future(self._clock.sleep_until(self._clock.now() + self._tick_s)),
            asyncio.ensure_future(abort.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def abort(self, session: str) -> None:
        self.aborted.append(session)
        if session in self._aborts:
            self._aborts[session].set()

    async def release(self, session: str) -> None:
        self.released.append(session)

    async def load_weights(self, weights: Mapping[str, Any], version: int) -> None:
        self.version = version


def logprob_at(index: int) -> float:
    """The recorded log-prob of the token at context index `index`."""
    return -(1 + index % 7) / 8


def solve(context: str) -> str:
    """The right next action of the calculator task, read off the end of a character-tokenizer context."""
    expression = context.rsplit("<end><model>", 1)[0].rsplit(">", 1)[1]
    for end in range(len(expression), 2, -1):
        if compute(expression[:end]) is not None:
            return expression[:end]
    return f"={expression}"
