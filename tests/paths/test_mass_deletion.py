"""More than so many records of a table go only where somebody says so, whatever verb takes them."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from duckkb.cli.main import VERBS, duckkb
from duckkb.operations.catalog import ACTIONS
from tests.conftest import NOTES, commit, git, make_base, run_in, tree_bytes

ALL = [f"n{number:02}" for number in range(80)]
GONE = ALL[:59]

# By verb what would delete 59 of 80 records; it is refused, changes nothing, and is done with --allow-shrink.
GUARDED = {
    "delete": ["delete", "Note", *GONE],
    "apply": ["apply", "../gone.patch"],
    "merge": ["merge", "topic"],
    "resolve": ["resolve", "--ours", "--stage"],
    "propose delete": ["propose", "--branch", "p", "delete", "Note", *GONE],
    "check": ["check", "--since", "main..topic"],
    "diff": ["diff", "main..topic", "--fail-on", "error"],
}
# Verbs that write records and delete none, or one that is named.
KEEPING = {
    "put": ["put", "Note", '{"id": "n01", "title": "new"}'],
    "import": ["import", "Note", "../few.jsonl"],
    "rename": ["rename", "Note", "n01", "m01"],
    "fmt": ["fmt"],
    "dedupe": ["dedupe", "--reassign"],
    "compact": ["compact", "--older-than", "1"],
    "propose put": ["propose", "put", "Note", '{"id": "n01"}'],
    "propose import": ["propose", "import", "Note", "../few.jsonl"],
    "propose rename": ["propose", "rename", "Note", "n01", "m01"],
    "col init": ["col", "init", "more", "--policy", "knowledge-base"],
    "col rename": ["col", "rename", "many", "others"],
    "col restore": ["col", "restore", "../many.snapshot", "--as", "again"],
    "col rm": ["col", "rm", "many"],  # all of one collection, with --yes
    "recover": ["recover"],
    "repair": ["repair", "--all"],
}
# Verbs that write or delete one record by its key.
SINGLE = ("memory put", "vector store", "vector delete", "vector import-file", "vector run", "vector set-database")
# Verbs that tests of their own ask: what a graph lacks goes, and is refused in tests/doors/test_arch.py; what other programs
# keep is added, and nothing goes, in tests/doors/test_migrate.py.
ELSEWHERE = ("collection remove", "arch build", "arch import", "arch refresh", "migrate chroma", "migrate openclaw")
# Verbs that write no record, or into another base.
READING = (
    "arch status", "ask", "backup create", "backup restore", "backup verify", "blame", "branches", "cleanup", "col list",
    "col show", "col snapshot", "collection add", "collection exclude", "collection include",
    "collection list", "collection rename", "collection show", "collection update-cmd", "config show",
    "context add", "context list", "context rm", "doctor", "embed", "export", "find", "get", "git install",
    "git uninstall", "graph neighbors", "graph path", "impact", "index build", "index migrate", "index plan",
    "index refresh", "index status", "init", "list", "log", "ls", "mcp", "mcp config", "mcp stop",
    "memory history", "memory mark-accessed", "memory search", "memory stats", "models list", "models test", "multi-get", "pack",
    "policy check", "policy list", "policy show", "query", "review", "scheduler status", "schema", "search", "serve",
    "serve stop", "skill install", "sql", "status", "tenant add", "tenant ask", "tenant disable",
    "tenant enable", "tenant grant", "tenant list", "tenant remove", "tenant revoke", "tenant rotate",
    "arch query", "graph citing", "graph near", "growth", "index adopt", "publish", "quality", "table query", "table search", "table show",
    "tenant show", "tenant status", "trust", "update", "vector list", "vector retrieve", "vector schema",
    "vector search", "vsearch", "watch", "why",
)  # fmt: skip


def _verbs(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    if command.invoke_without_command:
        yield path
    for name, inner in command.commands.items():
        yield from _verbs(inner, f"{path} {name}")


def test_every_verb_that_there_is_has_been_asked_whether_it_deletes_many_records() -> None:
    ctx = click.Context(duckkb)
    reading = {one.name.replace("_", "-") for one in ACTIONS.values() if one.section and not one.writes}
    found = [
        path
        for verb in VERBS
        for path in _verbs(duckkb.resolve_command(ctx, [verb.name])[1], verb.name)
        if path not in reading
    ]
    assert sorted(found) == sorted([*GUARDED, *KEEPING, *SINGLE, *ELSEWHERE, *READING]), (
        "say of a new verb what it does to records"
    )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty notes, 59 of which are gone on `topic`, which also changes one that `main` changes."""
    folder = tmp_path_factory.mktemp("mass")
    root = make_base(folder / "kb", NOTES)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    (folder / "few.jsonl").write_text('{"id": "n02", "title": "few"}\n', "utf-8")
    for args in (["col", "init", "many", "--policy", "knowledge-base"], ["put", "Note"], ["put", "many"]):
        told = "".join(json.dumps({"id": name}) + "\n" for name in ALL) if args[0] == "put" else ""
        assert run_in(root, args, stdin=told).code == 0
    assert run_in(root, ["col", "snapshot", "many", "../many.snapshot"]).code == 0
    commit(root)
    git(root, "checkout", "-q", "-b", "topic")
    assert run_in(root, ["delete", "Note", *GONE, "--allow-shrink"]).code == 0
    assert run_in(root, ["put", "Note", '{"id": "n70", "title": "theirs"}']).code == 0
    commit(root)
    (folder / "gone.patch").write_text(run_in(root, ["diff", "main..topic", "--format", "patch"]).out, "utf-8")
    git(root, "checkout", "-q", "main")
    return folder


