"""Every recipe that is shipped is a valid configuration, and survives being written out and read again."""

from pathlib import Path

import pytest

from soliton.config import load_config

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def test_there_is_a_recipe():
    assert RECIPES


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_parses_and_its_resolved_form_is_the_same_configuration(recipe: Path, tmp_path: Path):
    config = load_config(recipe, [])
    resolved = tmp_path / "config.toml"
    resolved.write_text(config.to_toml())
    assert load_config(resolved, []) == config


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_what_it_is_for(recipe: Path):
    assert recipe.read_text().startswith("#")
