"""What a plan says of the presets is what they are."""

from pathlib import Path

import pytest

from soliton.algorithms.build import PRESETS
from soliton.config import GROUP_ALGORITHMS, PRESET_CRITICS, load_config, parse_config
from soliton.runtime.plan import plan_of

RECIPES = Path(__file__).parents[3] / "recipes"
BAND = {"method": {"eps_low": 0.2, "eps_high": 0.28}}


@pytest.mark.parametrize("name", PRESETS)
def test_the_tables_used_before_torch_is_imported_agree_with_the_methods(name: str):
    config = parse_config({**BAND, "algorithm": name, "env": {"num_prompts": 64}}, source="test")
    method = PRESETS[name](config.method)
    assert method.group_size == GROUP_ALGORITHMS.get(name, 1) == config.group_size
    critic = None if method.critic is None else (method.critic.updates, method.critic.trainable)
    assert critic == PRESET_CRITICS.get(name)


def test_a_reference_policy_costs_its_weights_and_a_forward_pass():
    large, demo = (RECIPES / name for name in ("paper-math.toml", "calculator.toml"))
    without, kept = (
        [plan_of(load_config(recipe, overrides), resumed=False) for recipe in (large, demo)]
        for overrides in ([], ["method.kl_weight=0.01"])
    )
    added = kept[0].estimate.learner_gb - without[0].estimate.learner_gb
    assert added == pytest.approx(4 * kept[0].estimate.parameters / 2**30, rel=1e-3)
    assert any("and 4 more for the reference policy" in line for line in kept[0].hardware)
    assert not any("reference" in line for line in without[0].hardware)
    for minutes in (plan[1].estimate.minutes for plan in (without, kept)):
        assert minutes["sft"] == without[1].estimate.minutes["sft"]
    assert kept[1].estimate.minutes["train"] >= without[1].estimate.minutes["train"]
