"""Folders of document collections as they are found on disks: parts of them shut, gone, ignored, hidden, or of another form."""

import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in, without_roots_rights
from tests.harness.files import docx

CONFIG = "global: {embedding_model: none}\nnodes:\n  Note: {identity: id, schema: {properties: {id: {type: string}}}}\n"


def _base(tmp_path: Path, files: Mapping[str, str | bytes]) -> Path:
    root = make_base(tmp_path / "kb", CONFIG)
    git(root, "init", "-q")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def _paths(ran: Ran) -> list[Any]:
    return [line["path"] for line in ran.lines]


@pytest.fixture
def shut(tmp_path: Path) -> Iterator[Path]:
    """A base of two collections; of one of them a folder and a file can be read by nobody."""
    files = {"docs/a.md": "apple", "docs/b.md": "berry", "docs/d/x.md": "deep", "说明/o.md": "apple 苹果"}
    root = _base(tmp_path, files)
    for folder in ("docs", "说明"):
        assert run_in(root, ["collection", "add", folder, "--name", "docs" if folder == "docs" else "guide"]).code == 0
    assert run_in(root, ["update"]).code == 0
    for path in ("docs/d", "docs/b.md"):
        (root / path).chmod(0)
    yield root
    for path in ("docs/d", "docs/b.md"):
        (root / path).chmod(0o755)


