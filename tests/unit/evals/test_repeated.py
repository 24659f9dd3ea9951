"""avg@k and pass@k of several evaluations."""

import pytest

from soliton.evals.evaluation import Evaluation
from soliton.evals.repeated import avg_at_k, pass_at_k


def run(*solved: float, prompts: str = "abcd") -> Evaluation:
    return Evaluation(prompt_ids=tuple(prompts), rewards=tuple(solved), solved=tuple(solved))


def test_avg_is_the_mean_of_all_rollouts_and_pass_counts_prompts_solved_once():
    runs = [run(1, 0, 0, 0), run(1, 1, 0, 0)]
    assert avg_at_k(runs, seed=0).mean == 3 / 8
    assert pass_at_k(runs).mean == 2 / 4
    assert avg_at_k(runs, seed=0).n == pass_at_k(runs).n == 4


def test_with_one_run_both_are_its_pass_at_1():
    one = run(1, 0, 1, 1)
    assert avg_at_k([one], seed=0).mean == pass_at_k([one]).mean == one.pass_at_1().mean


def test_more_rollouts_of_the_same_prompts_make_no_interval_narrower():
    """Prompts are resampled: copies of a run are no new observations."""
    one, many = avg_at_k([run(1, 0, 1, 0)], seed=0), avg_at_k([run(1, 0, 1, 0)] * 8, seed=0)
    assert (one.low, one.high) == (many.low, many.high)


def test_runs_of_different_prompts_are_refused():
    with pytest.raises(ValueError, match="same prompts in the same order"):
        pass_at_k([run(1, 0, 0, 0), run(1, 0, 0, 0, prompts="abce")])
    with pytest.raises(ValueError, match="at least one"):
        avg_at_k([], seed=0)
