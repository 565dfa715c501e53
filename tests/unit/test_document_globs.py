"""Globs of callers: they name what git would ignore by the same line, and no pattern takes long."""

import random
import subprocess
from pathlib import Path

import pytest

from duckkb.documents import glob
from duckkb.errors import UsageError
from tests.conftest import git

PIECES = ("a", "b", "ab", "*", "?", "**", "[ab]", "[!a]", "/", "/", "/**/", "\\*", ".md")


def test_a_glob_names_what_git_ignores_by_it(tmp_path: Path) -> None:
    chance = random.Random(5)
    git(tmp_path, "init", "-q")

    def drawn(letters: str, most: int) -> str:
        return "".join(chance.choice(letters) for _ in range(chance.randint(1, most)))

    paths = sorted({"/".join(drawn("ab*", 3) for _ in range(chance.randint(1, 4))) for _ in range(400)})
    named = 0
    for _ in range(60):
        pattern = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6))).replace("//", "/")
        if not pattern.strip("/") or "***" in pattern:
            continue
        (tmp_path / ".gitignore").write_text(f"{pattern}\n", "utf-8")
        asked = ["git", "check-ignore", "--no-index", "--stdin", "-z"]
        told = subprocess.run(asked, cwd=tmp_path, input="\0".join(paths).encode(), capture_output=True, check=False)
        found = [path for path in paths if glob.matches(glob.parsed(pattern), path)]
        assert found == sorted(told.stdout.decode().split("\0")[:-1]), pattern
        named += len(found)
    assert named > 1_000


def test_braces_are_choices() -> None:
    globs = glob.parsed("{a,b/{c,d}}/*.md")
    assert [path for path in ("a/x.md", "b/c/x.md", "b/d/x.md", "b/x.md", "c/x.md") if glob.matches(globs, path)] == [
        "a/x.md",
        "b/c/x.md",
        "b/d/x.md",
    ]


@pytest.mark.parametrize("pattern", ["*?" * 400 + "!", "*a" * 400 + "!", "**/a/" * 180 + "!", "[a-z]*" * 160 + "!"])
def test_no_glob_goes_back_and_back(pattern: str) -> None:
    """Expressions of the usual form would take longer than the universe is old."""
    assert not glob.matches(glob.parsed(pattern), "/".join(["a" * 200, *"a" * 200]))


@pytest.mark.parametrize("pattern", ["{a,b}" * 100, "a" * 1_001])
def test_what_stands_for_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="at most"):
        glob.parsed(pattern)
