"""Versions as files: whole or not there, checked, never used twice, readable while old ones are removed."""

import threading
from pathlib import Path

import pytest
import torch

from soliton import atomic
from soliton.errors import RunError
from soliton.types import Publication
from soliton.weights import PublishedVersions, weights_sha256


def weights_of(version: int) -> dict[str, torch.Tensor]:
    return {"a": torch.full((64, 64), float(version)), "b": torch.arange(5) + version}


def publish(versions: PublishedVersions, version: int) -> None:
    weights = weights_of(version)
    versions.publish(weights, Publication(version, version - 1, version, weights_sha256(weights)))


def test_what_was_published_is_read_bit_for_bit(tmp_path: Path):
    versions = PublishedVersions(tmp_path / "weights")
    assert versions.newest() is None
    publish(versions, 0)
    publish(versions, 12)
    publish(versions, 9)
    assert versions.versions() == [0, 9, 12]
    publication, weights = versions.load_newest()
    assert (publication.version, publication.step) == (12, 12)
    assert all(torch.equal(weights[name], tensor) for name, tensor in weights_of(12).items())


@pytest.mark.parametrize(("durability", "flushes"), [("process", False), ("power", True)])
def test_a_version_is_flushed_to_disk_only_where_power_failures_count(tmp_path: Path, monkeypatch, durability, flushes):
    flushed: list[Path] = []
    monkeypatch.setattr(atomic, "fsync_path", flushed.append)
    publish(PublishedVersions(tmp_path, durability), 0)
    assert bool(flushed) == flushes


def test_a_number_is_never_used_twice(tmp_path: Path):  # fault I9
    versions = PublishedVersions(tmp_path)
    publish(versions, 3)
    with pytest.raises(RunError, match="never used twice"):
        publish(versions, 3)


def test_a_changed_file_is_not_loaded(tmp_path: Path):  # fault I1
    versions = PublishedVersions(tmp_path)
    publish(versions, 1)
    file = tmp_path / "v_1" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match="changed after it was published"):
        versions.load(1)
    file.write_bytes(data[:20])
    with pytest.raises(RunError, match="v_1 is damaged"):
        versions.load(1)
    (tmp_path / "v_1" / "manifest.json").write_bytes(b"")
    with pytest.raises(RunError, match="v_1 is damaged"):
        versions.load(1)


def test_an_unfinished_publication_is_not_seen(tmp_path: Path):  # fault J6
    versions = PublishedVersions(tmp_path)
    publish(versions, 1)
    (tmp_path / ".v_2.new").mkdir()
    (tmp_path / ".v_2.new" / "model.safetensors").write_bytes(b"half")
    assert versions.versions() == [1]


def test_the_cleaner_keeps_the_newest(tmp_path: Path):
    versions = PublishedVersions(tmp_path)
    for version in range(6):
        publish(versions, version)
    versions.clean(keep=2)
    assert versions.versions() == [4, 5]


def test_a_reader_gets_whole_versions_while_old_ones_are_removed(tmp_path: Path):  # fault I6
    versions = PublishedVersions(tmp_path)
    publish(versions, 0)
    is_over = threading.Event()
    failures: list[BaseException] = []
    seen: set[int] = set()

    def read() -> None:
        while not is_over.is_set():
            try:
                publication, weights = versions.load_newest()
                assert torch.equal(weights["a"], weights_of(publication.version)["a"])
                seen.add(publication.version)
            except BaseException as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for version in range(1, 60):
        publish(versions, version)
        versions.clean(keep=1)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(seen) > 1


def test_nothing_published_is_said(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="no published version"):
        PublishedVersions(tmp_path).load_newest()
