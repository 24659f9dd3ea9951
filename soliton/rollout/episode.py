"""One episode: an attempt at a prompt, from `reset` to a trajectory, that can be parked at any await.

    _generate   waits for a sampled turn      unblocked by the engine, a park, the time limit
    _step       waits for the environment     unblocked by the environment, a park, a timeout, the time limit

It owns the state of its attempt and uses one engine session. It knows neither store nor prompts.

Guarantees: sampled token ids are stored verbatim and the context only grows; a failure of the world becomes a `failed`
trajectory and a log record, never a reward; a limit truncates and keeps the reward earned so far; a finished episode
is scored before any limit is looked at (fault F4).

A parked episode goes on from its `EpisodeState` in a new `Episode`: the environment is rebuilt by `reset` and replay
of the recorded actions, the context is prefilled by the engine, and a partial action is continued.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np

from soliton.engines.engine import Completion, Engine, GenerateRequest
from soliton.errors import RunError, WorldError
from soliton.reasons import DropReason, Status, TruncationReason
from soliton.rollout.checks import checked_completion
from soliton.rollout.episode_environment import EpisodeEnvironment, Info, MakeEnvironment, OutOfTime
from soliton.rollout.limits import Limits
from soliton.rollout.renderer import Renderer
from soliton.rollout.state import EpisodeState, Pending
from soliton.rollout.world import GRACE_S, Late, Parked, World
from soliton.types import Clock, Lease, Prompt, Role, Sampling, Times, Trajectory

__all__ = ["Episode", "EpisodeState", "MakeEnvironment", "Parked"]

Ending = tuple[Status, str | None]
logger = logging.getLogger(__name__)


class Episode:
    """Runs once.

    Args:
        lease: the attempt.
        prompt: what to attempt.
        make_environment: called once.
        engine: samples; its session is named after the attempt. The caller releases it afterwards.
        renderer: of the engine's tokenizer.
        clock: of the run.
        limits, sampling: see their classes.
        run_seed: seeds of environment and engine are derived from it and the attempt alone (fault F11).
        state: of a parked episode, to go on with; None starts afresh.

    Raises:
        RunError: `state` is of another attempt or prompt.

    Attributes:
        failure: what went wrong, in words, once `run` has returned a failed trajectory; else "".
    """

    def __init__(
        self,
        lease: Lease,
        prompt: Prompt,
        *,
        make_environment: MakeEnvironment,
        engine: Engine,
        renderer: Renderer,
        clock: Clock,
        limits: Limits,
        sampling: Sampling,
        run_seed: int,
        state: EpisodeState | None = None,
    ) -> None:
        self.state = state or EpisodeState(lease=lease, prompt_id=prompt.id)
        if (self.state.lease, self.state.prompt_id) != (lease, prompt.id):
            raise RunError(
                f"attempt {lease.attempt} of prompt {prompt.id} cannot go on from the state of attempt "
                f"{self.state.lease.attempt} of prompt {self.state.prompt_id}: the prompt stream has changed"
            )
        self._attempt = lease.attempt
        self._engine = engine
        self._engine_seed = lease.attempt.seed(run_seed, "engine")
        self._renderer = renderer
        self._clock = clock
        self._limits = limits
        self._sampling = sampling
        self._world = World(clock)
        environment_seed = lease.attempt.seed(run_seed, "environment")
        self._environment = EpisodeEnvironment(
            lease.attempt, make_environment, prompt, environment_seed, self._world, clock, limits
        )
        self._over = asyncio.Event()
        self._is_parked = False
        self.failure = ""

    async def run(self) -> Trajectory:
        """Play to the end.

        Raises:
            Parked: `park` was called; `state` says how to go on.
            RunError: the rebuilt environment differs from its record, or the engine refuses a request.
            ConfigError: the prompt does not fit the environment, or the chat template cannot render a message.
        """
        try:
            status, reason = await self._play()
        except WorldError as failure:
            logger.warning(
                "attempt %s failed (%s): %s", self._attempt, failure.reason, failure, exc_info=failure.__cause__
            )
            status, reason = Status.FAILED, failure.reason
            self.failure = str(failure)
        except Parked:
            self._is_parked = True
            raise
        finally:
            await self._environment.close()
            self._over.set()
        return self._trajectory(status, reason)

    async def park(self) -> EpisodeState | None:
        """Interrupt `run`, wait until it has ended, and return the state to go on from.

        What was sampled of a running turn is kept. None: the episode ended before it could be parked.
        """
        await self._world.interrupt()
        await self._over.wait()
        return self.state if self._is_parked else None

    async def _play(self) -> Ending:
        ending: Ending | None = None
        try:
            await self._open()
            while ending is None:
                ending = await (self._step() if self.state.phase == "stepping" else self._generate())
        except OutOfTime:
            ending = Status.TRUNCATED, TruncationReason.TIME_LIMIT
        if Role.ACTION not in self.state.roles:
            raise WorldError(DropReason.NO_ACTION, f"{ending[1]} before the first sampled token")
        return ending

    async def _open(self) -> None:
        """Start the environment and the context, or rebuild the environment if the episode was parked."""
        state = self.state
        began_s = self._clock.now()
        if state.started_s is None:
            state.started_s = began_s
        if self._limits.time_limit_s is not None:
            self._environment.time_limit_at_s = state.started_s + self._limits.time_limit_s
        if state.phase != "fresh":
            await self._environment.rebuild(state)
            return
        opening, info = await self._environment.reset()
        state.tool_wait_s += self._clock.now() - began_s
        rendered = self._renderer.first(opening)
        if len(rendered.token_ids) >= self._limits.max_tokens:
            raise WorldError(
                DropReason.NO_ACTION,
                f"the prompt has {len(rendered.token_ids)} tokens; max_tokens = {self._limits.max_tokens} leaves no "
                "room for an action",
            )
        state.opening = opening
        self._note(info)
        state.append_unsampled(rendered)
        state.action_start = len(state.token_ids)
        state.phase = "generating"

    async def _generate(self) -> Ending | None:
        """Sample a turn, or the rest of one. The budget is computed before the call (fault F3)."""
        state, limits = self.state, self._limits
        num_tokens = len(state.token_ids)
        room = min(limits.max_tokens - num_tokens, limits.max_turn_tokens - (num_tokens - state.action_start))
        if len(state.turns) >= limits.max_turns:
            return Status.TRUNCATED, TruncationReason.TURN_LIMIT
        if room < 1:
            return Status.TRUNCATED, TruncationReason.TOKEN_LIMIT
        if self._is_out_of_time():
            return Status.TRUNCATED, TruncationReason.TIME_LIMIT
        request = GenerateRequest(
            session=str(self._attempt),
            token_ids=tuple(state.token_ids),
            action_start=state.action_start,
            max_new_tokens=room,
            sampling=self._sampling,
            stop_token_ids=self._renderer.stop_token_ids,
            stop_strings=self._renderer.stop_strings,
            seed=self._engine_seed,
        )
        began_s = self._clock.now()
        try:
            completion = checked_completion(await self._ask_engine(request), request)
        finally:
            state.generating_s += self._clock.now() - began_s
        state.append_sampled(completion)
        if completion.finish_reason == "abort":
            return self._aborted()
        if completion.finish_reason == "length":
            return Status.TRUNCATED, TruncationReason.TOKEN_LIMIT
        action = self._renderer.action_text(state.token_ids[state.action_start :])
        state.pending = Pending(action, self._clock.now())
        state.phase = "stepping"
        return None

    async def _ask_engine(self, request: GenerateRequest) -> Completion:
        """Generate; at the time limit the engine is asked to stop, and answers with what it has."""

        async def abort() -> None:
            await self._engine.abort(request.session)

        async def generate() -> Completion:
            try:
                return await self._engine.generate(request)
            except ValueError as error:
                raise RunError(
                    f"attempt {self._attempt}: the engine refuses a request at token {len(request.token_ids)}: {error}"
                ) from error

        limit_s = self._environment.time_limit_at_s
        timer = None if limit_s is None else asyncio.ensure_future(self._abort_at(limit_s, request.session))
        try:
            deadline_s = None if limit_s is None else limit_s + GRACE_S
            return await self._world.ask(generate, DropReason.ENGINE_ERROR, deadline_s=deadline_s, stop=abort)
        except Late:
            raise WorldError(DropReason.ENGINE_ERROR, f"no answer from the engine {GRACE_S} s after an abort") from None
        finally:
            if timer is not None:
                timer.cancel()

    async def _abort_at(self, when_s: float, session: str) -> None:
        await self._clock.sleep_until(when_s)
        await self._engine.abort(session)

    def _aborted(self) -> Ending:
        if self._world.is_interrupted:
            raise Parked
        if self._is_out_of_time():
            return Status.TRUNCATED, TruncationReason.TIME_LIMIT
        raise WorldError(DropReason.ENGINE_ERROR, "the engine aborted a turn that this episode did not abort")

    def _is_out_of_time(self) -> bool:
        limit_s = self._environment.time_limit_at_s
        return limit_s is not None and self._clock.now() >= limit_s

    async def _step(self) -> Ending | None:
        """Hand the action to the environment. Its reward sits on the last token of the action."""
        state, pending = self.state, self.state.pending
        assert pending is not None
        turn, info = await self._environment.step(pending)
        state.tool_wait_s += self._clock.now() - pending.began_s
        state.turns.append(turn)
        state.pending = None
        state.phase = "generating"
        state.reward_positions.append(len(state.token_ids) - 1)
        state.reward_values.append(turn.reward)
        self._note(info)
        if turn.terminated:
            return Status.TERMINATED, None
        rendered = self._renderer.next(turn.messages, state.token_ids[-1])
        fits = len(state.token_ids) + len(rendered.token_ids) < self._limits.max_tokens
        if fits:
            state.append_unsampled(rendered)
            state.action_start = len(state.token_ids)
        if turn.truncated:
            return Status.TRUNCATED, TruncationReason.ENVIRONMENT
        return None if fits else (Status.TRUNCATED, TruncationReason.TOKEN_LIMIT)

    def _note(self, info: Info) -> None:
        """Keep the environment's numbers (the last one of each name) and add up what was done to its messages."""
        added = {name: self.state.info.get(name, 0.0) + info[name] for name in info if name.startswith("observations_")}
        self.state.info = {**self.state.info, **info, **added}

    def _trajectory(self, status: Status, reason: str | None) -> Trajectory:
        state = self.state
        assert state.started_s is not None
        has_rewards = status is not Status.FAILED
        return Trajectory(
            attempt=self._attempt,
            prompt_id=state.prompt_id,
            status=status,
            reason=reason,
            token_ids=np.array(state.token_ids, dtype=np.int32),
            roles=np.array(state.roles, dtype=np.uint8),
            rollout_logprobs=np.array(state.logprobs, dtype=np.float32),
            versions=np.array(state.versions, dtype=np.int32),
            reward_positions=np.array(state.reward_positions if has_rewards else [], dtype=np.int32),
            reward_values=np.array(state.reward_values if has_rewards else [], dtype=np.float32),
            times=Times(
                issued_s=state.lease.issued_s,
                started_s=state.started_s,
                finished_s=self._clock.now(),
                generating_s=state.generating_s,
                tool_wait_s=state.tool_wait_s,
            ),
            sampling=self._sampling,
            info=state.info,
            awaited=state.turns[-1].awaited if has_rewards and state.turns else None,
        )
