"""The small JSON file that a finished run leaves, and that everything else is computed from.

`DIR/study/data/STUDY/ARM-SEED.json`, a few KB: where the run came from (settings, commit, machine), its evaluations,
downsampled curves, and what it cost. Never changed once written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from soliton.atomic import atomic_file
from soliton.errors import ConfigError

SCHEMA = 1


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One finished run.

    Attributes:
        schema: of this file.
        study, arm, seed: which run.
        settings: the resolved keys that differ from their defaults, without those that decide nothing.
        warm_settings: the same of the warm start; None for a run that begins from nothing.
        config_sha256: of the whole configuration, as in the run's summary.
        commit: of the code; ends in "+changes" if files of the package differed from it; None outside a repository.
        machine: processor, Python and torch.
        status: "finished", or "stopped" by the run itself (`RunError`), which is a result, too.
        reason: why it stopped; None if it finished.
        steps: batches consumed; one without signal makes no new policy.
        uses_pretrained_critic: its critic began as the warm start left it.
        num_eval_prompts: held-out prompts behind each evaluation.
        evaluations: (step, pass@1), the first one at step 0. Steps are policy versions here and below.
        curve_steps: last step of each bin of the curves.
        curves: metric -> mean of each bin; None where the metric was absent in all of it.
        tokens: tokens trained (prompts and observations included) up to each step of `curve_steps`.
        cpu_s: seconds of one core up to each step of `curve_steps`: rollouts and learning, no evaluation.
        stage_cpu_s: seconds of one core by stage, those of the warm start included.
        numbers: whole-run numbers by name (`digest.NUMBERS`).
        held_out: metric of an evaluation -> (step, value) of each; those that the study asks for besides pass@1.
    """

    schema: int
    study: str
    arm: str
    seed: int
    settings: dict[str, Any]
    warm_settings: dict[str, Any] | None
    config_sha256: str
    commit: str | None
    machine: str
    status: str
    reason: str | None
    steps: int
    uses_pretrained_critic: bool
    num_eval_prompts: int
    evaluations: list[tuple[int, float]]
    curve_steps: list[int]
    curves: dict[str, list[float | None]]
    tokens: list[int]
    cpu_s: list[float]
    stage_cpu_s: dict[str, float]
    numbers: dict[str, float | None]
    held_out: dict[str, list[tuple[int, float]]] = {}


def result_path(out: Path, study: str, arm: str, seed: int) -> Path:
    """Where the result of a run lies."""
    return out / "study" / "data" / study / f"{arm}-{seed}.json"


def write_result(path: Path, result: RunResult) -> None:
    """Write it, whole or not at all."""
    with atomic_file(path) as file:
        file.write_bytes(msgspec.json.encode(result) + b"\n")


def read_result(path: Path) -> RunResult | None:
    """The result, or None if the run has not finished yet.

    Raises:
        ConfigError: the file is damaged or of another version; the message names it.
    """
    if not path.is_file():
        return None
    try:
        result = msgspec.json.decode(path.read_bytes(), type=RunResult)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is damaged: {error}; remove it, and the run is made again") from error
    if result.schema != SCHEMA:
        raise ConfigError(
            f"{path} has schema {result.schema}, this version writes {SCHEMA}; remove it, and the run is made again"
        )
    return result


def differences(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> list[str]:
    """One line per key in which two nested settings differ; None stands for the default."""
    lines: list[str] = []
    for key in sorted({*ours, *theirs}):
        left, right = ours.get(key), theirs.get(key)
        if isinstance(left, dict) or isinstance(right, dict):
            lines += differences(left or {}, right or {}, f"{prefix}{key}.")
        elif left != right:
            lines.append(f"{prefix}{key}: now {left!r}, the file has {right!r}")
    return lines
