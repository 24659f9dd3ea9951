"""What of the critic trains in reinforcement learning: an allow-list over in-memory names (PAPER section 3).

"mlp" is the paper's reading, "restricting optimization to the MoE layers": MLP and expert projections and the value
head. Whatever is not listed is frozen: it takes no gradient, the optimiser never gets it (weight decay alone would
move it: fault A14), and `frozen_sha256` proves that it stayed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from soliton.errors import ConfigError
from soliton.models.critic import Critic

Trainable = Literal["mlp", "mlp_norms", "all"]

_MLP = re.compile(r"^(mlp|ffn|feed_forward|block_sparse_moe|moe)$")
_ROUTER = re.compile(r"^(gate|router|shared_expert_gate)$")
_NORM = re.compile(r"norm|^ln_(\d+|f)$")
_ATTENTION = re.compile(r"attn|attention|mixer|mamba")


def resolve_trainable(critic: Critic, trainable: Trainable, train_router: bool = False) -> list[str]:
    """List the parameters that train, in the order of `critic.named_parameters()`.

    | choice        | trains                                                                                    |
    |---------------|-------------------------------------------------------------------------------------------|
    | `"mlp"`       | MLP and expert projections (fused experts included)                                        |
    | `"mlp_norms"` | these and every norm outside attention modules                                             |
    | `"all"`       | everything, routers included                                                               |

    The value head trains always; routers of expert layers train under "mlp" and "mlp_norms" only with `train_router`.
    Everything inside an attention module, its query and key norms too, and the embeddings train under "all" only.

    Raises:
        ConfigError: an unknown choice, or one that matches no parameter of this critic.
    """
    names = [name for name, _ in critic.named_parameters()]
    if trainable not in get_args(Trainable):
        raise ConfigError(f"critic.trainable must be one of {get_args(Trainable)}, got {trainable!r}")
    kinds = {name: _kind(name) for name in names}
    wanted = {"value_head", "mlp"}
    wanted |= {"norm"} if trainable == "mlp_norms" else set()
    wanted |= {"router"} if train_router else set()
    unmatched = sorted(wanted - set(kinds.values()))
    if unmatched and trainable != "all":
        raise ConfigError(
            f"critic.trainable = {trainable!r}, critic.train_router = {train_router}: no parameter of this "
            f"{type(critic.backbone).__name__} is of kind {unmatched}. It has {_examples(kinds)}; choose another "
            'value, such as critic.trainable = "all"'
        )
    return names if trainable == "all" else [name for name in names if kinds[name] in wanted]


def freeze(critic: Critic, names: Iterable[str]) -> list[nn.Parameter]:
    """Let exactly the parameters in `names` train and return them, for the optimiser, in the critic's own order.

    Raises:
        ConfigError: a name that the critic does not have, or no name at all.
    """
    wanted = set(names)
    unknown = sorted(wanted - {name for name, _ in critic.named_parameters()})
    if unknown or not wanted:
        raise ConfigError(f"these parameters of the critic should train but do not exist: {unknown or 'none given'}")
    trained = []
    for name, parameter in critic.named_parameters():
        parameter.requires_grad_(name in wanted)
        if name in wanted:
            trained.append(parameter)
        else:
            parameter.grad = None
    return trained


@torch.no_grad()
def frozen_sha256(critic: Critic, names: Iterable[str]) -> str:
    """Hash every parameter that is NOT in `names`: equal before and after training, or something moved (fault A14)."""
    trained = set(names)
    digest = hashlib.sha256()
    for name, parameter in sorted(critic.named_parameters()):
        if name not in trained:
            digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}\n".encode())
            digest.update(_bytes(parameter))
    return digest.hexdigest()


def _kind(name: str) -> str:
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


def _examples(kinds: dict[str, str]) -> str:
    first: dict[str, str] = {}
    for name, kind in kinds.items():
        first.setdefault(kind, name)
    return ", ".join(f"{kind} ({name})" for kind, name in sorted(first.items()))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
