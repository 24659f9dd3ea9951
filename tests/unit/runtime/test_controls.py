import numpy as np

from soliton.runtime.controls import with_shuffled_rewards
from soliton.store.store import BatchItem
from soliton.types import AttemptId, Role, Status, Times, Trajectory


def item(draw: int, reward: float) -> BatchItem:
    trajectory = Trajectory(
        attempt=AttemptId(draw),
        prompt_id=str(draw),
        status=Status.TERMINATED,
        token_ids=[1, 2, 3, 4],
        roles=[Role.OBSERVATION, Role.ACTION, Role.ACTION, Role.TEMPLATE],
        rollout_logprobs=[np.nan, -1.0, -2.0, np.nan],
        versions=[-1, 0, 0, -1],
        reward_positions=[2],
        reward_values=[reward],
        times=Times(0.0, 0.0, 1.0),
    )
    return BatchItem(trajectory, 0, 0, 0.0)


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
