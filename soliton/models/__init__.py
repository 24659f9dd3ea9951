"""Models: tiny configurations, loading, token log-probs, the critic and what of it trains. Knows no data flow.

Importing this package does not import transformers; its functions do when they need it.
"""

from soliton.models.load import load_causal_lm, new_causal_lm
from soliton.models.tiny import tiny_qwen3_config, tiny_qwen3_moe_config

__all__ = ["load_causal_lm", "new_causal_lm", "tiny_qwen3_config", "tiny_qwen3_moe_config"]
