"""A record that exists is valid: every check of `soliton.types`, by its message."""

import itertools
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.reasons import RETRIED_REASONS, DropReason, Status, TruncationReason
from soliton.store.codec import decode_trajectory, encode_trajectory
from soliton.types import NO_VERSION, AttemptId, Lease, Ledger, Role, Sampling, Times, Trajectory, stable_seed
from tests.fakes.trajectories import NAN, failed, trajectory

A, OBS, T = Role.ACTION, Role.OBSERVATION, Role.TEMPLATE
text = st.text(alphabet="ab/\u00e9\u2603\x00", max_size=8)


# -- what a trajectory refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": [[1, 2, 3]]}, r"token_ids must be one-dimensional, got shape \(1, 3\)"),
        ({"token_ids": [4, -2, 6]}, r"token_ids\[1\] = -2; ids are >= 0"),
        ({"roles": [OBS, A]}, "roles has 2 entries for 3 tokens; there must be one per token"),
        ({"roles": [OBS, A, 3]}, r"roles\[2\] = 3; roles are \[0, 1, 2\]"),
        ({"rollout_logprobs": [NAN, -0.5]}, "rollout_logprobs has 2 entries for 3 tokens"),
        ({"versions": [-1, 0]}, "versions has 2 entries for 3 tokens"),
        # An action token without a usable log-prob is refused, never read as 0.0 (faults B4, C9).
        ({"rollout_logprobs": [NAN, -0.5, NAN]}, r"rollout_logprobs\[2\] = nan on an action token"),
        ({"rollout_logprobs": [NAN, -math.inf, -0.5]}, r"rollout_logprobs\[1\] = -inf on an action token"),
        ({"rollout_logprobs": [NAN, 0.25, -0.5]}, r"rollout_logprobs\[1\] = 0.25 on an action token.*<= 0"),
        (
            {"rollout_logprobs": [0.0, -0.5, -0.5]},
            r"rollout_logprobs\[0\] = 0.0 on a token nobody sampled; absent is NaN",
        ),
        ({"versions": [-1, -1, 0]}, r"versions\[1\] = -1 on an action token; versions are >= 0"),
        ({"versions": [0, 0, 0]}, r"versions\[0\] = 0 on a token nobody sampled; it must be -1"),
        ({"reward_values": [NAN]}, r"reward_values\[0\] = nan; rewards are finite"),
        ({"reward_values": [math.inf]}, r"reward_values\[0\] = inf; rewards are finite"),
        ({"reward_positions": [3]}, r"reward_positions\[0\] = 3 is outside the 3 tokens"),
        ({"reward_positions": [-1]}, r"reward_positions\[0\] = -1 is outside the 3 tokens"),
        ({"reward_values": [1.0, 2.0]}, "reward_values has 2 entries for 1 tokens"),
        ({"reason": "turn_limit"}, r"status 'terminated' with reason 'turn_limit'; allowed reasons: None"),
        ({"status": Status.TRUNCATED}, r"status 'truncated' with reason None; allowed reasons: \['turn_limit'"),
        ({"status": Status.TRUNCATED, "reason": "tired"}, "status 'truncated' with reason 'tired'"),
        ({"status": Status.TRUNCATED, "reason": "env_error"}, "status 'truncated' with reason 'env_error'"),
        ({"status": Status.FAILED}, r"status 'failed' with reason None; allowed reasons: \['env_error'"),
        ({"status": Status.FAILED, "reason": "turn_limit"}, "status 'failed' with reason 'turn_limit'"),
        # A failure of the world is a reason, never a reward (faults B13, F10).
        ({"status": Status.FAILED, "reason": "env_error"}, "a failed trajectory carries no reward"),
        (
            {
                "status": Status.FAILED,
                "reason": "env_error",
                "reward_values": [0.0],
            },
            "a failed trajectory carries no reward",
        ),
        (
            {"roles": [OBS, OBS, T], "rollout_logprobs": [NAN] * 3, "versions": [-1] * 3},
            "no action token: a trajectory without a sampled token is 'failed' with reason 'no_action'",
        ),
    ],
)
def test_an_invalid_trajectory_cannot_be_made_and_the_message_says_where(changes, message):
    trajectory()  # valid without the change
    with pytest.raises(ValueError, match=message):
        trajectory(**changes)


def a_rule_is_broken(token_ids, roles, logprobs, versions):
    """The rules of a token, one token at a time."""
    for token, role, logprob, version in zip(token_ids, roles, logprobs, versions, strict=True):
        if token < 0 or role not in (0, 1, 2):
            return True
        if role == 2 and not (math.isfinite(logprob) and logprob <= 0 and version >= 0):
            return True
        if role != 2 and not (math.isnan(logprob) and version == -1):
            return True
    return 2 not in roles


