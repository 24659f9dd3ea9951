import os
from pathlib import Path

import pytest

from soliton import atomic as atomic_module
from soliton.atomic import atomic_file, atomic_folder, recover_folder


def write(path: Path, text: str) -> None:
    with atomic_folder(path) as folder:
        (folder / "deep").mkdir()
        (folder / "a").write_text(text)
        (folder / "deep" / "b").write_text(text)


def read(path: Path) -> set[str]:
    return {(path / "a").read_text(), (path / "deep" / "b").read_text()}


def write_half(target, name: str) -> None:
    with target as path:
        (path / name).write_text("half")
        raise OSError("disk full")


def kill_at(operation: int, path: Path, text: str) -> bool:
    """Write in a child process that dies, without any cleanup, just before its n-th operation on the disk."""
    pid = os.fork()
    if pid == 0:
        try:
            die_before(operation)
            write(path, text)
            os._exit(0)
        finally:  # whatever happens, the child never goes on with the test run
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


def die_before(operation: int) -> None:
    count = 0

    def dying(original):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == operation:
                os._exit(9)
            return original(*arguments, **options)

        return call

    for owner, name in (
        (Path, "rename"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (atomic_module, "fsync_path"),
        (atomic_module.shutil, "rmtree"),
    ):
        setattr(owner, name, dying(getattr(owner, name)))


def test_a_folder_appears_with_all_its_contents_and_nothing_beside_it(tmp_path):
    write(tmp_path / "made" / "x", "new")
    assert read(tmp_path / "made" / "x") == {"new"}
    assert [entry.name for entry in (tmp_path / "made").iterdir()] == ["x"]


def test_an_existing_folder_is_replaced_wholly(tmp_path):
    path = tmp_path / "x"
    path.mkdir()
    (path / "stale").write_text("from before")
    write(path, "new")
    assert sorted(entry.name for entry in path.iterdir()) == ["a", "deep"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_an_exception_leaves_the_previous_folder_and_no_other(tmp_path):
    path = tmp_path / "x"
    write(path, "old")
    with pytest.raises(OSError, match="disk full"):
        write_half(atomic_folder(path), "a")
    assert read(path) == {"old"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_a_kill_at_any_moment_leaves_the_old_folder_or_the_new_one_and_never_a_mixture(tmp_path):  # fault J6
    survived = set()
    for operation in range(1, 100):
        path = tmp_path / str(operation) / "x"
        write(path, "old")
        killed = kill_at(operation, path, "new")
        recover_folder(path)
        (content,) = read(path)
        survived.add(content)
        assert [entry.name for entry in path.parent.iterdir()] == ["x"]
        if not killed:
            break
    assert not killed
    assert operation > 8
    assert survived == {"old", "new"}


def test_a_kill_while_a_first_folder_is_written_leaves_nothing_or_all(tmp_path):  # fault J6
    for operation in range(1, 100):
        path = tmp_path / str(operation) / "x"
        killed = kill_at(operation, path, "new")
        recover_folder(path)
        assert not path.exists() or read(path) == {"new"}
        if not killed:
            break
    assert not killed


def test_the_next_write_recovers_by_itself(tmp_path):
    path = tmp_path / "x"
    write(path, "old")
    path.rename(tmp_path / ".x.old")
    (tmp_path / ".x.new").mkdir()
    with pytest.raises(RuntimeError), atomic_folder(path):
        raise RuntimeError
    assert read(path) == {"old"}
    write(path, "new")
    assert read(path) == {"new"}


def test_recovering_where_nothing_is_left_does_nothing(tmp_path):
    recover_folder(tmp_path / "absent" / "x")
    assert list(tmp_path.iterdir()) == []


def test_everything_is_flushed_before_the_rename(tmp_path, monkeypatch):
    order = []
    fsync, rename = atomic_module.fsync_path, Path.rename
    monkeypatch.setattr(atomic_module, "fsync_path", lambda path: (order.append(path.name), fsync(path))[1])
    monkeypatch.setattr(Path, "rename", lambda old, new: (order.append("rename"), rename(old, new))[1])
    write(tmp_path / "x", "new")
    assert order == ["b", "deep", "a", ".x.new", "rename", tmp_path.name]


def test_what_needs_only_survive_the_process_is_not_flushed(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_module, "fsync_path", lambda path: pytest.fail(f"flushed {path}"))
    with atomic_folder(tmp_path / "x", "process") as folder:
        (folder / "a").write_text("new")
    with atomic_file(tmp_path / "f", "process") as file:
        file.write_text("new")
    assert (tmp_path / "x" / "a").read_text() == (tmp_path / "f").read_text() == "new"


def test_a_file_is_replaced_or_left_alone(tmp_path):
    path = tmp_path / "made" / "f"
    for text in ("old", "new"):
        with atomic_file(path) as file:
            file.write_text(text)
    with pytest.raises(OSError, match="disk full"):
        write_half(atomic_file(path), "")
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["f"]
