"""What a parameter is, told from its name: attention, norm, MLP, router, value head or something else. No torch here.

So that a choice of what trains is checked against a model's names before any weight is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_MLP = re.compile(r"^(mlp|ffn|feed_forward|block_sparse_moe|moe)$")
_ROUTER = re.compile(r"^(gate|router|shared_expert_gate)$")
_NORM = re.compile(r"norm|^ln_(\d+|f)$")
_ATTENTION = re.compile(r"attn|attention|mixer|mamba")


def kind_of(name: str) -> str:
    """Classify a parameter by the modules it lies in; attention wins over everything inside it."""
    if name.startswith("value_head."):
        return "value_head"
    modules = name.split(".")
    # `post_attention_layernorm` stands beside an attention module, not inside one.
    if any(_ATTENTION.search(module) and not _NORM.search(module) for module in modules):
        return "attention"
    if any(_NORM.search(module) for module in modules):
        return "norm"
    if any(_MLP.match(module) for module in modules):
        return "router" if any(_ROUTER.match(module) for module in modules) else "mlp"
    return "other"


def kinds_wanted(trainable: str, train_router: bool) -> set[str]:
    """Kinds that a choice of what trains names; each must match at least one parameter of the critic."""
    if trainable == "all":
        return set()
    return (
        {"value_head", "mlp"}
        | ({"norm"} if trainable == "mlp_norms" else set())
        | ({"router"} if train_router else set())
    )


def unmatched_kinds(names: Iterable[str], trainable: str, train_router: bool) -> list[str]:
    """Kinds that the choice names and that none of `names` is of; [] is what it should be."""
    return sorted(kinds_wanted(trainable, train_router) - {kind_of(name) for name in names})
