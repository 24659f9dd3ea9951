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

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from soliton.errors import ConfigError

SLOT_ATTENTION = "soliton_slot"
"""Name under which transformers knows the function. It has no mask builder on purpose: then none is built."""


@dataclass(frozen=True)
class SlotGroup:
    """R slots with E queries each, one attention call; padding queries are computed and thrown away.

    Attributes:
        keys: [layers, slots, kv heads, capacity, head dim]; `values` likewise.
        values: see `keys`.
        select: int64 [R], the slots; None for the first R (then nothing is copied).
        rows: rows of the flat batch that are the queries: a slice (E = 1), or int64 [R * E].
        mask: [R, 1, E * query heads per kv head, L], 0 where the query may look, -inf elsewhere.
        order: int64, where the real tokens lie among the R * E queries; None if there is no padding.
    """

    keys: Tensor
    values: Tensor
    select: Tensor | None
    rows: slice | Tensor
    mask: Tensor
    order: Tensor | None


@dataclass(frozen=True)
class SlotBatch:
    """What the attention function must know about one tick; passed through the model as the keyword `slot`.

    Attributes:
        keys: [layers, rows, head dim], one row per (slot, kv head, position), written in place; `values` likewise.
        values: see `keys`.
        write_rows: int64 [kv heads, N], where the tokens' keys go.
        groups: in the order of the flat batch; together they cover each of its tokens once. Empty: only store keys.
        num_decode: B, the tokens whose hidden states anybody may read.
        num_decode_groups: the groups that cover them; the others are extension tokens.
    """

    keys: Tensor
    values: Tensor
    write_rows: Tensor
    groups: Sequence[SlotGroup]
    num_decode: int
    num_decode_groups: int


class _Stored(Exception):  # noqa: N818  (control flow: the rest of the layer would compute what nobody reads)
    """Keys and values are stored and the batch has no query."""


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001  (part of transformers' interface; SlotBatch has the masks)
    scaling: float,
    slot: SlotBatch,
    **_: Any,
) -> tuple[Tensor, None]:
    """Store the tick's keys and values, then attend within each slot.

    Shapes: query [1, heads, N, dim], key and value [1, kv heads, N, dim] -> [1, N, heads, dim].
    """
    layer = module.layer_idx
    assert isinstance(layer, int)
    write_rows = slot.write_rows.flatten()
    slot.keys[layer].index_copy_(0, write_rows, key.flatten(0, 2))
    slot.values[layer].index_copy_(0, write_rows, value.flatten(0, 2))
    if not slot.groups:
        raise _Stored
    num_kv_heads, num_tokens = key.shape[1:3]
    queries = query[0].transpose(0, 1).reshape(num_tokens, num_kv_heads, -1, query.shape[-1])
    outputs = [_attend(queries, group, layer, scaling) for group in slot.groups]
    return torch.cat(outputs).view(1, num_tokens, -1, query.shape[-1]), None


def _attend(queries: Tensor, group: SlotGroup, layer: int, scaling: float) -> Tensor:
    """Attention of one group: [N, kv heads, heads per kv head, dim] -> [tokens of the group, heads * dim].

    Query heads that share a KV head are laid along the query axis, so keys are never repeated.
    """
    num_slots, _, num_queries, length = group.mask.shape
    _, kv_heads, heads_per_kv, dim = queries.shape
    keys, values = group.keys[layer], group.values[layer]
    if group.select is None:
        keys, values = keys[:num_slots], values[:num_slots]
    else:
        keys, values = keys.index_select(0, group.select), values.index_select(0, group.select)
    rows = queries[group.rows] if isinstance(group.rows, slice) else queries.index_select(0, group.rows)
    by_head = rows.view(num_slots, -1, kv_heads, heads_per_kv, dim).transpose(1, 2).flatten(2, 3)
    out = scaled_dot_product_attention(
        by_head, keys[:, :, :length], values[:, :, :length], attn_mask=group.mask, scale=scaling
    )
    by_token = out.reshape(num_slots, kv_heads, num_queries // heads_per_kv, heads_per_kv * dim).transpose(1, 2)
    flat = by_token.reshape(-1, kv_heads * heads_per_kv * dim)
    return flat if group.order is None else flat.index_select(0, group.order)


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
    layers = getattr(own.base_model, "layers", None)
    if isinstance(layers, nn.ModuleList):
        _spare_extension_tokens(layers[-1])
    if own.config._attn_implementation != SLOT_ATTENTION:
        raise ConfigError(
            f"{type(model).__name__} does not take its attention function from transformers' AttentionInterface; "
            "the embedded engine cannot run it. Use an engine server for it."
        )
    return own


def _spare_extension_tokens(last_layer: nn.Module) -> None:
    """Let the last layer do for extension tokens what is needed of it: their keys and values.

    Nobody reads their hidden states, so their queries, attention output and MLP are not computed (a tenth of a tick
    when observations are fed). The layer's own code runs; on extension tokens it is left at the attention call.
    """
    forward = last_layer.forward

    def spared(
        hidden_states: Tensor, *, position_embeddings: tuple[Tensor, Tensor], slot: SlotBatch, **kwargs: Any
    ) -> Any:
        count = slot.num_decode
        if count == hidden_states.shape[1]:
            return forward(hidden_states, position_embeddings=position_embeddings, slot=slot, **kwargs)
        cos, sin = position_embeddings
        kwargs["position_ids"] = None  # the embeddings hold them
        with contextlib.suppress(_Stored):
            forward(
                hidden_states[:, count:],
                position_embeddings=(cos[:, count:], sin[:, count:]),
                slot=replace(slot, write_rows=slot.write_rows[:, count:], groups=()),
                **kwargs,
            )
        return forward(
            hidden_states[:, :count],
            position_embeddings=(cos[:, :count], sin[:, :count]),
            slot=replace(slot, write_rows=slot.write_rows[:, :count], groups=slot.groups[: slot.num_decode_groups]),
            **kwargs,
        )

    last_layer.forward = spared
