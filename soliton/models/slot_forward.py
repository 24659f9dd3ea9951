"""One tick of the engine's copy of a model: flat tokens in, logits of the rows that are sampled from out.

Owns: the choice between the model's own code (`OwnForward`) and `FusedDecoder`. Does not know: sessions, sampling.

Guarantees: both are the same function, up to the rounding of sums in another order.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from soliton.models.fused_decoder import FusedDecoder, is_plain_decoder, rotation_table
from soliton.models.slot_attention import SlotBatch


class SlotForward(Protocol):
    """A forward of N tokens of which the first `slot.num_decode` may be read."""

    def __call__(self, input_ids: Tensor, position_ids: Tensor, rows: Tensor, slot: SlotBatch) -> Tensor:
        """Ids and positions int64 [N]; rows int64 [R], ascending, < `slot.num_decode` -> logits [R, vocabulary]."""
        ...


@torch.no_grad()
def slot_forward(model: PreTrainedModel, max_context: int) -> SlotForward:
    """The fastest forward that is the function of `model` (made by `slot_model`) at positions < `max_context`."""
    if is_plain_decoder(model):
        rotations = rotation_table(model, max_context)
        if rotations is not None:
            return FusedDecoder(model, rotations)
    return OwnForward(model)


class OwnForward:
    """The model's own code. The last layer's MLP is patched so that it leaves out extension tokens."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._num_decode = 0
        layers = list(getattr(model.base_model, "layers", ()))
        last_mlp = getattr(layers[-1], "mlp", None) if layers else None
        if isinstance(last_mlp, nn.Module):
            self._last_mlp = last_mlp.forward
            last_mlp.forward = self._mlp_of_decode_tokens

    def __call__(self, input_ids: Tensor, position_ids: Tensor, rows: Tensor, slot: SlotBatch) -> Tensor:
        """See `SlotForward`."""
        self._num_decode = slot.num_decode
        out = self._model(
            input_ids=input_ids[None],
            position_ids=position_ids[None],
            use_cache=False,
            logits_to_keep=rows,
            slot=slot,
        )
        logits: Tensor = out.logits[0]
        return logits

    def _mlp_of_decode_tokens(self, hidden_states: Tensor) -> Tensor:
        """Nobody reads the last hidden states of extension tokens, only their keys and values: add nothing to them."""
        out: Tensor = self._last_mlp(hidden_states[:, : self._num_decode])
        return pad(out, (0, 0, 0, hidden_states.shape[1] - self._num_decode))
