"""SAO with one advantage per conversation turn, from the value of its last token (paper appendix A.1).

    V(turn) = V of its last token,   A = GAE over turns,   lambda = 1 - 1/(alpha * number of turns)

Against `sao`: all tokens of a turn share its advantage, gamma and lambda count turns, and the critic learns on the last
token of each turn alone (its loss and explained variance are means over those).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from soliton.advantages import last_tokens_of_turns
from soliton.algorithms.options import MethodOptions
from soliton.algorithms.sao import sao
from soliton.algorithms.traits import completed
from soliton.algorithms.turns import turn_advantages, turn_returns
from soliton.learner.method import Method


def sao_step_last(options: MethodOptions) -> Method:
    """Build the preset `sao-step-last`."""
    options = completed("sao-step-last", options)
    return replace(
        sao(options),
        name="sao-step-last",
        advantages=partial(turn_advantages, options=options, turn_value="last"),
        returns=partial(turn_returns, options=options, turn_value="last"),
        value_tokens=last_tokens_of_turns,
    )
