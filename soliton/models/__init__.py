"""Models: tiny configurations, loading, token log-probs, the critic and what of it trains. Knows no data flow.

Importing this package does not import transformers; its functions do when they need it.
"""

from soliton.models.critic import Critic, critic_manifest
from soliton.models.frozen_prefix import FrozenPrefix
from soliton.models.load import load_causal_lm, new_causal_lm
from soliton.models.logprobs import token_logprobs
from soliton.models.shift import outputs_after_rows, outputs_before_tokens
from soliton.models.tiny import tiny_qwen3_config, tiny_qwen3_moe_config
from soliton.models.trainable import freeze, frozen_sha256, resolve_trainable
from soliton.models.trunk import causal_hidden, lm_head_weight
from soliton.models.value_head import ValueHead

__all__ = [
    "Critic",
    "FrozenPrefix",
    "ValueHead",
    "causal_hidden",
    "critic_manifest",
    "freeze",
    "frozen_sha256",
    "lm_head_weight",
    "load_causal_lm",
    "new_causal_lm",
    "outputs_after_rows",
    "outputs_before_tokens",
    "resolve_trainable",
    "tiny_qwen3_config",
    "tiny_qwen3_moe_config",
    "token_logprobs",
]
