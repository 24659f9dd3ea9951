"""Slow: the quick study runs from warm start to verdicts, and what it checks holds (about ten minutes on two cores)."""

import subprocess
import sys
from pathlib import Path

import pytest

from soliton.study.quick import QUICK

pytestmark = pytest.mark.slow


def test_what_is_robust_about_the_paper_holds(tmp_path: Path):
    command = [sys.executable, "-m", "soliton", "study", "main", "--quick"]
    command += ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failing = [line for line in done.stdout.splitlines() if line.strip().startswith(("NOT REPRODUCED", "NOT TESTABLE"))]
    assert failing == [], done.stdout
    assert done.stdout.count("REPRODUCED: ") == len(QUICK.claims)
    assert (tmp_path / "out" / "study" / "quick.png").exists()
