"""SAO with one critic update per actor update: an ablation of the paper (paper §4).

Against `sao`: K = 1 instead of 2. Nothing else changes.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import critic_use
from soliton.learner.method import Method


def sao_k1(options: MethodOptions) -> Method:
    """Build the preset `sao-k1`."""
    return replace(sao(options), name="sao-k1", critic=critic_use("sao-k1", options))
