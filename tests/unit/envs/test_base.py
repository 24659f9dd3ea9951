"""The base class for environments of one's own."""

import asyncio

import numpy as np
import pytest

from soliton.envs import BaseEnvironment, Message, StepResult
from soliton.errors import ConfigError
from soliton.prompts.stream import make_prompt

PROMPT = make_prompt({"prompt": "say yes", "wanted": "yes"})


class SayIt(BaseEnvironment):
    def act(self, action):
        return self.end(1.0, tries=2.0) if action == self.content["wanted"] else self.say("again", -0.1)

    def expert(self, rng, noise):
        return "no" if rng.random() < noise else self.content["wanted"]


def test_an_episode_needs_no_more_than_act():
    async def play():
        environment = SayIt()
        opening = await environment.reset(PROMPT, 0)
        answers = [await environment.step(action) for action in ("no", "yes")]
        await environment.close()
        return opening, answers

    opening, answers = asyncio.run(play())
    assert opening == (Message("user", "say yes"),)
    assert answers == [
        StepResult(messages=(Message("user", "again"),), reward=-0.1),
        StepResult(reward=1.0, terminated=True, info={"tries": 2.0}),
    ]


def test_the_expert_plays_whole_episodes_and_errs_as_often_as_it_is_told():
    rng = np.random.default_rng(0)
    perfect = SayIt.demonstration(PROMPT, rng, 0.0)
    assert perfect == [Message("user", "say yes"), Message("assistant", "yes")]
    lengths = [len(SayIt.demonstration(PROMPT, rng, 0.5)) // 2 for _ in range(400)]
    assert 1.8 < np.mean(lengths) < 2.2  # a geometric law of mean 2


def test_chance_inside_an_episode_comes_from_its_seed():
    class Chance(BaseEnvironment):
        def opening(self):
            return str(self.rng.integers(10**9))

    def opening(seed):
        return asyncio.run(Chance().reset(PROMPT, seed))

    assert opening(1) == opening(1) != opening(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.opening(), r"has no text 'prompt'; give it one, or write opening\(self\)"),
        (lambda env: env.act("x"), r"has no act\(self, action\)"),
        (lambda env: env.expert(np.random.default_rng(0), 0.0), r"has no expert\(self, rng, noise\)"),
    ],
)
def test_what_is_missing_is_said(call, message):
    environment = BaseEnvironment()
    environment.content = {"secret": 3}
    with pytest.raises(ConfigError, match=message):
        call(environment)


def test_an_expert_that_never_ends_is_refused():
    class Endless(SayIt):
        def expert(self, rng, noise):
            return "no"

    with pytest.raises(ConfigError, match="has not ended an episode after 200 turns"):
        Endless.demonstration(PROMPT, np.random.default_rng(0), 0.0)
