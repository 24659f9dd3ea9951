"""Which trajectories of a step are kept, and that what is kept is what the learner saw."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.errors import ConfigError
from soliton.learner.examples import (
    NUM_RANDOM,
    SCHEMA,
    StepArrays,
    StepExamples,
    choose,
    examples_of,
    read_examples,
)
from tests.unit.report.report_runs import trajectory


def pieces(ids) -> list[str]:
    return [f"<{i}>" for i in ids]


def test_best_worst_most_stale_and_most_masked_are_chosen_and_two_others():
    chosen = choose([0.0, 1.0, 0.5, 0.5, 0.5, 0.5], [0, 1, 9, 0, 0, 0], [0.0, 0.0, 0.0, 0.3, 0.0, 0.0], seed=1)
    assert [chosen[i] for i in range(4)] == [("worst",), ("best",), ("most stale",), ("most masked",)]
    assert [why for i, why in chosen.items() if i > 3] == [("random",), ("random",)]


def test_nothing_is_called_stale_or_masked_if_nothing_is():
    for share in ([0.0] * 5, None):
        names = {
            why for reasons in choose([0.0, 1.0, 0.0, 1.0, 0.0], [0] * 5, share, seed=3).values() for why in reasons
        }
        assert names == {"best", "worst", "random"}


@settings(max_examples=1_000, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 5), st.sampled_from([0.0, 0.1])),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 2**60),
)
def test_a_choice_keeps_its_promises_and_depends_on_step_and_seed_alone(rows, seed):
    rewards, staleness, masked = map(list, zip(*rows, strict=True))
    chosen = choose(rewards, staleness, masked, seed)
    assert chosen == choose(rewards, staleness, masked, seed)
    by_name = {name: i for i, names in chosen.items() for name in names if name != "random"}
    assert rewards[by_name["best"]] == max(rewards)
    assert rewards[by_name["worst"]] == min(rewards)
    assert ("most stale" in by_name) == (max(staleness) > 0)
    assert "most stale" not in by_name or staleness[by_name["most stale"]] == max(staleness)
    assert "most masked" not in by_name or masked[by_name["most masked"]] == max(masked)
    special = set(by_name.values())
    assert len(chosen) == min(len(rows), len(special) + NUM_RANDOM)


def arrays(lengths: list[int], **changes) -> StepArrays:
    total = sum(lengths)
    fields = {
        "trajectories": [trajectory(i, n) for i, n in enumerate(lengths)],
        "staleness": list(range(len(lengths))),
        "policy_logprobs": np.arange(total, dtype=np.float32),
        "sides": np.zeros(total, np.int8),
        "values": np.arange(total, dtype=np.float32) / 7,
        "advantages": -np.arange(total, dtype=np.float32),
    }
    return StepArrays(**(fields | changes))


def test_each_column_belongs_to_its_trajectory():
    lengths = [6, 9, 12]
    for example in examples_of(arrays(lengths), seed=0, pieces=pieces, max_tokens=100):
        number = int(example.attempt[1])
        start, length = sum(lengths[:number]), lengths[number]
        expected = np.arange(start, start + length, dtype=np.float32)
        assert example.pieces == [f"<{i}>" for i in range(length)]
        assert np.frombuffer(example.policy_logprobs, "<f4").tolist() == expected.tolist()
        assert np.frombuffer(example.advantages, "<f4").tolist() == (-expected).tolist()
        assert np.frombuffer(example.values, "<f4") == pytest.approx(expected / 7)
        assert np.frombuffer(example.versions, "<i4").tolist() == [-1] * 3 + [3] * (length - 3)
        assert np.frombuffer(example.rewards, "<f4").sum() == example.reward
        assert example.staleness == number


def test_tokens_outside_the_band_are_counted_and_most_masked_is_a_share():
    sides = np.zeros(32, np.int8)
    sides[[4, 5]] = 1, -1  # two of the three action tokens of the first trajectory
    sides[[20, 21, 22]] = 1  # three of many
    found = {e.attempt[:2]: e for e in examples_of(arrays([6, 26], sides=sides), seed=0, pieces=pieces, max_tokens=100)}
    assert (found["d0"].outside, found["d1"].outside) == (2, 3)
    assert "most masked" in found["d0"].why


def test_a_step_of_the_critic_alone_and_a_method_without_one_have_absent_columns():
    step = arrays([6, 9], policy_logprobs=None, sides=None, values=None)
    for example in examples_of(step, seed=0, pieces=pieces, max_tokens=100):
        assert (example.policy_logprobs, example.sides, example.values, example.outside) == (None, None, None, None)


def test_a_file_is_read_back_and_its_size_is_bounded(tmp_path: Path):
    step = arrays([40_000] * 8)
    examples = examples_of(step, seed=0, pieces=pieces, max_tokens=4096)
    data = msgspec.msgpack.encode(StepExamples(schema=SCHEMA, step=7, band=(0.8, 1.2), examples=examples))
    assert len(data) < 6 * 4096 * 40
    (tmp_path / "step_7.msgpack").write_bytes(data)
    read = read_examples(tmp_path / "step_7.msgpack")
    assert read.examples[0].pieces == examples[0].pieces
    assert read.step == 7


@pytest.mark.parametrize(
    "data", [b"", b"\x93\x01\x02", msgspec.msgpack.encode({"schema": 99, "step": 1, "band": [0, 1], "examples": []})]
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, data: bytes):
    (tmp_path / "step_1.msgpack").write_bytes(data)
    with pytest.raises(ConfigError, match="remove it"):
        read_examples(tmp_path / "step_1.msgpack")
