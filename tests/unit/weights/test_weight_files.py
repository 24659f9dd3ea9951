import pytest
import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from soliton.models import load_causal_lm, new_causal_lm, tiny_qwen3_config
from soliton.weights import load_tensors, save_model_folder, save_tensors

STATE = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor(3, dtype=torch.int32), "c": torch.zeros(0, 4)}


def test_tensors_come_back_as_they_were(tmp_path):
    save_tensors(STATE, tmp_path / "x" / "w.safetensors")
    loaded = load_tensors(tmp_path / "x" / "w.safetensors")
    assert set(loaded) == set(STATE)
    for name, tensor in STATE.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_saving_again_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "w.safetensors"
    save_tensors(STATE, path)
    save_tensors({"only": torch.ones(1)}, path)
    assert set(load_tensors(path)) == {"only"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.safetensors"]


def test_tensors_that_share_memory_are_refused_by_name(tmp_path):
    tensor = torch.zeros(4)
    with pytest.raises(ValueError, match="'a' and 'b' share memory"):
        save_tensors({"a": tensor, "b": tensor[:2]}, tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_or_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(FileNotFoundError, match="no tensor file"):
        load_tensors(path)
    save_tensors(STATE, path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(SafetensorError):
        load_tensors(path)


def test_a_model_folder_holds_model_and_tokenizer_and_replaces_the_one_before(tmp_path):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    path = tmp_path / "final"
    for seed in (0, 1):
        model = new_causal_lm(tiny_qwen3_config(40), seed)
        save_model_folder(model, tokenizer, path)
    assert torch.equal(load_causal_lm(path).lm_head.weight, model.lm_head.weight)
    assert AutoTokenizer.from_pretrained(path).get_vocab() == {"a": 0, "b": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["final"]


def test_a_failing_save_leaves_the_previous_model(tmp_path, monkeypatch):  # fault J6
    old, new = (new_causal_lm(tiny_qwen3_config(40), seed) for seed in (0, 1))
    save_model_folder(old, None, tmp_path / "final")

    def fails(folder):
        (folder / "config.json").write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(new, "save_pretrained", fails)
    with pytest.raises(OSError, match="disk full"):
        save_model_folder(new, None, tmp_path / "final")
    assert torch.equal(load_causal_lm(tmp_path / "final").lm_head.weight, old.lm_head.weight)
