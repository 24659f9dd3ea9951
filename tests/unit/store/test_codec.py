import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.store.codec import decode_record, decode_trajectory, encode_record, encode_trajectory
from soliton.types import NO_VERSION, AttemptId, Role
from tests.fakes.trajectories import failed, trajectory


def test_short_arrays_are_raw_little_endian_bytes():
    fields = msgspec.msgpack.decode(encode_trajectory(trajectory(token_ids=[1, 258, 3])))
    assert fields["token_ids"] == bytes([0, 1, 0, 0, 0, 2, 1, 0, 0, 3, 0, 0, 0])
    assert fields["roles"] == bytes([0, 1, 2, 2])
    assert len(fields["rollout_logprobs"]) == 13


def test_absent_log_probs_stay_nan_and_never_become_zero():  # faults B4, C9
    decoded = decode_trajectory(encode_trajectory(trajectory()))
    assert np.isnan(decoded.rollout_logprobs[0])
    assert decoded.rollout_logprobs[1:].tolist() == [-0.5, -0.5]


def test_a_failed_trajectory_without_tokens_survives():
    assert decode_trajectory(encode_trajectory(failed(AttemptId(3)))).attempt == AttemptId(3)


def test_a_token_of_a_long_trajectory_costs_little():  # fault H7: arrays, not lists of boxed numbers
    """600 tokens in 40 turns: ids 4 bytes a token, log-probs 4 a sampled one, roles and versions a few per turn."""
    actions = np.arange(600) % 15 < 7
    record = trajectory(
        token_ids=np.arange(600),
        roles=np.where(actions, Role.ACTION, Role.OBSERVATION),
        rollout_logprobs=np.where(actions, -0.5, np.nan),
        versions=np.where(actions, 1 + np.arange(600) // 300, NO_VERSION),
    )
    data = encode_trajectory(record)
    assert len(data) < 600 * 4 + 280 * 4 + 80 * (5 + 8) + 500
    again = decode_trajectory(data)
    for name in ("token_ids", "roles", "rollout_logprobs", "versions"):
        assert getattr(again, name).tobytes() == getattr(record, name).tobytes()


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([0, 1, 2]), st.integers(0, 3)), max_size=12),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=1000, deadline=None)
def test_any_pattern_of_roles_and_versions_comes_back_bit_for_bit(runs, seed):
    roles = np.repeat([role for _, role, _ in runs], [n for n, _, _ in runs]).astype(np.uint8)
    if Role.ACTION not in roles:
        roles = np.append(roles, np.uint8(Role.ACTION))
    actions = roles == Role.ACTION
    rng = np.random.default_rng(seed)
    versions = np.cumsum(rng.random(len(roles)) < 0.05) + (runs[0][2] if runs else 0)
    record = trajectory(
        token_ids=rng.integers(0, 2**31 - 1, len(roles)),
        roles=roles,
        rollout_logprobs=np.where(actions, -rng.random(len(roles)), np.nan),
        versions=np.where(actions, versions, NO_VERSION),
        reward_positions=[0],
        reward_values=[1.0],
    )
    again = decode_trajectory(encode_trajectory(record))
    for name in ("token_ids", "roles", "rollout_logprobs", "versions", "reward_positions", "reward_values"):
        assert getattr(again, name).tobytes() == getattr(record, name).tobytes()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x07abc",
        b"\x01",
        b"\x01\xff\xff\xff\xff",
        b"\x01\x01\x00\x00\x00\xff\xff\xff\xff\x01\x00\x00\x00",
        b"\x02\xff\xff\xff\xff\x00",
        b"\x02\x08\x00\x00\x00\xff\x00\x00",
    ],
)
@pytest.mark.parametrize("field", ["rollout_logprobs", "versions"])
def test_bytes_that_lie_about_their_length_are_refused_without_being_believed(field, value):  # fault K6
    fields = msgspec.msgpack.decode(encode_trajectory(trajectory()))
    with pytest.raises(ValueError, match="not a valid Trajectory"):
        decode_trajectory(msgspec.msgpack.encode(fields | {field: value}))


@pytest.mark.parametrize("cut", [0, 1, 20, 100])
def test_damaged_bytes_are_an_error(cut):
    with pytest.raises(ValueError, match="not a valid Trajectory"):
        decode_trajectory(encode_trajectory(trajectory())[:cut])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("versions", b"\x00" * 9, "versions has 2 entries for 3 tokens"),
        ("versions", b"\x00" * 7, "damaged bytes of a int32 array"),
        ("versions", [0, 0, 0], "expected the bytes of a int32 array, got list"),
        ("rollout_logprobs", b"\x00" + np.zeros(3, np.float32).tobytes(), "absent is NaN"),
        ("status", "exploded", "Invalid enum value 'exploded'"),
        ("attempt", 3, "Expected `object`"),
    ],
)
def test_invalid_content_is_refused_as_if_it_were_made_here(field, value, message):
    fields = msgspec.msgpack.decode(encode_trajectory(trajectory()))
    with pytest.raises(ValueError, match=message):
        decode_trajectory(msgspec.msgpack.encode(fields | {field: value}))


def test_only_numbers_text_and_arrays_can_be_written():
    class Holder(msgspec.Struct):
        value: object

    with pytest.raises(TypeError, match="holds a function"):
        encode_record(Holder(lambda: None))


def test_another_type_is_refused():
    with pytest.raises(ValueError, match="not a valid AttemptId"):
        decode_record(encode_trajectory(trajectory()), AttemptId)
