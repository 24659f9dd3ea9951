"""What a plan says of the presets is what they are."""

import pytest

from soliton.algorithms.build import PRESETS
from soliton.config import GROUP_ALGORITHMS, PRESET_CRITICS, parse_config

BAND = {"method": {"eps_low": 0.2, "eps_high": 0.28}}


@pytest.mark.parametrize("name", PRESETS)
def test_the_tables_used_before_torch_is_imported_agree_with_the_methods(name: str):
    config = parse_config({**BAND, "algorithm": name, "env": {"num_prompts": 64}}, source="test")
    method = PRESETS[name](config.method)
    assert method.group_size == GROUP_ALGORITHMS.get(name, 1) == config.group_size
    critic = None if method.critic is None else (method.critic.updates, method.critic.trainable)
    assert critic == PRESET_CRITICS.get(name)
