"""docs/guides/your-own-model.md: its model is made and opened, its recipe is valid, its messages are the code's."""

import re
import runpy
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from soliton.config import load_config
from soliton.runtime.preflight import check_task
from soliton.runtime.setup import initial_model, initial_model_folder, make_setup
from tests.guides.guide_pages import GUIDES, blocks, save_files

PAGE = "your-own-model.md"
SOURCES = (
    "soliton/runtime/obstacles.py",
    "soliton/runtime/setup.py",
    "soliton/models/support.py",
    "soliton/models/load.py",
    "soliton/rollout/renderer.py",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's working directory, with the page's files and model in it."""
    save_files(PAGE, tmp_path)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("make_model.py")
    return tmp_path


def test_the_pages_model_opens_an_episode_of_the_pages_recipe(folder: Path):
    assert blocks(PAGE, "bash") == ["soliton train own_model.toml\n"]
    config = load_config(folder / "own_model.toml")
    model_folder = initial_model_folder(config)
    setup = make_setup(config, model_folder)
    assert check_task(setup) == []
    model = initial_model(config, setup, model_folder)
    assert 4e6 < sum(parameter.numel() for parameter in model.parameters()) < 6e6
    assert AutoModelForCausalLM.from_pretrained("my-model").config.model_type == "llama"


def test_every_message_of_the_table_is_in_the_code():
    root = GUIDES.parents[1]
    code = re.sub(r'"\s+f?"', "", "".join((root / source).read_text() for source in SOURCES))
    rows = re.findall(r"^\| `(.+?)` \|", (GUIDES / PAGE).read_text(), re.M)
    messages = [row for row in rows if "." not in row.split()[0]]
    assert len(messages) >= 9
    missing = [text for text in messages if not all(part.strip() in code for part in text.split("..."))]
    assert missing == []
