"""The parts of a Hugging Face causal language model: its trunk (hidden states) and its output projection.

Batches are padded on the right and carry no attention mask: a causal model never looks ahead, so what stands behind
the last token cannot reach it, and what is computed there is never read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from soliton.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PROBE_TOLERANCE = 1e-3
"""Largest accepted difference on the probe, relative to the largest logit; soft caps and scales exceed it."""


def causal_hidden(model: PreTrainedModel, input_ids: Tensor) -> Tensor:
    """Compute the trunk's last hidden states (after the final norm).

    Args:
        model: a causal language model, or its trunk alone.
        input_ids: int64 [B, L], padded on the right with any valid id.

    Returns:
        [B, L, H] with gradient; rows beyond a sequence's own length mean nothing.
    """
    if input_ids.dim() != 2:
        raise ValueError(f"input_ids must be [B, L], got {tuple(input_ids.shape)}")
    hidden: Tensor = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
    return hidden


def lm_head_weight(model: PreTrainedModel) -> Tensor:
    """The output projection [V, H], tied to the embedding or not; gradients reach whichever parameter it is.

    Raises:
        ConfigError: the model has no output projection, or one with a bias.
    """
    get_head: Callable[[], nn.Module | None] = model.get_output_embeddings
    head = get_head()
    if head is None:
        raise ConfigError(f"{type(model).__name__} has no output projection; load a causal language model")
    if getattr(head, "bias", None) is not None:
        raise ConfigError(
            f"the output projection of {type(model).__name__} has a bias, which the chunked log-probs leave out; "
            "use a model without one"
        )
    return head.get_parameter("weight")


@torch.no_grad()
def check_plain_projection(model: PreTrainedModel) -> None:
    """Refuse models whose logits are not just hidden states times the projection (soft caps, scales, biases).

    The learner computes log-probs from hidden states and `lm_head_weight`; a soft cap that it does not know of would
    make every importance ratio wrong without any error.

    Raises:
        ConfigError: the logits of two tokens differ.
    """
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    ids = torch.tensor([[0, 1 % model.config.get_text_config().vocab_size]], device=model.device)
    expected = model(input_ids=ids, use_cache=False).logits
    actual = causal_hidden(model, ids) @ lm_head_weight(model).T
    difference = float((expected - actual).abs().max())
    # A soft cap hardly shows on the small logits of random weights, so its name is looked for as well.
    if cap is not None or not difference <= _PROBE_TOLERANCE * max(1e-6, float(expected.abs().max())):
        raise ConfigError(
            f"{type(model).__name__} does something between its output projection and its logits (they differ by "
            f"{difference:.3g}), such as a soft cap or a scale; such models are not supported"
        )
