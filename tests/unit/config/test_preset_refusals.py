"""Every preset with every wrong `[method]` key, group, batch and prompt set: each gives its message, all at once."""

from typing import Any, get_args

import pytest

from soliton.algorithms.options import AlgorithmName
from soliton.config import parse_config
from soliton.errors import ConfigError

CLIP = {"clip_low": 0.11, "clip_high": 0.12}
LAMBDA = {"policy_lambda": 0.91, "alpha": 2.5, "advantage_values": "post_fit"}
CRITIC = LAMBDA | {"critic_lambda": 0.93, "critic_updates": 3, "critic_trainable": "mlp_norms", "train_router": True}
WINDOW = {"baseline_window": 9, "baseline_scope": "global"}
BASELINE = WINDOW | {"baseline_prior": 0.2}
DISCOUNT = {"gamma": 0.9}

SAO = CLIP | BASELINE
GROUPS = CRITIC | DISCOUNT | BASELINE
UNREAD: dict[str, dict[str, Any]] = {
    **dict.fromkeys(["sao", "sao-k1", "sao-full-critic", "sao-post-fit", "sao-dis-only"], SAO),
    **dict.fromkeys(["sao-step-average", "sao-step-last", "sao-no-skip", "pact"], SAO),
    **dict.fromkeys(["vapo", "ppo", "bpco", "sp3o"], BASELINE),
    **dict.fromkeys(["grpo", "decoupled-ppo", "gspo", "dcpo", "icepop"], GROUPS),
    **dict.fromkeys(["grpo-dis", "rloo"], GROUPS | CLIP),
    "reinforce": CRITIC | CLIP | BASELINE,
    "vtrace": LAMBDA | CLIP | BASELINE,
    "running-mean": CRITIC | CLIP | DISCOUNT,
    "spo": CRITIC | DISCOUNT | WINDOW,
}
"""What a preset has no use for, with a value that is not the default."""
COMPARES = ["grpo", "grpo-dis", "rloo", "decoupled-ppo", "gspo", "dcpo", "icepop"]
KEEPS_PROMPTS = ["running-mean", "spo"]
PRESETS = get_args(AlgorithmName)


def message_of(name: str, method: dict[str, Any], **more: Any) -> str:
    band = {"eps_low": 0.2, "eps_high": 0.28}
    data = {"algorithm": name, "method": band | method, **more}
    if name in KEEPS_PROMPTS:
        data.setdefault("env", {"num_prompts": 64})
    with pytest.raises(ConfigError) as caught:
        parse_config(data, source="test")
    return str(caught.value)


def test_every_preset_is_in_the_table():
    assert set(PRESETS) <= set(UNREAD)


@pytest.mark.parametrize("name", PRESETS)
def test_every_key_that_a_preset_does_not_read_is_refused_by_name(name: str):
    said = message_of(name, UNREAD[name])
    for key, value in UNREAD[name].items():
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        lines = [line for line in said.splitlines() if f"method.{key}: got" in line]
        assert len(lines) == 1, f"{key} in:\n{said}"
        assert shown.lower() in lines[0].lower()
        assert f"{name!r} does not read it" in lines[0]
        assert "drop the key" in lines[0]


@pytest.mark.parametrize("name", PRESETS)
def test_a_group_that_does_not_fit_the_preset_is_refused(name: str):
    wrong = 1 if name in COMPARES else 4
    said = message_of(name, {"group_size": wrong})
    assert f"method.group_size: got {wrong}" in said
    assert ("compares >= 2 rollouts; use 8" if name in COMPARES else "one rollout per prompt") in said


@pytest.mark.parametrize("name", COMPARES)
def test_a_batch_of_no_whole_groups_is_refused_with_one_that_fits(name: str):
    said = message_of(name, {}, train={"batch_size": 50})
    assert f"no multiple of the group size 8 of {name!r}; use 56" in said


@pytest.mark.parametrize("name", KEEPS_PROMPTS)
def test_prompts_that_never_come_back_are_refused_where_a_baseline_is_kept_for_each(name: str):
    assert "so prompts must come back; set env.num_prompts" in message_of(name, {}, env={})


@pytest.mark.parametrize("name", PRESETS)
def test_half_a_band_is_refused_for_every_preset(name: str):  # a band that is symmetric by accident is another method
    with pytest.raises(ConfigError, match=r"method\.eps_high: required and missing"):
        parse_config({"algorithm": name, "method": {"eps_low": 0.2}, "env": {"num_prompts": 64}}, source="test")


@pytest.mark.parametrize("name", PRESETS)
def test_a_recipe_of_the_preset_alone_is_accepted(name: str):
    """So that what is refused above is refused for the reason given."""
    band = {"eps_low": 0.2, "eps_high": 0.28}
    env = {"num_prompts": 64} if name in KEEPS_PROMPTS else {}
    assert parse_config({"algorithm": name, "method": band, "env": env}, source="test").algorithm == name
