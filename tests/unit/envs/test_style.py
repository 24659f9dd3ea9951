"""The writing task whose preferred style shifts: its rules, its demonstrations, its judges."""

import asyncio
import json
from itertools import pairwise

import numpy as np
import pytest

from soliton.awaited import AwaitedReward
from soliton.envs.judge import OutsideJudge
from soliton.envs.style import LEXICONS, NO_STYLE, POOLS, PREFERRED, STYLE_OF, StyleWriting, is_well_written, style_of
from soliton.envs.surroundings import Phased, Surroundings, lend
from soliton.errors import ConfigError
from soliton.prompts.items import DrawnPrompts
from soliton.prompts.stream import make_prompt
from soliton.prompts.style import TOPICS, style_item
from tests.fakes.manual_clock import ManualClock

RAIN = make_prompt({"topic": "rain", "words": 3, "order": [1, 2, 0]})
PROMPTS = [DrawnPrompts(style_item, seed=0).at(draw) for draw in range(400)]
CUTE, DARK, OLD = "rain fluff hug tiny", "rain abyss doom void", "rain jade mist pine"


def play(action, phase=1, prompt=RAIN, judge=None):
    async def run():
        writing = StyleWriting()
        writing.surroundings = Surroundings(phase=phase) if judge is None else Surroundings(judge, phase)
        opening = await writing.reset(prompt, 0)
        return opening, await writing.step(action)

    return asyncio.run(run())


def test_the_prompt_shows_the_pool_of_the_phase_in_its_order_the_topic_and_the_number_of_words():
    opening, _ = play(CUTE)
    assert [(m.role, m.content) for m in opening] == [("system", "cute,chuunibyou,academic"), ("user", "rain 3")]
    assert play(CUTE, phase=2)[0] == opening
    assert play(CUTE, phase=3)[0][0].content == "cute,chuunibyou,classical"


@pytest.mark.parametrize(("phase", "liked"), [(1, CUTE), (2, DARK), (3, OLD)])
def test_the_reward_is_quality_times_the_style_that_the_phase_prefers(phase, liked):
    for text in (CUTE, DARK, OLD, "rain data norm axiom"):
        _, result = play(text, phase)
        assert result.terminated
        assert result.reward == float(text == liked)
        assert result.info["quality"] == 1.0
    assert play(liked + "x", phase)[1].reward == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rain",
        "fluff hug tiny",
        "snow fluff hug tiny",
        "rain fluff hug",
        "rain fluff hug tiny wink",
        "rain fluff hug fluff",
        "rain fluff hug cloud",
        "rain fluff  hug tiny",
        "rain fluff hug tiny ",
        "rain fluff hug tiny\n",
    ],
)
def test_quality_needs_the_topic_and_so_many_different_known_words(text):
    assert not is_well_written(text, "rain", 3)
    assert play(text)[1].info["quality"] == 0.0
    assert play(text)[1].reward == 0.0


def test_the_style_of_a_text_is_that_of_most_of_its_words_and_a_tie_has_none():
    assert style_of("rain fluff doom hug") == "cute"
    assert style_of("rain fluff doom") == NO_STYLE
    assert style_of("rain") == style_of("") == NO_STYLE
    assert style_of("cloud doom") == "chuunibyou"
    shares = {name: value for name, value in play("rain fluff doom hug")[1].info.items() if name.startswith("style/")}
    assert shares == {f"style/{style}": float(style == "cute") for style in (*LEXICONS, NO_STYLE)}


def test_no_word_is_of_two_styles_or_a_topic():
    assert len(STYLE_OF) == sum(map(len, LEXICONS.values()))
    assert len(set(TOPICS)) == len(TOPICS)
    assert set(TOPICS).isdisjoint(STYLE_OF)
    assert all(preferred in pool for preferred, pool in zip(PREFERRED, POOLS, strict=True))


def test_prompts_vary_in_difficulty_and_enough_of_them_are_held_out():
    assert {prompt.content["words"] for prompt in PROMPTS} == {1, 2, 3, 4, 5}
    held_out = DrawnPrompts(style_item, seed=1).held_out(128, 0)
    assert {prompt.id for prompt in held_out}.isdisjoint(prompt.id for prompt in PROMPTS)


def test_demonstrations_mix_the_styles_of_a_pool_word_by_word():
    rng = np.random.default_rng(0)
    texts = [StyleWriting.demonstration(prompt, rng, 0.0) for prompt in PROMPTS]
    following = {}
    for system, user, assistant in texts:
        topic, number = user.content.split()
        assert is_well_written(assistant.content, topic, int(number))
        styles = [STYLE_OF[word] for word in assistant.content.split()[1:]]
        assert set(styles) <= set(system.content.split(","))
        for first, second in pairwise(styles):
            following.setdefault(first, []).append(second)
    for first, seconds in following.items():  # independent draws: a third each, whatever came before
        assert seconds.count(first) / len(seconds) == pytest.approx(1 / 3, abs=0.12)
    assert {style for _, _, a in texts for style in map(STYLE_OF.get, a.content.split()[1:])} == set(LEXICONS)


def test_a_noisy_demonstration_is_often_spoilt_and_more_often_the_longer_it_is():
    rng = np.random.default_rng(0)

    def share_good(num_words):
        prompt = make_prompt({"topic": "rain", "words": num_words, "order": [0, 1, 2]})
        texts = [StyleWriting.demonstration(prompt, rng, 0.1)[-1].content for _ in range(300)]
        return np.mean([is_well_written(text, "rain", num_words) for text in texts])

    assert share_good(1) == pytest.approx(0.9**2, abs=0.06)
    assert share_good(5) == pytest.approx(0.9**6, abs=0.08)


def test_a_judge_outside_is_told_the_task_the_text_and_the_criteria_and_the_reward_is_awaited():
    _, result = play(CUTE, judge=OutsideJudge(60.0))
    assert isinstance(result.awaited, AwaitedReward)
    assert (result.awaited.within_s, result.awaited.low, result.awaited.high) == (60.0, 0.0, 1.0)
    asked = json.loads(result.awaited.key)
    assert (asked["task"], asked["text"]) == ("rain 3", CUTE)
    assert asked["criteria"]["style"] == "its style is cute"
    assert result.info["style/cute"] == 1.0


def test_a_prompt_of_another_task_is_the_users_mistake():
    with pytest.raises(ConfigError, match="not for the task style"):
        play(CUTE, prompt=make_prompt({"prompt": "2+2"}))


def test_a_phase_is_that_of_the_moment_at_which_an_action_arrives_and_is_recorded():
    clock = ManualClock()

    async def run():
        surroundings = Surroundings()
        writing = lend(StyleWriting(), surroundings)
        phased = Phased(writing, surroundings, clock, lambda now_s: 1 if now_s < 5 else 2)
        await phased.reset(RAIN, 0)
        early = await phased.step(DARK)
        await clock.advance(5.0)
        late = await phased.step(DARK)
        await phased.close()
        return early, late

    early, late = asyncio.run(run())
    assert (early.reward, early.info["phase"]) == (0.0, 1.0)
    assert (late.reward, late.info["phase"]) == (1.0, 2.0)
