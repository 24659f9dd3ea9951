"""Shifts and judges that contradict the rest of a recipe."""

import pytest

from soliton.config import parse_config
from soliton.errors import ConfigError

LLM = {"kind": "llm", "model": "judge"}


def refusal(**changes) -> str:
    data = {"method": {"eps_low": 0.2, "eps_high": 0.28}, "train": {"steps": 100}, **changes}
    with pytest.raises(ConfigError) as refused:
        parse_config(data, source="test")
    return str(refused.value)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"shifts": [20, 10]}, "env.shifts: got [20, 10]; allowed are steps in rising order"),
        ({"shifts": [10, 100]}, "training ends at train.steps = 100, so step 100 changes nothing"),
        ({"shifts": [-1]}, "env.shifts.0: got -1"),
        ({"judge": {"model": "judge"}}, "env.judge.model: got 'judge', but the judge 'rules' does not read it"),
        ({"judge": {**LLM, "within_s": 3.0}}, "env.judge.within_s: got 3.0, but the judge 'llm' does not read it"),
        ({"judge": {"kind": "llm"}}, "the judge 'llm' needs the model's name"),
        ({"judge": {"kind": "outside"}}, "value pretraining and evaluation need rewards at once"),
        ({"judge": {"kind": "human"}}, "allowed is one of 'rules', 'llm', 'outside'"),
        ({"judge": {**LLM, "api_key": "sk-1"}}, "env.judge.api_key: unknown key; did you mean 'api_key_env'?"),
    ],
)
def test_a_contradiction_is_said_with_what_to_do(env, said):
    assert said in refusal(env=env)


def test_an_inline_run_waits_for_no_judge_outside_it():
    assert "waits for nobody outside it" in refusal(runtime="inline", env={"judge": LLM})
    parse_config(
        {
            "runtime": "inline",
            "stages": ["eval"],
            "method": {"eps_low": 0.2, "eps_high": 0.28},
            "env": {"judge": LLM},
        },
        source="test",
    )


def test_evaluation_during_training_needs_rewards_at_once_too():
    outside = {"judge": {"kind": "outside"}}
    assert "need rewards at once" in refusal(stages=["train"], env=outside, eval={"every_steps": 10})


def test_what_fits_is_accepted():
    data = {"method": {"eps_low": 0.2, "eps_high": 0.28}, "train": {"steps": 100}}
    assert parse_config({**data, "env": {"shifts": [0, 99]}}, source="test").env.shifts == (0, 99)
    parse_config({**data, "env": {"judge": LLM}}, source="test")
    parse_config({**data, "stages": ["train"], "env": {"judge": {"kind": "outside"}}}, source="test")
