import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.envs.calculator import Calculator, compute, demonstration, reduce_expression
from soliton.envs.environment import Message, StepResult
from soliton.errors import ConfigError
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.stream import make_prompt

PROMPT = make_prompt({"expression": "78-62*3", "answer": 48})


def play(prompt, actions) -> list[StepResult]:
    async def run():
        env = Calculator()
        await env.reset(prompt, seed=0)
        results = [await env.step(action) for action in actions]
        await env.close()
        return results

    return finish(run())


def finish(coroutine):
    """The result of a coroutine that never waits; an event loop for each would cost more than the test."""
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


def test_the_worked_example():
    first, second, third = play(PROMPT, ["78-62", "16*3", "=48"])
    assert first == StepResult(messages=(Message("tool", "16*3"),))
    assert second == StepResult(messages=(Message("tool", "48"),))
    assert third == StepResult(reward=1.0, terminated=True)


def test_a_wrong_answer_ends_the_episode_without_a_reward():
    assert play(PROMPT, ["=47"]) == [StepResult(reward=0.0, terminated=True)]


def test_a_right_answer_may_come_at_once():
    assert play(PROMPT, ["=48"]) == [StepResult(reward=1.0, terminated=True)]


def test_the_tool_computes_what_it_is_asked_even_if_that_is_a_slip():
    assert play(PROMPT, ["79-62"])[0].messages == (Message("tool", "17*3"),)
    assert play(PROMPT, ["62-78"])[0].messages == (Message("tool", "84*3"),)


@pytest.mark.parametrize(
    "action", ["", "78", "78-62*3", "=", "=148", "= 48", "hello", "78/62", "７+８", "=48\n", "178-62"]
)
def test_a_malformed_action_ends_the_episode_with_reward_0_and_says_so(action):
    assert play(PROMPT, [action]) == [StepResult(reward=0.0, terminated=True, info={"malformed": 1.0})]


@given(st.text(max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_action_makes_it_raise(action):
    (result,) = play(PROMPT, [action])
    assert result.terminated == (not result.messages)


def test_operations_by_hand():
    assert [compute(o) for o in ("99+1", "0-1", "12*12", "5")] == [0, 99, 44, None]
    assert reduce_expression("78-62*3", 16) == "16*3"
    assert reduce_expression("48", 7) == "7"


def test_a_foreign_prompt_is_a_config_error():
    with pytest.raises(ConfigError, match=r"soliton\.prompts\.calculator"):
        finish(Calculator().reset(make_prompt({"question": "?"}), seed=0))


def reward_of(prompt, messages) -> float:
    results = play(prompt, [message.content for message in messages if message.role == "assistant"])
    answers = [m for result in results for m in result.messages]
    assert answers == [message for message in messages if message.role == "tool"]
    assert results[-1].terminated
    assert not any(result.terminated for result in results[:-1])
    return results[-1].reward


def test_a_demonstration_without_noise_is_always_right_and_is_what_the_environment_answers():
    prompts = CalculatorPrompts(5)
    for prompt in map(prompts.at, range(200)):
        assert reward_of(prompt, demonstration(prompt, np.random.default_rng(0), noise=0.0)) == 1.0


def test_a_third_of_the_noisy_demonstrations_earns_the_reward():
    prompts, rng = CalculatorPrompts(5), np.random.default_rng(0)
    rewards = [reward_of(prompt, demonstration(prompt, rng, noise=0.35)) for prompt in map(prompts.at, range(1500))]
    assert 0.27 <= np.mean(rewards) <= 0.35


def test_a_demonstration_depends_on_prompt_generator_and_noise_alone():
    prompt = CalculatorPrompts(5).at(3)
    one, other = (demonstration(prompt, np.random.default_rng(9), noise=0.5) for _ in range(2))
    assert one == other
