import pytest
from pydantic import ValidationError

from soliton.store.config import StoreConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "greater than or equal to 1"),
        ({"group_size": 0}, "greater than or equal to 1"),
        ({"max_staleness": -1}, "greater than or equal to 0"),
        ({"max_attempts": 0}, "greater than or equal to 1"),
        ({"num_draws": -1}, "greater than or equal to 0"),
        ({"when_too_old": "ignore"}, "'drop', 'wait' or 'mask_tokens'"),
        ({"max_age": 3}, "Extra inputs are not permitted"),
        ({"group_size": 3}, "batch_size 8 is not a multiple of group_size 3"),
        ({"max_outstanding": 20}, "max_outstanding 20 has no effect with max_staleness 1"),
        ({"max_staleness": None}, r"max_outstanding is required when max_staleness is None.*>= batch_size \(8\)"),
        ({"max_staleness": None, "max_outstanding": 7}, "max_outstanding 7 is below batch_size 8"),
        (
            {"max_staleness": None, "max_outstanding": 8, "when_too_old": "wait"},
            "when_too_old 'wait' has no effect when max_staleness is None",
        ),
    ],
)
def test_impossible_settings_are_refused_with_a_reason(changes, message):
    StoreConfig(batch_size=8, max_staleness=1)  # valid without the change
    with pytest.raises(ValidationError, match=message):
        StoreConfig(**{"batch_size": 8, "max_staleness": 1} | changes)


def test_the_bound_on_staleness_has_no_silent_default():
    with pytest.raises(ValidationError, match="max_staleness"):
        StoreConfig(batch_size=8)


@pytest.mark.parametrize(("bound", "limit"), [(0, 8), (1, 16), (16, 136)])
def test_the_bound_limits_outstanding_samples(bound, limit):
    assert StoreConfig(batch_size=8, max_staleness=bound).outstanding_limit == limit


def test_a_group_needs_two_valid_members_and_a_single_rollout_one():
    assert StoreConfig(batch_size=8, max_staleness=1).min_valid_members == 1
    assert StoreConfig(batch_size=8, max_staleness=1, group_size=8).min_valid_members == 2
    assert StoreConfig(batch_size=8, max_staleness=1, group_size=4).draws_per_batch == 2
