"""Files that git keeps out of the work tree are not deleted: reads say so, writes wait for them, and `check` fails."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes

PART = "data/nodes/note/20260105/part_001.jsonl"
TIMES = {"__created_at": "2026-01-05T00:00:00.000000Z", "__updated_at": "2026-01-05T00:00:00.000000Z"}
NOTE, PERSON = {"__id": 1, "id": "a", **TIMES}, {"__id": 2, "country": "CHE", "number": 1, "name": "x", **TIMES}
MORE = "nodes: {More: {table: more, identity: id, schema: {type: object, properties: {id: {type: string}}}}}\n"
Hide = Callable[[Path, str], object]


@pytest.fixture(params=["", "kb/"], ids=["at the top", "in a folder"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A note and a person; the base is the repository, or a folder of it."""
    top = tmp_path / "top"
    root = make_base(top / request.param, NOTES)
    if request.param:
        (root / ".git").rename(top / ".git")
    for path, record in ((PART, NOTE), (PART.replace("note", "person"), PERSON)):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(json.dumps(record, separators=(",", ":")) + "\n", "utf-8")
    (root / "ontology").mkdir()
    (root / "ontology/more.yaml").write_text(MORE, "utf-8")
    (top / "other").mkdir()
    (top / "other/page.txt").write_text("x\n", "utf-8")
    commit(top)
    return root


def _by_hand(root: Path, prefix: str) -> None:
    git(root, "update-index", "--skip-worktree", PART)
    (root / PART).unlink()


def _top(root: Path) -> Path:
    return Path(git(root, "rev-parse", "--show-toplevel").strip())


def _patterns(root: Path, prefix: str) -> None:
    git(_top(root), "sparse-checkout", "set", "--no-cone", "/*", f"!/{prefix}data/nodes/note/")


def _cone(root: Path, prefix: str, *more: str) -> None:
    kept = [f"{prefix}{folder}" for folder in ("ontology", "data/nodes/person")]
    git(_top(root), "sparse-checkout", "set", "--cone", *more, "other", *kept)


def _sparse_index(root: Path, prefix: str) -> None:
    _cone(root, prefix, "--sparse-index")


def _remedy(root: Path) -> str:
    (found,) = run_in(root, ["check", "--format", "jsonl"]).lines
    assert (found["code"], found["path"]) == ("E_SPARSE", PART)
    return str(found["remedy"])


@pytest.mark.long
@pytest.mark.parametrize("hide", [_by_hand, _sparse_index, _patterns, _cone])
def test_what_a_checkout_leaves_out_is_said_and_not_written_over(base: Path, hide: Hide) -> None:
    hide(base, git(base, "rev-parse", "--show-prefix").strip())
    assert not (base / PART).exists()
    before = tree_bytes(base)
    for args in (["list", "Person"], ["list", "Note"], ["status"], ["get", "Note", "a"], ["export", "Note"]):
        assert "W_PARTIAL" in run_in(base, args).err, args
    for args in (["put", "Note", '{"id": "a"}'], ["fmt"], ["delete", "Person", '["CHE",1]'], ["merge", "HEAD"]):
        ran = run_in(base, [*args, "--json"])
        assert (ran.code, ran.error["code"]) == (1, "E_SPARSE"), args
    assert tree_bytes(base) == before
    subprocess.run(["bash", "-c", _remedy(base)], cwd=base, check=True, capture_output=True)
    done = run_in(base, ["put", "Note", '{"id": "a", "title": "t"}'])
    assert (done.line["updated"], "W_PARTIAL" in done.err) == (1, False)
    assert run_in(base, ["check"]).code == 0


