"""Hugging Face folders as users have them: a real BPE tokenizer trained on a few lines, and random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedTokenizerFast, Qwen3Config

from soliton.models.load import new_causal_lm
from tests.fakes.chat_tokenizers import CHATML

SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
LINES = ["How much is 12+30? It is 42.", "78-62*3", "user assistant system tool", "higher and lower"]
SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "attention_dropout": 0.0,
}


def bpe_tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the marks of ChatML."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(LINES, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=SPECIAL[0], eos_token=SPECIAL[2])
    tokenizer.chat_template = template
    return tokenizer


def family_config(family: str, vocab_size: int, **changes: Any) -> PreTrainedConfig:
    """About 5M parameters of a family."""
    make = {"llama": LlamaConfig, "qwen3": Qwen3Config}[family]
    head = {"head_dim": 32} if family == "qwen3" else {}
    return make(**SHAPE | head | {"vocab_size": vocab_size, "eos_token_id": 2, "pad_token_id": 0} | changes)


def save_folder(folder: Path, family: str = "llama", template: str | None = CHATML, **changes: Any) -> int:
    """Write tokenizer and random weights; returns the number of parameters."""
    tokenizer = bpe_tokenizer(template)
    tokenizer.save_pretrained(folder)
    model = new_causal_lm(family_config(family, len(tokenizer), **changes), seed=0)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())
