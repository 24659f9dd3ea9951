"""Every study by name, in the order in which `soliton study all` makes them, and the quick one."""

from __future__ import annotations

from collections.abc import Mapping

from soliton.study.online import ONLINE, ONLINE_EVEN
from soliton.study.paper_study import (
    ABLATIONS,
    BASELINES,
    MAIN,
    MAIN_LONG,
    ONE_RATE,
    STABILITY,
    STEPWISE,
    STEPWISE_LONG,
)
from soliton.study.quick import QUICK
from soliton.study.study import Study
from soliton.study.sweep import SWEEP

__all__ = ["QUICK", "STUDIES"]

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        *(SWEEP, MAIN, ONE_RATE, MAIN_LONG, ABLATIONS, STEPWISE, STEPWISE_LONG, BASELINES, STABILITY),
        *(ONLINE, ONLINE_EVEN),
    )
}
