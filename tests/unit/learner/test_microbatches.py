import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.learner.microbatches import cut
from soliton.learner.packing import pack, pack_items
from soliton.models import outputs_before_tokens
from soliton.reasons import DropReason, Status
from soliton.types import Sampling, Trajectory
from tests.unit.learner.learner_toys import item, trajectory

CPU = torch.device("cpu")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 200))
def test_a_cut_keeps_every_sequence_once_and_its_padding_within_the_budget(lengths, budget):
    lengths = sorted(lengths)
    ranges = cut(lengths, budget)
    assert [i for r in ranges for i in range(r.start, r.stop)] == list(range(len(lengths)))
    for r in ranges:
        rows = r.stop - r.start
        assert rows == 1 or rows * lengths[r.stop - 1] <= budget


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 120))
def test_every_action_token_is_read_at_the_position_before_it(seed, count, budget):  # faults A10, A11
    rng = np.random.default_rng(seed)
    made = [trajectory(rng, draw, turns=int(rng.integers(1, 4))) for draw in range(count)]
    batch = pack(made, what="test", max_padded_tokens=budget, device=CPU)
    seen = []
    for part in batch.micro_batches:
        positions = torch.arange(part.input_ids.numel()).view(part.input_ids.shape)
        read = outputs_before_tokens(positions, part.action_mask).tolist()
        for k in range(len(part.labels)):
            segment, flat = int(part.action_segments[k]), int(part.action_index[k])
            ids = batch.trajectories[segment].token_ids
            column = flat - int((batch.segment_ids < segment).sum())
            row, read_column = divmod(read[k], part.input_ids.shape[1])
            assert row == segment - part.segments.start
            assert read_column == column - 1
            assert part.input_ids[row, :column].tolist() == ids[:column].tolist()
            assert int(part.labels[k]) == ids[column]
            seen.append(flat)
    assert sorted(seen) == torch.nonzero(batch.action_mask).flatten().tolist()


def test_fields_of_a_trajectory_stay_together_whatever_order_it_came_in():  # fault A11
    rng = np.random.default_rng(3)
    made = [trajectory(rng, draw, turns=1 + draw % 4) for draw in range(8)]
    items = [item(t, min_trusted_version=t.attempt.draw % 3) for t in made]
    batch = pack_items(items[::-1], what="test", max_padded_tokens=50, device=CPU)
    assert len(batch.rewards) == sum(len(t.token_ids) for t in made)
    for segment, t in enumerate(batch.trajectories):
        mine = batch.segment_ids == segment
        assert torch.equal(batch.action_mask[mine], torch.from_numpy(t.action_mask))
        assert np.array_equal(batch.rollout_logprobs[mine].numpy(), t.rollout_logprobs, equal_nan=True)
        assert np.array_equal(batch.versions[mine].numpy(), t.versions)
        assert np.array_equal(batch.trusted[mine].numpy(), t.action_mask & (t.versions >= t.attempt.draw % 3))
        assert float(batch.rewards[mine].sum()) == t.total_reward
        assert int(batch.groups[segment]) == t.attempt.draw


def test_tokens_after_the_last_action_are_not_computed_but_are_packed():
    rng = np.random.default_rng(0)
    t = trajectory(rng, turns=1)
    longer = Trajectory(
        attempt=t.attempt, prompt_id="p", status=Status.TERMINATED, token_ids=[*t.token_ids, 1, 2, 3],
        roles=[*t.roles, 1, 1, 1], rollout_logprobs=[*t.rollout_logprobs, np.nan, np.nan, np.nan],
        versions=[*t.versions, -1, -1, -1], reward_positions=[len(t.token_ids) + 2], reward_values=[1.0], times=t.times,
    )  # fmt: skip
    batch = pack([longer], what="test", max_padded_tokens=100, device=CPU)
    assert batch.micro_batches[0].input_ids.shape[1] == len(t.token_ids)
    assert len(batch.rewards) == len(longer.token_ids)


def test_two_rewards_at_one_position_add_up():
    rng = np.random.default_rng(0)
    t = trajectory(rng, turns=1)
    last = len(t.token_ids) - 1
    twice = Trajectory(
        attempt=t.attempt, prompt_id="p", status=Status.TERMINATED, token_ids=t.token_ids, roles=t.roles,
        rollout_logprobs=t.rollout_logprobs, versions=t.versions, reward_positions=[last, last],
        reward_values=[1.0, 0.25], times=t.times,
    )  # fmt: skip
    assert float(pack([twice], what="test", max_padded_tokens=9, device=CPU).rewards[last]) == 1.25


@pytest.mark.parametrize(
    ("sampling", "word"),
    [
        (Sampling(temperature=0.0), "greedily"),  # fault C3
        (Sampling(top_p=0.9), "cut-off"),  # fault C4
        (Sampling(top_k=5), "cut-off"),  # fault C4
    ],
)
def test_sampling_whose_log_probs_are_not_the_policys_is_refused(sampling, word):
    with pytest.raises(ValueError, match=word):
        pack([trajectory(np.random.default_rng(0), sampling=sampling)], what="t", max_padded_tokens=9, device=CPU)


def test_an_empty_batch_a_failure_and_a_missing_prompt_are_refused():  # faults B13, F7
    t = trajectory(np.random.default_rng(0), turns=1)
    failed = Trajectory(
        attempt=t.attempt, prompt_id="p", status=Status.FAILED, reason=DropReason.ENV_ERROR.value,
        token_ids=t.token_ids, roles=t.roles, rollout_logprobs=t.rollout_logprobs, versions=t.versions,
        reward_positions=[], reward_values=[], times=t.times,
    )  # fmt: skip
    bare = Trajectory(
        attempt=t.attempt, prompt_id="p", status=Status.TERMINATED, token_ids=[3], roles=[2],
        rollout_logprobs=[-1.0], versions=[0], reward_positions=[0], reward_values=[1.0], times=t.times,
    )  # fmt: skip
    for made, word in [([], "at least one"), ([failed], "env_error"), ([bare], "begins with an action")]:
        with pytest.raises(ValueError, match=word):
            pack(made, what="test", max_padded_tokens=9, device=CPU)
