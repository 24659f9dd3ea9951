"""From a preset's name and a recipe's options to a `Method`."""

from __future__ import annotations

from collections.abc import Callable

from soliton.algorithms.grpo import grpo
from soliton.algorithms.grpo_dis import grpo_dis
from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.vapo import vapo
from soliton.learner.method import Method

PRESETS: dict[AlgorithmName, Callable[[MethodOptions], Method]] = {
    "sao": sao,
    "grpo": grpo,
    "grpo-dis": grpo_dis,
    "vapo": vapo,
}


def build_method(name: AlgorithmName, options: MethodOptions) -> Method:
    """The method of preset `name` with `options`."""
    return PRESETS[name](options)
