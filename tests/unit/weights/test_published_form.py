import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3Config

from soliton.errors import ConfigError
from soliton.models import Critic, new_causal_lm, tiny_qwen3_config, tiny_qwen3_moe_config
from soliton.weights import load_published, published_state, save_model_folder
from soliton.weights.published import _as_view

VOCAB = 40
KINDS = ["dense-tied", "dense-untied", "moe-tied", "moe-untied"]


def make(kind: str, seed: int = 0):
    architecture, embedding = kind.split("-")
    config = {"dense": tiny_qwen3_config, "moe": tiny_qwen3_moe_config}[architecture]
    return new_causal_lm(config(VOCAB, tie=embedding == "tied"), seed)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def ids():
    return torch.randint(0, VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))


def assert_equal_states(first, second):
    assert set(first) == set(second)
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype, name
        assert torch.equal(tensor, second[name]), name


def test_the_published_form_is_what_save_pretrained_writes(kind, tmp_path):
    model = make(kind)
    model.save_pretrained(tmp_path)
    assert_equal_states(published_state(model), load_file(tmp_path / "model.safetensors"))


def test_experts_are_named_one_by_one_and_a_tied_projection_is_not_named(kind):
    names = set(published_state(make(kind)))
    assert ("lm_head.weight" in names) == ("untied" in kind)
    assert ("model.layers.1.mlp.experts.7.down_proj.weight" in names) == ("moe" in kind)
    assert not any("gate_up_proj" in name for name in names)


def test_another_model_computes_the_same_after_loading(kind, ids):  # fault I1
    trainer, engine = make(kind, 0), make(kind, 1)
    assert not torch.equal(trainer(ids).logits, engine(ids).logits)
    load_published(engine, published_state(trainer))
    assert torch.equal(trainer(ids).logits, engine(ids).logits)
    assert_equal_states(published_state(engine), published_state(trainer))


def test_a_saved_folder_gives_equal_logits_and_the_same_published_form(kind, ids, tmp_path):
    model = make(kind)
    save_model_folder(model, None, tmp_path / "final")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "final")
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert_equal_states(published_state(loaded), published_state(model))


def test_a_loaded_folder_can_be_published_into_a_new_model_and_back(kind, ids, tmp_path):
    make(kind, 0).save_pretrained(tmp_path)
    loaded, new = AutoModelForCausalLM.from_pretrained(tmp_path), make(kind, 1)
    load_published(loaded, published_state(new))
    assert torch.equal(loaded(ids).logits, new(ids).logits)


def test_ties_survive_loading(ids):  # fault I1: tied embeddings not updated
    engine = make("dense-tied", 1)
    load_published(engine, published_state(make("dense-tied", 0)))
    assert engine.lm_head.weight is engine.model.embed_tokens.weight


