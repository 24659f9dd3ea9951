"""Evaluation: how good a policy is, and how sure we are. Knows results, not models."""

from soliton.evals.statistics import Estimate, paired_bootstrap, wilson

__all__ = ["Estimate", "paired_bootstrap", "wilson"]
