"""What a recipe may set about a method. Imports no torch, so that configurations are checked before anything loads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

AlgorithmName = Literal["sao", "grpo", "grpo-dis", "vapo"]


class MethodOptions(BaseModel):
    """The `[method]` table. `None` means: what the preset says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eps_low: float = Field(ge=0, allow_inf_nan=False)
    """Lower half-width of the DIS band: a token is trusted above ratio 1 - eps_low. >= 1: no lower bound. The paper
    uses 0.3 (math) and 0.8 (coding). Required: there is no silent default. Methods without DIS log the share of tokens
    that the band would have masked."""
    eps_high: float = Field(gt=0, le=1e30)
    """Upper half-width of the DIS band: trusted below ratio 1 + eps_high. The paper uses 5.0 (math), 3.0 (coding)."""
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    """PPO clip below 1, for `grpo` and `vapo`. Default: DAPO's clip-higher (not stated in the paper)."""
    clip_high: float = Field(default=0.28, gt=0, allow_inf_nan=False)
    """PPO clip above 1. Default: DAPO's clip-higher."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount. Not given in the paper; 1 is our choice."""
    policy_lambda: Annotated[float, Field(ge=0, le=1)] | Literal["length-adaptive"] = "length-adaptive"
    """GAE lambda for advantages: a number in [0, 1], or 1 - 1/(alpha * l) with l action tokens (paper 4.1)."""
    alpha: float = Field(default=1.5, gt=0, allow_inf_nan=False)
    """alpha of the length-adaptive lambda (paper 4.1)."""
    critic_lambda: float = Field(default=1.0, ge=0, le=1)
    """GAE lambda of the critic's targets (paper 4.1)."""
    group_size: int | None = Field(default=None, ge=1)
    """Rollouts per prompt. Presets: 1 with a critic, 8 for groups."""
    critic_updates: int | None = Field(default=None, ge=1)
    """K, critic updates per actor update. Presets: 2 for `sao`, 1 for `vapo`."""
    critic_trainable: Literal["mlp", "mlp_norms", "all"] | None = None
    """What trains in the critic during RL. Presets: "mlp" for `sao` (frozen attention), "all" for `vapo`."""
    train_router: bool = False
    """Train the routers of mixture-of-experts layers in the critic, too."""
    advantage_values: Literal["pre_fit", "post_fit"] | None = None
    """Values for advantages from before or after the K updates. Presets: pre_fit."""
