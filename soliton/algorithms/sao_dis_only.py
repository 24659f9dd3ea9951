"""The paper's "SAO (w/ DIS only)", which it does not define; our choice.

Against `sao`: one critic update, the whole critic trains, and it starts from the policy without value pretraining. What
stays is single rollout, a critic, length-adaptive GAE and DIS.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import critic_use
from soliton.learner.method import Method


def sao_dis_only(options: MethodOptions) -> Method:
    """Build the preset `sao-dis-only`."""
    return replace(sao(options), name="sao-dis-only", critic=critic_use("sao-dis-only", options))
