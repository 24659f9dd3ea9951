import pytest

from soliton.metrics import METRICS, alarms, describe
from soliton.reasons import DropReason


def test_every_metric_has_a_name_of_two_parts_a_unit_a_meaning_and_a_healthy_range():
    for name, metric in METRICS.items():
        group, _, word = name.partition("/")
        assert group
        assert word.replace("_", "").isalnum(), name
        assert metric.name == name
        assert metric.unit
        assert metric.meaning
        assert metric.healthy


def test_no_name_is_in_the_table_twice():
    from soliton import metrics

    rows = (*metrics._ROWS, *metrics._SIDE_ROWS, *metrics._ENTROPY_ROWS, *metrics._DROPPED_ROWS)
    assert len(rows) == len(METRICS)


def test_every_metric_that_can_alarm_says_what_to_do():
    alarming = [metric for metric in METRICS.values() if metric.above is not None or metric.below is not None]
    assert len(alarming) >= 5
    assert all(metric.advice for metric in alarming)


def test_every_drop_reason_has_a_metric():
    for reason in DropReason:
        assert reason.value in describe(f"ledger/dropped_{reason.value}").meaning


def test_an_unknown_name_is_an_error_that_names_the_closest_one():
    with pytest.raises(KeyError, match="did you mean 'critic/explained_var'"):
        describe("critic/explained_variance")


def test_an_unknown_name_that_is_like_no_other_is_still_an_error():
    with pytest.raises(KeyError, match=r"soliton\.metrics lists them all"):
        describe("zzz")


def test_alarms_name_the_value_the_limit_and_the_advice():
    (line,) = alarms({"trust_mask/share": 0.25, "reward/mean": -5.0})
    assert "trust_mask/share = 0.25, above 0.1" in line
    assert "lower actor lr or max_staleness" in line


@pytest.mark.parametrize(
    ("name", "healthy", "alarming"),
    [
        ("trust_mask/share", 0.10, 0.1001),
        ("log_ratio/abs_mean", 0.1, 0.11),
        ("staleness/dropped_long_share", 0.2, 0.5),
        ("critic/explained_var", -0.5, -0.6),
    ],
)
def test_an_alarm_begins_just_past_its_limit(name, healthy, alarming):
    assert alarms({name: healthy}) == []
    assert len(alarms({name: alarming})) == 1


def test_an_undefined_value_raises_no_alarm():
    assert alarms({"critic/explained_var": float("nan"), "staleness/dropped_long_share": float("nan")}) == []


def test_alarms_refuse_a_name_that_the_table_does_not_have():
    with pytest.raises(KeyError, match="unknown metric"):
        alarms({"trust_mask/shares": 0.0})
