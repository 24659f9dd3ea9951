"""Fewer, larger operations in the engine's copy of a model, each only where a probe shows the same function.

Owns: the fused attention block, MLP and norms. Does not know: slots, sessions, what architecture it is given.

Guarantees: a module that a probe with other weights does not find equal keeps its own code; parameters keep their names
and stay the ones that are read, so weights copied into them in place take effect at once.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm


class Attends(Protocol):
    """What a tick does with the heads of one layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Query [M, heads, dim] of the first M tokens, key and value [N, kv heads, dim] -> [M, heads * dim]."""
        ...


class FusedAttention:
    """An attention block without its many small calls: one product for q, k and v; q and k normed and rotated at once.

    The scale of the RMS norm commutes with the rotation, so it is applied last.

    Args:
        module: attention of the Llama or Qwen3 shape (`is_fusible_attention`); its three projections become views of
            one matrix.
    """

    def __init__(self, module: nn.Module) -> None:
        projections = [module.get_submodule(name) for name in ("q_proj", "k_proj", "v_proj")]
        self._weight = torch.cat([projection.get_parameter("weight").detach() for projection in projections])
        start = 0
        for projection in projections:
            rows = len(projection.get_parameter("weight"))
            projection.weight = nn.Parameter(self._weight[start : start + rows], requires_grad=False)
            start += rows
        dim, layer, scaling = module.head_dim, module.layer_idx, module.scaling
        assert isinstance(dim, int)
        assert isinstance(layer, int)
        assert isinstance(scaling, float)
        self._dim, self._layer, self._scaling = dim, layer, scaling
        self._num_query, self._num_key = (len(p.get_parameter("weight")) // dim for p in projections[:2])
        self._out = module.get_submodule("o_proj").get_parameter("weight")
        self._norms = _norms_of(module)
        self._mean = self._weight.new_full((dim, 1), 1 / dim)

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor, slot: Attends, num_queries: int) -> Tensor:
        """Store keys and values of all tokens; attend from the first `num_queries`.

        Shapes: hidden states [N, H], cosines and sines [N, 1, dim] -> [num_queries, H].
        """
        if num_queries == len(hidden):
            heads = linear(hidden, self._weight).view(len(hidden), -1, self._dim)
            num_rotated = self._num_query + self._num_key
            rotated = self._norm_and_rotate(heads[:, :num_rotated], cos, sin, self._norms)
            query, key, value = rotated[:, : self._num_query], rotated[:, self._num_query :], heads[:, num_rotated:]
        else:
            first_key = self._num_query * self._dim
            query = linear(hidden[:num_queries], self._weight[:first_key]).view(num_queries, -1, self._dim)
            query = self._norm_and_rotate(query, cos[:num_queries], sin[:num_queries], self._norms[:1])
            heads = linear(hidden, self._weight[first_key:]).view(len(hidden), -1, self._dim)
            key = self._norm_and_rotate(heads[:, : self._num_key], cos, sin, self._norms[1:])
            value = heads[:, self._num_key :]
        return linear(slot.attend(self._layer, query, key, value, self._scaling), self._out)

    def _norm_and_rotate(self, heads: Tensor, cos: Tensor, sin: Tensor, norms: Sequence[Any]) -> Tensor:
        """`norms`: that of the queries, of the keys, both (the heads then are queries, keys), or none."""
        scale = None
        if norms:
            scale = (heads.square() @ self._mean).add_(norms[0].variance_epsilon).rsqrt_()
            if len(norms) == 1:
                weight = norms[0].weight
            else:
                counts = (self._num_query, self._num_key)
                weight = torch.cat([norm.weight.expand(n, -1) for norm, n in zip(norms, counts, strict=True)])
            heads = heads * weight
        half = self._dim // 2
        rotated = heads * cos
        rotated[..., :half].addcmul_(heads[..., half:], sin[..., :half], value=-1)
        rotated[..., half:].addcmul_(heads[..., :half], sin[..., half:])
        return rotated if scale is None else rotated.mul_(scale)


@torch.no_grad()
def is_fusible_attention(module: nn.Module, rotary: nn.Module) -> bool:
    """Whether `FusedAttention` is the same function as `module`, whose angles `rotary` gives."""
    return _has_its_parts(module) and _matches(module, rotary)


def _norms_of(module: nn.Module) -> list[Any]:
    return [getattr(module, name) for name in ("q_norm", "k_norm") if hasattr(module, name)]


def _has_its_parts(module: nn.Module) -> bool:
    epsilons = [getattr(norm, "variance_epsilon", None) for norm in _norms_of(module)]
    return (
        _are_plain_products(module, "q_proj", "k_proj", "v_proj", "o_proj")
        and (not epsilons or (len(epsilons) == 2 and epsilons[0] == epsilons[1] and isinstance(epsilons[0], float)))
        and isinstance(getattr(module, "head_dim", None), int)
        and "position_embeddings" in inspect.signature(inspect.unwrap(type(module).forward)).parameters
    )


def _are_plain_products(module: nn.Module, *names: str) -> bool:
    """Without a bias; in lower precision an operation more or less would also round more or less."""
    parts = [getattr(module, name, None) for name in names]
    return all(isinstance(p, nn.Linear) and p.bias is None and p.weight.dtype == torch.float32 for p in parts)


def _random_copy(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Other weights than those at hand: norms of ones hide whether a norm comes before the rotation or after it."""
    probe = copy.deepcopy(module)
    for parameter in probe.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return probe


