"""The critic: the policy's trunk with a value head on every position (paper §3.2).

It starts from the same checkpoint as the policy; its head starts at zero, so that the first outputs are exactly 0. On
disk it is a Hugging Face folder for the trunk, one safetensors file for the head, and a manifest. Loading is complete
or an error: a critic that silently lost its head would throw its pretraining away (fault A13).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from soliton.errors import ConfigError
from soliton.models.load import load_strictly
from soliton.models.trunk import causal_hidden
from soliton.models.value_head import LINEAR, ValueHead

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HEAD_FILE = "value_head.safetensors"
_MANIFEST_FILE = "critic.json"
_FORMAT = 1


class Critic(nn.Module):
    """V(prefix) at every position.

    Attributes:
        backbone: a transformers trunk (no output projection).
        value_head: float32 linear map from its hidden width to one number, the output.
        head: from outputs to values; linear unless a method bounds them.
    """

    def __init__(self, backbone: PreTrainedModel, head: ValueHead = LINEAR) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.value_head = nn.Linear(backbone.config.get_text_config().hidden_size, 1, device=backbone.device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)
        self.train(mode=False)

    @classmethod
    def from_causal_lm(cls, model: PreTrainedModel, head: ValueHead = LINEAR) -> Critic:
        """Copy the trunk of `model` (which stays as it is) and put a zero head on it; every parameter trains."""
        critic = cls(cast("PreTrainedModel", copy.deepcopy(model.base_model)), head)
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        return critic

    def outputs(self, input_ids: Tensor) -> Tensor:
        """What the head maps to values, at each position: position t has read tokens 0..t.

        Args:
            input_ids: int64 [B, L], padded on the right.

        Returns:
            float32 [B, L], with gradient.
        """
        hidden = causal_hidden(self.backbone, input_ids)
        outputs: Tensor = self.value_head(hidden.float()).squeeze(-1)
        return outputs

    def values(self, input_ids: Tensor) -> Tensor:
        """V at each position, float32 [B, L], with gradient. `soliton.models.shift` pairs positions and tokens."""
        return self.head.values(self.outputs(input_ids))

    def forward(self, input_ids: Tensor) -> Tensor:
        """Same as `values`."""
        return self.values(input_ids)

    def save(self, folder: str | Path, manifest: Mapping[str, Any] | None = None) -> None:
        """Write the critic into `folder` (made if absent). For an atomic write, give the folder of `atomic_folder`.

        Args:
            folder: receives the trunk, the head and the manifest.
            manifest: JSON-like facts about where this critic comes from (policy, prompts, explained variance).
        """
        folder = Path(folder)
        self.backbone.save_pretrained(folder)
        save_file(_contiguous(self.value_head.state_dict()), folder / _HEAD_FILE)
        content = {"format": _FORMAT, "head": self.head.as_data(), "origin": dict(manifest or {})}
        text = json.dumps(content, indent=2, sort_keys=True)
        (folder / _MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> Critic:
        """Load a critic written by `save`; everything trains.

        Raises:
            ConfigError: not a critic's folder, or parameters that are missing, unknown or of another shape; they are
                named.
        """
        from transformers import AutoModel

        folder = Path(folder)
        content = _content(folder)
        if not (folder / _HEAD_FILE).is_file():
            raise ConfigError(f"{folder} has no {_HEAD_FILE}: the critic's value head is lost; save the critic again")
        kind = ValueHead.from_data(content["head"]) if "head" in content else LINEAR
        critic = cls(load_strictly(AutoModel, folder), kind)
        head = load_file(folder / _HEAD_FILE)
        expected = {name: tuple(tensor.shape) for name, tensor in critic.value_head.state_dict().items()}
        found = {name: tuple(tensor.shape) for name, tensor in head.items()}
        if found != expected:
            raise ConfigError(f"the value head in {folder / _HEAD_FILE} holds {found}, but must hold {expected}")
        critic.value_head.load_state_dict(head)
        return critic


def critic_manifest(folder: str | Path) -> dict[str, Any]:
    """Read the facts that were given to `Critic.save`.

    Raises:
        ConfigError: not a critic's folder, or one of an unknown format.
    """
    origin: dict[str, Any] = _content(Path(folder))["origin"]
    return origin


def _content(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST_FILE
    if not path.is_file():
        raise ConfigError(
            f"{folder} is not a critic's folder: it has no {_MANIFEST_FILE}. To start a critic from a policy use "
            "Critic.from_causal_lm(load_causal_lm(folder))"
        )
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != _FORMAT:
        raise ConfigError(f"{path} has format {content.get('format')!r}; this version reads {_FORMAT}")
    return content


def _contiguous(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in state.items()}
