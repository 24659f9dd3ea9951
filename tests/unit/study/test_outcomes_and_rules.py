"""From results to numbers and verdicts: each verdict is shown in both directions."""

from dataclasses import replace

import pytest
from msgspec import structs

from soliton.study.outcomes import (
    StudyResults,
    accuracy_after,
    accuracy_at_end,
    accuracy_before,
    lost,
    median_of_curve,
    number,
    pretraining_cpu_s,
    removed_share,
    train_cpu_s,
    usually_removed_share,
)
from soliton.study.rules import above, below, both, higher, judged, keeps, loses, not_testable, shown, unless_the_same
from soliton.study.study import Claim, Verdict
from tests.unit.study.small_studies import STUDY, result


def results(**arms) -> StudyResults:
    """Arm -> one tuple of accuracies per seed."""
    runs = {
        arm.replace("_", "-"): {seed: result(arm, seed, accuracies) for seed, accuracies in enumerate(by_seed)}
        for arm, by_seed in arms.items()
    }
    return StudyResults(STUDY, runs)


def test_what_a_run_reached_and_lost():
    run = result(accuracies=(0.3, 0.7, 0.45))
    assert (accuracy_before(run), accuracy_at_end(run)) == (0.3, 0.45)
    assert lost(run) == pytest.approx(0.25)
    assert lost(result(accuracies=(0.3, 0.5, 0.6))) == 0


def test_one_batch_does_not_decide_the_median_of_a_curve():
    run = result(curves={"critic/explained_var": [0.1, None, -22_000.0, 0.2, 0.3]})
    assert median_of_curve("critic/explained_var")(run) == pytest.approx(0.15)
    assert median_of_curve("critic/grad_norm")(run) is None


def test_a_first_batch_without_advantages_does_not_count_as_clipped():
    curves = {"actor/signal_share": [0.32, 1.0, 1.0, 0.998]}
    run = result(curves=curves, numbers={"mean actor/signal_share": 0.83})
    assert removed_share(run) == pytest.approx(0.17)
    assert usually_removed_share(run) == pytest.approx(0.001)
    assert usually_removed_share(result(curves={})) is None


def test_a_run_that_stopped_itself_counts_with_the_reward_of_its_last_batches():
    run = result(accuracies=(0.3, 0.7, 0.6), status="stopped", reason="no signal")
    assert accuracy_at_end(run) == 0.05
    assert lost(run) == pytest.approx(0.65)
    assert accuracy_after(run, 1e9, [float(t) for t in run.tokens]) == 0.05


def test_accuracy_at_a_budget_is_read_between_evaluations():
    run = result(accuracies=(0.2, 0.4, 0.6))  # at 0, 1000 and 2000 tokens
    spent = [float(tokens) for tokens in run.tokens]
    assert [accuracy_after(run, budget, spent) for budget in (0, 500, 1000, 1500, 5000)] == pytest.approx(
        [0.2, 0.3, 0.4, 0.5, 0.6]
    )
    # 20 s of value pretraining: the first step begins at 20 s, so 30 s are 10 s of training
    assert accuracy_after(run, 30.0, run.cpu_s, already=20.0) == pytest.approx(0.3)


def test_the_value_pretraining_that_a_run_profits_from_is_part_of_its_cost():
    costs = {"train": 40.0, "warm value_pretraining": 9.0, "warm sft": 50.0}
    assert pretraining_cpu_s(result(stage_cpu_s=costs)) == 0
    assert train_cpu_s(result(stage_cpu_s=costs, uses_pretrained_critic=True)) == 49.0
    own = {**costs, "value_pretraining": 30.0}
    assert train_cpu_s(result(stage_cpu_s=own, uses_pretrained_critic=True)) == 70.0


def test_equal_budgets_are_those_of_the_cheapest_arm_of_the_seed():
    cheap = result("grpo-dis", 0, (0.2, 0.3, 0.4), tokens=[500, 1000], cpu_s=[5.0, 10.0])
    dear = result("sao", 0, (0.2, 0.4, 0.8))
    found = StudyResults(STUDY, {"sao": {0: dear}, "grpo-dis": {0: cheap}})
    assert found.accuracy_at_equal_tokens(dear) == pytest.approx(0.4)  # 1000 tokens
    assert found.accuracy_at_equal_tokens(cheap) == pytest.approx(0.4)
    assert found.accuracy_at_equal_cpu(dear) == pytest.approx(0.3)  # 10 of 20 s to its first evaluation
    stopped = result("grpo", 0, (0.2, 0.1, 0.0), tokens=[1, 2], cpu_s=[0.1, 0.2], status="stopped")
    with_stopped = StudyResults(STUDY, {**found.runs, "grpo": {0: stopped}})
    assert with_stopped.accuracy_at_equal_tokens(dear) == pytest.approx(0.4)


def test_a_study_is_complete_when_each_arm_has_each_seed():
    whole = results(sao=[(0.1, 0.2)] * 2, grpo=[(0.1, 0.2)] * 2, grpo_dis=[(0.1, 0.2)] * 2)
    assert whole.is_complete
    assert not results(sao=[(0.1, 0.2)] * 2).is_complete