class _Recorder:
    """Notes what attention is asked for, and answers with the queries."""

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        self.seen = [query, key, value, query.new_tensor([layer, scaling])]
        return query.flatten(1)


def _matches(module: nn.Module, rotary: nn.Module) -> bool:
    """Both ask attention for the same and make the same of its answer, with random weights in every parameter."""
    generator = torch.Generator().manual_seed(0)
    probe = _random_copy(module, generator)
    weight = probe.get_submodule("q_proj").get_parameter("weight")
    hidden = torch.randn(1, 3, weight.shape[1], generator=generator).to(weight)
    cos, sin = rotary(hidden, torch.tensor([[5, 0, 17]], device=weight.device))
    if cos.shape != (1, 3, module.head_dim):
        return False
    expected, actual = _Recorder(), _Recorder()
    own, _ = probe(hidden_states=hidden, position_embeddings=(cos, sin), attention_mask=None, slot=expected)
    fused = FusedAttention(probe)(hidden[0], cos[0, :, None], sin[0, :, None], actual, num_queries=3)
    pairs = [(own[0], fused), *zip(expected.seen, actual.seen, strict=False)]
    return len(pairs) == 5 and all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in pairs)


class FusedMLP:
    """A gated MLP on rows: `down(act(gate(x)) * up(x))`, its products called directly and multiplied in place."""

    def __init__(self, module: nn.Module) -> None:
        names = ("gate_proj", "up_proj", "down_proj")
        self._gate, self._up, self._down = (module.get_submodule(name).get_parameter("weight") for name in names)
        self._act = module.get_submodule("act_fn").forward

    def __call__(self, hidden: Tensor) -> Tensor:
        """Hidden states [N, H] -> [N, H]."""
        return linear(self._act(linear(hidden, self._gate)).mul_(linear(hidden, self._up)), self._down)


@torch.no_grad()
def is_fusible_mlp(module: nn.Module) -> bool:
    """Whether `FusedMLP` is the same function as `module`."""
    if not _are_plain_products(module, "gate_proj", "up_proj", "down_proj") or not hasattr(module, "act_fn"):
        return False
    generator = torch.Generator().manual_seed(0)
    probe = _random_copy(module, generator)
    weight = probe.get_submodule("gate_proj").get_parameter("weight")
    hidden = torch.randn(3, weight.shape[1], generator=generator).to(weight)
    own = probe(hidden[None])
    return isinstance(own, Tensor) and torch.allclose(own[0], FusedMLP(probe)(hidden), rtol=1e-4, atol=1e-5)


class FusedNorm:
    """RMS norm with the mean of squares as a product: five of them in a tiny model are 5 % of a forward less."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps
        self._mean = weight.new_full((len(weight), 1), 1 / len(weight))

    def __call__(self, hidden: Tensor) -> Tensor:
        """Float32 [..., H] -> [..., H]."""
        return (hidden * (hidden.square() @ self._mean).add_(self._eps).rsqrt_()).mul_(self._weight)


@torch.no_grad()
def fuse_norms(model: nn.Module) -> None:
    """Compute RMS norms with fewer calls; on other devices and in lower precision with torch's one.

    Only where it is the same function: a norm that gives other numbers on a probe (one that scales by 1 + weight, or
    rounds in lower precision) keeps its own code.
    """
    for module in model.modules():
        weight, eps = getattr(module, "weight", None), getattr(module, "variance_epsilon", None)
        if isinstance(weight, Tensor) and isinstance(eps, float):
            if weight.dtype == torch.float32 and weight.device.type == "cpu":
                fused: Callable[[Tensor], Tensor] = FusedNorm(weight, eps)
            else:
                fused = functools.partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
            probe = torch.linspace(-3, 2, 2 * len(weight), dtype=weight.dtype, device=weight.device).view(2, -1)
            if torch.allclose(module(probe), fused(probe), rtol=1e-6, atol=1e-7):
                module.forward = fused
