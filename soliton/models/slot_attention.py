"""Attention over KV slots for Hugging Face decoders: one function, registered with transformers, no second model.

Owns: the layout of a flat decode tick and the attention over it. A tick is ONE forward of shape [1, N]: the first B
tokens are the decode tokens (the last token each of B slots feeds), the others are extension tokens (earlier forced
tokens of those slots: a piece of a prompt, an observation). Keys and values go to `[slots, capacity, kv heads, dim]`.

Does not know: sessions, sampling, what the tokens mean.

Guarantees: a token attends to the tokens of its own slot at positions <= its own, and to nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from soliton.errors import ConfigError

SLOT_ATTENTION = "soliton_slot"
"""Name under which transformers knows the function. It has no mask builder on purpose: then none is built."""


@dataclass(frozen=True)
class Extension:
    """The extension tokens of a tick, padded per slot to [S, E] so that one attention call covers them.

    Attributes:
        slots: int64 [S], slots that feed extension tokens.
        rows: int64 [S, E], row of each extension token in the flat batch (padding repeats a valid row).
        order: int64 [num extension tokens], where row B + i of the flat batch lies in the flattened [S * E].
        mask: [S, 1, E * group, L], 0 where the query may look, -inf elsewhere.
    """

    slots: Tensor
    rows: Tensor
    order: Tensor
    mask: Tensor


@dataclass(frozen=True)
class SlotBatch:
    """What the attention function must know about one tick; passed through the model as the keyword `slot`.

    Attributes:
        keys: [layers, slots, capacity, kv heads, head dim], written in place; `values` likewise.
        values: see `keys`.
        write_rows: int64 [N], `slot * capacity + position` of each token.
        decode_slots: int64 [B], or None for the first B slots (then no keys are copied).
        decode_mask: [B, 1, group, L], 0 where the decode token may look, -inf elsewhere.
        extension: the extension tokens, or None.
    """

    keys: Tensor
    values: Tensor
    write_rows: Tensor
    decode_slots: Tensor | None
    decode_mask: Tensor
    extension: Extension | None


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

    The queries of the heads that share a KV head are laid along the query axis, so keys are never repeated.

    Shapes: query [1, heads, N, dim], key and value [1, kv heads, N, dim] -> [1, N, heads * dim].
    """
    layer = module.layer_idx
    assert isinstance(layer, int)
    keys, values = slot.keys[layer], slot.values[layer]
    num_kv_heads, num_tokens = key.shape[1:3]
    keys.flatten(0, 1).index_copy_(0, slot.write_rows, key[0].transpose(0, 1))
    values.flatten(0, 1).index_copy_(0, slot.write_rows, value[0].transpose(0, 1))
    queries = query[0].transpose(0, 1).reshape(num_tokens, num_kv_heads, -1, query.shape[-1])

    num_decode, length = slot.decode_mask.shape[0], slot.decode_mask.shape[-1]
    if slot.decode_slots is None:
        k, v = keys[:num_decode, :length], values[:num_decode, :length]
    else:
        k, v = keys[slot.decode_slots, :length], values[slot.decode_slots, :length]
    out = scaled_dot_product_attention(
        queries[:num_decode], k.transpose(1, 2), v.transpose(1, 2), attn_mask=slot.decode_mask, scale=scaling
    ).reshape(num_decode, -1)
    if slot.extension is not None:
        out = torch.cat([out, _extension_attention(queries, keys, values, slot.extension, scaling)])
    return out.view(1, num_tokens, -1), None


def _extension_attention(queries: Tensor, keys: Tensor, values: Tensor, ext: Extension, scaling: float) -> Tensor:
    length = ext.mask.shape[-1]
    num_slots, num_queries = ext.rows.shape
    q = queries[ext.rows].transpose(1, 2).flatten(2, 3)  # [S, kv heads, E * group, dim]
    out = scaled_dot_product_attention(
        q,
        keys[ext.slots, :length].transpose(1, 2),
        values[ext.slots, :length].transpose(1, 2),
        attn_mask=ext.mask,
        scale=scaling,
    )
    by_token = out.reshape(num_slots, out.shape[1], num_queries, -1).transpose(1, 2)  # [S, E, kv heads, group * dim]
    return by_token.reshape(num_slots * num_queries, -1)[ext.order]


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
    return own
