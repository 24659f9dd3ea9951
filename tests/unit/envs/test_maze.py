"""The maze."""

import asyncio

import numpy as np

from soliton.envs.maze import MAX_STEPS, MIN_STEPS, MOVES, Maze, distances
from soliton.prompts.items import DrawnPrompts
from soliton.prompts.stream import make_prompt

CORRIDOR = make_prompt({"rows": ["....", ".##.", "....", "...."], "start": [0, 0], "exit": [3, 2]})
PROMPTS = [DrawnPrompts(Maze.item, seed=0).at(draw) for draw in range(60)]


def play(prompt, actions):
    async def run():
        maze = Maze()
        (opening,) = await maze.reset(prompt, 0)
        return opening.content, [await maze.step(action) for action in actions]

    return asyncio.run(run())


def test_only_the_next_cells_and_the_way_to_the_exit_are_seen():
    opening, (east, wall) = play(CORRIDOR, "es")
    assert opening == "#..# 3,2"
    assert east.messages[0].content == "#.#. 2,2"
    assert wall.messages[0].content == "#.#. 2,2"  # a step into a wall stays


def test_the_exit_earns_the_reward_and_using_up_the_steps_does_not():
    _, steps = play(CORRIDOR, "eeess")
    assert [step.reward for step in steps] == [0, 0, 0, 0, 1]
    assert steps[-1].terminated
    assert steps[3].messages[0].content[2] == "!"
    _, steps = play(CORRIDOR, "n" * 14)  # 2 * 5 + 4
    assert [step.terminated for step in steps] == [False] * 13 + [True]
    assert steps[-1].reward == 0


def test_an_action_that_is_no_direction_ends_the_episode_as_the_models_mistake():
    for action in ("", "ne", "N", "x"):
        _, (step,) = play(CORRIDOR, [action])
        assert (step.terminated, step.reward, step.info) == (True, 0.0, {"malformed": 1.0})


def test_difficulty_varies_and_every_exit_can_be_reached():
    lengths = [distances(p.content["rows"], tuple(p.content["exit"]))[tuple(p.content["start"])] for p in PROMPTS]
    assert min(lengths) >= MIN_STEPS
    assert max(lengths) <= MAX_STEPS
    assert len(set(lengths)) >= 5


def test_the_expert_takes_a_shortest_way_and_a_noisy_one_a_longer_one():
    rng = np.random.default_rng(0)
    for prompt in PROMPTS[:20]:
        shortest = distances(prompt.content["rows"], tuple(prompt.content["exit"]))[tuple(prompt.content["start"])]
        actions = [m.content for m in Maze.demonstration(prompt, rng, 0.0) if m.role == "assistant"]
        assert len(actions) == shortest
        assert play(prompt, actions)[1][-1].reward == 1.0
    turns = [len(Maze.demonstration(prompt, rng, 0.4)) // 2 for prompt in PROMPTS]
    assert 10 <= np.mean(turns) <= 30
    assert max(turns) <= 2 * MAX_STEPS + 4 == 30
    assert set("".join(a.content for p in PROMPTS for a in Maze.demonstration(p, rng, 0.9)[1::2])) == set(MOVES)
