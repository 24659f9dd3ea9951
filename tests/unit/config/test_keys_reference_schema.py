"""What is written from the models: every key with its meaning, the reference page, the schema."""

import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from soliton.config.allowed import allowed_values
from soliton.config.keys import all_keys, suggestion
from soliton.config.reference import PAGE, reference
from soliton.config.schema import recipe_schema, schema_json

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "recipes").glob("*.toml"))


def test_every_key_says_what_it_means():
    assert [path for path, key in all_keys().items() if not key.meaning] == []


def test_the_reference_is_up_to_date():
    written = (ROOT / PAGE).read_text(encoding="utf-8")
    assert written == reference(), "run `python -m soliton.config.reference`"


def test_the_reference_names_every_key_once():
    rows = [line.split("`")[1] for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) == len(all_keys())


def test_the_schema_is_up_to_date():
    written = (ROOT / "recipes" / "recipe.schema.json").read_text(encoding="utf-8")
    assert written == schema_json(), "run `soliton schema --out recipes/recipe.schema.json`"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_schema_accepts_every_recipe(recipe: Path):
    Draft202012Validator(recipe_schema()).validate(tomllib.loads(recipe.read_text()))


@pytest.mark.parametrize(
    "wrong", [{"sed": 3}, {"train": {"steps": 0}}, {"algorithm": "sap"}, {"method": {"eps_low": 1}}]
)
def test_the_schema_refuses_what_the_command_refuses(wrong: dict):
    recipe = {"method": {"eps_low": 0.2, "eps_high": 0.28}, **wrong}
    assert list(Draft202012Validator(recipe_schema()).iter_errors(recipe))


def test_the_schema_explains_keys_to_an_editor():
    tables = json.loads(schema_json())["$defs"]
    assert "paper uses 128" in tables["TrainTable"]["properties"]["batch_size"]["description"]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "a whole number"),
        (float | None, "a number"),
        (tuple[int, ...], "a list of (a whole number)"),
        (tuple[float, float], "a list of 2: a number, a number"),
        (dict[str, float], "a table whose values are (a number)"),
        (int | str, "a whole number or text in quotes"),
    ],
)
def test_what_is_allowed_is_said_in_words(annotation, words: str):
    assert allowed_values(annotation) == words


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sed", "did you mean 'seed'?"),
        ("train.batchsize", "did you mean 'batch_size'?"),
        ("max_in_flight", "did you mean 'rollout.max_in_flight'?"),
        ("trian.steps", "did you mean 'train.steps'?"),
        ("batch_size", "'sft.batch_size' or 'value_pretraining.batch_size' or 'train.batch_size'"),
        ("run.zzzzzzzz", "known keys here: dir"),
        ("zzzzzzzz.qqqqqq", "known tables: run, init"),
    ],
)
def test_an_unknown_key_is_told_what_was_probably_meant(typed: str, meant: str):
    assert meant in suggestion(typed)
