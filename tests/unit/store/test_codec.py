import msgspec
import numpy as np
import pytest

from soliton.store.codec import decode_arrivals, decode_record, decode_trajectory, encode_record, encode_trajectory
from soliton.types import AttemptId, Trajectory
from tests.fakes.trajectories import failed, trajectory


def test_arrays_are_raw_little_endian_bytes():
    fields = msgspec.msgpack.decode(encode_trajectory(trajectory(token_ids=[1, 258, 3])))
    assert fields["token_ids"] == bytes([1, 0, 0, 0, 2, 1, 0, 0, 3, 0, 0, 0])
    assert fields["roles"] == bytes([1, 2, 2])
    assert len(fields["rollout_logprobs"]) == 12


def test_absent_log_probs_stay_nan_and_never_become_zero():  # faults B4, C9
    decoded = decode_trajectory(encode_trajectory(trajectory()))
    assert np.isnan(decoded.rollout_logprobs[0])
    assert decoded.rollout_logprobs[1:].tolist() == [-0.5, -0.5]


def test_a_failed_trajectory_without_tokens_survives():
    assert decode_trajectory(encode_trajectory(failed(AttemptId(3)))).attempt == AttemptId(3)


def test_a_token_costs_thirteen_bytes():  # fault H7: arrays, not lists of boxed numbers
    size = {n: len(encode_trajectory(trajectory(None, (0,) * n))) for n in (1000, 2000)}
    assert size[2000] - size[1000] == 13 * 1000


@pytest.mark.parametrize("cut", [0, 1, 20, 100])
def test_damaged_bytes_are_an_error(cut):
    with pytest.raises(ValueError, match="not a valid Trajectory"):
        decode_trajectory(encode_trajectory(trajectory())[:cut])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("versions", b"\x00" * 8, "versions has 2 entries for 3 tokens"),
        ("versions", b"\x00" * 7, "raw bytes of a int32 array"),
        ("versions", [0, 0, 0], "raw bytes of a int32 array, got list"),
        ("rollout_logprobs", np.zeros(3, np.float32).tobytes(), "absent is NaN"),
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


def test_each_trajectory_of_a_list_comes_with_its_own_bytes():
    sent = [encode_trajectory(trajectory(AttemptId(draw), (draw,) * (draw + 1))) for draw in range(3)]
    arrivals = decode_arrivals(encode_record([msgspec.Raw(each) for each in sent]))
    assert [data for _, data in arrivals] == sent
    assert [encode_trajectory(record) for record, _ in arrivals] == sent
    assert decode_arrivals(encode_record([])) == []


@pytest.mark.parametrize(
    "broken", [b"\xc1", b"\x91", encode_trajectory(trajectory()), b"\x92" + encode_trajectory(trajectory())]
)
def test_a_list_that_is_none_is_refused_as_a_list(broken):
    with pytest.raises(ValueError) as expected:
        decode_record(broken, list[Trajectory])
    with pytest.raises(ValueError) as refused:
        decode_arrivals(broken)
    assert str(refused.value) == str(expected.value)


def test_a_list_with_an_invalid_trajectory_is_refused_with_its_place_in_the_list():
    good = msgspec.msgpack.decode(encode_trajectory(trajectory()))
    broken = msgspec.msgpack.encode([good, good | {"roles": bytes([1, 2, 7])}])
    with pytest.raises(ValueError, match=r"roles\[2\] = 7; roles are \[0, 1, 2\] - at `\$\[1\]`"):
        decode_arrivals(broken)
