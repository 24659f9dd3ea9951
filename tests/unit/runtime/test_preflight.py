"""What is found out about a task before anything trains."""

import pytest

from soliton.config import parse_config
from soliton.errors import ConfigError
from soliton.runtime.preflight import check_task
from soliton.runtime.setup import make_setup

OWN = """
from soliton.envs import BaseEnvironment

class Fine(BaseEnvironment):
    @staticmethod
    def items(): return [{"prompt": f"{n}?"} for n in range(80)]
    def act(self, action): return self.end(1.0)

class Raises(Fine):
    def opening(self): raise KeyError("tool")

class Unclear(Fine):
    async def reset(self, prompt, seed): return "a text"

class Long(Fine):
    def opening(self): return "x" * 500

class Strange(Fine):
    def opening(self): return "{n} \\u00e9t\\u00e9"

class Moody(Fine):
    phases = 2
    def opening(self): return ["a task", 7][self.surroundings.phase - 1]

class Silent(Fine):
    def act(self, action): pass
    def expert(self, rng, noise): return "a"

class Clumsy(Fine):
    def expert(self, rng, noise): return self.nothing

class Promptless(Fine):
    @staticmethod
    def items(): return [{"secret": n} for n in range(80)]
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    (tmp_path / "preflight_tasks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))

    def check_class(name="", num_prompts=4, mix=(), **env):
        one = {"name": f"preflight_tasks:{name}"}
        config = parse_config(
            {
                "env": {**({"mix": [{"name": part} for part in mix]} if mix else one), **env},
                "stages": ["train", "eval"] if mix else ["sft", "train", "eval"],
                "method": {"eps_low": 0.2, "eps_high": 0.28},
                "learner": {"actor_lr": 1e-4, "critic_lr": 1e-3},
                "eval": {"num_prompts": num_prompts},
            },
            source="test",
        )
        return check_task(make_setup(config, None))

    return check_class


def test_a_sound_task_passes_in_silence(check):
    assert check("Fine") == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "cannot open an episode: KeyError: 'tool'"),
        ("Unclear", "reset returned 'a text': expected a tuple of Message"),
        ("Long", r"limits\.max_tokens: got 256, but the first prompt .* has 50\d tokens"),
        ("Promptless", "has no text 'prompt'; give it one, or write opening"),
    ],
)
def test_an_environment_that_cannot_open_an_episode_is_refused(check, name, message):
    with pytest.raises(ConfigError, match=message):
        check(name)


def test_every_phase_is_opened(check):
    with pytest.raises(ConfigError, match="Moody': reset returned"):
        check("Moody")


def test_more_shifts_than_phases_are_refused(check):
    with pytest.raises(ConfigError, match=r"got \[1, 2\], but '.*Moody' has 2 phases, so it shifts 1 times at most"):
        check("Moody", shifts=[1, 2])
    with pytest.raises(ConfigError, match=r"'.*Fine' has no phases; .* \(a class of your own .* phases = 3\)"):
        check("Fine", shifts=[1])


def test_a_judge_that_nobody_asks_is_refused(check):
    with pytest.raises(ConfigError, match=r"got 'llm', but '.*Fine' asks no judge; .* judged = True"):
        check("Fine", judge={"kind": "llm", "model": "judge"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Silent", r"Silent\.act\('a'\) returned None; it must return self\.say\(text\) or self\.end\(reward\)"),
        ("Clumsy", r"the expert's game of \{'prompt': .*\} raised AttributeError: .* no attribute 'nothing'"),
    ],
)
def test_an_expert_that_cannot_play_is_found_before_the_warm_start(check, name, message):
    with pytest.raises(ConfigError, match=message):
        check(name)


def test_too_few_held_out_prompts_are_refused_with_their_number(check):
    with pytest.raises(ConfigError, match=r"eval\.num_prompts: got 200; .* of these 80 items \d+ are held out"):
        check("Fine", num_prompts=200)


def test_characters_that_the_model_cannot_see_are_a_warning(check):
    (warning,) = check("Strange")
    assert "no token for some of" in warning


def test_every_environment_of_a_mixture_is_opened(check):
    with pytest.raises(ConfigError, match="'preflight_tasks:Raises' cannot open an episode"):
        check(mix=["calculator", "preflight_tasks:Fine", "preflight_tasks:Raises"])
    (warning,) = check(mix=["calculator", "preflight_tasks:Strange"])
    assert "no token for some of" in warning
