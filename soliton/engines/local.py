"""The embedded engine: continuous batching over KV slots through a Hugging Face model's own modules.

Owns: its copy of the model, the sessions and their KV, the queue of waiting requests, the decode tick.
Does not know: episodes, environments, rewards, the learner (weights arrive in checkpoint names).

Guarantees:
* A tick (`step`) is synchronous; requests, aborts and new weights take effect between ticks only. The same calls in
  the same order give bit-equal results.
* Every token carries the version of the weights whose logits it was drawn from.
* Requests beyond `num_slots` wait in FIFO order; sessions between turns are parked when their slot is needed.
* An exception in a tick fails every pending request and propagates; nobody waits for a tick that will never come.

Loop `run`: waits for work (a request) or the clock (one tick lasts `tick_s`); unblocked by `generate`.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from soliton.engines.batch import build_tick
from soliton.engines.engine import Completion, FinishReason, GenerateRequest
from soliton.engines.sampling import SamplingRows, draw, uniforms
from soliton.engines.session import Session, Turn, check_request
from soliton.engines.slots import SlotPool
from soliton.errors import ConfigError, WorldError
from soliton.models.slot_attention import slot_model
from soliton.models.slot_forward import slot_forward
from soliton.reasons import DropReason
from soliton.types import Clock
from soliton.weights import load_published


class Decoder(Protocol):
    """The part of a tokenizer that stop strings need."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of the tokens, special ones included."""
        ...


