"""Attention over KV slots for Hugging Face decoders: one function, registered with transformers, no second model.

Owns: the layout of a flat decode tick and the attention over it. A tick is ONE forward of shape [1, N]: the first B
tokens are the decode tokens (the last token each of B slots feeds), the others are extension tokens (earlier forced
tokens of those slots: a piece of a prompt, an observation). Slots of similar length form groups, each one attention
call over keys `[slots, kv heads, capacity, dim]`: with the positions of a head side by side attention on CPU is up to
2x faster than with the heads side by side.

Does not know: sessions, sampling, what the tokens mean.

Guarantees: a token attends to the tokens of its own slot at positions <= its own, and to nothing else.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from soliton.errors import ConfigError
from soliton.models.fused import Attends, fuse_norms

SLOT_ATTENTION = "soliton_slot"
"""Name under which transformers knows the function. It has no mask builder on purpose: then none is built."""


@dataclass(frozen=True)
class DecodeGroup:
    """R slots of one capacity with one query each.

    Attributes:
        keys: [layers, at least R * kv heads, L, head dim], views; `values` likewise.
        values: see `keys`.
        select: int64 [R * kv heads], which of them; None: all, in order (then nothing is copied).
        rows: where the queries lie in the flat batch.
        mask: [R * kv heads, 1, L], 0 where the query may look, -inf elsewhere.
    """

    keys: Tensor
    values: Tensor
    select: Tensor | None
    rows: slice
    mask: Tensor


@dataclass(frozen=True)
class ExtensionGroup:
    """S slots of one capacity with up to E queries each; padding queries are computed and thrown away.

    Attributes:
        keys: [layers, slots, kv heads, capacity, head dim]; `values` likewise.
        values: see `keys`.
        select: int64 [S], the slots.
        rows: int64 [S * E], rows of the flat batch that are the queries.
        mask: [S, 1, E * query heads per kv head, L], 0 where the query may look, -inf elsewhere.
        order: int64, where the real tokens lie among the S * E queries.
    """

    keys: Tensor
    values: Tensor
    select: Tensor
    rows: Tensor
    mask: Tensor
    order: Tensor


@dataclass(frozen=True)
class SlotBatch:
    """What the attention function must know about one tick; passed through the model as the keyword `slot`.

    Attributes:
        keys: [layers, rows, head dim], one row per (slot, kv head, position), written in place; `values` likewise.
        values: see `keys`.
        write_rows: int64 [N * kv heads], where the tokens' keys go.
        decode: groups in the order of the flat batch; together they cover its first B tokens.
        extension: likewise for the others.
        num_decode: B, the tokens whose hidden states anybody may read.
    """

    keys: Tensor
    values: Tensor
    write_rows: Tensor
    decode: Sequence[DecodeGroup]
    extension: Sequence[ExtensionGroup]
    num_decode: int

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """Store the tick's keys and values, then attend within each slot.

        Shapes: query [N, heads, dim] (in the last layer [B, heads, dim] will do), key and value [N, kv heads, dim] ->
        [N or B, heads * dim].
        """
        _, num_kv_heads, dim = key.shape
        self.keys[layer].index_copy_(0, self.write_rows, key.reshape(-1, dim))
        self.values[layer].index_copy_(0, self.write_rows, value.reshape(-1, dim))
        queries = query.view(len(query), num_kv_heads, -1, dim)
        outputs = [_decode_attention(queries, group, layer, scaling) for group in self.decode]
        if layer + 1 < len(self.keys):
            outputs += [_extension_attention(queries, group, layer, scaling) for group in self.extension]
        elif len(query) > self.num_decode:  # nobody reads what the last layer makes of extension tokens
            outputs.append(query.new_zeros(len(query) - self.num_decode, outputs[0].shape[-1]))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001  (part of transformers' interface; SlotBatch has the masks)
    scaling: float,
    slot: Attends,
    **_: Any,
) -> tuple[Tensor, None]:
    """`SlotBatch.attend` as transformers calls it.

    Shapes: query [1, heads, N, dim], key and value [1, kv heads, N, dim] -> [1, N, heads, dim].
    """
    layer = module.layer_idx
    assert isinstance(layer, int)
    q, k, v = (heads[0].transpose(0, 1) for heads in (query, key, value))
    return slot.attend(layer, q, k, v, scaling).view(1, query.shape[2], -1, query.shape[-1]), None


def _decode_attention(queries: Tensor, group: DecodeGroup, layer: int, scaling: float) -> Tensor:
    """One query per slot: [N, kv heads, heads per kv head, dim] -> [R, heads * dim].

    Query heads that share a KV head are the rows of one small product, so keys are never repeated. Two batched products
    are 2.4x faster here than the fused kernel, whose cost per head does not pay for so few queries; in lower precision
    the fused kernel stays, because it keeps its scores in float32.
    """
    q = queries[group.rows]
    num_slots, _, heads_per_kv, _ = q.shape
    q = q.flatten(0, 1)
    mask = group.mask.expand(-1, heads_per_kv, -1)
    keys, values = group.keys[layer], group.values[layer]
    if group.select is not None:
        keys, values = keys.index_select(0, group.select), values.index_select(0, group.select)
    if q.dtype != torch.float32:
        q, keys, values, mask = (tensor.unsqueeze(1) for tensor in (q, keys, values, mask))
        return scaled_dot_product_attention(q, keys, values, attn_mask=mask, scale=scaling).reshape(num_slots, -1)
    scores = torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=scaling)
    return torch.bmm(torch.softmax(scores, -1), values).view(num_slots, -1)


def _extension_attention(queries: Tensor, group: ExtensionGroup, layer: int, scaling: float) -> Tensor:
    """Several queries per slot: [N, kv heads, heads per kv head, dim] -> [tokens of the group, heads * dim]."""
    num_slots, _, _, length = group.mask.shape
    _, kv_heads, heads_per_kv, dim = queries.shape
    q = queries.index_select(0, group.rows).view(num_slots, -1, kv_heads, heads_per_kv, dim)
    out = scaled_dot_product_attention(
        q.transpose(1, 2).flatten(2, 3),
        group.keys[layer].index_select(0, group.select)[:, :, :length],
        group.values[layer].index_select(0, group.select)[:, :, :length],
        attn_mask=group.mask,
        scale=scaling,
    )
    by_token = out.view(num_slots, kv_heads, -1, heads_per_kv, dim).transpose(1, 2)
    return by_token.reshape(-1, kv_heads * heads_per_kv * dim).index_select(0, group.order)


AttentionInterface.register(SLOT_ATTENTION, slot_attention)


def slot_model(model: PreTrainedModel) -> PreTrainedModel:
    """Copy `model` and let the copy attend over slots; the model given is not touched.

    Raises:
        ConfigError: the architecture has layers other than full attention, or does not use transformers' interface.
    """
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
        raise ConfigError(
            f"the embedded engine runs decoders with full attention in every layer; {type(model).__name__} has "
            f"{sorted(kinds)} and sliding_window={getattr(config, 'sliding_window', None)}. "
            "Use an engine server for it."
        )
    own = copy.deepcopy(model)
    own.train(False).requires_grad_(False)
    own.set_attn_implementation(SLOT_ATTENTION)
    if own.config._attn_implementation != SLOT_ATTENTION:
        raise ConfigError(
            f"{type(model).__name__} does not take its attention function from transformers' AttentionInterface; "
            "the embedded engine cannot run it. Use an engine server for it."
        )
    for part in (own, own.base_model, *getattr(own.base_model, "layers", ())):
        _call_directly(part)
    fuse_norms(own)
    return own


def _call_directly(model: nn.Module) -> None:
    """Leave out what transformers wraps around the forward of models: 5 % of a tick of a tiny model.

    The wrappers translate deprecated arguments, fill absent ones from the configuration and collect hidden states. The
    engine gives every argument under its present name and collects nothing.
    """
    model.forward = types.MethodType(inspect.unwrap(type(model).forward), model)
