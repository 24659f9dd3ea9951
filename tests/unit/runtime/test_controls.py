import numpy as np

from soliton.runtime.controls import with_shuffled_rewards
from soliton.store.store import BatchItem
from soliton.types import AttemptId
from tests.fakes.trajectories import trajectory


def item(draw: int, reward: float) -> BatchItem:
    return BatchItem(trajectory(AttemptId(draw), prompt_id=str(draw), reward_values=[reward]), 0, 0, 0.0)


def test_shuffling_permutes_total_rewards_and_changes_nothing_else():
    items = [item(i, float(i)) for i in range(16)]
    shuffled = with_shuffled_rewards(items, seed=3)
    rewards = [i.trajectory.total_reward for i in shuffled]
    assert sorted(rewards) == [float(i) for i in range(16)]
    assert rewards != [float(i) for i in range(16)]
    for before, after in zip(items, shuffled, strict=True):
        assert after.trajectory.attempt == before.trajectory.attempt
        assert after.trajectory.reward_positions.tolist() == [2]
        assert np.array_equal(after.trajectory.rollout_logprobs, before.trajectory.rollout_logprobs, equal_nan=True)


def test_the_permutation_is_a_function_of_the_seed():
    items = [item(i, float(i)) for i in range(16)]
    first, again, other = (
        [i.trajectory.total_reward for i in with_shuffled_rewards(items, seed)] for seed in (1, 1, 2)
    )
    assert first == again != other
