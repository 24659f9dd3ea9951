"""The study of shifting preferences: how recovery is measured, and what is said of it, shown in every direction."""

import pytest

from soliton.config import load_config
from soliton.study.catalogue import STUDIES
from soliton.study.online import (
    AT_ONCE,
    ONLINE,
    ONLINE_EVEN,
    PHASES,
    RUNNING_MEAN,
    SAO,
    SHIFTS,
    STEPS,
    because,
    shift_table,
)
from soliton.study.outcomes import StudyResults
from soliton.study.recovery import (
    Phase,
    is_recovered,
    level_at_end,
    level_at_once,
    mean_after,
    share_at_end,
    steps_to_recover,
)
from soliton.study.schedule import planned_runs, recipe_path
from tests.unit.study.small_studies import result

FIRST, SECOND = Phase(1, 0, 50, "cute"), Phase(2, 50, 121, "chuunibyou")


def run_with(*accuracies, **changes):
    """Evaluations at 0, 10, 20, ..."""
    return result(accuracies=accuracies, **changes)


SHIFTED = run_with(0.1, 0.2, 0.5, 0.6, 0.7, 0.0, 0.1, 0.3, 0.2, 0.3, 0.4, 0.6, 0.6)  # the shift is at step 50


def test_the_level_before_a_shift_is_the_mean_of_the_last_three_evaluations_of_the_old_phase():
    assert level_at_end(FIRST)(SHIFTED) == pytest.approx(0.6)
    assert level_at_end(SECOND)(SHIFTED) == pytest.approx((0.4 + 0.6 + 0.6) / 3)


def test_at_once_are_the_first_forty_steps_the_one_of_the_shift_included():
    assert level_at_once(SECOND)(SHIFTED) == pytest.approx((0.0 + 0.1 + 0.3 + 0.2 + 0.3) / 5)


def test_a_level_is_recovered_when_two_evaluations_in_a_row_have_it():
    # half of 0.6 is 0.3: reached at step 70, not kept, reached again at 90 and kept at 100
    assert steps_to_recover(FIRST, SECOND, 0.5)(SHIFTED) == 40.0
    assert steps_to_recover(FIRST, SECOND, 0.9)(SHIFTED) == 60.0
    assert is_recovered(FIRST, SECOND, 0.9)(SHIFTED) == 1.0


def test_a_run_that_does_not_recover_counts_with_the_length_of_the_phase():
    lost = run_with(0.1, 0.2, 0.5, 0.6, 0.7, *([0.1] * 8))
    assert steps_to_recover(FIRST, SECOND, 0.5)(lost) == 71.0
    assert is_recovered(FIRST, SECOND, 0.5)(lost) == 0.0


def test_a_run_without_evaluations_has_no_recovery():
    assert steps_to_recover(FIRST, SECOND, 0.5)(run_with(0.1, 0.2)) is None
    assert level_at_once(SECOND)(run_with(0.1, 0.2)) is None


def test_a_run_that_stopped_itself_is_not_left_out():  # else only the runs that went well would be compared
    ended = {"status": "stopped", "reason": "no signal", "numbers": {"last reward/mean": 0.05}}
    before = run_with(0.1, 0.2, 0.5, 0.6, **ended)  # at step 30: it never saw the second phase
    assert level_at_end(FIRST)(before) == pytest.approx((0.2 + 0.5 + 0.6) / 3)
    assert level_at_once(SECOND)(before) == level_at_end(SECOND)(before) == 0.05
    assert steps_to_recover(FIRST, SECOND, 0.5)(before) == 71.0
    assert is_recovered(FIRST, SECOND, 0.5)(before) == 0.0
    within = run_with(0.1, 0.2, 0.5, 0.6, 0.7, 0.0, **ended)  # it saw the shift
    assert level_at_once(SECOND)(within) == 0.0
    assert steps_to_recover(FIRST, SECOND, 0.5)(within) == 71.0


