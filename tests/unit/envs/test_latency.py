import asyncio

import numpy as np
import pytest
from pydantic import ValidationError

from soliton.envs.calculator import Calculator
from soliton.envs.latency import LatencyConfig, SimulatedLatency
from soliton.prompts.stream import make_prompt
from tests.fakes.manual_clock import ManualClock

PROMPT = make_prompt({"expression": "1+2+3", "answer": 6})
HEAVY = LatencyConfig(kind="heavy_tailed", low_s=0.05, high_s=2.0, alpha=0.8)


def times_of_steps(config: LatencyConfig, seed: int) -> list[float]:
    clock = ManualClock()

    async def run():
        env = SimulatedLatency(Calculator(), clock, config, seed)
        await env.reset(PROMPT, 0)
        times = [clock.now()]
        for action in ("1+2", "3+3", "=6"):
            await env.step(action)
            times.append(clock.now())
        await env.close()
        return times

    return asyncio.run(clock.drive(run()))


def test_no_latency_takes_no_time():
    assert times_of_steps(LatencyConfig(), 0) == [0.0] * 4


def test_a_fixed_latency_delays_every_step_but_not_the_reset():
    assert times_of_steps(LatencyConfig(kind="fixed", low_s=0.5), 0) == [0.0, 0.5, 1.0, 1.5]


def test_a_delay_is_a_function_of_seed_and_step_alone():  # fault F11
    expected = np.cumsum([HEAVY.delay_s(3, step) for step in range(3)])
    assert times_of_steps(HEAVY, 3)[1:] == pytest.approx(expected)
    assert times_of_steps(HEAVY, 3) == times_of_steps(HEAVY, 3)
    assert times_of_steps(HEAVY, 3) != times_of_steps(HEAVY, 4)


@pytest.mark.parametrize("config", [LatencyConfig(kind="uniform", low_s=0.1, high_s=0.3), HEAVY])
def test_delays_stay_in_their_bounds_and_have_the_stated_quantiles(config):
    delays = np.array([config.delay_s(seed, step) for seed in range(500) for step in range(4)])
    assert config.low_s <= delays.min()
    assert delays.max() <= config.high_s
    x = np.quantile(delays, [0.25, 0.5, 0.9])
    if config.kind == "uniform":
        cdf = (x - config.low_s) / (config.high_s - config.low_s)
    else:
        cdf = (1 - (config.low_s / x) ** config.alpha) / (1 - (config.low_s / config.high_s) ** config.alpha)
    assert cdf == pytest.approx([0.25, 0.5, 0.9], abs=0.04)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "uniform", "low_s": 2.0, "high_s": 1.0},
        {"kind": "heavy_tailed", "low_s": 0.0, "high_s": 1.0},
        {"kind": "fixed", "low_s": -1.0},
        {"kind": "heavy_tailed", "low_s": 0.1, "high_s": 1.0, "alpha": 0.0},
        {"kind": "fixed", "low_s": float("inf")},
        {"kind": "random"},
        {"low": 1.0},
    ],
)
def test_impossible_latencies_are_refused(wrong):
    with pytest.raises(ValidationError):
        LatencyConfig(**wrong)
