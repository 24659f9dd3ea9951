"""Which model folders are refused, and with what message."""

import json
import re
from pathlib import Path

import pytest
from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen3Config, Qwen3MoeConfig, T5Config

from soliton.errors import ConfigError
from soliton.models.support import problems_of_model, refuse_unsupported


def problems(config, num_token_ids=10, max_tokens=64):
    return problems_of_model(config, num_token_ids=num_token_ids, max_tokens=max_tokens)


@pytest.mark.parametrize("config", [LlamaConfig(), Qwen3Config(), Qwen3MoeConfig(), MistralConfig(sliding_window=None)])
def test_decoders_with_full_attention_and_rotary_positions_are_supported(config):
    assert problems(config) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MistralConfig(sliding_window=4096), "has a sliding window of 4096 tokens.* full attention only"),
        (Gemma3TextConfig(), "has layers with sliding_attention.* full attention only"),
        (GPT2Config(), "'gpt2' has no rotary position embeddings"),
        (T5Config(), "is an encoder with a decoder; use a decoder-only model"),
    ],
)
def test_other_architectures_are_refused_with_what_is_supported(config, message):
    assert re.search(message, "; ".join(problems(config)))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused():
    config = LlamaConfig(vocab_size=320)
    assert problems(config, num_token_ids=320) == []
    (problem,) = problems(config, num_token_ids=321)
    assert "has 320 embeddings, its tokenizer gives ids up to 320" in problem


def test_a_context_longer_than_the_model_reads_is_refused():
    (problem,) = problems(LlamaConfig(max_position_embeddings=128), max_tokens=129)
    assert "at most 128 tokens (max_position_embeddings), limits.max_tokens is 129" in problem


def test_every_problem_is_in_one_message(tmp_path: Path):
    MistralConfig(sliding_window=64, vocab_size=5).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"sliding window.*5 embeddings") as error:
        refuse_unsupported(tmp_path, num_token_ids=10, max_tokens=64)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("content", [None, "{", '{"model_type": "no-such-model"}', "{}"])
def test_a_configuration_that_transformers_does_not_know_is_refused(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=r"cannot be used: .*code in the folder is never run"):
        refuse_unsupported(tmp_path, num_token_ids=10, max_tokens=64)


def test_code_in_a_folder_is_never_run(tmp_path: Path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.C"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="cannot be used"):
        refuse_unsupported(tmp_path, num_token_ids=10, max_tokens=64)
    assert not (tmp_path / "ran").exists()
