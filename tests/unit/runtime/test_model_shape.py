"""The size of a model from its configuration is the size of the model."""

from pathlib import Path

import pytest

from soliton.config import parse_config
from soliton.models import new_causal_lm, tiny_qwen3_config, tiny_qwen3_moe_config
from soliton.runtime.model_shape import CHARACTERS, KNOWN, shape_of

BAND = {"method": {"eps_low": 0.2, "eps_high": 0.28}}


@pytest.mark.parametrize(
    ("kind", "config"), [("tiny-qwen3", tiny_qwen3_config), ("tiny-qwen3-moe", tiny_qwen3_moe_config)]
)
@pytest.mark.parametrize("tie", [True, False])
def test_the_count_is_that_of_the_built_model(kind: str, config, tie: bool):
    model = new_causal_lm(config(CHARACTERS, tie=tie), seed=0)
    shape = shape_of(parse_config({**BAND, "model": {"kind": kind, "tie_embeddings": tie}}, source="test"), None)
    assert shape is not None
    assert shape.parameters == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.01)


def test_the_count_of_a_folder_comes_from_its_config(tmp_path: Path):
    model = new_causal_lm(tiny_qwen3_moe_config(50), seed=0)
    model.config.save_pretrained(tmp_path)
    shape = shape_of(parse_config(BAND, source="test"), tmp_path)
    assert shape is not None
    assert shape.parameters == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.01)
    assert shape.active_parameters < shape.parameters
    assert shape.max_context == 4096


def test_the_papers_model_has_the_size_in_its_name():
    shape = KNOWN["Qwen3-30B-A3B-Thinking-2507"]
    assert shape.parameters == pytest.approx(30.5e9, rel=0.01)
    assert shape.active_parameters == pytest.approx(3.3e9, rel=0.05)


def test_an_unknown_folder_gives_no_shape(tmp_path: Path):
    config = parse_config(BAND, source="test")
    assert shape_of(config, tmp_path / "nowhere") is None
    (tmp_path / "config.json").write_text("{}")
    assert shape_of(config, tmp_path) is None
