"""Several evaluations of one policy on the same prompts, with different sampling seeds: avg@k and pass@k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soliton.evals.evaluation import Evaluation
from soliton.evals.statistics import Estimate, paired_bootstrap, wilson


def avg_at_k(runs: Sequence[Evaluation], seed: int) -> Estimate:
    """Mean over prompts of the share of the k rollouts that solved the prompt.

    The interval resamples PROMPTS: k rollouts of one prompt are no k independent observations. n counts prompts.

    Args:
        runs: k >= 1 evaluations of the same prompts in the same order.
        seed: of the bootstrap.

    Raises:
        ValueError: no run, or runs of different prompts.
    """
    shares = _solved(runs).mean(axis=0)
    return paired_bootstrap([0.0] * len(shares), shares.tolist(), seed)


def pass_at_k(runs: Sequence[Evaluation]) -> Estimate:
    """Share of prompts that at least one of the k rollouts solved, with its Wilson interval.

    Raises:
        ValueError: as `avg_at_k`.
    """
    solved = _solved(runs).max(axis=0)
    return wilson(int(solved.sum()), len(solved))


def _solved(runs: Sequence[Evaluation]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    if not runs:
        raise ValueError("no evaluation was given; avg@k and pass@k need at least one")
    if any(run.prompt_ids != runs[0].prompt_ids for run in runs):
        raise ValueError("avg@k and pass@k need the same prompts in the same order in every run")
    return np.array([run.solved for run in runs], dtype=np.float64)
