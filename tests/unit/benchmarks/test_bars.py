"""The benchmark runner: bars decide as written, a miss is never a pass."""

import math

import pytest

from benchmarks.__main__ import BARS, Bar, compare, machine


@pytest.mark.parametrize(
    ("better", "measured", "passes"),
    [("higher", 2.3, True), ("higher", 2.29, False), ("lower", 2.3, True), ("lower", 2.31, False)],
)
def test_a_bar_is_passed_when_it_is_just_reached(better: str, measured: float, passes: bool):
    assert Bar(2.3, better).passes(measured) is passes


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_number_that_is_no_number_misses_every_bar(better: str):
    assert not Bar(1.0, better).passes(math.nan)


def test_the_record_says_the_bar_beside_the_number():
    record = compare({"gae_s": 0.3, "gae_tokens": 1.0, "engine_vs_generate": 2.6})
    assert record == {
        "engine_vs_generate": {"value": 2.6, "bar": 2.3, "better": "higher", "pass": True},
        "gae_s": {"value": 0.3, "bar": 0.25, "better": "lower", "pass": False},
    }


def test_every_bar_of_the_goal_is_there():
    assert {name: str(bar) for name, bar in BARS.items()} == {
        "engine_vs_generate": ">= 2.3",
        "learner_vs_padded": ">= 2.2",
        "sao_vs_grpo_dis_step": "<= 2.6",
        "gae_s": "<= 0.25",
        "gae_max_error": "<= 1e-05",
        "store_open_s": "<= 1",
        "store_open_after_kill_s": "<= 1",
        "store_commits_per_s.single": ">= 2000",
        "store_commits_per_s.batched": ">= 8000",
        "async_speedup.0.ratio_to_bound": ">= 0.9",
        "async_speedup.5-500.ratio_to_bound": ">= 0.9",
        "async_speedup.50-2000.ratio_to_bound": ">= 0.9",
        "async_speedup.0.learner_idle_share": "<= 0.1",
        "async_speedup.5-500.hub_core_share": "<= 0.05",
    }


def test_the_machine_is_named_with_every_number():
    facts = machine()
    assert facts["cores"] >= 1
    assert {"cpu", "omp_threads", "load_1min", "torch", "transformers", "python", "date_utc"} <= set(facts)
