"""Prompts of any task: from a list, from a function."""

import numpy as np
import pytest

from soliton.errors import ConfigError
from soliton.prompts.items import DrawnPrompts, ListedPrompts
from soliton.prompts.stream import is_held_out, make_prompt

ITEMS = [{"prompt": str(number)} for number in range(100)]


def draw_number(rng):
    return {"number": int(rng.integers(1000))}


def make_listed(seed=0, **options):
    return ListedPrompts(ITEMS, seed=seed, **options)


def make_drawn(seed=0, **options):
    return DrawnPrompts(draw_number, seed=seed, **options)


@pytest.mark.parametrize("make", [make_listed, make_drawn])
def test_a_stream_is_a_pure_function_of_seed_and_draw(make):
    first, again, other = make(0), make(0), make(1)
    draws = [first.at(draw) for draw in range(300)]
    assert draws == [again.at(draw) for draw in reversed(range(300))][::-1]
    assert draws != [other.at(draw) for draw in range(300)]
    assert first.num_draws is None


@pytest.mark.parametrize("make", [make_listed, make_drawn])
def test_training_never_shows_what_is_held_out(make):
    stream = make(0)
    held_out = stream.held_out(5, seed=1)
    assert len({prompt.id for prompt in held_out}) == 5
    assert all(is_held_out(prompt) for prompt in held_out)
    assert not {prompt.id for prompt in held_out} & {stream.at(draw).id for draw in range(2000)}
    assert held_out == make(3).held_out(5, seed=1)


def test_each_visit_shows_each_training_item_once_in_another_order():
    stream = make_listed()
    size = sum(not is_held_out(make_prompt(item)) for item in ITEMS)
    visits = [[stream.at(visit * size + i).id for i in range(size)] for visit in range(3)]
    assert len(set(visits[0])) == size
    assert set(visits[0]) == set(visits[1]) == set(visits[2])
    assert visits[0] != visits[1] != visits[2]


def test_a_limited_stream_shows_only_so_many_prompts():
    for make in (make_listed, make_drawn):
        assert len({make(num_prompts=7).at(draw).id for draw in range(100)}) == 7


@pytest.mark.parametrize("make", [make_listed, make_drawn])
def test_a_limited_stream_comes_back_in_another_order_with_every_visit(make):
    stream = make(num_prompts=30)
    visits = [[stream.at(visit * 30 + i).id for i in range(30)] for visit in range(4)]
    assert all(sorted(visit) == sorted(visits[0]) for visit in visits)
    assert len({tuple(visit) for visit in visits}) == 4
    assert {stream.at(draw).id for draw in range(120)} == set(visits[0])
    assert not set(visits[0]) & {prompt.id for prompt in stream.held_out(5, seed=1)}
    again = make(num_prompts=30)
    assert [again.at(draw).id for draw in reversed(range(120))][::-1] == [name for visit in visits for name in visit]


@pytest.mark.parametrize("make", [make_listed, make_drawn])
def test_more_held_out_prompts_than_there_are_is_refused_with_their_number(make):
    with pytest.raises(ValueError, match=r"cannot hold out 900 prompts.* \d+ .*held.out"):
        make().held_out(900, seed=0)
    with pytest.raises(ValueError):
        make().held_out(-1, seed=0)
    with pytest.raises(ValueError, match="draw -1 does not exist"):
        make().at(-1)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("2+2", "an item is a dict with text keys"),
        ({1: "2+2"}, "an item is a dict with text keys"),
        ({"prompt": np.int64(3)}, "cannot be written as JSON"),
        ({"prompt": object()}, "cannot be written as JSON"),
    ],
)
def test_an_item_that_is_no_mapping_of_json_values_is_refused(item, message):
    with pytest.raises(ConfigError, match=message):
        ListedPrompts([item], seed=0)
    with pytest.raises(ConfigError, match=message):
        DrawnPrompts(lambda rng: item, seed=0).at(0)


def test_nothing_to_train_on_is_refused():
    held_out = [item for item in ITEMS if is_held_out(make_prompt(item))]
    for items in ([], held_out):
        with pytest.raises(ConfigError, match="none is left to train on"):
            ListedPrompts(items, seed=0)
    with pytest.raises(ConfigError, match="must draw different items"):
        DrawnPrompts(lambda rng: held_out[0], seed=0).at(0)
