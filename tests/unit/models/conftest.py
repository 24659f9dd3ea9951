import pytest
import torch

from soliton.models import new_causal_lm, tiny_qwen3_config, tiny_qwen3_moe_config

VOCAB = 40


def make_model(kind: str, seed: int = 0):
    architecture, embedding = kind.split("-")
    config = {"dense": tiny_qwen3_config, "moe": tiny_qwen3_moe_config}[architecture]
    return new_causal_lm(config(VOCAB, tie=embedding == "tied"), seed)


@pytest.fixture(scope="module", params=["dense-tied", "dense-untied", "moe-tied", "moe-untied"])
def model(request):
    return make_model(request.param)


@pytest.fixture(scope="module", params=["dense-tied", "moe-tied"])
def tied_model(request):
    return make_model(request.param)


@pytest.fixture
def ids():
    return torch.randint(0, VOCAB, (3, 17), generator=torch.Generator().manual_seed(0))
