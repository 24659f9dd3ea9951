"""What a stage leaves behind."""

import hashlib
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
    config = small_run(tmp_path / "run", value_pretraining={"num_rollouts": 96, "max_epochs": 1})
    setup, folder, model = make_setup(config, WARM_START), RunFolder(tmp_path / "run"), load_causal_lm(WARM_START)
    folder.create(config.to_toml())
    Stages(setup, folder, PlainView(io.StringIO(), lambda: 0.0), lambda: 0.0).value_pretraining(model)
    manifest = critic_manifest(folder.stages / "value_pretraining")
    prompts = "\n".join(sorted({setup.prompts.at(draw).id for draw in range(96)}))
    assert manifest["policy_sha256"] == weights_sha256(published_state(model))
    assert manifest["prompts_sha256"] == hashlib.sha256(prompts.encode()).hexdigest()
    assert manifest["corpus_size"] == 96
