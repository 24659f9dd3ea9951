"""Combinations of `[method]` keys that are refused, each with what to do; and that the right ones are not."""

import pytest

from soliton.algorithms.traits import CRITIC_ONLY, TRAITS
from soliton.config import parse_config
from soliton.errors import ConfigError

BAND = {"eps_low": 0.2, "eps_high": 0.28}
OTHER = {
    "policy_lambda": 0.5, "alpha": 2.0, "critic_lambda": 0.5, "critic_updates": 3, "critic_trainable": "mlp_norms",
    "train_router": True, "advantage_values": "post_fit", "value_loss": "huber", "value_clip": 0.1,
    "huber_delta": 0.5, "value_head": "arctan", "value_bound": 2.0, "value_states": 3,
}  # fmt: skip
"""A value other than the default for every key that wants a critic."""


def parse(algorithm: str = "sao", **method):
    return parse_config(
        {"algorithm": algorithm, "method": {**BAND, **method}, "env": {"num_prompts": 64}}, source="test"
    )


def test_every_critic_key_is_refused_by_every_preset_without_a_critic():
    assert set(OTHER) == CRITIC_ONLY
    for name in (name for name, traits in TRAITS.items() if traits.critic is None):
        with pytest.raises(ConfigError) as caught:
            parse(name, **OTHER)
        for key in OTHER:
            assert f"method.{key}: got " in str(caught.value)
        assert str(caught.value).count(f"but {name!r} does not read it, for it has no critic; drop the key") == 13


@pytest.mark.parametrize(
    ("algorithm", "method", "said"),
    [
        ("sao", {"value_loss": "bce", "value_head": "linear"}, "value_head: got 'linear'.*use 'sigmoid'"),
        ("pact", {"value_head": "arctan"}, "value_head: got 'arctan'.*as a probability"),
        ("vapo", {"value_loss": "clipped"}, "'vapo' fits 1 time per batch; use method.critic_updates = 2"),
        ("sao", {"value_clip": 0.1}, "value_clip: got 0.1, but method.value_loss is 'mse' and only 'clipped' reads it"),
        ("sao", {"huber_delta": 0.1}, "huber_delta: got 0.1.*or use value_loss = 'huber'"),
        ("ppo", {"value_bound": 2.0}, "value_bound: got 2.0, but method.value_head is 'linear' and only 'arctan'"),
        ("grpo", {"truncated": "bootstrap"}, "wants a critic .*'grpo' has none; use 'terminal' or 'drop'"),
        ("reinforce", {"truncated": "mask_actor"}, "wants a critic .*'reinforce' has none"),
        ("sao-no-skip", {"truncated": "bootstrap"}, "'sao-no-skip' steps through observations"),
        (
            "grpo",
            {"advantage_normalisation": "batch"},
            "advantage_normalisation: got 'batch', but 'grpo' does not read",
        ),
        ("spo", {"advantage_normalisation": "batch"}, "'spo' does not read it; drop the key"),
        ("sao-step-last", {"value_states": 3}, "'sao-step-last' does not read it; drop the key"),
        ("sao", {"entropy_weight": -0.1}, "entropy_weight: got -0.1; allowed is a number >= 0"),
        ("sao", {"value_states": 0}, "value_states: got 0; allowed is a whole number >= 1"),
        ("sao", {"truncated": "droop"}, "truncated: got 'droop'.*did you mean 'drop'"),
        ("sao", {"value_loss": "mae"}, "value_loss: got 'mae'; allowed is one of 'mse', 'clipped', 'huber', 'bce'"),
    ],
)
def test_a_contradiction_is_refused_with_what_to_do(algorithm: str, method: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        parse(algorithm, **method)


@pytest.mark.parametrize(
    ("algorithm", "method"),
    [
        ("sao", {"value_loss": "bce"}),
        ("sao", {"value_loss": "clipped", "value_clip": 0.1}),
        ("vapo", {"value_loss": "clipped", "critic_updates": 2}),
        ("ppo", {"value_clip": 0.1, "critic_updates": 4}),
        ("bpco", {"value_bound": 3.0}),
        ("pact", {"value_loss": "mse", "value_head": "linear"}),
        ("vapo", {"truncated": "bootstrap", "nll_weight": 0.1}),
        ("grpo", {"truncated": "drop", "kl_weight": 0.01, "entropy_weight": 0.01}),
        ("running-mean", {"advantage_normalisation": "batch"}),
    ],
)
def test_what_fits_together_is_accepted(algorithm: str, method: dict):
    assert parse(algorithm, **method).method.model_dump(exclude_unset=True).keys() >= method.keys()
