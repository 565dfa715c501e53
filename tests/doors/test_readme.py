"""The README's tour and its Python example run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.doors.shell import page_blocks, run_blocks

README = (ROOT / "README.md").read_text("utf-8")


def _tour() -> list[str]:
    return [line for block in page_blocks(README) for line in block.script.splitlines()]


@pytest.mark.long
@pytest.mark.model
def test_the_tour_of_the_readme_runs(tmp_path: Path) -> None:
    commands = _tour()
    assert len(commands) >= 15
    said = dict(zip(commands, run_blocks(commands, tmp_path), strict=True))
    assert '"id":"journal"' in said['duckkb find Note "what happens when the power fails"'].splitlines()[0]
    assert '"id":"backup"' in said['duckkb find Note "丢失数据" -m'].splitlines()[0]
    assert "1 file changed, 1 insertion(+), 1 deletion(-)" in said["git diff --stat"]
    assert said["duckkb get Note journal | jq -r .title"].strip() == "Write-ahead journal"
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0].startswith("journal")


def test_the_readme_begins_with_how_to_install_and_its_tour_needs_no_folder_of_the_clone() -> None:
    first = re.match(r"# duckkb\n\n```console\n(.*?)```", README, re.DOTALL)
    assert first is not None and "pip install -c constraints.txt '.[local]'" in first[1]
    assert "alias" not in README and not [line for line in _tour() if ".venv" in line]


def test_the_readme_is_two_screens_and_has_the_two_commands_of_a_clone() -> None:
    assert len(README.splitlines()) <= 140 and "`make demo`" in README and "`make test`" in README


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links and all((ROOT / link).exists() for link in links)
