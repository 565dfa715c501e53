"""What duckkb ships for others to run it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_service_is_one_to_systemd(tmp_path: Path) -> None:
    unit = (ROOT / "packaging/duckkb@.service").read_text("utf-8").replace("/opt/duckkb/bin/duckkb", "/bin/true")
    (tmp_path / "duckkb@notes.service").write_text(unit, "utf-8")
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "duckkb@notes.service")],
        capture_output=True,
        text=True,
    )
    assert (said.returncode, said.stderr) == (0, "")
