"""Fused attention blocks: the same function as the model's own code, and refused where they would not be."""

from __future__ import annotations

import torch
from transformers.models.qwen3 import modeling_qwen3

from soliton.models.fused import FusedAttention, FusedMLP, is_fusible_attention, is_fusible_mlp
from soliton.models.load import new_causal_lm
from soliton.models.slot_attention import SLOT_ATTENTION, slot_model
from soliton.models.tiny import tiny_qwen3_config, tiny_qwen3_moe_config


class NormAfterRotation(modeling_qwen3.Qwen3Attention):
    """The same parts in another order; with norms of ones the two orders give equal numbers."""

    def forward(self, hidden_states, position_embeddings, attention_mask, **kwargs):
        shape = (1, hidden_states.shape[1], -1, self.head_dim)
        q, k, v = (p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = modeling_qwen3.apply_rotary_pos_emb(q, k, *position_embeddings)
        by_token = (heads[0].transpose(0, 1) for heads in (self.q_norm(q), self.k_norm(k), v))
        return self.o_proj(kwargs["slot"].attend(self.layer_idx, *by_token, self.scaling))[None], None


class OneToken:
    """Attention over nothing but the token itself."""

    def attend(self, layer, query, key, value, scaling):
        key, value = key[: len(query)], value[: len(query)]
        weight = (query.unflatten(1, (key.shape[1], -1)) * key[:, :, None]).sum(-1, keepdim=True) * scaling
        return (weight * value[:, :, None]).flatten(1)


@torch.no_grad()
def test_fused_attention_equals_the_models_own_also_after_weights_changed_in_place():
    own = slot_model(new_causal_lm(tiny_qwen3_config(20), 0))
    module = own.model.layers[1].self_attn
    fused = FusedAttention(module)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 5, 128, generator=generator)
    cos, sin = own.model.rotary_emb(x, torch.tensor([[0, 3, 9, 1, 40]]))
    results = []
    for _ in range(2):
        expected, _ = module(x, (cos, sin), None, slot=OneToken())
        for num_queries in (5, 2):
            actual = fused(x[0], cos[0, :, None], sin[0, :, None], OneToken(), num_queries)
            torch.testing.assert_close(actual, expected[0, :num_queries], rtol=1e-4, atol=1e-6)
        results.append(expected)
        for parameter in own.state_dict().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    assert (results[0] - results[1]).abs().max() > 0.01


def test_attention_that_norms_after_the_rotation_is_not_fused():
    model = new_causal_lm(tiny_qwen3_config(20), 0)
    model.set_attn_implementation(SLOT_ATTENTION)
    modules = [layer.self_attn for layer in model.model.layers]
    modules[0].__class__ = NormAfterRotation
    assert [is_fusible_attention(module, model.model.rotary_emb) for module in modules] == [False, True]


def test_attention_in_lower_precision_is_not_fused():
    own = slot_model(new_causal_lm(tiny_qwen3_config(20), 0).to(torch.bfloat16))
    assert not is_fusible_attention(own.model.layers[0].self_attn, own.model.rotary_emb)


class UngatedMLP(modeling_qwen3.Qwen3MLP):
    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) + self.up_proj(x))


@torch.no_grad()
def test_fused_mlp_equals_the_models_own_also_after_weights_changed_in_place():
    mlp = new_causal_lm(tiny_qwen3_config(20), 0).model.layers[0].mlp
    fused = FusedMLP(mlp)
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        torch.testing.assert_close(fused(x), mlp(x), rtol=1e-5, atol=1e-6)
        mlp.gate_proj.weight.copy_(mlp.up_proj.weight * 1.5)


def test_only_a_gated_mlp_of_one_dense_block_is_fused():
    dense, moe = (new_causal_lm(config(20), 0).model.layers for config in (tiny_qwen3_config, tiny_qwen3_moe_config))
    dense[1].mlp.__class__ = UngatedMLP
    assert [is_fusible_mlp(layer.mlp) for layer in (*dense, moe[0])] == [True, False, False]
