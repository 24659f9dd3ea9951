"""The studies that come with Soliton, as data."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct

from soliton.study.catalogue import QUICK, STUDIES
from soliton.study.found import results_of
from soliton.study.result import write_result
from soliton.study.schedule import RateUnknownError, planned_runs
from soliton.study.study import Study
from soliton.study.sweep import FAMILIES, RATES, SWEEP, best_rate, choices
from tests.unit.study.small_studies import result

EVERY = {**STUDIES, QUICK.name: QUICK}


def make_sweep(where, accuracies):
    """Results of the whole sweep, the same for each family."""
    for run in planned_runs(SWEEP, STUDIES, out=where, runs=where):
        made = result(run.arm.name, run.seed, (0.2, accuracies[run.arm.tries[1]]), study="sweep")
        write_result(run.path, replace_struct(made, settings=run.settings, warm_settings=run.warm_settings))


@pytest.mark.parametrize("study", EVERY.values(), ids=EVERY)
def test_every_arm_is_a_valid_configuration_that_differs_from_the_others(study: Study, tmp_path):
    make_sweep(tmp_path, dict.fromkeys(RATES, 0.5))
    runs = planned_runs(replace(study, seeds=study.seeds[:1]), EVERY, out=tmp_path, runs=tmp_path)
    assert len(runs) == len(study.arms)
    started = [(run.settings, run.arm.start) for run in runs]
    assert all(one not in started[:i] for i, one in enumerate(started))
    assert all(run.settings["runtime"] == "inline" for run in runs)
    assert study.name.startswith("online") or all(run.settings["max_staleness"] == "unbounded" for run in runs)
    assert study.reference in {arm.name for arm in study.arms}
    assert len({arm.name for arm in study.arms}) == len(study.arms)


def test_the_arms_of_a_study_train_on_the_same_512_prompts(tmp_path):
    make_sweep(tmp_path, dict.fromkeys(RATES, 0.5))
    for study in (STUDIES["main"], STUDIES["main-long"], STUDIES["ablations"], STUDIES["baselines"]):
        for run in planned_runs(replace(study, seeds=(0,)), STUDIES, out=tmp_path, runs=tmp_path):
            assert run.settings["env"]["num_prompts"] == 512


def test_each_method_of_the_main_study_has_its_control(tmp_path):
    main = STUDIES["main"]
    names = {arm.name for arm in main.arms}
    for method in ("sao", "grpo", "grpo-dis", "vapo"):
        assert {method, f"{method}-low-lag"} <= names
    assert len(main.seeds) >= 5
    assert len(STUDIES["ablations"].seeds) >= 5


def test_every_loss_family_is_swept_with_the_same_values():
    families = {arm.family for study in STUDIES.values() for arm in study.arms if arm.family}
    assert families == FAMILIES.keys()
    tried = [arm.tries for arm in SWEEP.arms]
    assert sorted(tried) == sorted((family, rate) for family in FAMILIES for rate in RATES)
    assert not set(SWEEP.seeds) & set(STUDIES["main"].seeds)


def test_the_best_rate_of_the_sweep_is_used_and_of_equals_the_smallest():
    def tried(*accuracies):
        return [(rate, result(accuracies=(0.2, end))) for rate, end in zip(RATES, accuracies, strict=True)]

    assert best_rate(tried(0.3, 0.5, 0.1)) == RATES[1]
    assert best_rate(tried(0.3, 0.5, 0.5)) == RATES[1]
    stopped = replace_struct(result(accuracies=(0.2, 0.9)), status="stopped")
    assert best_rate([*tried(0.3, 0.5, 0.1)[:2], (RATES[2], stopped)]) == RATES[1]


def test_arms_get_the_rate_that_the_results_of_the_sweep_say(tmp_path):
    ablations = replace(STUDIES["ablations"], seeds=(0,))
    with pytest.raises(
        RateUnknownError, match=r"family 'dis' is not known yet: .*sweep.*run `soliton study sweep` first"
    ):
        planned_runs(ablations, STUDIES, out=tmp_path, runs=tmp_path)
    make_sweep(tmp_path, {RATES[0]: 0.3, RATES[1]: 0.6, RATES[2]: 0.5})
    for run in planned_runs(ablations, STUDIES, out=tmp_path, runs=tmp_path):
        assert run.settings["learner"]["actor_lr"] == RATES[1]
    sweep = results_of(SWEEP, STUDIES, out=tmp_path, runs=tmp_path)
    assert "| dis (`sao`) | 0.300 | **0.600** | 0.500 |" in choices(sweep)
