"""Runs that start from a Hugging Face folder, and folders that are refused before anything trains."""

import io
import json
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from soliton.config import RunConfig, parse_config
from soliton.errors import ConfigError
from soliton.report.quiet import QuietView
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import make_setup
from soliton.runtime.staged_run import run_stages
from tests.fakes.model_folders import bpe_tokenizer, family_config, save_folder

OWN = """
from soliton.envs import BaseEnvironment

class Loud(BaseEnvironment):
    '''Two turns; the reward is a number that a random model earns by chance.'''
    @staticmethod
    def items(): return [{"prompt": f"{n}+{n}?"} for n in range(60)]
    def opening(self):
        self.turns = 0
        return self.content["prompt"]
    def act(self, action):
        self.turns += 1
        return self.say("again", len(action) % 3) if self.turns < 2 else self.end(len(action) % 2)
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "loud_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(**changes: object) -> RunConfig:
        data = {
            "stages": ["train", "eval"],
            "runtime": "inline",
            "run": {"dir": str(tmp_path / "run")},
            "init": {"model": str(tmp_path / "model")},
            "env": {"name": "loud_tasks:Loud"},
            "limits": {"max_turns": 2, "max_tokens": 64, "max_turn_tokens": 4},
            "rollout": {"max_in_flight": 8},
            "method": {"eps_low": 0.3, "eps_high": 5.0},
            "learner": {"actor_lr": 1e-4, "critic_lr": 1e-3, "critic_warmup_steps": 0},
            "train": {"steps": 2, "batch_size": 4},
            "eval": {"num_prompts": 2},
        }
        return parse_config(data | changes, source="test")

    yield make
    sys.modules.pop("loud_tasks", None)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_folder_with_its_own_tokenizer_and_template_runs_the_whole_loop(family, config, tmp_path: Path):
    num_parameters = save_folder(tmp_path / "model", family)
    assert 4e6 < num_parameters < 6e6
    settings = config()
    folder = RunFolder(Path(settings.run.dir))
    folder.create(settings.to_toml())
    run_stages(settings, folder, QuietView(io.StringIO()))
    summary = json.loads(folder.summary.read_text())
    assert summary["steps"] == 2
    # The engine and the learner compute the same function of a model that neither has seen before.
    rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    first = next(row for row in rows if row["stage"] == "train")
    assert first["parity/newest_gap_max"] < 1e-3
    # What was trained loads anywhere, with its tokenizer.
    trained = AutoModelForCausalLM.from_pretrained(folder.final)
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert any(not a.equal(b) for a, b in zip(trained.parameters(), before.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(folder.final).chat_template == bpe_tokenizer().chat_template


def refused(config, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        make_setup(config(), tmp_path / "model")
    return str(error.value)


def save_parts(folder: Path, template: str | None, **changes: object) -> None:
    """A folder without weights: nothing gets so far as to read them."""
    tokenizer = bpe_tokenizer(template)
    tokenizer.save_pretrained(folder)
    family_config("llama", len(tokenizer), **changes).save_pretrained(folder)


def test_a_folder_without_a_tokenizer_is_refused(config, tmp_path: Path):
    family_config("llama", 320).save_pretrained(tmp_path / "model")
    assert "has no tokenizer (none of tokenizer.json" in refused(config, tmp_path)


def test_a_tokenizer_that_is_damaged_is_refused(config, tmp_path: Path):
    save_parts(tmp_path / "model", "x")
    (tmp_path / "model" / "tokenizer.json").write_text("{")
    assert "its tokenizer cannot be loaded" in refused(config, tmp_path)


def test_a_tokenizer_without_a_chat_template_is_refused(config, tmp_path: Path):
    save_parts(tmp_path / "model", None)
    message = refused(config, tmp_path)
    assert "has no chat template" in message
    assert "set tokenizer.chat_template" in message


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{{ messages | length }}{% for m in messages %}{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}",
            "does not only append",
        ),
        (
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant: {% endif %}",
            "does not end an assistant message with a special token",
        ),
        ("{% for m in messages[-1:] %}{{ m.content }}<|im_end|>{% endfor %}", "drops, repeats or reorders contents"),
    ],
)
def test_a_template_that_cannot_be_appended_to_is_refused_with_its_place(template, message, config, tmp_path: Path):
    save_parts(tmp_path / "model", template)
    text = refused(config, tmp_path)
    assert message in text
    assert str(tmp_path / "model") in text
    assert "chat_template.jinja" in text


def test_a_model_with_fewer_embeddings_than_tokens_is_refused(config, tmp_path: Path):
    bpe_tokenizer().save_pretrained(tmp_path / "model")
    family_config("llama", 300).save_pretrained(tmp_path / "model")
    assert "has 300 embeddings, its tokenizer gives ids up to" in refused(config, tmp_path)
