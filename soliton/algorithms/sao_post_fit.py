"""SAO with advantages from values after the K fits: the literal reading of paper §3.2.

Against `sao`: V comes from one more forward after all K critic updates on this very batch, so it has seen its returns:
the label leaks and advantages shrink.
"""

from __future__ import annotations

from dataclasses import replace

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import critic_use
from soliton.learner.method import Method


def sao_post_fit(options: MethodOptions) -> Method:
    """Build the preset `sao-post-fit`."""
    return replace(sao(options), name="sao-post-fit", critic=critic_use("sao-post-fit", options))
