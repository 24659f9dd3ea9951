import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from soliton.errors import ConfigError
from soliton.models import load_causal_lm, new_causal_lm, tiny_qwen3_config, tiny_qwen3_moe_config


@pytest.fixture
def folder(tmp_path):
    new_causal_lm(tiny_qwen3_config(40), 0).save_pretrained(tmp_path)
    return tmp_path


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_demo_model_has_the_size_that_the_design_states():
    model = new_causal_lm(tiny_qwen3_config(96, eos_token_id=1, pad_token_id=0), 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == 307_968
    assert (model.config.eos_token_id, model.config.pad_token_id) == (1, 0)


@pytest.mark.parametrize("make", [tiny_qwen3_config, tiny_qwen3_moe_config])
@pytest.mark.parametrize("wrong", [{"vocab_size": 0}, {"eos_token_id": 9}, {"pad_token_id": -1}])
def test_a_special_id_outside_the_vocabulary_is_refused(make, wrong):
    with pytest.raises(ValueError, match="must be"):
        make(**({"vocab_size": 9} | wrong))


def test_equal_seeds_give_equal_models_and_others_do_not():
    first, again, other = (new_causal_lm(tiny_qwen3_config(40), seed).lm_head.weight for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    new_causal_lm(tiny_qwen3_config(40), 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_models_never_share_one_configuration_object():
    config = tiny_qwen3_config(40)
    first, second = new_causal_lm(config, 0), new_causal_lm(config, 0)
    assert first.config is not second.config


def test_a_model_is_float32_in_evaluation_mode_with_sdpa(folder):
    for model in (new_causal_lm(tiny_qwen3_config(40), 0), load_causal_lm(folder)):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert not any(module.training for module in model.modules())
        assert model.config._attn_implementation == "sdpa"


def test_a_loaded_model_computes_what_the_saved_one_did(folder, ids):
    assert torch.equal(load_causal_lm(folder)(ids).logits, new_causal_lm(tiny_qwen3_config(40), 0)(ids).logits)


@pytest.mark.parametrize(
    ("name", "rate"), [("attention_dropout", 0.1), ("resid_pdrop", 0.5), ("hidden_dropout_prob", 1)]
)
def test_dropout_is_refused_by_name(folder, name, rate):  # fault of other code
    change_config(folder, **{name: rate})
    with pytest.raises(ConfigError, match=name):
        load_causal_lm(folder)


def test_dropout_is_refused_for_new_models_and_in_nested_configurations(folder):
    config = tiny_qwen3_config(40)
    config.attention_dropout = 0.1
    with pytest.raises(ConfigError, match="attention_dropout"):
        new_causal_lm(config, 0)
    change_config(folder, extra={"attention_dropout": 0.3})
    with pytest.raises(ConfigError, match=r"extra\.attention_dropout"):
        load_causal_lm(folder)


def test_dropout_of_a_classification_head_is_nobodys_business(folder):
    change_config(folder, classifier_dropout=0.1, summary_first_dropout=0.1)
    load_causal_lm(folder)


def test_a_missing_folder_config_or_weights_file_is_named(folder):
    with pytest.raises(ConfigError, match="no model folder"):
        load_causal_lm(folder / "absent")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="no weights"):
        load_causal_lm(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_causal_lm(folder)


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_missing_and_unknown_parameters_are_named(folder):
    change_weights(folder, lambda w: w.update({"model.extra.weight": w.pop("model.norm.weight")}))
    with pytest.raises(ConfigError, match=r"missing: model\.norm\.weight; unexpected: model\.extra\.weight"):
        load_causal_lm(folder)


def test_importing_the_package_does_not_import_transformers():
    code = "import sys, soliton.models, soliton.weights; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