def test_shares_and_training_metrics_are_those_of_the_phase():
    shares = [(step, step / 1000) for step in range(10, 121, 10)]
    run = run_with(0.1, 0.2, 0.3, held_out={"eval/info/style/chuunibyou": shares})
    assert share_at_end(SECOND)(run) == pytest.approx(0.11)
    assert share_at_end(FIRST)(run) is None
    curves = {"critic/explained_var": [0.1, None, 0.3, 0.5]}
    run = result(accuracies=(0,) * 5, curves=curves)
    assert mean_after("critic/explained_var", 10, 40)(run) == pytest.approx(0.4)
    assert mean_after("critic/explained_var", 10, 20)(run) is None


def test_the_phases_of_the_study_are_those_of_its_recipe():
    config = load_config(recipe_path(ONLINE.recipe))
    assert config.env.shifts == SHIFTS == tuple(phase.begins for phase in PHASES[1:])
    assert config.train.steps == STEPS == PHASES[-1].ends - 1
    assert SHIFTS[0] % config.eval.every_steps == 0


def online_results(**at_once) -> StudyResults:
    """Arm -> its pass@1 right after both shifts, by seed; full before them and from 50 steps after them on."""
    runs = {}
    for arm, by_seed in at_once.items():
        name = arm.replace("_", "-")
        runs[name] = {}
        for seed, low in enumerate(by_seed):
            after = [low] * 5 + [0.8] * 10
            accuracies = (0.1, *[0.8] * 14, *after, *after, 0.8)
            runs[name][seed] = result(name, seed, accuracies)
    return StudyResults(ONLINE, runs)


QUICK, SLOW = (0.1, 0.11, 0.09), (0.3, 0.31, 0.29)


def test_the_page_shows_each_shift_by_arm():
    page = shift_table(online_results(sao_lambda_1=QUICK, running_mean=SLOW))
    assert page.count("Shift at step") == 2
    assert "| `sao-lambda-1` | 0.800 [0.800, 0.800] | 0.100 [0.075, 0.125] |" in page
    assert "50.0 [50.0, 50.0]" in page


def test_a_run_that_never_recovers_is_counted_as_such():
    never = result(SAO, 0, (0.1, *[0.8] * 14, *[0.0] * 31))
    page = shift_table(StudyResults(ONLINE, {SAO: {0: never}}))
    assert "1 of 1 not within the phase" in page


def test_why_faster_at_once_fails_is_read_from_the_numbers():
    assert because(online_results(sao_lambda_1=QUICK)) == ""
    faster = online_results(sao_lambda_1=SLOW, running_mean=QUICK, running_mean_16=QUICK)
    assert because(faster).endswith("SAO is faster at once in this task.")
    method = because(online_results(sao_lambda_1=QUICK, running_mean=SLOW, running_mean_16=QUICK))
    assert "SAO is slower at once. A quick baseline without a critic is slower, too, so this is the method" in method
    assert "makes no difference that is seen here" in method
    other = because(online_results(sao_lambda_1=QUICK, running_mean=SLOW, running_mean_16=SLOW))
    assert "so the speed of the baseline is not it; against an equally quick baseline the critic hurts" in other
    undecided = because(online_results(sao_lambda_1=(0.1, 0.5, 0.3), running_mean=SLOW, running_mean_16=QUICK))
    assert "not faster at once: the interval holds 0" in undecided


def test_claims_are_judged_in_both_directions():
    better = online_results(sao_lambda_1=SLOW, sao=SLOW, running_mean=QUICK)
    worse = online_results(sao_lambda_1=QUICK, sao=QUICK, running_mean=SLOW)
    assert ONLINE.claims[0].judge(better).outcome == "reproduced"
    assert ONLINE.claims[0].judge(worse).outcome == "not reproduced"
    assert {claim.judge(worse).outcome for claim in ONLINE.claims} == {"not reproduced"}
    assert better.difference(SAO, RUNNING_MEAN, AT_ONCE).mean == pytest.approx(0.2)


def test_the_even_study_begins_from_the_same_policies(tmp_path):
    both = [planned_runs(study, STUDIES, out=tmp_path, runs=tmp_path)[0] for study in (ONLINE, ONLINE_EVEN)]
    assert both[0].warm == both[1].warm
    assert both[1].settings["env"]["name"] == "style_even"
