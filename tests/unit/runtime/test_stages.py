"""What a stage leaves behind."""

import io
from pathlib import Path

from soliton.models.critic import critic_manifest
from soliton.models.load import load_causal_lm
from soliton.report.plain import PlainView
from soliton.runtime.run_folder import RunFolder
from soliton.runtime.setup import make_setup
from soliton.runtime.stages import Stages
from soliton.weights import published_state, weights_sha256
from tests.invariants.calculator_runs import WARM_START, small_run


def test_a_pretrained_critic_says_which_policy_and_prompts_it_comes_from(tmp_path: Path):
    small = {"num_rollouts": 160, "max_epochs": 1}
    manifests = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = small_run(tmp_path / name, seed=seed, value_pretraining=small)
        folder = RunFolder(tmp_path / name)
        folder.create(config.to_toml())
        model = load_causal_lm(WARM_START)
        stages = Stages(make_setup(config, WARM_START), folder, PlainView(io.StringIO(), lambda: 0.0), lambda: 0.0)
        stages.value_pretraining(model)
        manifests.append(critic_manifest(folder.stages / "value_pretraining"))
    first, again, other_seed = manifests
    assert first == again
    assert first["policy_sha256"] == other_seed["policy_sha256"] == weights_sha256(published_state(model))
    assert first["prompts_sha256"] != other_seed["prompts_sha256"]
    assert first["corpus_size"] == 160
