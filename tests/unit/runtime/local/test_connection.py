"""The file that says where a run's hub is."""

import stat
from pathlib import Path

import pytest

from soliton.errors import RunError
from soliton.runtime.local.connection import Connection

HERE = Connection(url="http://127.0.0.1:1", token="secret", run_id="r", controller=1, clock_origin_s=2.5)


def test_only_the_owner_can_read_the_token(tmp_path: Path):  # fault M7
    path = tmp_path / "hub.json"
    path.write_text("left by a killed run, readable by all")
    HERE.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Connection.read(path) == HERE


def test_no_file_means_that_no_run_is_going_on(tmp_path: Path):
    with pytest.raises(RunError, match="no run is going on there"):
        Connection.read(tmp_path / "hub.json")


def test_a_damaged_file_is_named(tmp_path: Path):
    (tmp_path / "hub.json").write_text("{")
    with pytest.raises(RunError, match=r"hub\.json is damaged.*--resume"):
        Connection.read(tmp_path / "hub.json")
