"""Patches as text: equal to git's own, and taken by `git apply`."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.storage import bundle

LINES = [f'{{"id":"{n}","text":"第{n}行"}}\n'.encode() for n in range(40)]
MANY = b"".join(LINES)
Change = tuple[str, bytes | None, bytes | None]

CASES: dict[str, list[Change]] = {
    "changed": [("data/nodes/note/20260101/part_007.jsonl", MANY, MANY.replace("第7行".encode(), "改过".encode()))],
    "added": [("data/nodes/note/20260101/part_007.jsonl", None, MANY)],
    "deleted": [("data/nodes/note/20260101/part_007.jsonl", MANY, None)],
    "added empty": [("data/a", None, b"")],
    "deleted empty": [("data/a", b"", None)],
    "emptied": [("data/a", b"x\n", b"")],
    "filled": [("data/a", b"", b"x\n")],
    "no final newline": [("data/a", b"x\ny", b"x\nz")],
    "final newline gained": [("data/a", b"x\ny", b"x\ny\n")],
    "final newline lost": [("data/a", b"x\ny\n", b"x\ny")],
    "carriage returns and separators": [("data/a", b"x\ry\r\nz\n", "x\ry\r\nz\u2028\x0cw\n".encode())],
    "names to quote": [('data/笔 记"\\\t', b"x\n", b"y\n"), ("data/a b", None, b"y\n"), ("data/a", b"y\n", None)],
    "two hunks": [("data/a", MANY, MANY.replace(LINES[2], b"").replace(LINES[30], b"new\n" + LINES[30]))],
    "several files": [("data/b", b"1\n", b"2\n"), ("data/a", b"1\n", None), ("data/c/d", None, b"1\n")],
    "binary": [("data/a", b"\0old", b"\0new")],
}


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True, check=True).stdout


def lay_out(root: Path, changes: list[Change], side: int) -> None:
    for change in changes:
        path, data = root / change[0], change[side]
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def committed(root: Path, changes: list[Change]) -> Path:
    git(root, "init", "-q")
    lay_out(root, changes, 1)
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "old")
    return root


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_a_diff_is_what_git_shows_in_a_real_repository(tmp_path: Path, changes: list[Change]) -> None:
    committed(tmp_path, changes)
    lay_out(tmp_path, changes, 2)
    git(tmp_path, "add", "-A")
    assert bundle.format_patch(changes) == git(tmp_path, "diff", "-U1", "--cached", "--no-renames").decode()


def test_no_change_is_no_text() -> None:
    assert bundle.format_patch([]) == bundle.format_patch([("data/a", b"x", b"x")]) == ""


contents = st.none() | st.lists(st.sampled_from([b"a\n", b"b\n", "中\n".encode(), b"\n", b"end", b"\r\n"])).map(
    b"".join
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(["data/a", "data/b c", "data/笔"]), st.tuples(contents, contents)))
def test_git_applies_a_diff(
    tmp_path_factory: pytest.TempPathFactory, pairs: dict[str, tuple[bytes | None, bytes | None]]
) -> None:
    changes = [(path, old, new) for path, (old, new) in sorted(pairs.items())]
    root = committed(tmp_path_factory.mktemp("apply"), changes)
    text = bundle.format_patch(changes)
    if text:
        git(root, "apply", "--whitespace=nowarn", stdin=text.encode())
    for path, _, new in changes:
        assert ((root / path).read_bytes() if (root / path).exists() else None) == new
