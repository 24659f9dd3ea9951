"""The engine's copy of a model: what is replaced in it, and only where it is the same function."""

from __future__ import annotations

import torch
from torch import nn

from soliton.models.fused import fuse_norms
from soliton.models.load import new_causal_lm
from soliton.models.slot_attention import slot_model
from soliton.models.tiny import tiny_qwen3_config


class PlusOneNorm(nn.Module):
    """Scales by 1 + weight, as some families do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), 0.3))
        self.variance_epsilon = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon) * (1 + self.weight)


def test_a_norm_that_is_another_function_keeps_its_own_code():
    model = nn.Sequential(PlusOneNorm())
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    before = model(x)
    fuse_norms(model)
    assert torch.equal(model(x), before)
    assert "forward" not in vars(model[0])


def test_fused_norms_follow_weights_that_change_in_place():
    model = new_causal_lm(tiny_qwen3_config(20), 0)
    own = slot_model(model)
    norm, reference = own.model.norm, model.model.norm
    assert "forward" in vars(norm)
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for factor in (1.0, 2.5):
            norm.weight.copy_(reference.weight * factor)
            torch.testing.assert_close(norm(x), reference(x) * factor, rtol=1e-6, atol=1e-6)


def test_the_model_given_keeps_its_own_forwards():
    model = new_causal_lm(tiny_qwen3_config(20), 0)
    slot_model(model)
    assert not any("forward" in vars(module) for module in model.modules())
    assert model.config._attn_implementation == "sdpa"
