"""What of the critic trains in reinforcement learning: an allow-list over in-memory names (paper §3.2).

"mlp" is the paper's reading, "restricting optimization to the MoE layers": MLP and expert projections and the value
head. Whatever is not listed is frozen: it takes no gradient, the optimiser never gets it (weight decay alone would
move it: fault A14), and `frozen_sha256` proves that it stayed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from soliton.errors import ConfigError
from soliton.models.critic import Critic
from soliton.parameter_names import kind_of, kinds_wanted, unmatched_kinds

Trainable = Literal["mlp", "mlp_norms", "all"]


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
    kinds = {name: kind_of(name) for name in names}
    if unmatched := unmatched_kinds(names, trainable, train_router):
        raise ConfigError(
            f"critic.trainable = {trainable!r}, critic.train_router = {train_router}: no parameter of this "
            f"{type(critic.backbone).__name__} is of kind {unmatched}. It has {_examples(kinds)}; choose another "
            'value, such as critic.trainable = "all"'
        )
    return (
        names
        if trainable == "all"
        else [name for name in names if kinds[name] in kinds_wanted(trainable, train_router)]
    )


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


def _examples(kinds: dict[str, str]) -> str:
    first: dict[str, str] = {}
    for name, kind in kinds.items():
        first.setdefault(kind, name)
    return ", ".join(f"{kind} ({name})" for kind, name in sorted(first.items()))


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
