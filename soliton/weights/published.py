"""The published form of a model's weights: checkpoint names, exactly what `save_pretrained` would write.

In memory transformers keeps the experts of a layer fused (`experts.gate_up_proj`); a checkpoint names them one by
one, and does not list an output projection that is tied to the embedding. The conversion is transformers' own. It is
probed once per model with tensors of element indices, which gives for every checkpoint tensor the strided view of the
parameter it comes from. The same views serve both ways: publishing copies out of them, loading copies into them. So
the two directions cannot disagree, ties stay ties, and a step costs one copy.

Guarantees: what is published is a snapshot; loading changes all weights or none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from soliton.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MAX_NAMES_IN_MESSAGE = 8


@dataclass(frozen=True)
class _View:
    """One checkpoint tensor as a strided view of one in-memory tensor, in elements from its start."""

    source: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, state: Mapping[str, Tensor]) -> Tensor:
        tensor = state[self.source]
        assert tensor.is_contiguous(), f"{self.source} is not contiguous"
        return tensor.as_strided(self.shape, self.stride, tensor.storage_offset() + self.offset)


_plans: WeakKeyDictionary[nn.Module, dict[str, _View]] = WeakKeyDictionary()


def published_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """Copy the weights of `model` out under their checkpoint names.

    Returns:
        Contiguous tensors on the model's device, detached and independent of the model: training on does not change
        them. Tied tensors appear once, under the name that `save_pretrained` keeps.

    Raises:
        ConfigError: transformers converts this architecture in a way that is not a rearrangement of single
            parameters, so that it cannot be published.
    """
    state = model.state_dict()
    return {name: view.of(state).clone(memory_format=torch.contiguous_format) for name, view in _plan(model).items()}


@torch.no_grad()
def load_published(model: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
    """Copy published weights into `model`, in place, all or nothing; ties stay ties. Dtypes convert to the model's.

    Raises:
        ValueError: names that are missing or unknown, another shape, or a number that is not finite; nothing has been
            changed then, and the message lists every name.
        ConfigError: see `published_state`.
    """
    plan = _plan(model)
    problems = [
        *_listed("missing", [name for name in plan if name not in state]),
        *_listed("unknown", [name for name in state if name not in plan]),
        *_listed(
            "of another shape",
            [
                f"{name} (got {tuple(state[name].shape)}, must be {view.shape})"
                for name, view in plan.items()
                if name in state and tuple(state[name].shape) != view.shape
            ],
        ),
        *_listed("not finite", [name for name, tensor in state.items() if not _is_finite(tensor)]),
    ]
    if problems:
        raise ValueError(
            f"the published weights do not fit this {type(model).__name__}, nothing was loaded: {'; '.join(problems)}. "
            "Publish them from a model of the same configuration"
        )
    current = model.state_dict()
    for name, view in plan.items():
        view.of(current).copy_(state[name])


def _is_finite(tensor: Tensor) -> bool:
    # One pass decides almost always; only a sum that overflows needs the exact answer.
    return math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all())


def _listed(kind: str, names: list[str]) -> list[str]:
    return [f"{len(names)} {kind}: {', '.join(sorted(names))}"] if names else []


def _saved_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """In-memory tensors that a checkpoint holds, tied duplicates removed the way `save_pretrained` removes them."""
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    state = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    for name in model._keys_to_ignore_on_save or ():
        state.pop(name, None)
    kept: dict[str, Tensor] = remove_tied_weights_from_state_dict(state, model)
    return kept


def _plan(model: PreTrainedModel) -> dict[str, _View]:
    plan = _plans.get(model)
    if plan is None:
        plan = _plans[model] = _make_plan(model)
    return plan


def _make_plan(model: PreTrainedModel) -> dict[str, _View]:
    from transformers.core_model_loading import revert_weight_conversion

    state = _saved_state(model)
    plan: dict[str, _View] = {}
    for source, tensor in state.items():
        indices = torch.arange(tensor.numel()).reshape(tensor.shape)
        for name, converted in revert_weight_conversion(model, {source: indices}).items():
            plan[name] = _as_view(source, converted, tensor.numel())
    # The proof that converting one parameter at a time is what save_pretrained does with all of them.
    expected: dict[str, Tensor] = revert_weight_conversion(model, dict(state))
    wrong = set(plan) ^ set(expected) or {n for n, view in plan.items() if not torch.equal(view.of(state), expected[n])}
    if wrong:
        raise _cannot_publish(model.config.model_type, wrong)
    return dict(sorted(plan.items()))


def _as_view(source: str, indices: Tensor, num_elements: int) -> _View:
    """Find shape, stride and offset of the view that a tensor of element indices describes."""
    if indices.numel() == 0:
        return _View(source, tuple(indices.shape), (1,) * indices.dim(), 0)
    offset = int(indices.flatten()[0])
    stride = tuple(
        int(indices.select(dim, 1).flatten()[0]) - offset if size > 1 else 1 for dim, size in enumerate(indices.shape)
    )
    view = _View(source, tuple(indices.shape), stride, offset)
    last = offset + sum((size - 1) * step for size, step in zip(indices.shape, stride, strict=True))
    within = offset >= 0 and min(stride, default=1) >= 0 and last < num_elements
    if not within or not torch.equal(view.of({source: torch.arange(num_elements)}), indices):
        raise _cannot_publish(source, {source})
    return view


def _cannot_publish(what: str, names: set[str]) -> ConfigError:
    shown = ", ".join(sorted(names)[:_MAX_NAMES_IN_MESSAGE])
    return ConfigError(
        f"weights of {what!r} cannot be published: transformers' checkpoint conversion is not a rearrangement of "
        f"single parameters for {shown}; use an architecture whose checkpoint stores these one by one"
    )
