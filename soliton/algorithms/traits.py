"""What can be said of each preset without torch: the one table that presets, configuration and plans read.

A preset's module builds its `Method` from its entry here and names the functions; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.learner.critic_use import CriticUse

CRITIC = frozenset({"gamma", "critic_lambda", "critic_updates", "critic_trainable", "train_router"})
GAE = CRITIC | {"policy_lambda", "alpha", "advantage_values"}
CLIP = frozenset({"clip_low", "clip_high"})


@dataclass(frozen=True)
class Traits:
    """The choices of a preset that are numbers and names.

    Attributes:
        reads: keys of `[method]` that change what it does; eps_low and eps_high are read by all, for metrics at least.
        defaults: what the preset says where a recipe says nothing.
        group_size: rollouts per prompt.
        critic: None for methods without one.
        keeps_prompts: it remembers something of each prompt, so that prompts must come back.
    """

    reads: frozenset[str]
    defaults: Mapping[str, float | str] = field(default_factory=dict)
    group_size: int = 1
    critic: CriticUse | None = None
    keeps_prompts: bool = False

    @property
    def compares(self) -> bool:
        """Whether it compares the members of a group, so that it needs two."""
        return self.group_size > 1


LENGTH_ADAPTIVE: dict[str, float | str] = {"policy_lambda": "length-adaptive"}
CLIP_HIGHER: dict[str, float | str] = {"clip_low": 0.2, "clip_high": 0.28}

SAO = Traits(GAE, LENGTH_ADAPTIVE, critic=CriticUse(updates=2, trainable="mlp"))
FULL_CRITIC = CriticUse(updates=1, trainable="all")
GROUP = Traits(CLIP | {"group_size"}, CLIP_HIGHER, group_size=8)


def _groups(clip_low: float, clip_high: float) -> Traits:
    return replace(GROUP, defaults={"clip_low": clip_low, "clip_high": clip_high})


TRAITS: dict[AlgorithmName, Traits] = {
    "sao": SAO,
    "sao-k1": replace(SAO, critic=CriticUse(updates=1, trainable="mlp")),
    "sao-full-critic": replace(SAO, critic=CriticUse(updates=2, trainable="all")),
    "sao-post-fit": replace(SAO, critic=CriticUse(updates=2, trainable="mlp", advantage_values="post_fit")),
    "sao-dis-only": replace(SAO, critic=CriticUse(updates=1, trainable="all", pretrained=False)),
    "sao-step-average": SAO,
    "sao-step-last": SAO,
    "sao-no-skip": SAO,
    "grpo": GROUP,
    "grpo-dis": replace(GROUP, reads=frozenset({"group_size"}), defaults={}),
    "vapo": Traits(GAE | CLIP, LENGTH_ADAPTIVE | CLIP_HIGHER, critic=FULL_CRITIC),
    "ppo": Traits(
        GAE | CLIP,
        {"policy_lambda": 0.95, "clip_low": 0.2, "clip_high": 0.2},
        critic=replace(FULL_CRITIC, pretrained=False),
    ),
    "rloo": Traits(frozenset({"group_size"}), group_size=8),
    "reinforce": Traits(frozenset({"gamma"})),
    "decoupled-ppo": _groups(0.2, 0.2),
    "gspo": _groups(3e-4, 4e-4),
    "dcpo": _groups(0.16, 0.2),
    "icepop": _groups(0.2, 0.2),
    "vtrace": Traits(CRITIC, critic=replace(FULL_CRITIC, pretrained=False)),
    "running-mean": Traits(
        frozenset({"baseline_window", "baseline_scope", "baseline_prior"}), {"baseline_prior": 0.5}, keeps_prompts=True
    ),
    "spo": Traits(CLIP | {"baseline_prior"}, CLIP_HIGHER | {"baseline_prior": 0.5}, keeps_prompts=True),
}


def completed(name: AlgorithmName, options: MethodOptions) -> MethodOptions:
    """`options` with what the preset says where the recipe says nothing."""
    missing = {key: value for key, value in TRAITS[name].defaults.items() if getattr(options, key) is None}
    return options.model_copy(update=missing)
