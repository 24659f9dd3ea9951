"""What the tests of episodes and workers share."""

from __future__ import annotations

import asyncio

from soliton.envs.calculator import Calculator
from soliton.envs.latency import LatencyConfig, SimulatedLatency
from soliton.models.character_tokenizer import character_tokenizer
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.stream import make_prompt
from soliton.rollout.episode import Episode
from soliton.rollout.limits import Limits
from soliton.rollout.renderer import Renderer
from soliton.types import AttemptId, Lease, Sampling, Trajectory
from tests.fakes.manual_clock import ManualClock
from tests.fakes.scripted_policy import ScriptedPolicy, solve

TOKENIZER = character_tokenizer()
RENDERER = Renderer(TOKENIZER)
PROMPTS = CalculatorPrompts(0)
PROMPT = make_prompt({"expression": "78-62*3", "answer": 48})
LEASE = Lease(attempt=AttemptId(5, 0, 1), issued_s=0.0, version=0)
END = TOKENIZER.eos_token_id


def encode(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def text_of(trajectory: Trajectory) -> str:
    return TOKENIZER.decode(trajectory.token_ids.tolist())


def sampled_text(trajectory: Trajectory) -> str:
    return TOKENIZER.decode(trajectory.token_ids[trajectory.action_mask].tolist())


def calculator_with(latency: LatencyConfig):
    return lambda clock, seed: SimulatedLatency(Calculator(), clock, latency, seed)


def make_episode(
    clock, engine, *, environment=None, state=None, lease=LEASE, prompt=PROMPT, renderer=RENDERER, **limits
):
    """An episode in `environment`: one object, or a maker; the plain calculator if left out."""
    make = environment if callable(environment) else (lambda _clock, _seed: environment or Calculator())
    return Episode(
        lease,
        prompt,
        make_environment=make,
        engine=engine,
        renderer=renderer,
        clock=clock,
        limits=Limits(**limits),
        sampling=Sampling(),
        run_seed=1,
        state=state,
    )


def run_episode(environment=None, say=solve, *, tamper=None, tick_s=0.0, clock=None, renderer=RENDERER, **limits):
    """The trajectory and the engine of one episode, run to its end."""
    clock = clock or ManualClock()
    engine = ScriptedPolicy(TOKENIZER, say, clock=clock, tick_s=tick_s, tamper=tamper)
    episode = make_episode(clock, engine, environment=environment, renderer=renderer, **limits)
    return asyncio.run(clock.drive(episode.run())), engine