def test_higher_needs_the_whole_interval_above_zero():
    judge = higher("sao", "grpo-dis", accuracy_at_end, "accuracy")
    clear = results(sao=[(0.2, 0.61), (0.2, 0.72)], grpo_dis=[(0.2, 0.5), (0.2, 0.61)])
    assert judge(clear).outcome == "reproduced"
    undecided = results(sao=[(0.2, 0.61), (0.2, 0.5)], grpo_dis=[(0.2, 0.5), (0.2, 0.55)])
    assert judge(undecided).outcome == "not reproduced"
    assert "undecided: the interval holds 0" in judge(undecided).numbers
    worse = results(sao=[(0.2, 0.4), (0.2, 0.5)], grpo_dis=[(0.2, 0.5), (0.2, 0.6)])
    assert judge(worse).outcome == "not reproduced"
    assert "undecided" not in judge(worse).numbers


def test_a_loss_has_to_be_clear_and_larger_than_that_of_the_control():
    fallen, kept = [(0.3, 0.6, 0.2), (0.3, 0.6, 0.21)], [(0.3, 0.5, 0.6), (0.3, 0.5, 0.59)]
    assert loses("grpo")(results(grpo=fallen)).outcome == "reproduced"
    assert loses("grpo")(results(grpo=kept)).outcome == "not reproduced"
    assert loses("grpo", "sao")(results(grpo=fallen, sao=kept)).outcome == "reproduced"
    assert loses("grpo", "sao")(results(grpo=fallen, sao=fallen)).outcome == "not reproduced"
    assert keeps("grpo")(results(grpo=fallen)).outcome == "not reproduced"
    assert keeps("grpo", "sao")(results(grpo=kept, sao=kept)).outcome == "reproduced"
    assert keeps("grpo", "sao")(results(grpo=kept, sao=fallen)).outcome == "not reproduced"


def test_arms_that_made_the_same_runs_say_nothing_of_what_they_differ_in():
    judge = unless_the_same("sao", "grpo", "nothing was pretrained", higher("sao", "grpo", accuracy_at_end, "accuracy"))
    same = results(sao=[(0.2, 0.6), (0.2, 0.7)], grpo=[(0.2, 0.6), (0.2, 0.7)])
    assert judge(same) == Verdict(
        "not testable at this scale", "sao and grpo are the same runs with every seed: nothing was pretrained"
    )
    grpo = {**same.runs["grpo"], 0: structs.replace(same.runs["grpo"][0], curves={"reward/mean": [0.2]})}
    almost = StudyResults(STUDY, {**same.runs, "grpo": grpo})
    assert judge(almost).outcome == "not reproduced"
    assert judge(almost).numbers.endswith("; with 1 of 2 seeds they are the same runs")
    other = results(sao=[(0.2, 0.6)])
    assert judge(other).outcome == "not known yet"


def test_bounds_hold_for_the_interval_not_for_the_mean():
    def with_signal(*shares):
        runs = {i: result("sao", i, numbers={"mean actor/signal_share": share}) for i, share in enumerate(shares)}
        return StudyResults(STUDY, {"sao": runs})

    judge = below("sao", removed_share, 0.01, "removed")
    assert judge(with_signal(1.0, 1.0)).outcome == "reproduced"
    assert judge(with_signal(1.0, 0.985)).outcome == "not reproduced"  # mean 0.0075, a wide interval
    over = above("sao", number("mean actor/signal_share"), 0.9, "kept")
    assert over(with_signal(0.95, 0.951)).outcome == "reproduced"
    assert over(with_signal(0.95, 0.91)).outcome == "not reproduced"
    assert both(judge, over)(with_signal(1.0, 1.0)).outcome == "reproduced"
    assert both(judge, over)(with_signal(0.95, 0.95)).outcome == "not reproduced"


def test_what_was_not_run_is_not_judged():
    for judge in (loses("grpo"), keeps("grpo"), higher("sao", "grpo", accuracy_at_end, "accuracy")):
        assert judge(results(sao=[(0.1, 0.2)])).outcome == "not known yet"
    assert not_testable("too large")(results()).numbers == "too large"
    one_seed = results(sao=[(0.1, 0.9)], grpo=[(0.1, 0.2)])
    assert higher("sao", "grpo", accuracy_at_end, "accuracy")(one_seed).outcome == "not reproduced"
    assert shown(one_seed.mean("sao", accuracy_at_end)) == "0.900 (1 seed)"
    assert shown(None) == "—"


def test_no_verdict_is_spoken_before_every_run_is_there():
    claim = Claim("sao keeps its reward", keeps("sao"))
    study = replace(STUDY, arms=STUDY.arms[:1], seeds=(0, 1))
    first, both_seeds = ({seed: result("sao", seed, (0.1, 0.9)) for seed in seeds} for seeds in ((0,), (0, 1)))
    assert judged(claim, StudyResults(study, {"sao": first})).outcome == "not known yet"
    assert judged(claim, StudyResults(study, {"sao": both_seeds})).outcome == "reproduced"
    scores = Claim("scores", not_testable("too large"))
    assert judged(scores, StudyResults(study, {})).outcome == "not testable at this scale"


def test_the_number_of_seeds_can_be_cut():
    from soliton.errors import ConfigError
    from soliton.study.study import chosen

    studies = {"small": STUDY, "other": replace(STUDY, name="other")}
    assert [study.seeds for study in chosen(studies, "all", 1)] == [(0,), (0,)]
    assert chosen(studies, "small", None) == [STUDY]
    with pytest.raises(ConfigError, match="there are 'small', 'other' and 'all'"):
        chosen(studies, "minor", None)
    with pytest.raises(ConfigError, match="--seeds: got 0"):
        chosen(studies, "small", 0)
