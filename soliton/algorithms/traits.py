"""What can be said of each preset without torch: the one table that presets, configuration and plans read.

A preset's module builds its `Method` from its entry here and names the functions; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.learner.critic_use import CriticUse, HeadOfValues

VALUES = frozenset({"value_loss", "value_clip", "huber_delta", "value_head", "value_bound", "value_states"})
CRITIC = VALUES | {"gamma", "critic_lambda", "critic_updates", "critic_trainable", "train_router"}
GAE = CRITIC | {"policy_lambda", "alpha", "advantage_values", "advantage_normalisation"}
CLIP = frozenset({"clip_low", "clip_high"})
READ_BY_ALL = frozenset({"eps_low", "eps_high", "truncated", "entropy_weight", "kl_weight", "nll_weight"})
"""Keys of `[method]` that every preset reads: the band for metrics at least."""
CRITIC_ONLY = GAE - {"gamma", "advantage_normalisation"}
"""Keys that nothing but a critic gives a meaning to."""


@dataclass(frozen=True)
class Traits:
    """The choices of a preset that are numbers and names.

    Attributes:
        reads: keys of `[method]` that change what it does, beyond `READ_BY_ALL`.
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


LENGTH_ADAPTIVE: dict[str, float | str] = {"policy_lambda": "length-adaptive", "alpha": 1.5}
FIXED_LAMBDA: dict[str, float | str] = {"policy_lambda": 0.95, "alpha": 1.5}
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
    "sao-step-last": replace(SAO, reads=GAE - {"value_states"}),
    "sao-no-skip": SAO,
    "grpo": GROUP,
    "grpo-dis": replace(GROUP, reads=frozenset({"group_size"}), defaults={}),
    "vapo": Traits(GAE | CLIP, LENGTH_ADAPTIVE | CLIP_HIGHER, critic=FULL_CRITIC),
    "ppo": Traits(
        GAE | CLIP,
        FIXED_LAMBDA | {"clip_low": 0.2, "clip_high": 0.2},
        critic=replace(FULL_CRITIC, pretrained=False, loss="clipped"),
    ),
    "rloo": Traits(frozenset({"group_size", "advantage_normalisation"}), group_size=8),
    "reinforce": Traits(frozenset({"gamma", "advantage_normalisation"})),
    "decoupled-ppo": _groups(0.2, 0.2),
    "gspo": _groups(3e-4, 4e-4),
    "dcpo": _groups(0.16, 0.2),
    "icepop": _groups(0.2, 0.2),
    "vtrace": Traits(CRITIC | {"advantage_normalisation"}, critic=replace(FULL_CRITIC, pretrained=False)),
    "running-mean": Traits(
        frozenset({"baseline_window", "baseline_scope", "baseline_prior", "advantage_normalisation"}),
        {"baseline_prior": 0.5},
        keeps_prompts=True,
    ),
    "spo": Traits(CLIP | {"baseline_prior"}, CLIP_HIGHER | {"baseline_prior": 0.5}, keeps_prompts=True),
    "bpco": Traits(
        GAE | CLIP,
        {"policy_lambda": "length-adaptive", "alpha": 0.4, "clip_low": 0.2, "clip_high": 0.2},
        critic=replace(FULL_CRITIC, head="arctan"),
    ),
    "pact": Traits(
        GAE,
        {"policy_lambda": 1.0, "alpha": 1.5},
        critic=CriticUse(updates=1, trainable="all", pretrained=False, loss="bce", head="sigmoid"),
    ),
    "sp3o": Traits(
        GAE | CLIP,
        FIXED_LAMBDA | {"clip_low": 0.2, "clip_high": 0.2},
        critic=replace(FULL_CRITIC, pretrained=False, states=3),
    ),
}


def critic_use(name: AlgorithmName, options: MethodOptions) -> CriticUse:
    """The preset's use of its critic, with what the recipe set instead."""
    preset = TRAITS[name].critic
    assert preset is not None
    implied: HeadOfValues = "sigmoid" if options.value_loss == "bce" else preset.head
    return CriticUse(
        updates=options.critic_updates or preset.updates,
        trainable=options.critic_trainable or preset.trainable,
        train_router=options.train_router or preset.train_router,
        advantage_values=options.advantage_values or preset.advantage_values,
        pretrained=preset.pretrained,
        loss=options.value_loss or preset.loss,
        head=options.value_head or implied,
        bound=options.value_bound,
        states=options.value_states or preset.states,
    )


def completed(name: AlgorithmName, options: MethodOptions) -> MethodOptions:
    """`options` with what the preset says where the recipe says nothing."""
    missing = {key: value for key, value in TRAITS[name].defaults.items() if getattr(options, key) is None}
    return options.model_copy(update=missing)
