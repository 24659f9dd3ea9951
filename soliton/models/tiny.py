"""The two tiny configurations that run everywhere: Qwen3 and Qwen3-MoE, 2 layers, width 128.

They are ordinary transformers configurations, so that everything built on them (engine, learner, published folders)
is what a 30B model goes through too. With a 96-entry vocabulary the dense one has 0.31M parameters; width 64 cannot
learn the copying that the calculator task needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Qwen3Config, Qwen3MoeConfig


def tiny_qwen3_config(
    vocab_size: int, *, tie: bool = True, eos_token_id: int | None = None, pad_token_id: int | None = None
) -> Qwen3Config:
    """Dense: SwiGLU 256, 4 heads and 2 key-value heads of 32, norms on queries and keys.

    Args:
        vocab_size: entries of the vocabulary, >= 1.
        tie: use the embedding matrix as the output projection as well.
        eos_token_id: id that ends a turn, in [0, vocab_size); None leaves it unset.
        pad_token_id: id that fills right padding, in [0, vocab_size); None leaves it unset.

    Raises:
        ValueError: an empty vocabulary or a special id outside it.
    """
    from transformers import Qwen3Config

    return Qwen3Config(**_shared(vocab_size, tie, eos_token_id, pad_token_id))


def tiny_qwen3_moe_config(
    vocab_size: int, *, tie: bool = True, eos_token_id: int | None = None, pad_token_id: int | None = None
) -> Qwen3MoeConfig:
    """Mixture of experts: as `tiny_qwen3_config`, with 8 experts of width 128 of which each token uses 2."""
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        **_shared(vocab_size, tie, eos_token_id, pad_token_id),
        moe_intermediate_size=128,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
    )


def _shared(vocab_size: int, tie: bool, eos_token_id: int | None, pad_token_id: int | None) -> dict[str, Any]:
    if vocab_size < 1:
        raise ValueError(f"vocab_size must be >= 1, got {vocab_size}")
    for name, token_id in (("eos_token_id", eos_token_id), ("pad_token_id", pad_token_id)):
        if token_id is not None and not 0 <= token_id < vocab_size:
            raise ValueError(f"{name} must be in [0, {vocab_size}), got {token_id}")
    return {
        "vocab_size": vocab_size,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": tie,
        "bos_token_id": None,
        "eos_token_id": eos_token_id,
        "pad_token_id": pad_token_id,
        "initializer_range": 0.08,  # near 1/sqrt(width); transformers' 0.02 learns to copy about half as fast
        "attention_dropout": 0.0,
        "use_cache": False,
    }
