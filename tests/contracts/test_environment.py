"""The contract of `soliton.envs.environment.Environment`, run over every built-in environment."""

import asyncio

import msgspec
import pytest

from soliton.envs.calculator import Calculator
from soliton.envs.environment import Environment, Message, StepResult
from soliton.envs.latency import LatencyConfig, SimulatedLatency
from soliton.envs.maze import Maze
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.items import DrawnPrompts
from tests.fakes.manual_clock import ManualClock

PROMPTS = [CalculatorPrompts(0).at(draw) for draw in range(8)]
LATENCY = LatencyConfig(kind="uniform", low_s=0.1, high_s=1.0)
MAZE = DrawnPrompts(Maze.item, seed=0)


class MazeOfAnyPrompt(Maze):
    """Plays its own maze whatever the prompt, so that all environments go through the same tests."""

    async def reset(self, prompt, seed):
        return await super().reset(MAZE.at(prompt.content["answer"]), seed)

    async def step(self, action):
        is_open = [seen != "#" for seen in self._view()[:4]]
        return await super().step("nesw"[is_open.index(True)] if action[:1].isdigit() else action)


MAKERS = {
    "maze": lambda clock, seed: MazeOfAnyPrompt(),
    "calculator": lambda clock, seed: Calculator(),
    "calculator with latency": lambda clock, seed: SimulatedLatency(Calculator(), clock, LATENCY, seed),
}
ACTIONS = [["1+1", "2*3", "=1"], ["=7"], ["nonsense"], ["", "1+1"], ["5-9", "5-9", "5-9", "=0"]]


@pytest.fixture(params=MAKERS, ids=str)
def make(request):
    return MAKERS[request.param]


def play(make, prompt, seed, actions):
    clock = ManualClock()

    async def run():
        env: Environment = make(clock, seed)
        opening = await env.reset(prompt, seed)
        results = []
        for action in actions:
            results.append(await env.step(action))
            if results[-1].terminated or results[-1].truncated:
                break
        await env.close()
        return opening, results, clock.now()

    return asyncio.run(clock.drive(run()))


def test_reset_returns_messages_that_a_chat_template_can_show(make):
    for prompt in PROMPTS:
        opening, _, _ = play(make, prompt, 0, [])
        assert opening
        assert all(isinstance(m, Message) and m.role in ("system", "user") and m.content for m in opening)


def test_steps_return_step_results_that_survive_serialisation(make):
    for actions in ACTIONS:
        _, results, _ = play(make, PROMPTS[0], 0, actions)
        for result in results:
            assert isinstance(result, StepResult)
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=StepResult) == result
            assert all(message.role in ("user", "tool") for message in result.messages)
            assert result.terminated or result.truncated or result.messages


def test_an_episode_is_a_pure_function_of_prompt_seed_and_actions(make):
    for prompt in PROMPTS:
        for actions in ACTIONS:
            assert play(make, prompt, 5, actions) == play(make, prompt, 5, actions)


def test_a_fresh_environment_can_be_closed_without_a_step(make):  # fault F8
    async def run():
        env = make(ManualClock(), 0)
        await env.close()

    asyncio.run(run())


def test_two_instances_share_nothing(make):
    clock = ManualClock()

    async def run():
        one, other = make(clock, 1), make(clock, 1)
        await one.reset(PROMPTS[0], 1)
        await other.reset(PROMPTS[0], 1)
        await one.step("1+1")
        answers = await one.step("3*3"), await other.step("3*3")
        await one.close()
        await other.close()
        return answers

    one, other = asyncio.run(clock.drive(run()))
    fresh = play(make, PROMPTS[0], 1, ["3*3"])[1][0]
    assert other == fresh
    assert one != other
