"""Soliton: single-rollout asynchronous reinforcement learning (SAO, arXiv 2607.07508) for LLM agents.

Every piece can be imported on its own; nothing heavy is imported here.
Start reading at `docs/architecture.md`.
"""

__version__ = "0.1.0"