@pytest.mark.long
def test_what_cannot_be_read_is_named_and_all_else_is_served_and_written(shut: Path) -> None:
    before = [*without_roots_rights(), sys.executable, "-m", "duckkb"]

    def run(*args: str) -> Ran:
        done = subprocess.run([*before, *args], cwd=shut, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    updated = run("update")
    assert updated.code == 0 and "docs/d" in updated.err and "policy" not in updated.err
    assert [(line["removed"], line["left_out"]) for line in updated.lines] == [(0, {"unreadable": 2}), (0, {})]
    assert run("search", "apple").code == 0
    assert _paths(run("ls", "guide")) == ["guide/o.md"] and _paths(run("ls", "docs")) == ["docs/a.md"]
    assert run("put", "Note", '{"id": "1"}').code == 0 and run("get", "Note", "1").code == 0
    checked = run("check")
    assert (
        checked.code == 1
        and "docs/d E_IO" in checked.out + checked.err
        and "docs/b.md E_IO" in checked.out + checked.err
    )
    assert {line["path"]: line.get("left_out") for line in run("ls", "docs", "--long").lines} == {
        "docs/a.md": None,
        "docs/b.md": "unreadable",
        "docs/d/": "unreadable",
    }
    (documents,) = [line for line in run("doctor").lines if line["check"] == "documents"]
    assert documents["status"] == "error"
    for path in ("docs/d", "docs/b.md"):
        (shut / path).chmod(0o755)
    again = run("update")
    assert [(line["added"], line["unchanged"]) for line in again.lines] == [(0, 3), (0, 1)], (
        "none was taken for deleted"
    )


@pytest.mark.long
def test_the_documents_of_a_folder_that_is_gone_are_not_taken_for_deleted(tmp_path: Path) -> None:
    root = _base(tmp_path, {"docs/a.md": "apple", "docs/d/b.md": "berry", "guide/o.md": "orange"})
    for folder in ("docs", "guide"):
        assert run_in(root, ["collection", "add", folder]).code == 0
    assert run_in(root, ["update"]).code == 0
    (root / "docs").rename(root / "away")
    updated = run_in(root, ["update", "--json"])
    assert updated.code == 1 and updated.error["code"] == "E_SOURCE_MISSING"
    assert [line["removed"] for line in updated.line["collections"]] == [0, 0]
    checked = run_in(root, ["check", "--json"])
    assert checked.code == 1 and [one["code"] for one in checked.line["findings"]] == ["E_SOURCE_MISSING"]
    listed = run_in(root, ["ls", "docs"])
    assert "E_SOURCE_MISSING" in listed.err and "duckkb collection remove docs" in listed.err
    (documents,) = [line for line in run_in(root, ["doctor"]).lines if line["check"] == "documents"]
    assert documents["status"] == "error" and "E_SOURCE_MISSING" in documents["message"]
    assert run_in(root, ["search", "orange"]).code == 0 and run_in(root, ["put", "Note", '{"id": "1"}']).code == 0
    (root / "away").rename(root / "docs")
    again = run_in(root, ["update"])
    assert again.code == 0 and [line["unchanged"] for line in again.lines] == [2, 1]
    shutil.rmtree(root / "docs")
    assert run_in(root, ["collection", "remove", "docs"]).code == 0 and run_in(root, ["check"]).code == 0


LAID = {
    ".gitignore": "# built\n/docs/out/*\n!/docs/out/kept.md\n*.tmp.md\nbuild2/\n",
    "docs/.gitignore": "!fine.tmp.md\nprivate.md\n",
    "docs/a.md": "a",
    "docs/fine.tmp.md": "a",
    "docs/bad.tmp.md": "a",
    "docs/sub/private.md": "a",
    "docs/build2/b.md": "a",
    "docs/out/made.md": "a",
    "docs/out/kept.md": "a",
    "docs/.obsidian/o.md": "a",
    "docs/.trash/t.md": "a",
    "docs/.dot.md": "a",
    "docs/inner/i.md": "a",
    "docs/图.png": b"\x89PNG",
    "docs/node_modules/n.md": "a",
}
SERVED = ["docs/a.md", "docs/fine.tmp.md", "docs/out/kept.md"]


def test_what_git_ignores_hidden_names_and_repositories_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    root = _base(tmp_path, LAID)
    git(root / "docs/inner", "init", "-q")
    added = run_in(root, ["collection", "add", "docs"])
    counts = {"gitignore": 4, "hidden": 4, "pattern": 1, "repository": 1, "reserved": 1}
    assert (added.line["documents"], added.line["left_out"]) == (3, counts)
    assert "build2/" in added.err and ".obsidian/" in added.err and "inner/" in added.err
    assert _paths(run_in(root, ["ls", "docs"])) == SERVED
    assert run_in(root, ["update"]).line["left_out"] == counts
    long = {line["path"]: line.get("left_out") for line in run_in(root, ["ls", "docs", "--long"]).lines}
    assert (long["docs/.trash/"], long["docs/sub/private.md"], long["docs/图.png"]) == (
        "hidden",
        "gitignore",
        "pattern",
    )

    definition = root / "ontology/collections/docs.yaml"
    sound = definition.read_text("utf-8")
    at = sound.index("    source:\n") + len("    source:\n")

    def served(line: str) -> list[str]:
        definition.write_text(f"{sound[:at]}      {line}\n{sound[at:]}", "utf-8")
        return [path for path in _paths(run_in(root, ["ls", "docs"])) if path not in SERVED]

    assert served("hidden: true") == ["docs/.dot.md", "docs/.obsidian/o.md", "docs/.trash/t.md"]
    assert served("gitignore: false") == [
        "docs/bad.tmp.md",
        "docs/build2/b.md",
        "docs/inner/i.md",
        "docs/out/made.md",
        "docs/sub/private.md",
    ]
    definition.write_text(sound, "utf-8")
    (root / "docs/.gitignore").write_text("a.md\n", "utf-8")
    assert _paths(run_in(root, ["ls", "docs"])) == ["docs/out/kept.md", "docs/sub/private.md"], "as it is now"


def test_a_folder_without_a_matching_file_names_the_commands_that_read_it(tmp_path: Path) -> None:
    raw = docx.document(docx.plain("harvest"))
    root = _base(tmp_path, {"my papers/a.docx": raw, "my papers/b.DOCX": raw, "my papers/x.bin": b"\0"})
    added = run_in(root, ["collection", "add", "my papers", "--name", "papers"])
    assert added.line["documents"] == 0
    (line,) = [line for line in added.err.splitlines() if line.startswith("to read the existing files: ")]
    for command in line.removeprefix("to read the existing files: ").split(" && "):
        done = run_in(root, shlex.split(command)[1:])
        assert done.code == 0, done.err
    assert _paths(run_in(root, ["ls", "papers"])) == ["papers/a.docx", "papers/b.DOCX"]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system has one form for both names")
def test_names_in_the_form_of_macos_are_documents_like_any_other(tmp_path: Path) -> None:
    plain, apart = "café.md", unicodedata.normalize("NFD", "café.md")
    root = _base(tmp_path, {f"docs/{apart}": "# Coffee\n", "docs/a.md": f"[one](café.md) [two]({apart})\n"})
    assert run_in(root, ["collection", "add", "docs"]).line["documents"] == 2
    for name in (plain, apart):
        assert run_in(root, ["get", f"docs/{name}"]).out == "# Coffee\n"
        assert run_in(root, ["ls", f"docs/{name}"]).code == 0
        assert run_in(root, ["get", "docs", name]).line["title"] == "Coffee"
    assert run_in(root, ["check"]).code == 0, "both links lead to it"
    (root / "docs" / plain).write_text("# Twin\n", "utf-8")
    assert len([*(root / "docs").iterdir()]) == 3
    checked = run_in(root, ["check", "--json"]).line["findings"]
    assert [(one["code"], one["path"]) for one in checked] == [("W_DOCUMENT", f"docs/{apart}")]
    assert run_in(root, ["get", f"docs/{plain}"]).out == "# Twin\n"


def test_update_pulls_every_folder_and_names_those_that_it_could_not_pull(tmp_path: Path) -> None:
    root = _base(tmp_path, {"0-plain/a.md": "apple"})
    origins = {name: make_base(tmp_path / name, CONFIG) for name in ("1-alone", "2-diverged", "3-behind")}
    for name, origin in origins.items():
        (origin / "a.md").write_text("apple", "utf-8")
        commit(origin)
        git(tmp_path, "clone", "-q", str(origin), str(root / name))
        (origin / "a.md").write_text("apricot", "utf-8")
        commit(origin)
    git(root / "1-alone", "branch", "-q", "--unset-upstream")
    (root / "2-diverged/a.md").write_text("almond", "utf-8")
    commit(root / "2-diverged")
    (root / ".gitignore").write_text("/[1-3]-*\n", "utf-8")
    for name in ("0-plain", *origins):
        assert run_in(root, ["collection", "add", name, "--name", f"c{name[0]}"]).code == 0
    assert run_in(root, ["update"]).code == 0
    ran = run_in(root, ["update", "--pull"])
    (notice,) = [line for line in ran.err.splitlines() if line.startswith("W_UPDATE: nothing was pulled")]
    assert "c1 (1-alone): without an upstream branch" in notice and "c2" not in notice and "c3" not in notice
    assert ran.code == 1 and "c2: git pull ended with" in ran.err
    assert (root / "3-behind/a.md").read_text("utf-8") == "apricot"
    assert {line["name"]: line["changed"] for line in ran.lines} == {"c0": 0, "c1": 0, "c2": 0, "c3": 1}


def test_an_update_command_that_fails_keeps_no_other_from_running(tmp_path: Path) -> None:
    root = _base(tmp_path, {"one/a.md": "apple", "two/a.md": "apple"})
    for name, command in (("one", "exit 7"), ("two", "echo pear > b.md")):
        assert run_in(root, ["collection", "add", name]).code == 0
        assert run_in(root, ["update", name]).code == 0
        assert run_in(root, ["collection", "update-cmd", name, command]).code == 0
    assert run_in(root, ["trust"]).code == 0
    ran = run_in(root, ["update"])
    assert ran.code == 1 and "one: the update command ended with 7" in ran.err
    assert {line["name"]: line["added"] for line in ran.lines} == {"one": 0, "two": 1}
