"""SAO with a critic that trains whole: an ablation of the paper (paper §4).

Against `sao`: the critic's attention, norms and embeddings train, too. K stays 2.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import critic_use
from soliton.learner.method import Method


def sao_full_critic(options: MethodOptions) -> Method:
    """Build the preset `sao-full-critic`."""
    return replace(sao(options), name="sao-full-critic", critic=critic_use("sao-full-critic", options))
