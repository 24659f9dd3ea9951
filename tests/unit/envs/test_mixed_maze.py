"""Mazes of very different difficulty."""

import asyncio

import numpy as np

from soliton.envs.maze import distances
from soliton.envs.mixed_maze import KINDS, MAX_TURNS, MixedMaze
from soliton.prompts.items import DrawnPrompts

PROMPTS = [DrawnPrompts(MixedMaze.item, seed=0).at(draw) for draw in range(90)]


def shortest(prompt) -> int:
    return distances(prompt.content["rows"], tuple(prompt.content["exit"]))[tuple(prompt.content["start"])]


def kind_of(prompt) -> int:
    walls = any("#" in row for row in prompt.content["rows"])
    return next(i for i, kind in enumerate(KINDS) if kind.size == len(prompt.content["rows"]) and walls == (i > 0))


def test_all_kinds_are_about_equally_frequent_and_keep_to_their_distances():
    kinds = [kind_of(prompt) for prompt in PROMPTS]
    assert all(20 <= kinds.count(i) <= 40 for i in range(len(KINDS)))
    for prompt, kind in zip(PROMPTS, kinds, strict=True):
        assert KINDS[kind].shortest <= shortest(prompt) <= KINDS[kind].longest


def test_an_episode_takes_at_most_twenty_turns_and_every_exit_can_be_reached_in_them():
    async def turns(prompt, policy) -> tuple[int, float]:
        maze = MixedMaze()
        await maze.reset(prompt, 0)
        for turn in range(1, 100):
            result = await maze.step(policy(maze))
            if result.terminated:
                return turn, result.reward
        raise AssertionError("never ends")

    rng = np.random.default_rng(0)
    far = [prompt for prompt in PROMPTS if kind_of(prompt) == 2]
    for prompt in far:
        assert asyncio.run(turns(prompt, lambda maze: maze.expert(rng, 0.0))) == (shortest(prompt), 1.0)
    lost = [asyncio.run(turns(prompt, lambda maze: "n")) for prompt in far]
    assert {reward for _, reward in lost} == {0.0}
    assert max(number for number, _ in lost) == MAX_TURNS