def test_a_linked_work_tree_has_a_sparse_checkout_of_its_own(base: Path, tmp_path: Path) -> None:
    prefix = git(base, "rev-parse", "--show-prefix").strip()
    git(base, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    linked = tmp_path / "linked" / prefix
    git(base, "config", "extensions.worktreeConfig", "true")
    _patterns(linked, prefix)
    assert run_in(linked, ["put", "Note", '{"id": "a"}']).code == 1
    assert run_in(base, ["put", "Note", '{"id": "b"}']).code == 0


def test_what_git_does_not_look_at_is_a_warning_though_it_is_there(base: Path) -> None:
    for bit in ("skip-worktree", "assume-unchanged"):
        git(base, "update-index", f"--{bit}", PART)
        (found,) = run_in(base, ["check", "--format", "jsonl"]).lines
        assert (found["code"], found["path"]) == ("W_UNWATCHED", PART)
        subprocess.run(["bash", "-c", found["remedy"]], cwd=base, check=True, capture_output=True)
    assert run_in(base, ["check"]).out == ""


@pytest.mark.parametrize("committed", [False, True], ids=["staged", "committed"])
def test_what_git_tracks_no_longer_is_an_error_where_it_still_lies_here(base: Path, committed: bool) -> None:
    git(base, "rm", "-q", "-r", "--cached", "data/nodes")
    if committed:
        git(base, "commit", "-q", "-m", "gone")
    found = run_in(base, ["check", "--format", "jsonl"]).lines
    assert [(one["code"], one["path"]) for one in found] == [
        ("E_UNTRACKED", PART),
        ("E_UNTRACKED", PART.replace("note", "person")),
    ]
    for one in found:
        subprocess.run(["bash", "-c", one["remedy"].split("`")[1]], cwd=base, check=True, capture_output=True)
    assert run_in(base, ["check"]).out == ""


@pytest.mark.parametrize("ignored", [False, True], ids=["open", "ignored"])
def test_a_file_that_git_ignores_among_others_that_it_tracks_is_left_out_on_purpose(base: Path, ignored: bool) -> None:
    git(base, "rm", "-q", "--cached", PART)
    if ignored:
        with (base / ".gitignore").open("a") as file:
            file.write(f"{PART}\n")
    found = run_in(base, ["check", "--format", "jsonl"]).lines
    assert [(one["code"], one["path"]) for one in found] == ([] if ignored else [("E_UNTRACKED", PART)])


def test_records_that_git_ignores_altogether_are_told(base: Path) -> None:
    git(base, "rm", "-q", "-r", "--cached", "data")
    (base / ".gitignore").write_text("data/\n")
    found = run_in(base, ["check", "--format", "jsonl"]).lines
    assert ("E_UNTRACKED", PART) in [(one["code"], one["path"]) for one in found]


def test_a_file_that_git_never_had_is_new(base: Path) -> None:
    git(base, "rm", "-q", PART)
    git(base, "commit", "-q", "-m", "deleted")
    (base / PART).parent.mkdir(parents=True)
    (base / PART).write_text(
        json.dumps({**NOTE, "__id": 3, "id": "新"}, separators=(",", ":"), ensure_ascii=False) + "\n"
    )
    assert run_in(base, ["put", "Note", '{"id": "b"}']).code == 0
    assert run_in(base, ["check"]).out == ""


def test_a_type_whose_file_is_left_out_is_not_told_as_unknown_in_silence(base: Path) -> None:
    git(base, "update-index", "--skip-worktree", "ontology/more.yaml")
    (base / "ontology/more.yaml").unlink()
    ran = run_in(base, ["list", "More"])
    assert ran.code == 1 and "W_PARTIAL" in ran.err and "ontology/more.yaml" in ran.err
    assert run_in(base, ["put", "Note", '{"id": "b"}']).code == 1


def test_a_sparse_checkout_of_other_folders_hinders_nobody(base: Path) -> None:
    git(_top(base), "sparse-checkout", "set", "--no-cone", "/*", "!/other/")
    done = run_in(base, ["put", "Note", '{"id": "b"}'])
    assert (done.code, done.err) == (0, "")


def test_a_partial_clone_is_told_the_command_that_fetches_what_it_lacks(base: Path, tmp_path: Path) -> None:
    prefix = git(base, "rev-parse", "--show-prefix").strip()
    assert run_in(base, ["put", "Note", '{"id": "a", "title": "new"}']).code == 0
    commit(_top(base))
    git(_top(base), "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{_top(base)}", "partial")
    root = tmp_path / "partial" / prefix
    assert run_in(root, ["get", "Note", "a"]).code == 0
    for args in (["get", "Note", "a", "--at", "HEAD~1"], ["diff", "HEAD~1"]):
        ran = run_in(root, [*args, "--json"])
        assert (ran.code, ran.error["code"]) == (1, "E_GIT"), args
    git(root, *str(ran.error["suggestion"]).split(" ")[1:])
    assert run_in(root, ["get", "Note", "a", "--at", "HEAD~1"]).code == 0
    assert "new" in run_in(root, ["diff", "HEAD~1"]).out