class LocalEngine:
    """Implements `soliton.engines.engine.Engine` in this process.

    Args:
        model: the initial policy; copied, never changed.
        tokenizer: decodes actions for stop strings; None if no request has any.
        num_slots: sessions that decode at once.
        max_context: most tokens of one context, the action included.
        prefill_budget: most extension tokens (forced tokens beyond one per slot) of one tick; 0 feeds one per tick.
        kv_on_update: at new weights "keep" all KV, or "recompute" every context with the new weights.
        version: policy version of `model`.

    Raises:
        ConfigError: a limit out of range, or an architecture without plain full attention.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Decoder | None,
        *,
        num_slots: int = 64,
        max_context: int = 512,
        prefill_budget: int = 256,
        kv_on_update: Literal["keep", "recompute"] = "keep",
        version: int = 0,
    ) -> None:
        config = model.config
        if num_slots < 1 or prefill_budget < 0 or kv_on_update not in ("keep", "recompute"):
            raise ConfigError(
                f"num_slots {num_slots} must be >= 1, prefill_budget {prefill_budget} >= 0 and "
                f"kv_on_update {kv_on_update!r} 'keep' or 'recompute'"
            )
        positions = getattr(config, "max_position_embeddings", max_context)
        if not 1 <= max_context <= positions:
            raise ConfigError(f"max_context {max_context} must be in [1, {positions}] (max_position_embeddings)")
        self.ticks = 0
        self.tokens_sampled = 0
        self._model = slot_model(model)
        self._forward = slot_forward(self._model, max_context)
        self._tokenizer = tokenizer
        self._prefill_budget = prefill_budget
        self._kv_on_update = kv_on_update
        self._version = version
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self._group = heads // kv_heads
        embeddings = self._model.get_input_embeddings().weight
        assert isinstance(embeddings, Tensor)
        self._vocab_size = embeddings.shape[0]
        self._pool = SlotPool(
            num_slots, max_context, embeddings, layers=config.num_hidden_layers, kv_heads=kv_heads, dim=dim
        )
        self._sessions: dict[str, Session] = {}
        self._waiting: deque[Session] = deque()
        self._running: list[Session] = []
        self._turns_ended = 0
        self._failure: Exception | None = None
        self._has_work = asyncio.Event()

    @property
    def version(self) -> int:
        """Policy version that the next sampled token will carry."""
        return self._version

    @property
    def num_active(self) -> int:
        """Requests that take part in ticks; at most `num_slots`."""
        return len(self._running)

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one turn; `step` (or `run`) does the work. See `Engine.generate`; cancelling drops the session.

        Raises:
            ValueError: bad limits or ids, a context that does not extend the session's, or a session already running.
            WorldError: reason "engine_error": non-finite logits, or the engine has failed.
        """
        if self._failure is not None:
            raise WorldError(DropReason.ENGINE_ERROR.value, f"the engine has failed: {self._failure!r}")
        session = self._sessions.get(request.session) or Session(request.session)
        check_request(request, session, self._pool.max_context, self._vocab_size)
        if request.stop_strings and self._tokenizer is None:
            raise ValueError("stop strings need a tokenizer; make the engine with one")
        session.tokens.extend(request.token_ids[len(session.tokens) :])
        turn = Turn(request, asyncio.get_running_loop().create_future(), frozenset(request.stop_token_ids))
        session.turn = turn
        self._sessions[session.name] = session
        self._waiting.append(session)
        self._has_work.set()
        try:
            return await turn.future
        except asyncio.CancelledError:
            if self._sessions.get(session.name) is session:
                self._drop(session)
            raise

    async def abort(self, session: str) -> None:
        """End the running request of `session` (if any) with what it has, and drop its cache."""
        known = self._sessions.get(session)
        if known is not None:
            self._drop(known)

    async def release(self, session: str) -> None:
        """Drop the session's cache; a request still running ends as if aborted. Unknown sessions are fine."""
        await self.abort(session)

    async def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take new weights (checkpoint names) before the next tick.

        Raises:
            ValueError: unknown or missing names, another shape, or a version that is not newer.
        """
        if version <= self._version:
            raise ValueError(f"version {version} is not newer than the engine's {self._version}; versions only grow")
        load_published(self._model, dict(weights))
        self._version = version
        if self._kv_on_update == "recompute":
            self._pool.forget_all()
            for session in self._sessions.values():
                session.parked = None
                session.num_cached = 0

    async def run(self, clock: Clock, tick_s: float) -> None:
        """Tick while there is work, `tick_s` seconds of `clock` each (0: as fast as it goes), until cancelled.

        An exception fails every pending request, and every later one, with WorldError, and propagates.
        """
        try:
            while True:
                if not self.step():
                    self._has_work.clear()
                    await self._has_work.wait()
                elif tick_s > 0:
                    await clock.sleep_until(clock.now() + tick_s)
                else:
                    await _let_others_run()
        except Exception as error:
            self._fail_all(error)
            raise

    def step(self) -> bool:
        """Do one decode tick; False if no request waits or runs."""
        self._admit()
        if not self._running:
            return False
        with torch.inference_mode():
            tick = build_tick(self._running, self._pool, self._prefill_budget, self._group)
            logits = self._forward(tick.input_ids, tick.position_ids, tick.sampling_rows, tick.slot)
            self.ticks += 1
            if tick.sampling:
                self._sample(tick.sampling, logits)
        return True

    def _admit(self) -> None:
        while self._waiting and self._pool.place(self._waiting[0]):
            session = self._waiting.popleft()
            session.is_running = True
            self._running.append(session)

    def _sample(self, sessions: list[Session], logits: Tensor) -> None:
        requests = [session.turn.request for session in sessions if session.turn is not None]
        assert len(requests) == len(sessions)
        draws = draw(
            logits,
            SamplingRows(
                temperature=np.array([r.sampling.temperature for r in requests], dtype=np.float32),
                top_k=np.array([r.sampling.top_k for r in requests], dtype=np.int64),
                top_p=np.array([r.sampling.top_p for r in requests], dtype=np.float32),
                uniform=uniforms(
                    np.array([r.seed % 2**64 for r in requests], dtype=np.uint64),
                    np.array([len(session.tokens) for session in sessions], dtype=np.int64),
                ),
            ),
        )
        for session, token, logprob, ok in zip(sessions, draws.token_ids, draws.logprobs, draws.finite, strict=True):
            if ok:
                self._append(session, token, logprob)
            else:
                assert session.turn is not None
                session.turn.fail(
                    WorldError(
                        DropReason.ENGINE_ERROR.value,
                        f"session {session.name!r}: non-finite logits at token {len(session.tokens)}, "
                        f"version {self._version}",
                    )
                )
                self._drop(session)

    def _append(self, session: Session, token: int, logprob: float) -> None:
        turn = session.turn
        assert turn is not None
        session.tokens.append(token)
        turn.token_ids.append(token)
        turn.logprobs.append(logprob)
        turn.versions.append(self._version)
        self.tokens_sampled += 1
        if token in turn.stop_ids or (turn.request.stop_strings and self._completes_stop_string(session, turn)):
            self._end(session, "stop")
        elif len(turn.token_ids) == turn.request.max_new_tokens:
            self._end(session, "length")

    def _completes_stop_string(self, session: Session, turn: Turn) -> bool:
        assert self._tokenizer is not None
        stops = turn.request.stop_strings
        # A character takes at most 4 byte tokens, so the stop lies in this tail: linear, not quadratic, in the action.
        tail = 4 * max(map(len, stops)) + 8
        text = self._tokenizer.decode(session.tokens[max(turn.request.action_start, len(session.tokens) - tail) :])
        return any(stop in text for stop in stops)

    def _end(self, session: Session, reason: FinishReason) -> None:
        """The turn is over; the session keeps its KV (and its slot until another needs it)."""
        turn = session.turn
        assert turn is not None
        session.turn = None
        if session.is_running:
            session.is_running = False
            self._running.remove(session)
        else:
            self._waiting.remove(session)
        self._turns_ended += 1
        session.last_used = self._turns_ended
        turn.resolve(reason)

    def _drop(self, session: Session) -> None:
        if session.turn is not None:
            self._end(session, "abort")
        self._pool.evict(session)
        del self._sessions[session.name]

    def _fail_all(self, error: Exception) -> None:
        self._failure = error
        for session in list(self._sessions.values()):
            if session.turn is not None:
                session.turn.fail(WorldError(DropReason.ENGINE_ERROR.value, f"the engine has failed: {error!r}"))
            self._drop(session)


@types.coroutine
def _let_others_run() -> Generator[None, None, None]:
    """Give every other ready task one turn of the event loop."""
    yield
