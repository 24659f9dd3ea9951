import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from soliton.errors import ConfigError
from soliton.models import Critic, causal_hidden, critic_manifest


@pytest.fixture
def critic(tied_model):
    """A critic whose head has learned something."""
    critic = Critic.from_causal_lm(tied_model)
    with torch.no_grad():
        critic.value_head.weight.normal_(generator=torch.Generator().manual_seed(0))
        critic.value_head.bias.fill_(0.25)
    return critic


@pytest.fixture
def saved(critic, tmp_path):
    critic.save(tmp_path / "critic", {"policy": "abc", "explained_variance": 0.3})
    return tmp_path / "critic"


def test_a_new_critic_says_zero_everywhere(model, ids):
    values = Critic.from_causal_lm(model).values(ids)
    assert torch.equal(values, torch.zeros(3, 17))
    assert values.dtype == torch.float32


def test_the_critic_starts_from_the_policys_trunk_and_shares_nothing_with_it(model, ids):
    critic = Critic.from_causal_lm(model)
    assert torch.equal(causal_hidden(critic.backbone, ids), causal_hidden(model, ids))
    before = causal_hidden(model, ids).clone()
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.add_(1.0)
    assert torch.equal(causal_hidden(model, ids), before)


def test_everything_trains_even_if_the_policy_was_frozen(tied_model):
    tied_model.requires_grad_(False)
    try:
        assert all(parameter.requires_grad for parameter in Critic.from_causal_lm(tied_model).parameters())
    finally:
        tied_model.requires_grad_(True)


def test_the_value_at_a_position_depends_on_the_tokens_up_to_it_and_no_later_one(critic, ids):
    other = ids.clone()
    other[:, 10] = (other[:, 10] + 1) % 40
    changed = (critic.values(other) - critic.values(ids)).abs() > 1e-4
    assert not changed[:, :10].any()
    assert changed[:, 10].all()


def test_the_head_is_linear_in_the_hidden_state(critic, ids):
    hidden = causal_hidden(critic.backbone, ids)
    expected = (hidden * critic.value_head.weight[0]).sum(-1) + 0.25
    torch.testing.assert_close(critic.values(ids), expected, atol=1e-4, rtol=1e-5)
    assert torch.equal(critic(ids), critic.values(ids))


def test_gradients_reach_head_and_trunk(critic, ids):
    critic.values(ids).pow(2).mean().backward()
    assert all(parameter.grad is not None for parameter in critic.parameters())


def test_a_saved_critic_comes_back_with_its_head_and_its_values(critic, saved, ids):  # fault A13
    loaded = Critic.load(saved)
    assert torch.equal(loaded.values(ids), critic.values(ids))
    assert torch.equal(loaded.value_head.weight, critic.value_head.weight)
    assert set(loaded.state_dict()) == set(critic.state_dict())
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert critic_manifest(saved) == {"policy": "abc", "explained_variance": 0.3}


def test_a_lost_head_is_an_error_and_not_a_random_head(saved):  # fault A13
    (saved / "value_head.safetensors").unlink()
    with pytest.raises(ConfigError, match="value head is lost"):
        Critic.load(saved)


def test_a_head_with_other_contents_is_named(saved):  # fault A13
    head = load_file(saved / "value_head.safetensors")
    save_file({"weight": head["weight"][:, :64].contiguous()}, saved / "value_head.safetensors")
    with pytest.raises(ConfigError, match=r"\(1, 64\).*must hold.*bias"):
        Critic.load(saved)


def test_a_trunk_with_missing_or_unknown_parameters_is_named(saved):  # fault A13
    weights = load_file(saved / "model.safetensors")
    weights["extra.weight"] = weights.pop("norm.weight")
    save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"missing: norm\.weight; unexpected: extra\.weight"):
        Critic.load(saved)


def test_a_policys_folder_is_not_taken_for_a_critic(tied_model, tmp_path):
    tied_model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="from_causal_lm"):
        Critic.load(tmp_path)


def test_an_unknown_format_is_refused(saved):
    (saved / "critic.json").write_text(json.dumps({"format": 99, "origin": {}}))
    with pytest.raises(ConfigError, match="format 99"):
        Critic.load(saved)
