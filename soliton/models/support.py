"""Can this model folder be trained and sampled from here? Answered from its configuration, before any weight is read.

What is supported: decoders of transformers with full attention in every layer and rotary position embeddings (Llama,
Qwen2, Qwen3, Qwen3-MoE and their like). Guarantees: every problem of a folder is in one message, and each says what was
found, what is supported and what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from soliton.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def refuse_unsupported(folder: Path, *, num_token_ids: int, max_tokens: int) -> None:
    """Raise `ConfigError` unless the model in `folder` can be used.

    Args:
        folder: in Hugging Face format.
        num_token_ids: one more than the largest id that its tokenizer can give.
        max_tokens: longest context of the run.
    """
    problems = problems_of_model(read_config(folder), num_token_ids=num_token_ids, max_tokens=max_tokens)
    if problems:
        raise ConfigError(f"{folder / 'config.json'}: " + "; ".join(problems))


def read_config(folder: Path) -> PreTrainedConfig:
    """The configuration in `folder`; runs no code from it.

    Raises:
        ConfigError: there is none, or transformers does not know its kind of model.
    """
    from transformers import AutoConfig

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise ConfigError(
            f"{folder / 'config.json'} cannot be used: {reason}; give a folder written by save_pretrained of a model "
            "that transformers has itself (code in the folder is never run)"
        ) from error
    return config


def problems_of_model(config: PreTrainedConfig, *, num_token_ids: int, max_tokens: int) -> list[str]:
    """What keeps a model of this configuration from being trained here; [] if nothing does."""
    text: Any = config.get_text_config()
    problems = []
    if config.is_encoder_decoder:
        problems.append(f"{config.model_type!r} is an encoder with a decoder; use a decoder-only model")
    if problem := _attention_problem(text):
        problems.append(problem)
    if not getattr(text, "rope_parameters", None):
        problems.append(
            f"{config.model_type!r} has no rotary position embeddings, and the embedded engine places tokens by them; "
            "use a model of a family with them, such as Llama or Qwen3"
        )
    if num_token_ids > text.vocab_size:
        problems.append(
            f"the model has {text.vocab_size} embeddings, its tokenizer gives ids up to {num_token_ids - 1}; they do "
            "not belong together, or tokens were added: model.resize_token_embeddings(len(tokenizer)), and save again"
        )
    longest = getattr(text, "max_position_embeddings", None)
    if longest is not None and max_tokens > longest:
        problems.append(
            f"the model reads at most {longest} tokens (max_position_embeddings), limits.max_tokens is {max_tokens}; "
            "lower limits.max_tokens"
        )
    return problems


def _attention_problem(text: Any) -> str | None:
    window = getattr(text, "sliding_window", None) if getattr(text, "use_sliding_window", True) else None
    other = sorted(set(getattr(text, "layer_types", None) or ()) - {"full_attention"})
    if not other and not window:
        return None
    found = f"layers with {', '.join(other)}" if other else f"a sliding window of {window} tokens"
    return (
        f"{text.model_type!r} has {found}, and the embedded engine supports full attention only; use another model, or "
        "one with full attention in every layer (for a window longer than limits.max_tokens set sliding_window to null)"
    )
