"""From a preset's name and a recipe's options to a `Method`."""

from __future__ import annotations

from collections.abc import Callable

from soliton.algorithms.bpco import bpco
from soliton.algorithms.dcpo import dcpo
from soliton.algorithms.decoupled_ppo import decoupled_ppo
from soliton.algorithms.grpo import grpo
from soliton.algorithms.grpo_dis import grpo_dis
from soliton.algorithms.gspo import gspo
from soliton.algorithms.icepop import icepop
from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.algorithms.pact import pact
from soliton.algorithms.pieces import chosen
from soliton.algorithms.ppo import ppo
from soliton.algorithms.reinforce import reinforce
from soliton.algorithms.rloo import rloo
from soliton.algorithms.running_mean import running_mean
from soliton.algorithms.sao import sao
from soliton.algorithms.sao_dis_only import sao_dis_only
from soliton.algorithms.sao_full_critic import sao_full_critic
from soliton.algorithms.sao_k1 import sao_k1
from soliton.algorithms.sao_no_skip import sao_no_skip
from soliton.algorithms.sao_post_fit import sao_post_fit
from soliton.algorithms.sao_step_average import sao_step_average
from soliton.algorithms.sao_step_last import sao_step_last
from soliton.algorithms.sp3o import sp3o
from soliton.algorithms.spo import spo
from soliton.algorithms.vapo import vapo
from soliton.algorithms.vtrace import vtrace
from soliton.learner.method import Method

PRESETS: dict[AlgorithmName, Callable[[MethodOptions], Method]] = {
    "sao": sao,
    "sao-k1": sao_k1,
    "sao-full-critic": sao_full_critic,
    "sao-post-fit": sao_post_fit,
    "sao-dis-only": sao_dis_only,
    "sao-step-average": sao_step_average,
    "sao-step-last": sao_step_last,
    "sao-no-skip": sao_no_skip,
    "grpo": grpo,
    "grpo-dis": grpo_dis,
    "vapo": vapo,
    "ppo": ppo,
    "rloo": rloo,
    "reinforce": reinforce,
    "decoupled-ppo": decoupled_ppo,
    "gspo": gspo,
    "dcpo": dcpo,
    "icepop": icepop,
    "vtrace": vtrace,
    "running-mean": running_mean,
    "spo": spo,
    "bpco": bpco,
    "pact": pact,
    "sp3o": sp3o,
}
"""Name -> what a preset is made of; `build_method` adds what a recipe chooses for any method."""


def build_method(name: AlgorithmName, options: MethodOptions) -> Method:
    """The method of preset `name` with `options`."""
    return chosen(PRESETS[name](options), options)
