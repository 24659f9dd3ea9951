import json
from collections import Counter

import pytest

from soliton.errors import ConfigError
from soliton.prompts.calculator import CalculatorPrompts
from soliton.prompts.stream import is_held_out, make_prompt


def slow_answer(expression: str) -> int:
    value, operator, number = 0, "+", ""
    for character in expression + "+":
        if character.isdigit():
            number += character
            continue
        operand = int(number)
        if operator == "+":
            value = (value + operand) % 100
        elif operator == "-":
            value = (value - operand + 100) % 100
        else:
            value = (value * operand) % 100
        operator, number = character, ""
    return value


def test_a_draw_always_gives_the_same_prompt():  # faults J2, F11
    prompts = CalculatorPrompts(7)
    forwards = [prompts.at(draw) for draw in range(50)]
    backwards = [CalculatorPrompts(7).at(draw) for draw in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert len({prompt.id for prompt in forwards}) == 50


def test_another_seed_gives_other_prompts():
    assert [CalculatorPrompts(1).at(i).id for i in range(20)] != [CalculatorPrompts(2).at(i).id for i in range(20)]


def test_an_id_names_the_content_and_not_the_order_of_its_keys():
    one = make_prompt({"expression": "1+1", "answer": 2})
    other = make_prompt({"answer": 2, "expression": "1+1"})
    assert one.id == other.id
    assert one.id != make_prompt({"expression": "1+2", "answer": 3}).id


def test_answers_are_those_of_a_left_to_right_chain_modulo_100():
    assert slow_answer("78-62*3") == 48
    for prompt in map(CalculatorPrompts(3).at, range(500)):
        assert prompt.content["answer"] == slow_answer(prompt.content["expression"]), prompt
        json.dumps(prompt.content)


def test_training_never_shows_a_held_out_prompt():
    prompts = CalculatorPrompts(0)
    training = {prompts.at(draw).id for draw in range(3000)}
    held_out = prompts.held_out(300, seed=1)
    assert all(is_held_out(prompt) for prompt in held_out)
    assert not any(int(id_, 16) % 8 == 0 for id_ in training)
    assert training.isdisjoint(prompt.id for prompt in held_out)


def test_held_out_prompts_are_different_and_depend_on_n_and_seed_alone():
    prompts = CalculatorPrompts(0).held_out(256, seed=5)
    assert len({prompt.id for prompt in prompts}) == 256
    assert prompts == CalculatorPrompts(99).held_out(256, seed=5)
    assert prompts[:64] == CalculatorPrompts(0).held_out(64, seed=5)
    assert prompts != CalculatorPrompts(0).held_out(256, seed=6)
    assert CalculatorPrompts(0).held_out(0, seed=5) == []


def test_more_held_out_prompts_than_there_are_is_an_error(monkeypatch):
    monkeypatch.setattr("soliton.prompts.calculator.MAX_MISSES", 50)
    with pytest.raises(ValueError, match="ask for fewer"):
        CalculatorPrompts(0, min_operations=1, max_operations=1).held_out(30_000, seed=0)
    with pytest.raises(ValueError, match="0 or more"):
        CalculatorPrompts(0).held_out(-1, seed=0)


def test_each_visit_of_a_finite_set_shows_every_prompt_once_in_another_order():
    prompts = CalculatorPrompts(0, num_prompts=20, visits=3)
    assert prompts.num_draws == 60
    visits = [[prompts.at(20 * visit + i).id for i in range(20)] for visit in range(3)]
    assert set(visits[0]) == set(visits[1]) == set(visits[2])
    assert len(set(visits[0])) == 20
    assert visits[0] != visits[1] != visits[2]


def test_a_draw_that_does_not_exist_is_an_error_and_never_a_placeholder():  # fault F7
    with pytest.raises(ValueError, match="draw 60"):
        CalculatorPrompts(0, num_prompts=20, visits=3).at(60)
    with pytest.raises(ValueError, match="draw -1"):
        CalculatorPrompts(0).at(-1)


def test_streams_without_an_end_have_no_number_of_draws():
    assert CalculatorPrompts(0).num_draws is None
    assert CalculatorPrompts(0, num_prompts=5).num_draws is None
    assert CalculatorPrompts(0, num_prompts=5).at(10**6).id in {
        CalculatorPrompts(0, num_prompts=5).at(i).id for i in range(5)
    }


def test_chains_have_2_to_7_operations_and_short_ones_are_more_frequent():
    counts = Counter(
        sum(prompt.content["expression"].count(o) for o in "+-*")
        for prompt in map(CalculatorPrompts(1).at, range(2000))
    )
    assert set(counts) == set(range(2, 8))
    assert [counts[n] for n in range(2, 8)] == sorted(counts.values(), reverse=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_prompts": 0},
        {"visits": 2},
        {"num_prompts": 3, "visits": 0},
        {"min_operations": 5, "max_operations": 4},
        {"min_operations": 0},
        {"decay": 0.0},
        {"decay": 1.5},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError):
        CalculatorPrompts(0, **wrong)
