import hashlib
import struct

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soliton.models import new_causal_lm, tiny_qwen3_moe_config
from soliton.weights import load_published, load_tensors, published_state, save_tensors, weights_sha256

STATE = {"b": torch.tensor([[1.0, -2.5]]), "a": torch.tensor(7, dtype=torch.int64)}


def test_the_hash_is_of_sorted_name_dtype_shape_and_little_endian_bytes():
    expected = b"a int64 \n" + struct.pack("<q", 7) + b"b float32 1,2\n" + struct.pack("<2f", 1.0, -2.5)
    assert weights_sha256(STATE) == hashlib.sha256(expected).hexdigest()


def test_order_layout_and_gradients_do_not_matter():
    tensor = torch.randn(3, 4)
    expected = weights_sha256({"x": tensor, "y": tensor + 1})
    assert weights_sha256({"y": tensor + 1, "x": tensor.T.contiguous().T}) == expected
    assert weights_sha256({"y": tensor + 1, "x": tensor.clone().requires_grad_()}) == expected


def test_name_dtype_shape_and_every_value_matter():
    base = {"x": torch.zeros(2, 3)}
    others = [
        {"y": torch.zeros(2, 3)},
        {"x": torch.zeros(2, 3, dtype=torch.int32)},
        {"x": torch.zeros(3, 2)},
        {"x": torch.zeros(2, 3), "y": torch.zeros(0)},
        {"x": -torch.zeros(2, 3)},
    ]
    assert len({weights_sha256(state) for state in [base, *others]}) == 6


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 11), st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int64]))
def test_one_changed_element_changes_the_hash(index, dtype):
    state = {"x": torch.zeros(3, 4, dtype=dtype)}
    before = weights_sha256(state)
    state["x"].view(-1)[index] = 1
    assert weights_sha256(state) != before


def test_trainer_file_and_engine_agree_on_one_hash(tmp_path):  # fault I1
    trainer, engine = (new_causal_lm(tiny_qwen3_moe_config(40), seed) for seed in (0, 1))
    state = published_state(trainer)
    assert weights_sha256(published_state(engine)) != weights_sha256(state)
    save_tensors(state, tmp_path / "w.safetensors")
    load_published(engine, load_tensors(tmp_path / "w.safetensors"))
    assert weights_sha256(published_state(engine)) == weights_sha256(state)
