import pytest
import torch

from soliton.models import Critic, FrozenPrefix, freeze, resolve_trainable

from .conftest import make_model


def fit(critic, names, batches, values_of, fits=3):
    """K fits over the batch; returns the values of every pass and the final weights."""
    optimiser = torch.optim.AdamW(freeze(critic, names), lr=1e-2)
    seen = []
    for _ in range(fits):
        optimiser.zero_grad()
        for index, ids in enumerate(batches):
            values = values_of(index, ids)
            seen.append(values.detach().clone())
            (values - 1).pow(2).mean().backward()
        optimiser.step()
    return seen, [parameter.detach().clone() for parameter in critic.parameters()]


@pytest.fixture
def batches(ids):
    return [ids, ids.flip(0)[:2, :9]]


@pytest.fixture(params=["dense-tied", "moe-tied"])
def critics(request):
    actor = make_model(request.param)
    return Critic.from_causal_lm(actor), Critic.from_causal_lm(actor)


@pytest.mark.parametrize("trainable", ["mlp", "mlp_norms", "all"])
def test_values_and_weights_are_bit_equal_with_and_without_replay(critics, batches, trainable):
    plain, replayed = critics
    names = resolve_trainable(plain, trainable)
    expected = fit(plain, names, batches, lambda _, ids: plain.values(ids))
    freeze(replayed, names)
    prefix = FrozenPrefix(replayed)
    actual = fit(replayed, names, batches, prefix.values)
    for ours, theirs in zip(actual, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def count_calls(critic):
    calls = []
    critic.backbone.layers[0].self_attn.q_proj.register_forward_hook(lambda *_: calls.append(0))
    critic.backbone.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_the_first_attention_runs_once_per_micro_batch_and_the_others_in_every_fit(critics, batches):
    critic, _ = critics
    calls = count_calls(critic)
    names = resolve_trainable(critic, "mlp")
    freeze(critic, names)
    prefix = FrozenPrefix(critic)
    assert prefix.active
    fit(critic, names, batches, prefix.values, fits=3)
    assert (calls.count(0), calls.count(1)) == (2, 6)


@pytest.mark.parametrize(
    "extra",
    [
        "backbone.embed_tokens.weight",
        "backbone.layers.0.input_layernorm.weight",
        "backbone.layers.0.self_attn.k_norm.weight",
    ],
)
def test_nothing_is_reused_when_something_below_trains(critics, batches, extra):
    critic, _ = critics
    calls = count_calls(critic)
    names = [*resolve_trainable(critic, "mlp"), extra]
    freeze(critic, names)
    prefix = FrozenPrefix(critic)
    assert not prefix.active
    fit(critic, names, batches, prefix.values, fits=3)
    assert calls.count(0) == 6


def test_a_deeper_frozen_prefix_still_gives_the_same_values(critics, batches):
    plain, replayed = critics
    names = [name for name in resolve_trainable(plain, "mlp") if ".layers.0." not in name]
    expected = fit(plain, names, batches, lambda _, ids: plain.values(ids))
    freeze(replayed, names)
    prefix = FrozenPrefix(replayed)
    assert prefix.active
    actual = fit(replayed, names, batches, prefix.values)
    assert all(torch.equal(a, b) for a, b in zip(actual[0], expected[0], strict=True))


def test_the_critic_is_itself_again_after_each_call(critics, batches):
    critic, _ = critics
    freeze(critic, resolve_trainable(critic, "mlp"))
    attention = critic.backbone.layers[0].self_attn
    prefix = FrozenPrefix(critic)
    prefix.values(0, batches[0])
    assert "forward" not in vars(attention)
    other = (batches[0] + 1) % 40
    assert not torch.equal(critic.values(other), torch.ones_like(other))
    assert set(dict(critic.named_parameters())) == set(dict(critics[1].named_parameters()))


def test_an_index_that_comes_with_other_tokens_is_refused(critics, batches):
    critic, _ = critics
    freeze(critic, resolve_trainable(critic, "mlp"))
    prefix = FrozenPrefix(critic)
    prefix.values(0, batches[0])
    with pytest.raises(ValueError, match="micro-batch 0"):
        prefix.values(0, batches[1])
    changed = batches[0].clone()
    prefix.values(1, changed)
    changed[0, 0] = (changed[0, 0] + 1) % 40
    with pytest.raises(ValueError, match="micro-batch 1"):
        prefix.values(1, changed)


def test_a_backbone_built_in_another_way_is_simply_not_replayed(critics, batches):
    critic, _ = critics
    freeze(critic, resolve_trainable(critic, "mlp"))
    del critic.backbone.layers
    prefix = FrozenPrefix(critic)
    assert not prefix.active
