"""propose: changes become a commit on a branch; files, index and HEAD stay as they are. And who must propose."""

import json
import shutil
from pathlib import Path

import pytest

from duckkb.app import KnowledgeBase
from duckkb.operations.git_branches import Proposing, Wish
from duckkb.review.verdict import Remote, build_opening
from duckkb.types.errors import Conflict
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

CONFIG = NOTES.replace(
    "    identity: [country, number]\n", "    identity: [country, number]\n    review: required\n", 1
).replace(
    "status: {type: string, enum: [draft, final]}", "status: {type: string, enum: [draft, final], x-review: required}"
)
AGENT = {"DUCKKB_AGENT": "1"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two notes and a person, committed, with something under way in files and index."""
    root = make_base(tmp_path_factory.mktemp("propose") / "kb", CONFIG)
    for kind, record in (
        ("Note", {"id": "n1", "title": "one"}),
        ("Note", {"id": "n2", "title": "two"}),
        ("Person", {"country": "CN", "number": 1, "name": "沈括"}),
    ):
        assert run_in(root, ["put", kind, json.dumps(record)]).code == 0
    commit(root)
    assert run_in(root, ["put", "Note", '{"id":"mine","title":"not committed"}']).code == 0
    (root / "staged.txt").write_text("staged\n", "utf-8")
    git(root, "add", "staged.txt")
    return root


@pytest.fixture
def kb(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "kb")
    git(tmp_path / "kb", "status")  # the index learns the times of the copies
    return tmp_path / "kb"


def _state(root: Path) -> tuple[str, ...]:
    index = (root / ".git/index").read_bytes().hex()
    files = "".join(path.read_bytes().hex() for path in sorted((root / "data").rglob("*.jsonl")))
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        git(root, "status", "--porcelain"),
        index,
        files,
    )


def _proposed(root: Path, *args: str, stdin: str = "") -> Ran:
    """A proposal, after which nothing but its branch is new."""
    before = _state(root)
    ran = run_in(root, ["propose", *args], stdin=stdin)
    assert _state(root) == before
    return ran


def _records(root: Path, ref: str, kind: str = "Note") -> dict[str, str]:
    ran = run_in(root, ["list", kind, "--at", ref])
    return {one["id"]: one["title"] for one in ran.lines}


def test_a_put_becomes_a_commit_on_a_new_branch(kb: Path) -> None:
    line = _proposed(kb, "put", "Note", '{"id":"n1","title":"better"}').line
    assert line["updated"] == 1 and line["branch"].startswith("propose/put-note-")
    assert line["base"] == git(kb, "rev-parse", "HEAD").strip() == git(kb, "rev-parse", f"{line['commit']}^").strip()
    assert _records(kb, line["branch"]) == {"n1": "better", "n2": "two"}
    changed = git(kb, "diff", "--name-only", "HEAD", line["commit"]).split()
    assert changed == line["files"]
    assert (
        len(
            [row for row in git(kb, "diff", "-U0", "HEAD", line["commit"]).splitlines() if row.startswith(("+{", "-{"))]
        )
        == 2
    )


def test_all_verbs_that_write_can_be_proposed_and_a_branch_goes_on(kb: Path) -> None:
    (kb / "more.jsonl").write_text('{"id":"n3","title":"three"}\n{"id":"n4","title":"four"}\n', "utf-8")
    for args in (["import", "Note", "more.jsonl"], ["delete", "Note", "n2"], ["rename", "Note", "n1", "first"]):
        assert _proposed(kb, "--branch", "topic", *args).code == 0, args
    _proposed(kb, "--branch", "topic", "-m", "a message", "put", "Note", stdin='{"id":"n5","title":"five"}\n')
    assert _records(kb, "topic") == {"first": "one", "n3": "three", "n4": "four", "n5": "five"}
    assert git(kb, "rev-list", "--count", "main..topic").strip() == "4"
    assert git(kb, "log", "-1", "--format=%s", "topic").strip() == "a message"
    assert run_in(kb, ["check"]).code == 0


def test_a_branch_that_was_merged_starts_from_head_again(kb: Path) -> None:
    git(kb, "branch", "topic")
    git(kb, "commit", "-q", "--allow-empty", "-m", "later")
    assert _refusal(_proposed(kb, "--json", "--branch", "topic", "put", "Note", '{"id":"n9"}'))
    line = _proposed(kb, "--branch", "topic", "--continue", "put", "Note", '{"id":"n9"}').line
    assert line["base"] == git(kb, "rev-parse", "HEAD").strip()
    assert (
        _proposed(kb, "--branch", "other", "--base", "HEAD~1", "delete", "Note", "n1").line["base"]
        == git(kb, "rev-parse", "HEAD~1").strip()
    )


def _refusal(ran: Ran) -> str:
    assert (ran.code, ran.error["code"]) == (1, "E_REFUSED"), ran.err
    return str(ran.error["error"] + ran.error["suggestion"])


def test_a_branch_that_somebody_else_made_or_changed_is_continued_only_when_told_to(kb: Path) -> None:
    add = ["put", "Note", '{"id":"n9","title":"%s"}']

    def propose(title: str, *args: str) -> Ran:
        return _proposed(kb, "--json", *args, *add[:2], add[2] % title)

    git(kb, "branch", "theirs")
    git(kb, "update-ref", "refs/heads/theirs", git(kb, "commit-tree", "-p", "HEAD", "-m", "x", "HEAD^{tree}").strip())
    tip = git(kb, "rev-parse", "theirs")
    assert "duckkb propose --continue --branch theirs" in _refusal(propose("1", "--branch", "theirs"))
    assert git(kb, "rev-parse", "theirs") == tip
    assert propose("1", "--branch", "theirs", "--continue").line["base"] == tip.strip()
    assert propose("2", "--branch", "theirs").code == 0, "its last commit is from here now"
    mine = git(kb, "rev-parse", "theirs").strip()
    amended = git(kb, "commit-tree", "-p", f"{mine}^", "-m", git(kb, "log", "-1", "--format=%B", mine), "HEAD^{tree}")
    rebased = git(kb, "commit-tree", "-p", "HEAD", "-m", git(kb, "log", "-1", "--format=%B", mine), f"{mine}^{{tree}}")
    for other in (amended, rebased):
        git(kb, "update-ref", "refs/heads/theirs", other.strip())
        assert _refusal(propose("3", "--branch", "theirs")), "the mark holds for what was proposed alone"
    git(kb, "branch", "-f", "copy", mine)
    assert _refusal(propose("3", "--branch", "copy"))
    assert propose("3", "--branch", "none", "--continue").error["code"] == "E_NOT_FOUND"
    assert _proposed(kb, "--json", "--continue", *add).error["code"] == "E_USAGE"


def test_a_proposal_is_known_again_where_it_was_pushed_to_and_nothing_of_it_is_left_behind(
    kb: Path, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(kb, "remote", "add", "origin", str(tmp_path / "far.git"))
    put = ["put", "Note", '{"id":"n9","title":"1"}']
    first = _proposed(kb, "--branch", "topic", *put).line["commit"]
    git(kb, "push", "-q", "origin", "topic", "main")
    git(kb, "branch", "-q", "-D", "topic")
    second = _proposed(kb, "--branch", "topic", "delete", "Note", "n9").line
    assert second["base"] == first, "the branch is there alone where it was pushed to"
    assert "would be lost" in _refusal(_proposed(kb, "--json", "--branch", "topic", "--base", "main", *put))
    git(tmp_path, "clone", "-q", "-b", "main", "far.git", "other")
    elsewhere = {"DUCKKB_WRITER": "another clone"}
    refused = _refusal(run_in(tmp_path / "other", ["propose", "--json", "--branch", "topic", *put], env=elsewhere))
    assert "refs/remotes/origin/topic" in refused, "to another clone it is somebody else's"
    git(tmp_path / "other", "checkout", "-q", "topic")
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "from a reviewer")
    git(tmp_path / "other", "push", "-q", "origin", "topic")
    git(kb, "fetch", "-q", "origin")
    assert "refs/remotes/origin/topic has commits" in _refusal(_proposed(kb, "--json", "--branch", "topic", *put))


def test_a_branch_that_differs_in_case_alone_is_refused(kb: Path) -> None:
    git(kb, "branch", "Team/É")
    assert "only in case" in _refusal(_proposed(kb, "--json", "--branch", "team/é", "delete", "Note", "n1"))


def test_what_changes_nothing_makes_no_branch(kb: Path) -> None:
    ran = _proposed(kb, "--branch", "topic", "put", "Note", '{"id":"n1","title":"one"}')
    assert (ran.line["unchanged"], ran.line["commit"]) == (1, None) and "nothing was proposed" in ran.err
    dry = _proposed(kb, "--branch", "topic", "put", "Note", '{"id":"n1","title":"new"}', "--dry-run")
    assert dry.line["changes"][0]["fields"] == {"title": {"before": "one", "after": "new"}}
    assert _proposed(kb, "--branch", "topic", "put", "Note", '{"id":"n1","title":5}').code == 2
    assert git(kb, "branch", "--list", "topic") == ""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--branch", "main", "delete", "Note", "n1"], 1),
        (["--branch", "-x", "delete", "Note", "n1"], 2),
        (["--branch", "a..b", "delete", "Note", "n1"], 2),
        (["--branch", "@{-1}", "delete", "Note", "n1"], 2),
        (["--base", "nowhere", "delete", "Note", "n1"], 1),
        (["delete", "Note", "mine"], 1),
        (["delete"], 2),
    ],
)
def test_what_cannot_be_proposed_is_refused(kb: Path, args: list[str], code: int) -> None:
    assert _proposed(kb, *args).code == code
    assert git(kb, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]


@pytest.mark.parametrize("name", ["team/fix/more", "team"])
def test_a_branch_that_git_has_no_room_for_is_refused_by_the_name_in_its_way(kb: Path, name: str) -> None:
    git(kb, "branch", "team/fix")
    ran = _proposed(kb, "--json", "--branch", name, "delete", "Note", "n1")
    assert (ran.code, ran.error["code"]) == (1, "E_REFUSED") and "team/fix" in ran.error["error"]
    assert _proposed(kb, "--branch", "team/other", "delete", "Note", "n2", "--cascade").code == 0


def test_a_branch_in_another_work_tree_is_left_alone(kb: Path, tmp_path: Path) -> None:
    git(kb, "worktree", "add", "-q", "-b", "busy", str(tmp_path / "busy"))
    assert _proposed(kb, "--branch", "busy", "delete", "Note", "n1").code == 1


def test_a_proposal_works_in_a_folder_of_a_larger_repository_and_runs_no_hook(tmp_path: Path) -> None:
    root = make_base(tmp_path / "all" / "kb", CONFIG)
    (root / ".git").rename(root.parent / ".git")
    assert run_in(root, ["put", "Note", '{"id":"n1","title":"one"}']).code == 0
    commit(root.parent)
    for name in ("reference-transaction", "post-commit", "pre-commit"):
        hook = root.parent / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {root.parent}/ran\n", "utf-8")
        hook.chmod(0o755)
    git(root.parent, "config", "commit.gpgSign", "true")
    git(root.parent, "config", "gpg.program", str(root.parent / ".git/hooks/pre-commit"))
    git(root.parent, "config", "core.fsmonitor", str(root.parent / ".git/hooks/pre-commit"))
    line = run_in(root, ["propose", "put", "Note", '{"id":"n2","title":"two"}']).line
    assert git(root.parent, "diff", "--name-only", "HEAD", line["commit"]).startswith("kb/data/nodes/note/")
    assert _records(root, line["branch"]) == {"n1": "one", "n2": "two"}
    assert not (root.parent / "ran").exists()


def test_a_branch_that_moves_meanwhile_is_not_overwritten(kb: Path) -> None:
    started = Proposing(kb, Wish("put Note", branch="topic"))
    git(kb, "branch", "topic")
    theirs = git(kb, "rev-parse", "topic")
    with KnowledgeBase(kb, started.build_open_options()) as base, pytest.raises(Conflict):
        base.put("Note", {"id": "n9"})
    assert git(kb, "rev-parse", "topic") == theirs and not started.proposed.commit


def test_without_a_name_to_commit_by_git_says_so(kb: Path) -> None:
    env = {"GIT_AUTHOR_NAME": "", "GIT_COMMITTER_NAME": "", "GIT_AUTHOR_EMAIL": "", "GIT_COMMITTER_EMAIL": ""}
    ran = run_in(kb, ["propose", "delete", "Note", "n1", "--json"], env=env)
    assert (ran.code, ran.error["code"]) == (1, "E_GIT")


def test_agents_propose_what_is_reviewed(kb: Path) -> None:
    refused = [
        ["put", "Person", '{"country":"CN","number":2,"name":"苏颂"}'],
        ["delete", "Person", '["CN",1]'],
        ["put", "Note", '{"id":"n1","status":"final"}', "--merge"],
        ["put", "Note", '{"id":"n7","status":"draft"}'],
    ]
    before = _state(kb)
    for args in refused:
        ran = run_in(kb, [*args, "--json"], env=AGENT)
        assert (ran.code, ran.error["code"]) == (1, "E_REVIEW") and "propose" in ran.error["suggestion"], args
    assert _state(kb) == before
    for args in refused:
        assert run_in(kb, ["propose", *args], env=AGENT).line["commit"], args
    assert _state(kb) == before
    assert run_in(kb, ["put", "Note", '{"id":"n1","title":"free"}'], env=AGENT).code == 0
    assert run_in(kb, refused[0], env={"DUCKKB_AGENT": "0"}).code == 0
    assert run_in(kb, refused[2]).code == 0
    assert run_in(kb, ["put", "Note", '{"id":"n1","title":"free again"}', "--merge"], env=AGENT).code == 0


def test_review_is_required_or_not_said(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONFIG.replace("review: required\n", "review: maybe\n", 1))
    ran = run_in(root, ["schema"])
    assert ran.code == 2 and "review" in ran.err


@pytest.mark.parametrize(
    ("address", "push", "url"),
    [
        (
            "git@github.com:team/kb.git",
            "git push -u origin topic",
            "https://github.com/team/kb/compare/main...topic?expand=1",
        ),
        (
            "https://me:secret@github.com/team/kb",
            "git push -u origin topic",
            "https://github.com/team/kb/compare/main...topic?expand=1",
        ),
        (
            "ssh://git@gitlab.example.org:2222/a/b/kb.git",
            "git push -u origin topic",
            "https://gitlab.example.org/a/b/kb/-/merge_requests/new?merge_request%5Bsource_branch%5D=topic&merge_request%5Btarget_branch%5D=main",
        ),
        ("/srv/git/kb.git", "git push -u origin topic", None),
        (None, None, None),
    ],
)
def test_the_receipt_says_how_a_pull_request_is_opened(
    kb: Path, address: str | None, push: str | None, url: str | None
) -> None:
    if address:
        git(kb, "remote", "add", "origin", address)
    ran = _proposed(kb, "--branch", "topic", "delete", "Note", "n1")
    assert (ran.line.get("push"), ran.line.get("open")) == (push, url)
    assert "secret" not in ran.out + ran.err


def test_a_branch_name_cannot_break_out_of_the_address() -> None:
    assert build_opening(Remote("origin", "github.com", "t/kb"), "a&b?c#d/e", "m").url.endswith(
        "/m...a%26b%3Fc%23d%2Fe?expand=1"
    )
