"""Reward functions with TRL's signature: what they are given, and what their answers mean."""

import asyncio

import numpy as np
import pytest

from soliton.envs import Message, SingleTurn
from soliton.errors import ConfigError, WorldError
from soliton.prompts.stream import make_prompt

ITEM = {"prompt": "2+2", "answer": "4", "completion": "4"}
CHAT = {"prompt": [{"role": "system", "content": "add"}, {"role": "user", "content": "2+2"}], "answer": "4"}


def judged(*functions, weights=None):
    return type("Judged", (SingleTurn,), {"rewards": list(functions), "weights": weights})


def step(environment, item=ITEM, action="4"):
    async def play():
        one = environment()
        await one.reset(make_prompt(item), 0)
        return await one.step(action)

    return asyncio.run(play())


def test_a_function_is_given_lists_of_one_and_the_columns_of_the_item():
    seen = {}

    def reward(prompts, completions, **kwargs):
        seen.update(prompts=prompts, completions=completions, **kwargs)
        return [0.5]

    result = step(judged(reward))
    assert seen == {"prompts": ["2+2"], "completions": ["4"], "answer": ["4"]}
    assert (result.reward, result.terminated, result.info) == (0.5, True, {"reward/reward": 0.5})


def test_chat_prompts_give_chat_completions():
    def reward(prompts, completions, answer):
        return [float(completions[0][0]["content"] == answer[0] and prompts[0][1]["role"] == "user")]

    assert step(judged(reward), CHAT).reward == 1.0
    assert asyncio.run(judged(reward)().reset(make_prompt(CHAT), 0)) == (
        Message("system", "add"),
        Message("user", "2+2"),
    )


def test_several_functions_are_summed_with_their_weights():
    def right(completions, answer):
        return [completions[0] == answer[0]]

    async def short(completions):
        return np.array([-float(len(completions[0]))])

    result = step(judged(right, short, weights=[1.0, 0.25]))
    assert result.reward == 0.75
    assert result.info == {"reward/right": 1.0, "reward/short": -1.0}


@pytest.mark.parametrize(
    "returned", [[None], [float("nan")], [float("inf")], ["1.0"], [], [1.0, 2.0], 1.0, None, "1", {0: 1.0}]
)
def test_an_answer_that_is_no_finite_number_is_a_bad_reward_and_never_zero(returned):  # faults F10, L5
    with pytest.raises(WorldError, match="judge returned") as error:
        step(judged(named("judge", lambda completions: returned)))
    assert error.value.reason == "bad_reward"


def test_an_exception_passes_to_the_episode_which_knows_its_reason():
    def judge(completions):
        raise KeyError("no such answer")

    with pytest.raises(KeyError):
        step(judged(judge))


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (judged(), r"has no rewards; set rewards"),
        (judged(lambda completions: [1.0], weights=[1.0, 2.0]), "1 rewards and 2 weights"),
        (judged(lambda completions: [1.0], lambda prompts: [1.0]), "give each function a name of its own"),
        (
            judged(lambda completions, completion_ids, solution: [1.0]),
            "asks for completion_ids, solution, and the items have the columns answer, completion, prompt",
        ),
    ],
)
def test_what_cannot_judge_the_items_is_said_before_anything_runs(environment, problem):
    assert any(problem in text for text in environment.problems(ITEM))


def test_what_can_judge_the_items_has_no_problem():
    def reward(prompts, completions, answer, scale=1.0, **kwargs):
        return [scale]

    assert judged(reward).problems(ITEM) == []


def test_the_completion_column_is_the_demonstration():
    environment = judged(lambda completions: [1.0])
    rng = np.random.default_rng(0)
    assert environment.demonstration(make_prompt(ITEM), rng, 0.3) == [Message("user", "2+2"), Message("assistant", "4")]
    with pytest.raises(ConfigError, match="has no text 'completion'"):
        environment.demonstration(make_prompt(CHAT), rng, 0.3)


@pytest.mark.parametrize("content", [{}, {"prompt": 3}, {"prompt": []}, {"prompt": [{"role": "user"}]}])
def test_an_item_without_a_prompt_is_refused(content):
    with pytest.raises(ConfigError, match="has no 'prompt'"):
        asyncio.run(SingleTurn().reset(make_prompt(content), 0))


def named(name, function):
    function.__name__ = name
    return function
