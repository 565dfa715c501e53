"""What .gitignore files leave out of a collection is the same in the work tree, in the index and as of a commit."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from duckkb.documents.document import find_inner_path, is_document
from duckkb.ontology.model import DocumentSource, NodeType
from duckkb.storage import revisions
from duckkb.storage.document_parts import IgnoreFiles, places_above, walk
from tests.conftest import git, make_base, run_in

NOTES = "global: {embedding_model: none}\nnodes:\n  Note: {identity: id, schema: {properties: {id: {type: string}}}}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A base in a folder of a repository; the first commit has no .gitignore, the second one names documents that git tracks."""
    root = make_base(tmp_path / "top/kb", NOTES)
    shutil.move(root / ".git", tmp_path / "top")
    for path, text in {
        "a.md": "# 苹果\n[u](sub/u.md)\n",
        "secret.md": "# hidden\n[a](a.md)\n",
        "sub/u.md": "# under\n",
    }.items():
        (root / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "docs" / path).write_text(text, "utf-8")
    assert run_in(root, ["collection", "add", "docs"]).line["documents"] == 3
    _commit(root, "whole")
    (tmp_path / "top/.gitignore").write_text("secret.md\nloose.md\n", "utf-8")
    (root / "docs/sub/.gitignore").write_text("*\n", "utf-8")
    git(root, "add", "-f", ":/.gitignore", "docs/sub/.gitignore")
    _commit(root, "ignore")
    (root / "docs/loose.md").write_text("# never added\n", "utf-8")
    return root


def _commit(root: Path, message: str) -> None:
    git(root, "add", "-A", ":/")
    git(root, "commit", "-q", "-m", message)


def _paths(root: Path, *options: str) -> list[Any]:
    return [line["path"] for line in run_in(root, ["find", "docs", "-w", "1=1", *options]).lines]


@pytest.mark.long
def test_a_file_that_git_tracks_and_ignores_is_no_document_in_any_state(root: Path) -> None:
    assert _paths(root) == _paths(root, "--at", "HEAD") == ["a.md"]
    assert _paths(root, "--at", "HEAD^") == ["a.md", "secret.md", "sub/u.md"]
    for compared in ((), ("--staged",), ("HEAD..HEAD",)):
        assert run_in(root, ["diff", *compared, "--json"]).line["changes"] == [], compared
    checked = run_in(root, ["check", "--since", "HEAD", "--json"])
    assert (checked.code, checked.line["findings"]) == (0, [])
    (root / "docs/secret.md").write_text("# changed\n", "utf-8")
    git(root, "add", "docs/secret.md")
    assert run_in(root, ["diff", "--staged", "--json"]).line["changes"] == []
    assert run_in(root, ["diff", "--json"]).line["changes"] == []


def test_a_commit_that_ignores_documents_is_the_one_that_removed_them(root: Path) -> None:
    def changes(*options: str) -> list[tuple[str, Any]]:
        told = run_in(root, ["diff", *options, "--json"]).line["changes"]
        return [(one["op"], one["identity"]) for one in told if one["type"] == "docs"]

    gone = [("delete", "secret.md"), ("delete", "sub/u.md")]
    assert changes("HEAD^..HEAD") == changes("HEAD^", "--staged") == changes("HEAD^") == gone
    assert changes("HEAD..HEAD^") == [("insert", "secret.md"), ("insert", "sub/u.md")]
    assert [(line["op"], line["summary"]) for line in run_in(root, ["log", "docs", "secret.md"]).lines] == [
        ("delete", "ignore"),
        ("insert", "whole"),
    ]
    (root.parent / ".gitignore").write_text("loose.md\n", "utf-8")
    assert changes() == [("insert", "secret.md")]
    _commit(root, "serve")
    assert [(line["op"], line["summary"]) for line in run_in(root, ["log", "docs", "secret.md"]).lines] == [
        ("insert", "serve"),
        ("delete", "ignore"),
        ("insert", "whole"),
    ]
    (blamed,) = run_in(root, ["blame", "docs", "secret.md"]).lines[:1]
    assert blamed["summary"] == "serve"
    counted = run_in(root, ["growth", "--json"]).line["commits"]
    assert [commit["types"]["docs"]["records"] for commit in counted] == [3, 1, 2]


def test_a_collection_that_heeds_no_gitignore_serves_what_it_names_in_any_state(root: Path) -> None:
    definition = root / "ontology/collections/docs.yaml"
    sound = definition.read_text("utf-8")
    definition.write_text(sound.replace("source:\n", "source:\n      gitignore: false\n"), "utf-8")
    (root / "docs/loose.md").unlink()
    _commit(root, "heed none")
    assert _paths(root) == _paths(root, "--at", "HEAD") == ["a.md", "secret.md", "sub/u.md"]
    assert run_in(root, ["diff", "--json"]).line["changes"] == []


@pytest.mark.long
def test_work_tree_and_commit_serve_the_same_documents(tmp_path: Path) -> None:
    """Of drawn .gitignore files above, in and below the folder of a collection."""
    chance = random.Random(13)
    top, root = tmp_path, tmp_path / "x/kb"
    git(top, "init", "-q")
    folders = ("docs", "docs/a", "docs/a/b", "docs/.h", "docs/图")
    for folder in folders:
        for name in ("a.md", "b.md", "x y.md", ".dot.md"):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / name).write_text(f"# {folder}/{name}\n", "utf-8")
    (root / "a.md").write_text("# top\n", "utf-8")
    git(top, "add", "-A")
    pieces = ("a", "b", "*", "?", "**/", "[ab]", "/", ".md", "x*", "*.md", "docs/", "kb/", "图")
    served = left_out = 0
    for _ in range(60):
        for folder in ("", "x", "x/kb", *(f"x/kb/{one}" for one in folders)):
            _draw(chance, pieces, top / folder / ".gitignore")
        git(top, "add", "-A", "-f")
        at = revisions.Revision("drawn", "", git(top, "write-tree").strip())
        for source in (
            DocumentSource("docs"),
            DocumentSource("docs", ("*",), hidden=True),
            DocumentSource("."),
            DocumentSource(".", ("*",), hidden=True),
            DocumentSource("docs/a", gitignore=False),
        ):
            kind = NodeType("docs", "docs", ("path",), {}, source=source)
            entries = revisions.entries(root, at, (source.path, *places_above(root, [kind])))
            ignored = IgnoreFiles.read(root, entries)
            inner = {path: find_inner_path(source, path) for path in entries if not ignored.leaves_out(source, path)}
            as_committed = sorted(path for path, own in inner.items() if own and is_document(source, own))
            on_disk = sorted(seen[0] for seen in walk(root, source) if isinstance(seen, tuple))
            assert on_disk == as_committed, {str(file): file.read_text("utf-8") for file in top.rglob(".gitignore")}
            served, left_out = served + len(on_disk), left_out + len(entries) - len(on_disk)
    assert served > 500 and left_out > 500


def _draw(chance: random.Random, pieces: Sequence[str], file: Path) -> None:
    """Write a .gitignore of some lines, or none."""
    file.unlink(missing_ok=True)
    lines = [
        chance.choice(("", "", "!")) + "".join(chance.choices(pieces, k=chance.randint(1, 3)))
        for _ in range(chance.randint(0, 3))
    ]
    if lines:
        file.write_text("\n".join(lines), "utf-8")
