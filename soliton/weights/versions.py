"""Published weights as files: `v_<version>/` holds `model.safetensors` and `manifest.json`, and appears whole or not.

One writer (the learner), any number of readers (engines). Guarantees: a reader gets a version wholly, with the hash
that its manifest states, or an error; a version that is removed while it is read is either read to its end or replaced
by the newest (fault I6); numbers are never reused (fault I9). Unless told otherwise nothing is flushed to disk:
engines read a version within a step, a run that goes on publishes anew, and what a power failure tore is known by its
hash.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from safetensors import SafetensorError
from torch import Tensor

from soliton.atomic import Durability, atomic_folder
from soliton.errors import RunError
from soliton.types import Publication
from soliton.weights.digest import weights_sha256
from soliton.weights.files import load_tensors, save_tensors

MANIFEST = "manifest.json"
TENSORS = "model.safetensors"
_PREFIX = "v_"
_TRIES = 20


class PublishedVersions:
    """The folder of versions.

    Args:
        root: made by the first `publish`.
        durability: what a version survives whole. Without "power" its evaluation may be lost with the machine.
    """

    def __init__(self, root: Path, durability: Durability = "process") -> None:
        self.root = root
        self._durability = durability

    def publish(self, weights: Mapping[str, Tensor], publication: Publication) -> None:
        """Write one version; readers see it from then on.

        Args:
            weights: checkpoint names (`published_state`).
            publication: its row of the version table; its hash is that of `weights`.

        Raises:
            RunError: this version exists already.
            OSError: the disk is full, for example; nothing is there then.
        """
        final = self._folder(publication.version)
        if final.exists():
            raise RunError(f"{final} exists already; a version number is never used twice")
        shapes = {name: [str(tensor.dtype).removeprefix("torch."), *tensor.shape] for name, tensor in weights.items()}
        with atomic_folder(final, self._durability) as folder:
            save_tensors(weights, folder / TENSORS, self._durability)
            manifest = {**msgspec.to_builtins(publication), "tensors": shapes}
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))

    def versions(self) -> list[int]:
        """The versions there are, oldest first."""
        if not self.root.is_dir():
            return []
        names = [path.name.removeprefix(_PREFIX) for path in self.root.glob(f"{_PREFIX}*")]
        return sorted(int(name) for name in names if name.isdigit())

    def newest(self) -> int | None:
        """The newest version; None before the first."""
        return max(self.versions(), default=None)

    def load(self, version: int) -> tuple[Publication, dict[str, Tensor]]:
        """Read one version and check it against its manifest.

        Raises:
            FileNotFoundError: it was removed, before or while it was read.
            RunError: damaged: another hash than its manifest states.
        """
        folder = self._folder(version)
        try:
            publication = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Publication)
            weights = load_tensors(folder / TENSORS)
        except (SafetensorError, msgspec.DecodeError) as error:
            raise RunError(f"{folder} is damaged: {error}; the next published version replaces it") from error
        if (actual := weights_sha256(weights)) != publication.sha256:
            raise RunError(
                f"{folder / TENSORS} has sha256 {actual[:12]}..., its manifest says {publication.sha256[:12]}...; "
                "the file was changed after it was published"
            )
        return publication, weights

    def load_newest(self) -> tuple[Publication, dict[str, Tensor]]:
        """Read the newest version, whatever is removed meanwhile.

        Raises:
            FileNotFoundError: nothing was published.
            RunError: as `load`.
        """
        for _ in range(_TRIES):
            version = self.newest()
            if version is None:
                break
            try:
                return self.load(version)
            except FileNotFoundError:
                continue  # removed while it was read: a newer one is there
        raise FileNotFoundError(f"no published version in {self.root}")

    def link(self, version: int, root: Path) -> None:
        """Let one version be in `root`, too, for as long as somebody wants it there; takes no space of its own.

        Raises:
            FileNotFoundError: it was removed.
        """
        folder = root / self._folder(version).name
        shutil.copytree(self._folder(version), folder, copy_function=os.link, dirs_exist_ok=True)

    def clean(self, keep: int) -> None:
        """Remove all but the `keep` newest versions. Readers that have opened a file read it to its end."""
        for version in self.versions()[:-keep]:
            shutil.rmtree(self._folder(version), ignore_errors=True)

    def _folder(self, version: int) -> Path:
        return self.root / f"{_PREFIX}{version}"
