"""The line between a child and its controller."""

import math

import msgspec
import pytest

from soliton.runtime.local.events import (
    EvaluationDue,
    Fatal,
    Stage,
    Update,
    absent_as_nan,
    absent_as_none,
    decode,
    encode,
)


@pytest.mark.parametrize(
    "event", [Stage("sft", None), Update(3, {"a": 0.5, "b": None}), Fatal("two\nlines", False), EvaluationDue(7, 5, 6)]
)
def test_an_event_is_one_line_and_comes_back_as_it_was(event):
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode(line) == event


def test_an_absent_metric_stays_absent_on_the_way():
    sent = absent_as_none({"critic/explained_var": math.nan, "reward/mean": 0.0})
    assert sent == {"critic/explained_var": None, "reward/mean": 0.0}
    assert math.isnan(absent_as_nan(sent)["critic/explained_var"])


def test_a_torn_line_is_no_event():
    with pytest.raises(msgspec.MsgspecError):
        decode(encode(Stage("sft", 3))[:-5])
