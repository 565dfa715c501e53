"""Globs of callers: they name what git would ignore by the same line, and no pattern takes long."""

import random
import subprocess
from pathlib import Path

import pytest

from duckkb.documents import document, glob
from duckkb.ontology.model import DocumentSource
from duckkb.storage.document_parts import walk
from duckkb.types.errors import UsageError
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
        found = [path for path in paths if glob.matches(glob.parse_glob(pattern), path)]
        assert found == sorted(told.stdout.decode().split("\0")[:-1]), pattern
        named += len(found)
    assert named > 1_000


def test_what_files_of_ignored_names_leave_out_is_what_git_ignores(tmp_path: Path) -> None:
    chance = random.Random(8)
    git(tmp_path, "init", "-q")
    folders = ["", "a/", "a/b/", "ab/", "ab/a/", "b/a/b/"]
    paths = [f"docs/{folder}{name}" for folder in folders for name in ("a.md", "b.md", "aa", "a b", "x.md")]
    for path in paths:
        if not (tmp_path / path).is_dir():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
    pieces = ("a", "b", "ab", "*", "?", "**/", "[ab]", "/", ".md", "\\a", "x.md", "*.md", "docs/")
    left_out = kept = 0
    for _ in range(150):
        for folder in ("", "docs/", "docs/a/"):
            lines = [
                chance.choice(("", "", "!"))
                + "".join(chance.choices(pieces, k=chance.randint(1, 3)))
                + chance.choice(("", "", "/", "  "))
                for _ in range(chance.randint(0, 3))
            ]
            lines = [line for line in lines if "//" not in line and "***" not in line]
            (tmp_path / folder / ".gitignore").write_text("\n".join([*lines, "# a", ""]), "utf-8")
        if subprocess.run(["git", "check-ignore", "-q", "docs"], cwd=tmp_path, check=False).returncode == 0:
            continue  # a folder that is asked for is read
        asked = ["git", "ls-files", "-o", "-z", "--exclude-standard", "docs"]
        told = subprocess.run(asked, cwd=tmp_path, capture_output=True, check=True).stdout.decode().split("\0")[:-1]
        wanted = sorted(path for path in told if not path.endswith(".gitignore"))
        seen = [one[0] for one in walk(tmp_path, DocumentSource("docs", ("*",))) if isinstance(one, tuple)]
        shown = {str(file): file.read_text("utf-8") for file in tmp_path.rglob(".gitignore")}
        assert sorted(seen) == wanted, shown
        left_out, kept = left_out + len(paths) - len(wanted), kept + len(wanted)
    assert left_out > 500 and kept > 500


def test_braces_are_choices() -> None:
    globs = glob.parse_glob("{a,b/{c,d}}/*.md")
    assert [path for path in ("a/x.md", "b/c/x.md", "b/d/x.md", "b/x.md", "c/x.md") if glob.matches(globs, path)] == [
        "a/x.md",
        "b/c/x.md",
        "b/d/x.md",
    ]


@pytest.mark.parametrize("pattern", ["*?" * 400 + "!", "*a" * 400 + "!", "**/a/" * 180 + "!", "[a-z]*" * 160 + "!"])
def test_no_glob_goes_back_and_back(pattern: str) -> None:
    """Expressions of the usual form would take longer than the universe is old."""
    path = "/".join(["a" * 200, *"a" * 200])
    assert not glob.matches(glob.parse_glob(pattern), path)
    assert not document.matches((pattern,), path)


def test_a_line_of_a_collection_that_names_a_file_goes_before_those_of_its_folders() -> None:
    paths = ("a/x.md", "a/y.md", "a/b/x.md", "c/x.md", "c/y.txt")
    named = {
        ("a/", "!a/x.md"): ["a/y.md", "a/b/x.md"],
        ("!a/x.md", "a/"): ["a/y.md", "a/b/x.md"],
        ("*.md", "!a/"): ["a/x.md", "a/y.md", "a/b/x.md", "c/x.md"],
        ("a", "!a/b/"): ["a/x.md", "a/y.md"],
        ("!a/b/", "a"): ["a/x.md", "a/y.md", "a/b/x.md"],
        ("/a/*", "!x.md"): ["a/y.md"],
        ("!", "/", "#a", "c/**"): ["c/x.md", "c/y.txt"],
    }
    for lines, wanted in named.items():
        assert [path for path in paths if document.matches(lines, path)] == wanted, lines


@pytest.mark.parametrize("pattern", ["{a,b}" * 100, "a" * 1_001])
def test_what_stands_for_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="at most"):
        glob.parse_glob(pattern)
