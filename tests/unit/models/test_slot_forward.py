"""Which forward the engine takes: the fused decoder only where it is the function of the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.qwen3 import modeling_qwen3

from soliton.models.fused_decoder import FusedDecoder
from soliton.models.slot_attention import slot_model
from soliton.models.slot_forward import OwnForward, slot_forward
from tests.unit.engines.kit import engine_of, play, request, tiny_model


def forward_of(model, max_context=64):
    return slot_forward(slot_model(model), max_context)


def changed(change):
    """The forward for a copy of the dense tiny model after `change` did something to it."""
    own = slot_model(tiny_model())
    change(own)
    return slot_forward(own, 64)


@pytest.mark.parametrize("kind", ["dense", "moe", "llama"])
@pytest.mark.parametrize("tie", [True, False])
def test_plain_decoders_are_fused(kind, tie):
    assert isinstance(forward_of(tiny_model(kind, tie)), FusedDecoder)


def test_another_family_runs_its_own_code():
    assert isinstance(forward_of(tiny_model("gpt2")), OwnForward)


def test_fused_and_own_code_give_the_same_logprobs():
    """In chunks of a prefill budget, so that some decode tokens are not sampled from."""
    fused, own = (engine_of(prefill_budget=5, num_slots=2) for _ in range(2))
    own._forward = OwnForward(own._model)
    requests = [request(f"s{i}", ids=tuple(range(3 + 9 * i)), new=6) for i in range(3)]
    for ours, theirs in zip(play(fused, *requests), play(own, *requests), strict=True):
        assert ours.token_ids == theirs.token_ids
        torch.testing.assert_close(torch.tensor(ours.logprobs), torch.tensor(theirs.logprobs), rtol=0, atol=2e-6)


class SwappedNorms(modeling_qwen3.Qwen3DecoderLayer):
    """With norms of ones, as at the start of training, the same numbers as the plain layer."""

    def forward(self, hidden_states, attention_mask, position_embeddings, **kwargs):
        attended, _ = self.self_attn(
            hidden_states=self.post_attention_layernorm(hidden_states),
            attention_mask=attention_mask,
            position_embeddings=position_embeddings,
            **kwargs,
        )
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.input_layernorm(hidden_states))


class ScaledLogits(modeling_qwen3.Qwen3ForCausalLM):
    def forward(self, input_ids, position_ids, **kwargs):
        out = super().forward(input_ids=input_ids, position_ids=position_ids, **kwargs)
        out.logits = out.logits * 0.5
        return out


def swap_norms(own):
    own.model.layers[1].__class__ = SwappedNorms


def scale_logits(own):
    own.__class__ = ScaledLogits
    del own.forward


def add_a_norm(own):
    own.model.layers[0].another_norm = nn.Identity()


def angles_by_the_longest(own):
    plain = own.model.rotary_emb.forward
    own.model.rotary_emb.forward = lambda x, positions: plain(x, positions * (2 if positions.max() > 9 else 1))


@pytest.mark.parametrize("change", [swap_norms, scale_logits, add_a_norm, angles_by_the_longest])
def test_a_model_that_is_another_function_runs_its_own_code(change):
    assert isinstance(changed(change), OwnForward)
    assert isinstance(changed(lambda own: None), FusedDecoder)
