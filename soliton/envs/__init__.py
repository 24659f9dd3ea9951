"""Environments speak messages, never tokens. `environment.py` is the protocol; the other files implement it.

For an environment of your own: `BaseEnvironment` (several turns) or `SingleTurn` (prompts and reward functions).
"""

from soliton.envs.base import BaseEnvironment
from soliton.envs.environment import Environment, Message, StepResult
from soliton.envs.judge import Criterion
from soliton.envs.single_turn import SingleTurn

__all__ = ["BaseEnvironment", "Criterion", "Environment", "Message", "SingleTurn", "StepResult"]
