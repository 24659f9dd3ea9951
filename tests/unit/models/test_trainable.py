import pytest
import torch
from torch import nn

from soliton.errors import ConfigError
from soliton.models import Critic, freeze, frozen_sha256, new_causal_lm, resolve_trainable, tiny_qwen3_config
from soliton.parameter_names import kind_of

from .conftest import make_model

HEAD = {"value_head.weight", "value_head.bias"}


def layers(*suffixes):
    return {f"backbone.layers.{layer}.{suffix}" for layer in range(2) for suffix in suffixes}


DENSE = layers("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight")
EXPERTS = layers("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
ROUTERS = layers("mlp.gate.weight")
NORMS = layers("input_layernorm.weight", "post_attention_layernorm.weight") | {"backbone.norm.weight"}


@pytest.fixture
def dense():
    return Critic.from_causal_lm(make_model("dense-tied"))


@pytest.fixture
def moe():
    return Critic.from_causal_lm(make_model("moe-tied"))


def test_the_default_trains_mlp_projections_and_the_head_alone(dense):
    assert set(resolve_trainable(dense, "mlp")) == DENSE | HEAD


def test_fused_experts_train_and_their_router_does_not(moe):
    assert set(resolve_trainable(moe, "mlp")) == EXPERTS | HEAD
    assert set(resolve_trainable(moe, "mlp", train_router=True)) == EXPERTS | HEAD | ROUTERS


def test_norms_train_on_request_except_those_inside_attention(dense, moe):
    assert set(resolve_trainable(dense, "mlp_norms")) == DENSE | HEAD | NORMS
    assert set(resolve_trainable(moe, "mlp_norms", train_router=True)) == EXPERTS | HEAD | NORMS | ROUTERS


def test_all_means_all(moe):
    assert resolve_trainable(moe, "all") == [name for name, _ in moe.named_parameters()]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("backbone.layers.0.self_attn.q_norm.weight", "attention"),
        ("backbone.layers.0.linear_attn.in_proj_qkvz.weight", "attention"),
        ("backbone.layers.0.linear_attn.norm.weight", "attention"),
        ("backbone.h.3.attn.c_proj.weight", "attention"),
        ("backbone.h.3.mlp.c_fc.weight", "mlp"),
        ("backbone.h.3.ln_1.weight", "norm"),
        ("backbone.ln_f.weight", "norm"),
        ("backbone.layers.0.mlp.shared_expert.gate_proj.weight", "mlp"),
        ("backbone.layers.0.mlp.shared_expert_gate.weight", "router"),
        ("backbone.layers.0.mlp.router.weight", "router"),
        ("backbone.layers.0.pre_feedforward_layernorm.weight", "norm"),
        ("backbone.embed_tokens.weight", "other"),
    ],
)
def test_names_of_other_architectures_fall_on_the_right_side(name, kind):
    assert kind_of(name) == kind


def test_a_choice_that_matches_nothing_is_an_error(dense):
    with pytest.raises(ConfigError, match="router"):
        resolve_trainable(dense, "mlp", train_router=True)
    for layer in dense.backbone.layers:
        layer.mlp = nn.Identity()
    with pytest.raises(ConfigError, match=r"kind \['mlp'\].*attention \(backbone\.layers\.0\.self_attn"):
        resolve_trainable(dense, "mlp")


def test_an_unknown_choice_is_an_error(dense):
    with pytest.raises(ConfigError, match="trainable must be one of"):
        resolve_trainable(dense, "attention")


def test_freeze_returns_exactly_what_trains_and_turns_the_rest_off(moe):  # fault A14
    names = resolve_trainable(moe, "mlp")
    for parameter in moe.parameters():
        parameter.grad = torch.ones_like(parameter)
    trained = freeze(moe, names)
    parameters = dict(moe.named_parameters())
    assert [id(p) for p in trained] == [id(parameters[name]) for name in names]
    assert {name for name, p in parameters.items() if p.requires_grad} == set(names)
    assert {name for name, p in parameters.items() if p.grad is not None} == set(names)


def test_freezing_again_with_another_choice_thaws(dense):
    freeze(dense, resolve_trainable(dense, "mlp"))
    freeze(dense, resolve_trainable(dense, "all"))
    assert all(parameter.requires_grad for parameter in dense.parameters())


def test_a_name_that_does_not_exist_is_an_error(dense):
    with pytest.raises(ConfigError, match=r"layers\.7"):
        freeze(dense, ["backbone.layers.7.mlp.up_proj.weight"])
    with pytest.raises(ConfigError, match="none given"):
        freeze(dense, [])


def test_frozen_parameters_never_move_and_trained_ones_do(moe, ids):  # fault A14
    names = resolve_trainable(moe, "mlp")
    optimiser = torch.optim.AdamW(freeze(moe, names), lr=1e-2, weight_decay=0.1)
    frozen, everything = frozen_sha256(moe, names), frozen_sha256(moe, [])
    for _ in range(100):
        optimiser.zero_grad()
        (moe.values(ids[:1, :4]) - 1).pow(2).mean().backward()
        optimiser.step()
    assert frozen_sha256(moe, names) == frozen
    assert frozen_sha256(moe, []) != everything


def test_the_hash_sees_one_frozen_number_and_no_trained_one(dense):
    names = resolve_trainable(dense, "mlp")
    before = frozen_sha256(dense, names)
    with torch.no_grad():
        dense.backbone.layers[1].mlp.up_proj.weight.add_(1)
        assert frozen_sha256(dense, names) == before
        dense.backbone.layers[1].self_attn.q_norm.weight[3] += 1e-6
    assert frozen_sha256(dense, names) != before


def test_freezing_the_critic_leaves_the_actor_alone():  # fault of other code: a shared freeze flag
    actor = new_causal_lm(tiny_qwen3_config(40), 0)
    critic = Critic.from_causal_lm(actor)
    freeze(critic, resolve_trainable(critic, "mlp"))
    assert all(parameter.requires_grad for parameter in actor.parameters())
