from pathlib import Path

import pytest

from soliton.runtime.checkpoint import (
    damage,
    list_checkpoints,
    newest_whole_checkpoint,
    write_checkpoint,
)


def write(root: Path, step: int, keep: int = 2) -> Path:
    def files(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"a" * step)
        (folder / "b.json").write_text(f'{{"step": {step}}}')

    return write_checkpoint(root, step, files, keep)


def test_the_newest_checkpoints_are_kept_in_order_of_their_step(tmp_path: Path):
    for step in (5, 10, 20, 100):
        write(tmp_path, step, keep=3)
    assert [c.name for c in list_checkpoints(tmp_path)] == ["step_10", "step_20", "step_100"]


def test_a_run_that_went_back_behind_damaged_checkpoints_keeps_the_one_it_writes(tmp_path: Path):  # fault J6
    for step in (20, 30):
        (write(tmp_path, step) / "a.bin").write_bytes(b"damaged")
    again = write(tmp_path, 10)
    assert list_checkpoints(tmp_path) == [again]
    assert newest_whole_checkpoint(tmp_path, print) == again


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "no manifest", "torn manifest"])
def test_a_damaged_checkpoint_is_skipped_with_a_message_and_its_predecessor_used(tmp_path: Path, harm: str):  # fault J6
    good, bad = write(tmp_path, 10), write(tmp_path, 20)
    target = bad / "a.bin"
    if harm == "flip":
        target.write_bytes(b"b" + target.read_bytes()[1:])
    elif harm == "cut":
        target.write_bytes(target.read_bytes()[:-1])
    elif harm == "remove":
        target.unlink()
    elif harm == "no manifest":
        (bad / "manifest.json").unlink()
    else:
        (bad / "manifest.json").write_text('{"a.bin"')
    said: list[str] = []
    assert newest_whole_checkpoint(tmp_path, said.append) == good
    assert len(said) == 1
    assert "step_20 is damaged" in said[0]


def test_every_flipped_byte_is_noticed(tmp_path: Path):
    checkpoint = write(tmp_path, 30)
    file = checkpoint / "a.bin"
    whole = file.read_bytes()
    for i in range(len(whole)):
        file.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert damage(checkpoint) is not None
    file.write_bytes(whole)
    assert damage(checkpoint) is None


def test_a_half_written_checkpoint_is_never_seen_and_is_cleaned_up(tmp_path: Path):
    write(tmp_path, 10)

    def dies(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(tmp_path, 20, dies, keep=2)
    assert [c.name for c in list_checkpoints(tmp_path)] == ["step_10"]
    write(tmp_path, 20)
    assert [c.name for c in list_checkpoints(tmp_path)] == ["step_10", "step_20"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_10", "step_20"]


def test_writing_the_same_step_again_replaces_it(tmp_path: Path):
    write(tmp_path, 10)
    (tmp_path / "step_10" / "a.bin").write_bytes(b"damaged")
    write(tmp_path, 10)
    assert damage(tmp_path / "step_10") is None


def test_no_checkpoint_is_none(tmp_path: Path):
    assert newest_whole_checkpoint(tmp_path / "nothing", print) is None