@pytest.fixture
def base(ground: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ground, tmp_path / "try") / "kb"


def _in_conflict(base: Path) -> None:
    assert run_in(base, ["put", "Note", '{"id": "n70", "title": "ours"}']).code == 0
    commit(base)
    done = subprocess.run(["git", "-C", str(base), "merge", "-q", "topic"], capture_output=True, check=False)
    assert done.returncode == 1


def _state(base: Path) -> tuple[object, ...]:
    return tree_bytes(base), git(base, "log", "--all", "--format=%H %D"), git(base, "ls-files", "-s")


@pytest.mark.long
@pytest.mark.parametrize("verb", GUARDED)
def test_many_records_go_only_where_that_is_allowed(base: Path, verb: str) -> None:
    if verb == "resolve":
        _in_conflict(base)
    before = _state(base)
    ran = run_in(base, GUARDED[verb])
    assert (ran.code, _state(base)) == (1, before), ran.err
    assert "59 of 80" in ran.out + ran.err
    allowed = run_in(base, [*GUARDED[verb], "--allow-shrink"])
    assert allowed.code == 0, allowed.err


@pytest.mark.long
def test_other_verbs_take_no_record_unasked(base: Path) -> None:
    for verb, args in KEEPING.items():
        ran = run_in(base, args)
        assert ran.code == (1 if verb == "col rm" else 0), (verb, ran.err)
        assert b"".join(tree_bytes(base).values()).count(b'"__id"') >= 2 * len(ALL), verb


def test_a_merge_commit_is_held_to_the_limit_as_a_fast_forward_is(base: Path) -> None:
    assert run_in(base, ["put", "Note", '{"id": "n71", "title": "ours"}']).code == 0
    commit(base)
    before = _state(base)
    ran = run_in(base, ["merge", "topic", "--json"])
    assert (ran.code, ran.error["code"], _state(base)) == (1, "E_SHRINK", before)
    assert run_in(base, ["merge", "topic", "--allow-shrink"]).line["action"] == "merged"


@pytest.mark.parametrize("limit", ["{shrink_records: 59}", "{shrink_share: 0.8}"])
def test_the_configuration_says_how_many_records_may_go(base: Path, limit: str) -> None:
    with (base / "config.yaml").open("a", encoding="utf-8") as file:
        file.write(f"limits: {limit}\n")
    commit(base)
    assert run_in(base, ["check", "--since", "main...topic"]).code == 1, "that of the common ancestor counts"
    assert run_in(base, ["merge", "topic"]).line["action"] == "merged"
    assert run_in(base, ["delete", "many", *ALL[:60]]).code == (0 if "share" in limit else 1)


def test_a_collection_that_is_renamed_and_lines_that_are_completed_are_no_deletion(base: Path) -> None:
    part = base / "data/nodes/note/20260101/part_001.jsonl"
    part.parent.mkdir(parents=True)
    part.write_text("".join(json.dumps({"id": f"by hand {number}"}) + "\n" for number in range(40)), "utf-8")
    commit(base)
    git(base, "checkout", "-q", "-b", "tidy")
    assert run_in(base, ["fmt"]).code == 0
    assert run_in(base, ["col", "rename", "many", "others"]).code == 0
    commit(base)
    assert run_in(base, ["check", "--since", "main"]).code == 0
    git(base, "checkout", "-q", "main")
    assert run_in(base, ["merge", "tidy"]).line["action"] == "fast-forward"
