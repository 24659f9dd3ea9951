"""The JSON schema of recipes, with the documentation of every key: what editors complete and check with."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from soliton.config.keys import all_tables, documentation
from soliton.config.run_config import RunConfig


def recipe_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a recipe."""
    schema = RunConfig.model_json_schema()
    tables: list[type[BaseModel]] = [RunConfig, *all_tables().values()]
    models = {model.__name__: model for model in tables}
    for name, part in [("RunConfig", schema), *schema.get("$defs", {}).items()]:
        if name in models:
            for key, text in documentation(models[name]).items():
                if key in part.get("properties", {}):
                    part["properties"][key]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Soliton recipe", **_titled(schema)}


def _titled(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def schema_json() -> str:
    """The schema as text."""
    return json.dumps(recipe_schema(), indent=1) + "\n"
