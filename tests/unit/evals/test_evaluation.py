import pytest

from soliton.evals.evaluation import Evaluation, evaluation_of, gain
from soliton.types import AttemptId, Trajectory
from tests.fakes.trajectories import failed, trajectory


def finished(draw: int, reward: float) -> Trajectory:
    return trajectory(AttemptId(draw), prompt_id=f"p{draw}", reward_values=[reward])


def test_a_prompt_is_solved_when_its_total_reward_reaches_one():
    evaluation = evaluation_of([finished(0, 1.0), finished(1, 0.0), finished(2, 0.5), finished(3, 2.0)])
    assert evaluation.solved == (1.0, 0.0, 0.0, 1.0)
    estimate = evaluation.pass_at_1()
    assert (estimate.mean, estimate.n) == (0.5, 4)


def test_a_failure_of_the_world_is_no_result():  # fault F10
    with pytest.raises(ValueError, match=r"1 of 2 trajectories failed, first d1s0a0: env_error"):
        evaluation_of([finished(0, 1.0), failed(AttemptId(1))])


def test_a_gain_is_paired_by_prompt():
    before = evaluation_of([finished(i, float(i < 2)) for i in range(8)])
    after = evaluation_of([finished(i, float(i < 6)) for i in range(8)])
    estimate = gain(before, after, seed=0)
    assert estimate.mean == 0.5
    assert 0 < estimate.low < 0.5 < estimate.high <= 1


def test_a_gain_between_different_prompts_is_refused():
    before = Evaluation(("a", "b"), (0.0, 1.0), (0.0, 1.0))
    with pytest.raises(ValueError, match="same prompts in the same order"):
        gain(before, Evaluation(("b", "a"), (0.0, 1.0), (0.0, 1.0)), seed=0)
