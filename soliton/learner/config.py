"""Settings of the learner, of the SFT warm start and of value pretraining. No torch here: `soliton --help` reads this.

Learning-rate schedules count UPDATES of their own optimiser, never steps of the run: with K critic updates per actor
update a warm-up of n updates lasts n / K steps for the critic and n steps for the actor, and neither moves the other.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]


class _AdamWConfig(BaseModel):
    """What every stage that trains has in common. AdamW and the gradient clip are choices: the paper names neither."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grad_clip: float = Field(default=1.0, gt=0)
    """Largest global L2 norm of a gradient; larger ones are scaled down to it (a choice: docs/algorithm.md)."""
    betas: Betas = (0.9, 0.95)
    """AdamW decay rates of the first and second moment (the usual pair for language models)."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW decoupled decay per update, times the learning rate; 0 = none (the paper gives none)."""
    micro_batch_tokens: int = Field(default=1024, ge=1)
    """Most padded tokens (rows x longest row) of one length-sorted micro-batch; a longer sequence goes alone.

    Changes speed and memory, never the gradient. Default measured on one CPU core with `benchmarks/learner.py`."""


class LearnerConfig(_AdamWConfig):
    """Settings of `soliton.learner.learner.Learner`."""

    actor_lr: float = Field(default=1e-4, ge=0)
    """Learning rate of the actor per update. Default: for models of the demo's size, 0.3M, of which a prototype's
    stagnated at 2e-4 and collapsed at 3e-4; the paper uses 1e-6 at 30B. 0 keeps the actor still (negative control)."""
    critic_lr: float = Field(default=1e-3, ge=0)
    """Learning rate of the critic per update. Default: the demo's; the paper uses 5e-6 at 30B, five times its actor's.
    Not read by methods without a critic."""
    actor_lr_warmup_updates: int = Field(default=0, ge=0)
    """Actor updates over which its learning rate rises linearly to `actor_lr`; 0 = at once."""
    critic_lr_warmup_updates: int = Field(default=0, ge=0)
    """Critic updates (K of them per step) over which its learning rate rises linearly to `critic_lr`; 0 = at once."""
    critic_warmup_steps: int = Field(default=0, ge=0)
    """First steps of the run in which only the critic trains and the actor waits (the reading of the paper's "10-step
    warmup", §4.1). 0 = none. Not read by methods without a critic."""
    max_no_signal_steps: int = Field(default=10, ge=1)
    """Steps in a row in which no token carries a non-zero weight times advantage, after which the run stops."""


class SftConfig(_AdamWConfig):
    """Settings of `soliton.learner.sft.sft`, the supervised warm start."""

    lr: float = Field(default=3e-3, gt=0)
    """Peak learning rate (measured on the demo's 0.3M model; a 30B model wants about 1e-5)."""
    optimiser: Literal["adamw", "muon"] = "adamw"
    """What moves the hidden matrices; AdamW moves the rest in any case. "muon" (orthogonalised momentum) is for models
    trained from nothing, which it teaches in fewer updates; for models that AdamW pretrained keep "adamw"."""
    muon_lr: float = Field(default=0.02, gt=0)
    """Peak learning rate of Muon, on the same schedule: about the change of a matrix's singular values per update (the
    usual value). Not read by "adamw"."""
    lr_warmup_updates: int = Field(default=20, ge=0)
    """Updates over which the learning rate rises linearly; 0 = at once."""
    lr_schedule: Literal["cosine", "constant"] = "cosine"
    """After the rise: "cosine" falls to 0 at the last update, "constant" stays."""
    batch_size: int = Field(default=64, ge=1)
    """Demonstrations per update. The demo learned faster with 16 under AdamW and with 32 under Muon (lab notes)."""
    group_by_length: bool = False
    """Whether the demonstrations of an update have about the same length, in random order of lengths: less padding, a
    quarter of the time (measured on the demo), at the price of less mixed updates."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the demonstrations, each in a new seeded order (the paper: 3 over its maths data)."""


class ValuePretrainingConfig(_AdamWConfig):
    """Settings of `soliton.learner.value_pretraining.pretrain_values`."""

    lr: float = Field(default=1e-3, gt=0)
    """Learning rate, constant after the rise (a choice; the paper gives none)."""
    lr_warmup_updates: int = Field(default=0, ge=0)
    """Updates over which the learning rate rises linearly; 0 = at once."""
    batch_size: int = Field(default=64, ge=1)
    """Trajectories per update."""
    max_epochs: int = Field(default=10, ge=1)
    """Most passes over the corpus, whatever the explained variance does."""
    patience: int = Field(default=2, ge=1)
    """Epochs in a row without a gain of `min_gain` in held-out explained variance, after which it stops (a plateau)."""
    min_gain: float = Field(default=0.005, ge=0)
    """Rise of the held-out explained variance that counts as a gain (no unit; 1 is a perfect critic)."""