ODD_LOGPROBS = st.sampled_from([-0.5, 0.0, -0.0, -3e38, -1e-45, 1e-45, 0.5, math.inf, -math.inf, math.nan])
ODD_TOKENS = st.tuples(
    st.sampled_from([0, 1, 2**31 - 1, -1, -(2**31)]),
    st.sampled_from([0, 1, 2, 3, 255]),
    ODD_LOGPROBS,
    st.sampled_from([-1, 0, 7, 2**31 - 1, -2, -(2**31)]),
)
GOOD_TOKENS = st.sampled_from([(0, 0, math.nan, -1), (5, 1, math.nan, -1), (2**31 - 1, 2, -0.5, 7), (5, 2, 0.0, 0)])


@settings(max_examples=400)
@given(st.lists(st.one_of(GOOD_TOKENS, GOOD_TOKENS, GOOD_TOKENS, ODD_TOKENS), min_size=1, max_size=6))
def test_a_trajectory_is_refused_exactly_if_a_token_breaks_a_rule(tokens):
    token_ids, roles, logprobs, versions = (list(each) for each in zip(*tokens, strict=True))
    given_ = {
        "token_ids": token_ids,
        "roles": np.array(roles, np.uint8),
        "rollout_logprobs": logprobs,
        "versions": versions,
        "reward_positions": [],
        "reward_values": [],
    }
    if a_rule_is_broken(token_ids, roles, logprobs, versions):
        with pytest.raises(ValueError):
            trajectory(**given_)
    else:
        assert trajectory(**given_).num_action_tokens == roles.count(2)


def test_an_empty_trajectory_must_have_failed():
    empty = dict.fromkeys(
        ("token_ids", "roles", "rollout_logprobs", "versions", "reward_positions", "reward_values"), ()
    )
    with pytest.raises(ValueError, match="no action token"):
        trajectory(**empty)
    assert failed(AttemptId(0), "no_action").num_action_tokens == 0


@pytest.mark.parametrize("reason", list(TruncationReason))
def test_a_truncated_trajectory_keeps_its_reward(reason):
    assert trajectory(status=Status.TRUNCATED, reason=reason.value).total_reward == 1.0


def test_a_failed_trajectory_may_hold_what_was_sampled_before_the_failure():
    partial = trajectory(status=Status.FAILED, reason="env_timeout", reward_positions=[], reward_values=[])
    assert partial.num_action_tokens == 2


def test_log_probs_of_zero_are_certain_tokens_and_allowed():
    assert trajectory(rollout_logprobs=[NAN, 0.0, -0.5]).rollout_logprobs[1] == 0


# -- what a trajectory guarantees -------------------------------------------------------------------------------------


def test_arrays_have_their_types_and_cannot_be_written():
    record = trajectory(token_ids=[1, 2, 3], reward_values=[1])
    for name, dtype in [
        ("token_ids", np.int32),
        ("roles", np.uint8),
        ("rollout_logprobs", np.float32),
        ("versions", np.int32),
        ("reward_positions", np.int32),
        ("reward_values", np.float32),
    ]:
        array = getattr(record, name)
        assert array.dtype == dtype, name
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_a_trajectory_does_not_change_when_its_maker_goes_on():
    ids = np.array([1, 2, 3], dtype=np.int32)
    record = trajectory(token_ids=ids)
    ids[:] = 9
    assert record.token_ids.tolist() == [1, 2, 3]


def test_fields_cannot_be_replaced():
    with pytest.raises(AttributeError):
        trajectory().prompt_id = "other"


def test_the_worked_example_of_the_module_counts_sampled_tokens_and_not_a_span():  # fault B5
    roles = [T, OBS, T, A, A, A, T, OBS, T, A, A]
    actions = np.array(roles) == A
    record = trajectory(
        token_ids=np.arange(11),
        roles=roles,
        rollout_logprobs=np.where(actions, -0.1, NAN),
        versions=[-1, -1, -1, 7, 7, 8, -1, -1, -1, 8, 9],
        reward_positions=[5, 10],
        reward_values=[0.25, 0.5],
    )
    assert record.action_mask.tolist() == actions.tolist()
    assert record.num_action_tokens == 5
    assert record.total_reward == 0.75
    assert (record.oldest_version, record.newest_version) == (7, 9)
    assert NO_VERSION == -1


# -- the other records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"temperature": -0.1}, "temperature must be >= 0, got -0.1"),
        ({"temperature": NAN}, "temperature must be >= 0, got nan"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, r"top_p must be in \(0, 1\], got 1.5"),
        ({"top_p": NAN}, r"top_p must be in \(0, 1\], got nan"),
        ({"top_k": -1}, "top_k must be >= 0 .* got -1"),
    ],
)
def test_impossible_sampling_settings_are_refused(settings_, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings_)


