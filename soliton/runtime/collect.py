"""Roll out a fixed list of prompts with one policy, every episode waited for: for evaluation and value pretraining.

No store: nothing is trained while it runs, so nothing can be stale. Results are in the order of the prompts and do not
depend on how many run together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from transformers import PreTrainedModel

from soliton.envs.latency import LatencyConfig
from soliton.errors import RunError
from soliton.reasons import Status
from soliton.rollout.episode import Episode
from soliton.runtime.clock import RealClock, VirtualClock
from soliton.runtime.setup import Setup
from soliton.types import AttemptId, Clock, Lease, Prompt, Trajectory


def collect(
    setup: Setup,
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    *,
    seed: int,
    phase: int = 1,
    on_done: Callable[[Trajectory], None] = lambda _: None,
) -> list[Trajectory]:
    """One finished trajectory per prompt, in order; failures of the world are tried again.

    Args:
        setup: task and settings.
        model: the policy; not changed.
        prompts: what to attempt.
        seed: of sampling and environments; equal seeds give equal trajectories for equal policies.
        phase: in which the environments show and judge.
        on_done: called as each trajectory finishes.

    Raises:
        RunError: a prompt failed `rollout.max_attempts` times.
        Exception: whatever ended the engine unexpectedly (fault H3).
    """
    if setup.config.env.judge.kind == "llm":  # virtual time would not wait for an answer
        return asyncio.run(_collect(setup, model, prompts, RealClock(), 0.0, seed, phase, on_done))
    clock = VirtualClock(seed)
    return clock.run(_collect(setup, model, prompts, clock, setup.config.inline.tick_s, seed, phase, on_done))


async def _collect(
    setup: Setup,
    model: PreTrainedModel,
    prompts: Sequence[Prompt],
    clock: Clock,
    tick_s: float,
    seed: int,
    phase: int,
    on_done: Callable[[Trajectory], None],
) -> list[Trajectory]:
    config = setup.config
    engine = setup.new_engine(model, version=0)
    make_environment = setup.environment_factory(LatencyConfig(), lambda _: phase)

    async def attempt(draw: int, prompt: Prompt) -> Trajectory:
        for attempt in range(config.rollout.max_attempts):
            lease = Lease(attempt=AttemptId(draw, 0, attempt), issued_s=clock.now(), version=0)
            episode = Episode(
                lease,
                prompt,
                make_environment=make_environment,
                engine=engine,
                renderer=setup.renderer,
                clock=clock,
                limits=config.limits,
                sampling=config.sampling.record(),
                run_seed=seed,
            )
            trajectory = await episode.run()
            await engine.release(str(lease.attempt))
            if trajectory.awaited is not None:
                raise RunError(
                    f"prompt {prompt.id}: the episode ended with its reward awaited from outside, which only training "
                    "can wait for; drop the stages value_pretraining and eval and set eval.every_steps = 0"
                )
            if trajectory.status is not Status.FAILED:
                on_done(trajectory)
                return trajectory
        tries = config.rollout.max_attempts
        raise RunError(
            f"prompt {prompt.id} failed {tries} times, last reason {trajectory.reason}: {episode.failure}; "
            "logs/run.log has the traceback"
        )

    async def all_attempts() -> list[Trajectory]:
        return await asyncio.gather(*(attempt(draw, prompt) for draw, prompt in enumerate(prompts)))

    pump = asyncio.create_task(engine.run(clock, tick_s))
    episodes = asyncio.create_task(all_attempts())
    try:
        await asyncio.wait((pump, episodes), return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            pump.result()  # it never ends by itself: this raises what ended it
        return await episodes
    finally:
        pump.cancel()
        episodes.cancel()
