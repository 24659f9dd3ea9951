"""SAO with one advantage per conversation turn, from the mean value of its tokens (paper appendix A.1).

    V(turn) = mean of V over its tokens,   A = GAE over turns,   lambda = 1 - 1/(alpha * number of turns)

Against `sao`: all tokens of a turn share its advantage, and gamma and lambda count turns. The critic still learns on
every action token, towards the return of its turn.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed
from soliton.algorithms.turns import turn_advantages, turn_returns
from soliton.learner.method import Method


def sao_step_average(options: MethodOptions) -> Method:
    """Build the preset `sao-step-average`."""
    options = completed("sao-step-average", options)
    return replace(
        sao(options),
        name="sao-step-average",
        advantages=partial(turn_advantages, options=options, turn_value="mean"),
        returns=partial(turn_returns, options=options, turn_value="mean"),
    )
