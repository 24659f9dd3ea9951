"""Every study by name, in the order in which `soliton study all` makes them, and the quick one."""

from __future__ import annotations

from collections.abc import Mapping

from soliton.study.online import ONLINE, ONLINE_EVEN
from soliton.study.paper_study import (
    ABLATIONS,
    BASELINES,
    MAIN,
    MAIN_LONG,
    STABILITY,
    STEPWISE,
    STEPWISE_LONG,
    SWEEP,
)
from soliton.study.quick import QUICK
from soliton.study.study import Study

__all__ = ["QUICK", "STUDIES"]

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        *(SWEEP, MAIN, MAIN_LONG, ABLATIONS, STEPWISE, STEPWISE_LONG, BASELINES, STABILITY),
        *(ONLINE, ONLINE_EVEN),
    )
}
