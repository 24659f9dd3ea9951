"""GRPO with DIS (paper §4): the groups of `grpo`, the actor loss of `sao`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.dis import dis_actor_loss
from soliton.algorithms.grpo import grpo
from soliton.algorithms.options import MethodOptions
from soliton.learner.method import Method


def grpo_dis(options: MethodOptions) -> Method:
    """Build the preset `grpo-dis`."""
    return replace(grpo(options), name="grpo-dis", actor_loss=partial(dis_actor_loss, options=options))
