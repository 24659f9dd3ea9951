"""Which runs a study needs, with which configuration, and which of them are there already.

Guarantees: a result whose settings are not those of now is never used and never replaced: it is an error that names the
file and the keys, because a table of mixed settings would be worth nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import soliton
from soliton.config import RunConfig, load_config
from soliton.errors import ConfigError
from soliton.study.result import RunResult, differences, read_result, result_path
from soliton.study.study import Arm, Study
from soliton.study.sweep import SWEEP, best_rate, part_of_the_sweep

NOT_SETTINGS = frozenset({"run", "init", "local", "report", "track"})
"""Tables that say where things lie and who watches."""


@dataclass(frozen=True)
class WarmRun:
    """The warm start of a seed, shared by the arms.

    Attributes:
        name: for people.
        folder: of the run.
        recipe: TOML file.
        overrides: on top of it.
        settings: see `settings_of`.
    """

    name: str
    folder: Path
    recipe: Path
    overrides: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed.

    Attributes:
        study: that owns the result.
        arm, seed: which run.
        folder: of the run.
        recipe: TOML file.
        overrides: on top of it.
        settings: see `settings_of`.
        num_eval_prompts: held-out prompts of each evaluation.
        warm: its warm start; None for a run that begins from nothing.
        path: where its result goes.
    """

    study: Study
    arm: Arm
    seed: int
    folder: Path
    recipe: Path
    overrides: tuple[str, ...]
    settings: dict[str, Any]
    num_eval_prompts: int
    warm: WarmRun | None
    path: Path

    @property
    def name(self) -> str:
        """`study/arm-seed`."""
        return f"{self.study.name}/{self.arm.name}-{self.seed}"

    @property
    def warm_settings(self) -> dict[str, Any] | None:
        """Settings of the warm start."""
        return self.warm.settings if self.warm is not None else None

    def existing(self) -> RunResult | None:
        """The result, if it is there and of these settings.

        Raises:
            ConfigError: it is damaged, or of other settings.
        """
        result = read_result(self.path)
        if result is None:
            return None
        changed = differences(self.settings, result.settings)
        changed += differences(self.warm_settings or {}, result.warm_settings or {}, "warm start: ")
        if changed:
            raise ConfigError(
                f"{self.path} was made with other settings:\n  "
                + "\n  ".join(changed)
                + "\nnothing is made again silently: move the file away, or choose another --out"
            )
        return result


def planned_runs(study: Study, studies: Mapping[str, Study], *, out: Path, runs: Path) -> list[PlannedRun]:
    """Every run of `study`, seed by seed, those of borrowed arms included (as runs of their own study).

    Args:
        study: what is asked for.
        studies: all there are, for borrowed arms.
        out: where results go.
        runs: where run folders go.

    Raises:
        ConfigError: a configuration that is not valid; the message names the arm.
    """
    return [_planned(study, arm, seed, studies, out, runs) for seed in study.seeds for arm in study.arms]


def _planned(study: Study, arm: Arm, seed: int, studies: Mapping[str, Study], out: Path, runs: Path) -> PlannedRun:
    if arm.of:
        owner = studies[arm.of]
        return _planned(owner, owner.arm(arm.name), seed, studies, out, runs)
    recipe = recipe_path(study.recipe)
    warm = _warm(study, recipe, seed, runs)
    rate = [f"learner.actor_lr={chosen_rate(arm.family, studies, out=out, runs=runs)}"] if arm.family else []
    overrides = [f"seed={seed}", *study.overrides, *rate, *arm.overrides, *_start(arm, warm)]
    config = _configured(recipe, tuple(overrides), f"{study.name}/{arm.name}")
    return PlannedRun(
        study=study,
        arm=arm,
        seed=seed,
        folder=runs / study.name / f"{arm.name}-{seed}",
        recipe=recipe,
        overrides=tuple(overrides),
        settings=settings_of(config),
        num_eval_prompts=config.eval.num_prompts,
        warm=warm,
        path=result_path(out, study.name, arm.name, seed),
    )


class RateUnknownError(ConfigError):
    """The sweep has not been made yet for a loss family."""


def chosen_rate(family: str, studies: Mapping[str, Study], *, out: Path, runs: Path) -> float:
    """The learning rate of the actor that the sweep found best for a loss family.

    Raises:
        RateUnknownError: a run of its sweep is missing.
    """
    sweep = part_of_the_sweep(studies[SWEEP.name], {family})
    tried = []
    for run in planned_runs(sweep, studies, out=out, runs=runs):
        result = run.existing()
        if result is None or run.arm.tries is None:
            raise RateUnknownError(
                f"the learning rate of the loss family {family!r} is not known yet: {run.path} is missing; run "
                "`soliton study sweep` first"
            )
        tried.append((run.arm.tries[1], result))
    return best_rate(tried)


def _warm(study: Study, recipe: Path, seed: int, runs: Path) -> WarmRun | None:
    """The policy learns from demonstrations of ever new prompts, whatever set the arms train on."""
    if not study.warm_stages:
        return None
    stages = json.dumps(study.warm_stages)
    overrides = (f"seed={seed}", f"stages={stages}", "env.num_prompts=none", *study.warm_overrides)
    settings = settings_of(_configured(recipe, overrides, f"{study.name}: warm start"))
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
    folder = runs / "warm" / f"{Path(study.recipe).stem}-{seed}-{digest}"
    return WarmRun(f"warm start {folder.name}", folder, recipe, overrides, settings)


def _start(arm: Arm, warm: WarmRun | None) -> list[str]:
    if warm is None:
        return []
    return [f"init.run={warm.folder}" if arm.start == "policy and critic" else f"init.model={warm.folder}/stages/sft"]


@cache
def _configured(recipe: Path, overrides: tuple[str, ...], name: str) -> RunConfig:
    """Read once per process: a plan of hundreds of runs is made several times."""
    try:
        return load_config(recipe, overrides)
    except ConfigError as error:
        raise ConfigError(f"study {name}: {error}") from error


def settings_of(config: RunConfig) -> dict[str, Any]:
    """What decides a run's result, as far as it differs from the defaults: keys added later change nothing."""
    return config.model_dump(mode="json", exclude_defaults=True, exclude_none=True, exclude=set(NOT_SETTINGS))


def recipe_path(name: str) -> Path:
    """A recipe of the repository.

    Raises:
        ConfigError: this installation has no recipes beside the package.
    """
    path = Path(soliton.__file__).parent.parent / "recipes" / name
    if not path.is_file():
        raise ConfigError(f"{path}: no such recipe; studies run from a clone of the repository (pip install -e .)")
    return path
