"""Mistakes that users make, as they type them, and what the command has to say. Nothing may run and nothing be left."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from soliton.cli import app
from soliton.runtime import run as run_module

ROOT = Path(__file__).parents[3]
BAND = "[method]\neps_low = 0.2\neps_high = 0.28\n"

MISTAKES = [
    # keys
    ("a misspelt key", "sed = 3\n" + BAND, [], ["sed: unknown key; did you mean 'seed'?"]),
    (
        "a misspelt key of a table",
        BAND + "[train]\nbatchsize = 4",
        [],
        ["train.batchsize: unknown key", "'batch_size'"],
    ),
    ("a misspelt table", BAND + "[trian]\nsteps = 4", [], ["trian: unknown key; did you mean 'train'?"]),
    ("a key in the wrong table", BAND + "[train]\nactor_lr = 1e-4", [], ["did you mean 'learner.actor_lr'?"]),
    (
        "a key outside of its table",
        "actor_lr = 1e-4\n" + BAND,
        [],
        ["actor_lr: unknown key; did you mean 'learner.actor_lr'?"],
    ),
    (
        "a misspelt override",
        BAND,
        ["train.stpes=3"],
        ["train.stpes: unknown key (override 'train.stpes=3')", "'steps'"],
    ),
    (
        "a judge whose key is not there",
        BAND + '[env]\nname = "style"\n[env.judge]\nkind = "llm"\nmodel = "judge"\napi_key_env = "NO_SUCH_KEY"',
        [],
        ["env.judge.api_key_env: there is no environment variable 'NO_SUCH_KEY'", "export it"],
    ),
    ("a misspelt table of an override", BAND, ["trian.steps=3"], ["trian: unknown key", "did you mean 'train'?"]),
    ("a table as a value", "train = 3\n" + BAND, [], ["train: got 3; allowed is a table: write it as [train]"]),
    (
        "a mixture written as one table",
        BAND + '[env.mix]\nname = "calculator"',
        [],
        ["env.mix: got {'name'", "allowed are tables: write each as [[env.mix]]"],
    ),
    (
        "a mixture written as a list of names",
        BAND + '[env]\nmix = ["calculator", "maze"]',
        [],
        ["env.mix.0: got 'calculator'", "write each as [[env.mix]]"],
    ),
    ("a mixture outside of its table", 'mix = ["maze"]\n' + BAND, [], ["mix: unknown key", "[[env.mix]]"]),
    # values
    (
        "an unknown preset",
        'algorithm = "saoo"\n' + BAND,
        [],
        ["algorithm: got 'saoo'", "'grpo-dis'", "did you mean 'sao'?"],
    ),
    ("an unknown word", BAND, ["when_too_old=dropp"], ["when_too_old: got 'dropp'", "did you mean 'drop'?"]),
    ("a number out of range", BAND, ["train.steps=0"], ["train.steps: got 0", "allowed is a whole number >= 1"]),
    ("a fraction for a count", BAND, ["train.steps=2.5"], ["train.steps: got 2.5", "a whole number >= 1"]),
    ("a float for a count", BAND, ["train.steps=20.0"], ["train.steps: got 20.0", "write 20"]),
    ("a number in quotes", BAND + '[train]\nsteps = "20"', [], ["train.steps: got '20'", "write 20 without quotes"]),
    ("a word for a number", BAND, ["seed=lucky"], ["seed: got 'lucky'", "allowed is a whole number >= 0"]),
    ("true for a number", BAND, ["seed=true"], ["seed: got true", "true and false are no numbers"]),
    ("1 for true", BAND, ["train.shuffle_rewards=1"], ["train.shuffle_rewards: got 1", "write true"]),
    ("an infinite band", "[method]\neps_low = 0.2\neps_high = inf", [], ["method.eps_high: got inf"]),
    ("an unknown stage", BAND, ['stages=["sft", "trian"]'], ["stages.1: got 'trian'", "did you mean 'train'?"]),
    (
        "a word for a list",
        BAND,
        ["stages=train"],
        ["stages: got 'train'", 'write ["train"], on the command line in single'],
    ),
    (
        "a list that the shell has undressed",
        BAND,
        ["stages=[sft,train]"],
        ["got '[sft,train]'", 'write ["sft", "train"]'],
    ),
    ("a number for a list", BAND, ["learner.betas=0.9 0.95"], ["learner.betas: got", "write [0.9, 0.95]"]),
    # units
    ("seconds with a unit", BAND, ["local.lease_s=5min"], ["local.lease_s: got '5min'", "seconds", "write 300"]),
    ("milliseconds", BAND + '[inline]\ntick_s = "10ms"', [], ["inline.tick_s: got '10ms'", "write 0.01"]),
    ("megabytes with a unit", BAND, ["local.max_queued_mb=2GB"], ["local.max_queued_mb: got '2GB'", "write 2048"]),
    ("per cent", BAND, ["sft.noise=30%"], ["sft.noise: got '30%'", "write 0.3"]),
    ("a k for thousand", BAND, ["limits.max_tokens=4k"], ["limits.max_tokens: got '4k'", "write 4000"]),
    # what must be there
    ("no band at all", "seed = 1", [], ["method: required and missing", "[method]", "eps_low", "eps_high"]),
    ("half a band", "[method]\neps_low = 0.2", [], ["method.eps_high: required and missing", "paper uses 5.0"]),
    # combinations
    ("nucleus sampling", BAND, ["sampling.top_p=0.9"], ["top_p = 0.9", "each ratio would be biased", "use top_p = 1"]),
    ("groups with a critic", BAND, ["method.group_size=8"], ["'sao' has a critic and samples one rollout per prompt"]),
    (
        "a batch of no whole groups",
        BAND,
        ["algorithm=grpo", "train.batch_size=50"],
        ["no multiple of the group size 8", "use 56"],
    ),
    ("a critic's key without a critic", BAND, ["algorithm=grpo", "method.alpha=2.0"], ["'grpo' does not read it"]),
    ("stages in another order", BAND, ['stages=["train", "sft"]'], ["in this order; write ['sft', 'train']"]),
    (
        "a policy without a bound",
        BAND,
        ["max_staleness=unbounded", "when_too_old=wait"],
        ["without a bound nothing is"],
    ),
    ("two things to start from", BAND, ["init.run=a", "init.model=b"], ["both run and model are given"]),
    (
        "outstanding under a bound",
        BAND,
        ["rollout.max_outstanding=500"],
        ["rollout.max_outstanding: got 500, but the staleness bound 8 limits"],
    ),
    (
        "less outstanding than a batch",
        BAND,
        ["max_staleness=unbounded", "rollout.max_outstanding=4"],
        ["rollout.max_outstanding: got 4, less than train.batch_size = 48"],
    ),
    ("more workers than episodes", BAND, ["local.workers=8", "rollout.max_in_flight=4"], ["local.workers: got 8"]),
    # here and now
    ("a model that is not there", BAND, ["init.model=no/such"], ["init.model: there is no folder no/such"]),
    ("a run that is not there", BAND, ["init.run=no/such"], ["init.run: there is no folder no/such"]),
    ("an environment that is not there", BAND, ["env.name=nowhere:Class"], ["there is no module 'nowhere'"]),
    (
        "a misspelt environment",
        BAND,
        ["env.name=calculater"],
        ["env.name: got 'calculater'", "did you mean 'calculator'?"],
    ),
    (
        "an environment of a mixture that is not there",
        BAND + '[[env.mix]]\nname = "maze"\n[[env.mix]]\nname = "nowhere:Class"',
        [],
        ["env.mix.1.name: 'nowhere:Class': there is no module 'nowhere'"],
    ),
    (
        "a file of prompts that is not there",
        BAND,
        ["env.name=json:loads", "env.prompts=no.jsonl"],
        ["env.prompts: there is no file no.jsonl"],
    ),
    (
        "more context than the model has",
        BAND,
        ["limits.max_tokens=5000"],
        ["limits.max_tokens: got 5000", "at most 4096"],
    ),
    ("an engine that is planned", BAND, ["engine.kind=vllm"], ["engine.kind: 'vllm' is not supported yet"]),
    ("GPUs", BAND, ["hardware.learner_gpus=8"], ["hardware.learner_gpus: 8 is not supported yet"]),
    ("a run folder below a file", BAND, ["run.dir=recipe.toml/run"], ["run.dir: recipe.toml/run cannot be made"]),
    # the command line
    ("a key with dashes", BAND, ["--train.steps=3"], ["keys are changed without dashes: train.steps=3"]),
    ("a key with dashes and a space", BAND, ["--train.steps", "3"], ["without dashes: train.steps=VALUE"]),
    ("a misspelt option", BAND, ["--dryrun"], ["there is no option --dryrun; did you mean --dry-run?"]),
    ("an option that is not there", BAND, ["--verbose"], ["there is no option --verbose; --help lists them"]),
    ("an override without a value", BAND, ["train.steps"], ["override 'train.steps': expected key.path=value"]),
    ("an override through a value", "seed = 1\n" + BAND, ["seed.x=1"], ["'seed' is a value, not a table"]),
    ("a recipe that is no TOML", "seed = \n", [], ["not valid TOML"]),
    ("text without quotes", "algorithm = sao\n" + BAND, [], ["not valid TOML", "Text needs quotes"]),
]


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "_run", lambda *_: pytest.fail("the mistake was not noticed: the run began"))


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize(
    ("recipe", "overrides", "said"), [mistake[1:] for mistake in MISTAKES], ids=[mistake[0] for mistake in MISTAKES]
)
def test_a_mistake_gets_its_message_and_nothing_is_left_behind(recipe: str, overrides: list[str], said: list[str]):
    Path("recipe.toml").write_text(recipe)
    message = refused("recipe.toml", *overrides)
    assert [words for words in said if words not in message] == [], message
    assert sorted(path.name for path in Path().iterdir()) == ["recipe.toml"]


def test_at_least_25_mistakes_are_listed():
    assert len(MISTAKES) >= 25


def test_everything_wrong_is_said_at_once_combinations_too():
    Path("recipe.toml").write_text("sed = 1\n[method]\neps_low = 0.2\n[train]\nsteps = 0\n")
    message = refused("recipe.toml", 'stages=["train", "sft"]', "sampling.top_p=0.5", "oops")
    for words in ("6 problems", "sed:", "eps_high", "train.steps: got 0", "in this order", "top_p = 0.5", "'oops'"):
        assert words in message


def test_a_contradiction_with_a_wrong_key_is_not_reported():
    """What depends on a value that is not known yet would only mislead."""
    Path("recipe.toml").write_text(BAND)
    message = refused("recipe.toml", "algorithm=grpoo", "train.batch_size=50", "method.alpha=2.0")
    assert "1 problem\n" in message
    assert "did you mean 'grpo'?" in message


def test_a_recipe_that_is_not_there_is_looked_for_nearby():
    Path("calculator.toml").write_text(BAND)
    assert "did you mean calculator.toml?" in refused("calculater.toml")


def test_a_recipe_in_a_folder_that_is_not_here_says_where_one_is():
    message = refused("recipes/calculator.toml")
    assert f"there is no folder recipes in {Path.cwd()}" in message


def test_a_folder_in_place_of_a_recipe_is_told_how_to_resume(tmp_path: Path):
    assert f"soliton train --resume {tmp_path}" in refused(str(tmp_path))


def test_no_recipe_at_all_says_where_one_is():
    assert "recipes/calculator.toml" in refused()


def test_a_run_folder_that_is_taken_is_refused_before_anything_loads():
    Path("recipe.toml").write_text(BAND)
    Path("runs/run").mkdir(parents=True)
    Path("runs/run/config.toml").write_text(BAND)
    message = refused("recipe.toml")
    assert "run.dir: runs/run already holds a run" in message
    assert "soliton train --resume runs/run" in message


def test_a_tracker_without_its_package_is_refused_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    Path("recipe.toml").write_text(BAND)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    message = refused("recipe.toml", 'track.trackers=["trackio"]')
    assert "track.trackers: 'trackio' needs a package that is not installed" in message
    assert "pip install 'soliton[trackio]'" in message


def test_resuming_what_is_no_run_says_so():
    assert "nowhere holds no run" in refused("--resume", "nowhere")


def test_resuming_with_another_model_shows_the_difference():
    Path("recipe.toml").write_text(BAND)
    Path("run").mkdir()
    Path("run/config.toml").write_text(BAND)
    message = refused("recipe.toml", "init.model=another", "seed=3", "--resume", "run")
    assert "init.model: the run has none, now given 'another'" in message
    assert "seed: the run has 0, now given 3" in message


def hf_folder(path: Path, names: list[str]) -> Path:
    """A Hugging Face folder with weights of these names, without any data."""
    path.mkdir()
    config = {
        "num_attention_heads": 4,
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "vocab_size": 9,
        "intermediate_size": 8,
    }
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    header = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names}).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def test_a_choice_of_what_trains_that_matches_nothing_is_refused_from_the_names_alone(tmp_path: Path):
    Path("recipe.toml").write_text(BAND)
    names = ["model.layers.0.self_attn.q_proj.weight", "model.layers.0.dense.weight", "model.norm.weight"]
    model = hf_folder(tmp_path / "model", names)
    message = refused("recipe.toml", f"init.model={model}")
    assert "method.critic_trainable: 'mlp'" in message
    assert "wants parameters of kind mlp" in message


def test_routers_are_looked_for_where_they_shall_train(tmp_path: Path):
    Path("recipe.toml").write_text(BAND)
    model = hf_folder(tmp_path / "model", ["model.layers.0.mlp.up_proj.weight", "model.norm.weight"])
    assert "of kind router" in refused("recipe.toml", f"init.model={model}", "method.train_router=true")


def test_a_model_folder_without_a_tokenizer_is_refused(tmp_path: Path):
    Path("recipe.toml").write_text(BAND)
    model = hf_folder(tmp_path / "model", ["model.layers.0.mlp.up_proj.weight"])
    (model / "tokenizer.json").unlink()
    assert "lacks tokenizer" in refused("recipe.toml", f"init.model={model}")


def test_mistakes_are_found_without_torch():
    (Path("recipe.toml")).write_text(BAND)
    program = (
        "import sys; from soliton.cli import app\n"
        "try: app(['train', 'recipe.toml', 'algorithm=saoo'])\n"
        "except SystemExit as end: assert end.code == 2\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "did you mean 'sao'?" in done.stderr