@pytest.mark.parametrize("settings_", [{"temperature": 0.0}, {"top_p": 1.0}, {"top_p": 1e-6}, {"top_k": 0}])
def test_the_limits_of_sampling_settings_are_allowed(settings_):
    assert Sampling(**settings_)


def test_attempts_are_ordered_by_draw_then_sample_then_attempt_and_name_themselves():
    ids = [AttemptId(d, s, a) for d in (0, 1) for s in (0, 1) for a in (0, 1)]
    assert all(earlier < later for earlier, later in itertools.pairwise(ids))
    assert str(ids[-1]) == "d1s1a1"
    assert AttemptId(3) == AttemptId(3, 0, 0)


def test_seeds_depend_on_run_purpose_and_attempt_and_on_nothing_else():  # fault F11
    attempt = AttemptId(3, 1, 2)
    assert attempt.seed(0, "engine") == AttemptId(3, 1, 2).seed(0, "engine")
    others = [
        attempt.seed(1, "engine"),
        attempt.seed(0, "environment"),
        AttemptId(4, 1, 2).seed(0, "engine"),
        AttemptId(3, 0, 2).seed(0, "engine"),
        AttemptId(3, 1, 1).seed(0, "engine"),
    ]
    assert len({attempt.seed(0, "engine"), *others}) == 6


def test_a_stable_seed_is_the_same_on_every_machine():
    assert stable_seed(0, "a", 1) == 1700230829878534360
    assert stable_seed(1) != stable_seed("1")
    assert stable_seed(1, 23) != stable_seed(12, 3)


@given(st.lists(st.one_of(st.integers(), text), max_size=5))
def test_a_stable_seed_fits_63_bits(parts):
    assert 0 <= stable_seed(*parts) < 2**63


def test_the_balance_of_a_ledger_is_zero_only_if_every_attempt_is_somewhere():
    ledger = Ledger(issued=10, trained=3, queued=2, in_flight=1, superseded=1, dropped={"stale": 2, "env_error": 1})
    assert ledger.balance == 0
    assert msgspec.structs.replace(ledger, trained=2).balance == 1
    assert msgspec.structs.replace(ledger, dropped={}).balance == 3


def test_only_a_group_that_became_too_small_is_not_tried_again():
    assert set(DropReason) - RETRIED_REASONS == {DropReason.GROUP_TOO_SMALL}


def test_closed_lists_have_no_value_in_common():
    values = [reason.value for reason in (*DropReason, *TruncationReason)]
    assert len(values) == len(set(values))


# -- round trips ------------------------------------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def trajectories(draw) -> Trajectory:
    roles = draw(st.lists(st.sampled_from(list(Role)), max_size=20))
    status = draw(st.sampled_from(list(Status)))
    if Role.ACTION not in roles and status is not Status.FAILED:
        roles.append(Role.ACTION)
    n = len(roles)
    sampled = [role is Role.ACTION for role in roles]
    rewards = draw(st.integers(0, 3)) if n and status is not Status.FAILED else 0
    reasons = {Status.TERMINATED: [None], Status.TRUNCATED: list(TruncationReason), Status.FAILED: list(DropReason)}
    reason = draw(st.sampled_from(reasons[status]))
    return Trajectory(
        attempt=AttemptId(*draw(st.tuples(*[st.integers(0, 2**40)] * 3))),
        prompt_id=draw(text),
        status=status,
        reason=None if reason is None else reason.value,
        token_ids=draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n)),
        roles=roles,
        rollout_logprobs=[
            draw(st.floats(-1024, 0, width=32) if is_sampled else st.just(NAN)) for is_sampled in sampled
        ],
        versions=[draw(st.integers(0, 2**31 - 1)) if is_sampled else -1 for is_sampled in sampled],
        reward_positions=[draw(st.integers(0, n - 1)) for _ in range(rewards)],
        reward_values=[draw(st.floats(width=32, allow_nan=False, allow_infinity=False)) for _ in range(rewards)],
        times=Times(*draw(st.tuples(*[finite] * 5))),
        sampling=Sampling(draw(st.floats(0, 2)), draw(st.floats(0.01, 1)), draw(st.integers(0, 100))),
        sandbox=draw(st.sampled_from(["none", "process"])),
        info=draw(st.dictionaries(text, finite, max_size=3)),
    )


def assert_same(a: Trajectory, b: Trajectory) -> None:
    for name in Trajectory.__struct_fields__:
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes(), name
        else:
            assert left == right, name


@settings(max_examples=200, deadline=None)
@given(trajectories())
def test_a_trajectory_survives_the_wire_bit_for_bit(record):
    data = encode_trajectory(record)
    assert_same(decode_trajectory(data), record)
    assert encode_trajectory(decode_trajectory(data)) == data


@given(
    st.builds(
        Lease,
        st.builds(AttemptId, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
        finite,
        st.integers(0, 2**31),
    )
)
def test_a_lease_survives_the_wire(lease):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(lease), type=Lease) == lease
