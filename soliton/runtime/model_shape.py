"""How large a model is, from its configuration alone: parameters, memory per token of context. Imports no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soliton.config import RunConfig

CHARACTERS = 128
"""Upper bound on the entries of the built-in character vocabulary."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer with gated MLPs, dense or mixture-of-experts.

    Attributes:
        name: for messages.
        layers, hidden, heads, kv_heads, head_dim, vocab: of every layer alike.
        mlp: width of the MLP, or of one expert.
        experts, active_experts: 1 and 1 for a dense model.
        tied: input and output embeddings are one matrix.
        max_context: positions the model was made for; None if it does not say.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    mlp: int
    experts: int = 1
    active_experts: int = 1
    tied: bool = True
    max_context: int | None = None

    @property
    def parameters(self) -> int:
        """All weights (norms left out: they are less than a thousandth)."""
        return self._count(self.experts)

    @property
    def active_parameters(self) -> int:
        """Weights that one token uses."""
        return self._count(self.active_experts)

    def kv_bytes_per_token(self, bytes_per_number: int) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_number

    def _count(self, experts: int) -> int:
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        router = self.hidden * self.experts if self.experts > 1 else 0
        layer = attention + router + 3 * experts * self.hidden * self.mlp
        return self.layers * layer + self.vocab * self.hidden * (1 if self.tied else 2)


KNOWN = {
    "Qwen3-30B-A3B-Thinking-2507": ModelShape(
        name="Qwen3-30B-A3B-Thinking-2507",
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        head_dim=128,
        vocab=151_936,
        mlp=768,
        experts=128,
        active_experts=8,
        tied=False,
        max_context=262_144,
    )
}
"""Models of the paper, for estimates where their folder is absent: name of the folder -> shape (its config.json)."""


def shape_of(config: RunConfig, folder: Path | None) -> ModelShape | None:
    """The shape of a run's policy; None if nothing is known about it.

    Args:
        config: of the run.
        folder: the Hugging Face folder it starts from, if it does.
    """
    if folder is None:
        moe = config.model.kind == "tiny-qwen3-moe"
        return ModelShape(
            name=config.model.kind,
            layers=2,
            hidden=128,
            heads=4,
            kv_heads=2,
            head_dim=32,
            vocab=CHARACTERS,
            mlp=128 if moe else 256,
            experts=8 if moe else 1,
            active_experts=2 if moe else 1,
            tied=config.model.tie_embeddings,
            max_context=4096,
        )
    file = folder / "config.json"
    if not file.is_file():
        return KNOWN.get(folder.name)
    try:
        return _from_json(folder.name, json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError):
        return None


def _from_json(name: str, data: dict[str, Any]) -> ModelShape:
    heads, hidden = int(data["num_attention_heads"]), int(data["hidden_size"])
    experts = int(data.get("num_experts") or data.get("num_local_experts") or 1)
    return ModelShape(
        name=name,
        layers=int(data["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(data.get("num_key_value_heads") or heads),
        head_dim=int(data.get("head_dim") or hidden // heads),
        vocab=int(data["vocab_size"]),
        mlp=int(data.get("moe_intermediate_size") or data["intermediate_size"]),
        experts=experts,
        active_experts=int(data.get("num_experts_per_tok") or 1),
        tied=bool(data.get("tie_word_embeddings", True)),
        max_context=data.get("max_position_embeddings"),
    )