def test_what_is_published_does_not_change_when_training_goes_on(kind):
    model = make(kind)
    state = published_state(model)
    before = {name: tensor.clone() for name, tensor in state.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert_equal_states(state, before)
    assert all(not tensor.requires_grad and tensor.is_contiguous() for tensor in state.values())


def test_published_weights_follow_an_optimiser_step(kind):
    model = make(kind)
    before = published_state(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    assert_equal_states(published_state(model), {name: 2 * tensor for name, tensor in before.items()})


def test_published_tensors_share_no_memory_with_each_other(kind):
    tensors = published_state(make(kind)).values()
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)


def test_a_critics_trunk_is_published_under_the_names_of_its_own_folder(kind, tmp_path):
    critic = Critic.from_causal_lm(make(kind))
    critic.save(tmp_path)
    assert_equal_states(published_state(critic.backbone), load_file(tmp_path / "model.safetensors"))


def missing(state):
    del state["model.norm.weight"]


def unknown(state):
    state["model.lora_A.weight"] = torch.zeros(2)


def fused(state):
    state["model.layers.0.mlp.experts.gate_up_proj"] = torch.zeros(8, 256, 128)


def reshaped(state):
    state["model.norm.weight"] = torch.zeros(128, 1)


def not_a_number(state):
    state["model.layers.1.mlp.experts.3.up_proj.weight"][5, 7] = torch.nan


def infinite(state):
    state["model.norm.weight"][0] = -torch.inf


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (missing, r"1 missing: model\.norm\.weight"),
        (unknown, r"1 unknown: model\.lora_A\.weight"),
        (fused, r"1 unknown: model\.layers\.0\.mlp\.experts\.gate_up_proj"),
        (reshaped, r"1 of another shape: model\.norm\.weight \(got \(128, 1\), must be \(128,\)\)"),
        (not_a_number, r"1 not finite: model\.layers\.1\.mlp\.experts\.3\.up_proj\.weight"),
        (infinite, r"1 not finite: model\.norm\.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name_and_change_nothing(damage, message):  # fault I1
    engine = make("moe-tied", 1)
    before = published_state(engine)
    state = published_state(make("moe-tied", 0))
    damage(state)
    with pytest.raises(ValueError, match=message):
        load_published(engine, state)
    assert_equal_states(published_state(engine), before)


def test_finite_weights_whose_sum_overflows_are_accepted():
    engine, state = make("dense-tied", 1), published_state(make("dense-tied", 0))
    state["model.norm.weight"].fill_(3e38)
    load_published(engine, state)
    assert torch.equal(engine.model.norm.weight, state["model.norm.weight"])


def test_all_problems_are_listed_at_once():
    state = published_state(make("dense-tied"))
    missing(state)
    unknown(state)
    with pytest.raises(ValueError, match=r"1 missing: .*; 1 unknown: .*"):
        load_published(make("dense-tied", 1), state)


def test_a_tied_projection_in_the_weights_is_unknown_to_a_tied_model():
    with pytest.raises(ValueError, match=r"1 unknown: lm_head\.weight"):
        load_published(make("dense-tied"), published_state(make("dense-untied")))


def test_loading_converts_to_the_models_dtype():
    engine = make("dense-tied", 1).bfloat16()
    state = published_state(make("dense-tied", 0))
    load_published(engine, state)
    assert_equal_states(published_state(engine), {name: tensor.bfloat16() for name, tensor in state.items()})


def test_a_transposed_part_of_a_parameter_is_found_and_a_shuffled_one_is_refused():
    indices = torch.arange(24).reshape(2, 3, 4)
    view = _as_view("p", indices[1].T.contiguous(), 24)
    values = torch.randn(2, 3, 4)
    assert torch.equal(view.of({"p": values}), values[1].T)
    with pytest.raises(ConfigError, match="cannot be published"):
        _as_view("p", indices.flatten()[torch.tensor([0, 5, 7])], 24)


def test_a_conversion_that_is_not_a_rearrangement_is_refused(monkeypatch):
    from transformers import core_model_loading

    def doubles(model, state):
        return {name: tensor * 2 for name, tensor in state.items()}

    monkeypatch.setattr(core_model_loading, "revert_weight_conversion", doubles)
    with pytest.raises(ConfigError, match="cannot be published"):
        published_state(make("dense-tied"))


def test_the_plan_is_made_once_per_model(monkeypatch):
    from soliton.weights import published

    made = []
    original = published._make_plan
    monkeypatch.setattr(published, "_make_plan", lambda model: made.append(model) or original(model))
    model = make("dense-tied")
    for _ in range(3):
        load_published(model, published_state(model))
    assert made == [model]


def test_a_single_layer_of_width_one_dimensions_is_published(tmp_path):
    config = Qwen3Config(
        vocab_size=1,
        hidden_size=2,
        intermediate_size=1,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
    )
    model = new_causal_lm(config, 0)
    model.save_pretrained(tmp_path)
    assert_equal_states(published_state(model), load_file(tmp_path / "model.safetensors"))
