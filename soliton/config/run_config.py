"""One run, as data: `RunConfig` composes each component's own small model. Imports no torch."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import tomli_w
from pydantic import Field, model_validator

from soliton.algorithms.options import AlgorithmName, MethodOptions
from soliton.algorithms.traits import TRAITS
from soliton.config.checks import SCHEDULES, problems_of
from soliton.config.problems import CombinationError
from soliton.config.tables import (
    CheckpointTable,
    EngineTable,
    EnvTable,
    EvalTable,
    HardwareTable,
    InitTable,
    InlineTable,
    LocalTable,
    ModelTable,
    ReportTable,
    RolloutTable,
    RunTable,
    SamplingTable,
    SftTable,
    Table,
    TrackTable,
    TrainTable,
    ValuePretrainingTable,
)
from soliton.learner.config import LearnerConfig
from soliton.rollout.limits import Limits
from soliton.store.config import StoreConfig

StageName = Literal["sft", "value_pretraining", "train", "eval"]


class RunConfig(Table):
    """A whole run."""

    algorithm: AlgorithmName = "sao"
    """Preset; `soliton algorithms` lists them."""
    runtime: Literal["local", "inline"] = "local"
    """`local`: processes on this machine, truly asynchronous. `inline`: one process, virtual time, bit-exact."""
    seed: int = Field(default=0, ge=0)
    """Under `inline` two runs with equal seeds (and configurations) end with equal weights."""
    stages: tuple[StageName, ...] = ("sft", "value_pretraining", "train", "eval")
    """What runs, in this order. `eval` alone evaluates; with `train` it evaluates before and after."""
    schedule: Literal["asynchronous", "synchronous", "one-step-off"] = "asynchronous"
    """`synchronous` trains on data of the newest policy only (bound 0), `one-step-off` on data up to one step old
    (bound 1, arXiv 2410.18252); both wait for what would get too old. `asynchronous` reads the next two keys."""
    max_staleness: int | Literal["unbounded"] = 8
    """Largest staleness (in learner steps) a trajectory may have when consumed; "unbounded" is for studies."""
    when_too_old: Literal["drop", "wait", "mask_tokens"] = "drop"
    """What happens to a trajectory over the bound."""
    run: RunTable = RunTable()
    init: InitTable = InitTable()
    model: ModelTable = ModelTable()
    env: EnvTable = EnvTable()
    limits: Limits = Limits()
    sampling: SamplingTable = SamplingTable()
    engine: EngineTable = EngineTable()
    rollout: RolloutTable = RolloutTable()
    inline: InlineTable = InlineTable()
    local: LocalTable = LocalTable()
    hardware: HardwareTable = HardwareTable()
    method: MethodOptions
    learner: LearnerConfig = LearnerConfig()
    sft: SftTable = SftTable()
    value_pretraining: ValuePretrainingTable = ValuePretrainingTable()
    train: TrainTable = TrainTable()
    eval: EvalTable = EvalTable()
    checkpoint: CheckpointTable = CheckpointTable()
    report: ReportTable = ReportTable()
    track: TrackTable = TrackTable()

    @model_validator(mode="after")
    def _check_combinations(self) -> RunConfig:
        if problems := problems_of(self):
            raise CombinationError(problems)
        return self

    @property
    def group_size(self) -> int:
        """Rollouts per prompt: what the recipe says, else what the preset says."""
        return self.method.group_size or TRAITS[self.algorithm].group_size

    @property
    def staleness_bound(self) -> int | Literal["unbounded"]:
        """Largest staleness: the schedule's, else `max_staleness`."""
        return SCHEDULES[self.schedule][0] if self.schedule in SCHEDULES else self.max_staleness

    @property
    def _max_outstanding(self) -> int:
        given = self.rollout.max_outstanding
        return self.train.batch_size + self.rollout.max_in_flight if given is None else given

    def store_config(self) -> StoreConfig:
        """The store's share of this configuration."""
        bound = self.staleness_bound
        max_queued_bytes = self.local.max_queued_mb * 2**20 if self.runtime == "local" else None
        return StoreConfig(
            batch_size=self.train.batch_size,
            group_size=self.group_size,
            max_staleness=None if bound == "unbounded" else bound,
            when_too_old=SCHEDULES[self.schedule][1] if self.schedule in SCHEDULES else self.when_too_old,
            max_outstanding=self._max_outstanding if bound == "unbounded" else None,
            max_attempts=self.rollout.max_attempts,
            max_queued_bytes=max_queued_bytes,
            num_draws=None,
        )

    def to_toml(self) -> str:
        """The resolved configuration as TOML; absent keys are `None`."""
        return tomli_w.dumps(self.model_dump(mode="json", exclude_none=True))

    def sha256(self) -> str:
        """Hash of everything that decides the result: all but the places of files, watchers and processes."""
        return hashlib.sha256(tomli_w.dumps(self.identity()).encode()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """The configuration as plain data, without the tables that decide nothing that is learned."""
        others = dict.fromkeys(("run", "local", "report", "track"), True)
        return self.model_dump(mode="json", exclude_none=True, exclude=others)
