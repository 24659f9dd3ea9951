"""The engine's forward of a plain decoder: its own modules, and the small operations between them fused.

Owns: what makes a decoder plain (`is_plain_decoder`, `rotation_table`) and its forward. Does not know: sessions,
sampling, which family a model is of.

Guarantees: a decoder is called plain only where probes of each layer and of what stands around the layers find the same
function; weights copied into the model in place take effect at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from soliton.models.fused import FusedAttention, FusedMLP, is_fusible_attention, is_fusible_mlp
from soliton.models.slot_attention import SlotBatch

_LAYER_PARTS = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_BASE_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}


class FusedDecoder:
    """Embedding, layers, norm and head of a plain decoder, without what transformers does in between.

    Of extension tokens the last layer computes keys and values only. Cosines and sines are rows of a table.

    Args:
        model: one that `is_plain_decoder`.
        rotations: the model's `rotation_table`.
    """

    def __init__(self, model: PreTrainedModel, rotations: Tensor) -> None:
        base: Any = model.base_model
        # What a module's call does before its forward costs as much as a small operation.
        self._embed, self._norm = base.embed_tokens.forward, base.norm.forward
        self._head = model.get_submodule("lm_head").forward
        self._layers = [_FusedLayer(layer) for layer in base.layers]
        self._rotations = rotations

    def __call__(self, input_ids: Tensor, position_ids: Tensor, rows: Tensor, slot: SlotBatch) -> Tensor:
        """See `SlotForward`."""
        hidden = self._embed(input_ids)
        cos, sin = self._rotations.index_select(0, position_ids)[:, None].chunk(2, dim=-1)
        for layer in self._layers[:-1]:
            hidden = layer(hidden, cos, sin, slot, len(hidden))
        hidden = self._layers[-1](hidden, cos, sin, slot, slot.num_decode)
        # Only a prompt beyond the prefill budget has decode tokens that are not sampled from.
        hidden = hidden if len(rows) == len(hidden) else hidden.index_select(0, rows)
        logits: Tensor = self._head(self._norm(hidden))
        return logits


class _FusedLayer:
    """Attention of the normed input and an MLP of the normed sum, each added to what came in."""

    def __init__(self, layer: nn.Module) -> None:
        self._attention = FusedAttention(layer.get_submodule("self_attn"))
        self._attention_norm = layer.get_submodule("input_layernorm").forward
        self._mlp_norm = layer.get_submodule("post_attention_layernorm").forward
        mlp = layer.get_submodule("mlp")
        self._mlp = FusedMLP(mlp) if is_fusible_mlp(mlp) else _OwnMLP(mlp)

    def __call__(self, hidden: Tensor, cos: Tensor, sin: Tensor, slot: SlotBatch, num_queries: int) -> Tensor:
        """Hidden states [N, H] of all tokens -> [num_queries, H] of the first `num_queries`."""
        attended = self._attention(self._attention_norm(hidden), cos, sin, slot, num_queries)
        attended += hidden[:num_queries]
        return self._mlp(self._mlp_norm(attended)).add_(attended)


class _OwnMLP:
    """Any MLP, a mixture of experts for one, called as it is."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __call__(self, hidden: Tensor) -> Tensor:
        out: Tensor = self._module(hidden[None])[0]
        return out


def rotation_table(model: PreTrainedModel, max_context: int) -> Tensor | None:
    """Cosines, then sines of positions < `max_context`, [max_context, 2 * head dim].

    None if those of a position depend on which others are in the batch.
    """
    base: Any = model.base_model
    like = base.embed_tokens.weight[:1, None]
    positions = torch.arange(max_context, device=like.device)[None]
    table = torch.cat(base.rotary_emb(like, positions), dim=-1)[0]
    alone = torch.cat(base.rotary_emb(like, positions[:, :2]), dim=-1)[0]
    return table if torch.equal(table[:2], alone) else None


def is_plain_decoder(model: PreTrainedModel) -> bool:
    """Whether `FusedDecoder` is the same function as `model`, apart from its angles."""
    base: Any = model.base_model
    return (
        set(dict(base.named_children())) == _BASE_PARTS
        and set(dict(model.named_children())) == {model.base_model_prefix, "lm_head"}
        and len(base.layers) > 0
        and _logits_of_no_layers_match(model)
        and all(_is_plain_layer(layer, base.rotary_emb) for layer in base.layers)
    )


def _logits_of_no_layers_match(model: PreTrainedModel) -> bool:
    """Around the layers there is nothing but embedding, norm and head: without them both give the same logits."""
    base: Any = model.base_model
    weight = base.embed_tokens.weight
    ids = torch.tensor([0, len(weight) - 1], device=weight.device)
    probe = _with_parts(model, {model.base_model_prefix: _with_parts(base, {"layers": nn.ModuleList()})})
    own = probe(input_ids=ids[None], position_ids=torch.arange(2, device=ids.device)[None], use_cache=False).logits[0]
    expected = model.get_submodule("lm_head")(base.norm(base.embed_tokens(ids)))
    return torch.allclose(own, expected, rtol=1e-4, atol=1e-5)


def _is_plain_layer(layer: nn.Module, rotary: nn.Module) -> bool:
    """It joins its parts as `_FusedLayer` does, whatever they are, and its attention can be fused."""
    if set(dict(layer.named_children())) != _LAYER_PARTS:
        return False
    attention = layer.get_submodule("self_attn")
    if not is_fusible_attention(attention, rotary):
        return False
    weight = attention.get_submodule("q_proj").get_parameter("weight")
    hidden = torch.linspace(-1, 1, 2 * weight.shape[1], dtype=weight.dtype, device=weight.device).view(1, 2, -1)
    if not isinstance(layer.get_submodule("mlp")(hidden), Tensor):
        return False
    # Four different functions as parts: weights at hand, such as norms of ones, could hide which one is used where.
    parts = {
        "input_layernorm": _Part(torch.sin),
        "self_attn": _Part(lambda x: (x.cos(), None)),
        "post_attention_layernorm": _Part(torch.tanh),
        "mlp": _Part(torch.square),
    }
    own = _with_parts(layer, parts)(hidden, position_embeddings=None, attention_mask=None)
    attended = hidden + hidden.sin().cos()
    expected = attended + attended.tanh().square()
    return isinstance(own, Tensor) and torch.allclose(own, expected, rtol=1e-5, atol=1e-6)


class _Part(nn.Module):
    """A function of hidden states in the place of a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, hidden_states: Tensor, **_: Any) -> Any:
        return self._function(hidden_states)


def _with_parts(module: nn.Module, parts: Mapping[str, nn.Module]) -> nn.Module:
    """A shallow copy of `module`, its class's own forward and all, with some children replaced."""
    probe = copy.copy(module)
    probe.__dict__["_modules"] = {**module._modules, **parts}
    probe.__dict__.pop("forward", None)
    return probe
