"""What a recipe may set about a method. Imports no torch, so that configurations are checked before anything loads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from soliton.learner.critic_use import HeadOfValues, LossOfValues
from soliton.learner.truncation import TruncationName

AlgorithmName = Literal[
    "sao",
    "sao-k1",
    "sao-full-critic",
    "sao-post-fit",
    "sao-dis-only",
    "sao-step-average",
    "sao-step-last",
    "sao-no-skip",
    "grpo",
    "grpo-dis",
    "vapo",
    "ppo",
    "rloo",
    "reinforce",
    "decoupled-ppo",
    "gspo",
    "dcpo",
    "icepop",
    "vtrace",
    "running-mean",
    "spo",
    "bpco",
    "pact",
    "sp3o",
]


class MethodOptions(BaseModel):
    """The `[method]` table. `None` means: what the preset says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    eps_low: float = Field(ge=0, allow_inf_nan=False)
    """Lower half-width of the DIS band: a token is trusted above ratio 1 - eps_low. >= 1: no lower bound. The paper
    uses 0.3 (math) and 0.8 (coding). Required: there is no silent default. Methods without DIS log the share of tokens
    that the band would have masked."""
    eps_high: float = Field(gt=0, le=1e30)
    """Upper half-width of the DIS band: trusted below ratio 1 + eps_high. The paper uses 5.0 (math), 3.0 (coding)."""
    clip_low: float | None = Field(default=None, gt=0, lt=1)
    """Clip below 1. Presets: 0.2 for `grpo`, `vapo`, `spo` (DAPO's clip-higher; not stated in the paper), `ppo`,
    `decoupled-ppo` and `icepop`, 3e-4 for `gspo`, 0.16 for `dcpo`."""
    clip_high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Clip above 1. Presets: 0.28 for `grpo`, `vapo`, `spo`, 0.2 for `ppo`, `decoupled-ppo`, `icepop` and `dcpo`,
    4e-4 for `gspo`. For `dcpo` and `bpco` (0.2 and 0.2) the unit is a probability."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount. Not given in the paper; 1 is our choice."""
    policy_lambda: Annotated[float, Field(ge=0, le=1)] | Literal["length-adaptive"] | None = None
    """GAE lambda for advantages: a number in [0, 1], or 1 - 1/(alpha * l) with l action tokens (paper 4.1). Presets:
    length-adaptive, 0.95 for `ppo` and `sp3o`, 1 for `pact`."""
    alpha: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """alpha of the length-adaptive lambda. Presets: 1.5 (paper 4.1), 0.4 for `bpco`."""
    critic_lambda: float = Field(default=1.0, ge=0, le=1)
    """GAE lambda of the critic's targets (paper 4.1)."""
    group_size: int | None = Field(default=None, ge=1)
    """Rollouts per prompt. Presets: 1 with a critic, 8 for groups."""
    critic_updates: int | None = Field(default=None, ge=1)
    """K, critic updates per actor update. Presets: 2 for `sao`, 1 for `sao-k1`, `vapo` and others."""
    critic_trainable: Literal["mlp", "mlp_norms", "all"] | None = None
    """What trains in the critic during RL. Presets: "mlp" for `sao` (frozen attention), "all" for `vapo`."""
    train_router: bool = False
    """Train the routers of mixture-of-experts layers in the critic, too."""
    advantage_values: Literal["pre_fit", "post_fit"] | None = None
    """Values for advantages from before or after the K updates. Presets: pre_fit, but for `sao-post-fit`."""
    value_loss: LossOfValues | None = None
    """What the critic's values are compared with their targets by: "mse" (the paper's), "clipped" (a fit may move a
    value by `value_clip` from what it was before the first one; acts from the second fit on), "huber" (linear beyond
    `huber_delta`), "bce" (cross-entropy of a value that is a probability; rewards in [0, 1]). Presets: mse, clipped for
    `ppo`, bce for `pact`."""
    value_clip: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    """Reach of value_loss = "clipped", in units of reward (0.2 is PPO's)."""
    huber_delta: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Error from which value_loss = "huber" grows linearly, in units of reward (1 is the usual one)."""
    value_head: HeadOfValues | None = None
    """From the critic's output to a value: "linear", "sigmoid" (in (0, 1)), "arctan" (in (-value_bound, value_bound)).
    Targets beyond the range stop the run. Presets: linear, arctan for `bpco`, sigmoid for `pact`. value_loss = "bce"
    wants "sigmoid", and means it where this key is absent."""
    value_bound: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Bound of value_head = "arctan", in units of reward."""
    value_states: int | None = Field(default=None, ge=1)
    """Action tokens of each trajectory that the value loss is taken on, as far apart as they get. Presets: all (none),
    3 for `sp3o`."""
    advantage_normalisation: Literal["none", "batch", "action_tokens"] = "none"
    """Mean 0 and deviation 1 over the optimiser batch: "batch" with every trajectory counting the same,
    "action_tokens" with every action token. Not read by methods that normalise by themselves (groups, `spo`)."""
    truncated: TruncationName = "terminal"
    """What becomes of trajectories that a limit cut (they keep the environment's reward): "terminal" (as if the task
    had ended), "bootstrap" (V after the last token stands for what was to come), "drop" (left out and counted), or
    "mask_actor" (the critic learns from them, the actor does not). In the stage `train`; value pretraining has them
    all, as terminal."""
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of minus the mean entropy in the actor loss; 0: none (the paper has none)."""
    kl_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the estimated KL from a frozen copy of the policy that training starts from; 0: none, and no copy (the
    paper has none). Costs a forward pass and the memory of the weights."""
    nll_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Weight of the mean negative log-prob of trajectories with a positive total reward (VAPO's positive-example loss,
    there 0.1); 0: none, our choice for `vapo`, too."""
    baseline_window: int | None = Field(default=None, ge=1)
    """Rewards in the baseline of `running-mean`. None: the paper's, 8 of the prompt or 128 overall."""
    baseline_scope: Literal["prompt", "global"] = "prompt"
    """Whether `running-mean` keeps a window for each prompt (they must come back) or one for all."""
    baseline_prior: float | None = Field(default=None, allow_inf_nan=False)
    """Baseline before the first reward, for `running-mean` and `spo` (there in [0, 1]). Presets: 0.5, our choice."""
