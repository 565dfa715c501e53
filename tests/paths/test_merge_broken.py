"""What merged records break together is found whether every record is looked at, or only what changed since the last
commit in which nothing was broken; `duckkb check` looks at every record, and says which it must be."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duckkb import config
from duckkb.store.cache_dirs import Place
from duckkb.store.stored_rows import BaseStore
from tests.conftest import Ran, commit, git, make_base, run_in

pytestmark = pytest.mark.usefixtures("one_day")

ALIKE = """\
global: {embedding_model: none}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, title: {type: string}, text: {type: string}}
      required: [id]
      not: {required: [title, text]}
    search: {full_text: [title, text]}
  Page:
    table: page
    identity: id
    schema: {type: object, properties: {id: {type: string}}, required: [id]}
    search: {full_text: [id]}
edges:
  cites: {from: Note, to: Note}
  about: {from: Note, to: [Note, Page]}
  leads: {from: Note, to: Note, cardinality: "N:1"}
"""
RULES = {"E_DUP_IDENTITY", "E_DUP_ID", "E_DANGLING_EDGE", "E_AMBIGUOUS_END", "E_CARDINALITY", "E_SCHEMA"}
Step = Callable[[Path], object]


def do(*steps: tuple[str, ...]) -> Step:
    def done(root: Path) -> None:
        for args in steps:
            ran = run_in(root, args)
            assert ran.code == 0, ran.err

    return done


def put(type_name: str, **fields: Any) -> tuple[str, ...]:
    return "put", type_name, "--merge", json.dumps(fields)


CASES: dict[str, tuple[str, Step, Step]] = {
    "one identity, two records": (
        "E_DUP_IDENTITY",
        do(put("Note", id="n")),
        do(("rename", "Note", "d", "n")),
    ),
    "an edge to a node that went": (
        "E_DANGLING_EDGE",
        do(put("cites", **{"from": "a", "to": "d"})),
        do(("delete", "Note", "d", "--cascade")),
    ),
    "an edge to a node that is called otherwise": (
        "E_DANGLING_EDGE",
        do(put("cites", **{"from": "d", "to": "a"})),
        do(("rename", "Note", "d", "e")),
    ),
    "an old edge to a node that went": (
        "E_DANGLING_EDGE",
        do(put("Note", id="n")),
        lambda root: drop(root, "d"),
    ),
    "an end that means two nodes": (
        "E_AMBIGUOUS_END",
        do(put("about", **{"from": "a", "to": "b"})),
        do(put("Page", id="b")),
    ),
    "an old end that means two nodes": (
        "E_AMBIGUOUS_END",
        do(put("Note", id="n")),
        lambda root: add_page(root, "c"),
    ),
    "one edge too many": (
        "E_CARDINALITY",
        do(put("leads", **{"from": "a", "to": "b"})),
        do(put("leads", **{"from": "a", "to": "c"})),
    ),
    "two fields that exclude each other": (
        "E_SCHEMA",
        do(put("Note", id="a", title="t")),
        do(put("Note", id="a", text="t")),
    ),
    "vectors of two lengths": (
        "E_SCHEMA",
        do(put("shape", id="s", tensor=[1.0, 2.0])),
        do(put("shape", id="t", tensor=[1.0, 2.0, 3.0])),
    ),
}


def part(root: Path, table: str) -> Path:
    return next((root / "data/nodes" / table).rglob("*.jsonl"))


def drop(root: Path, name: str) -> None:
    """Delete a note by hand, with the edges that end in it left."""
    lines = part(root, "note").read_text("utf-8").splitlines(keepends=True)
    part(root, "note").write_text("".join(line for line in lines if f'"id":"{name}"' not in line), "utf-8")


def add_page(root: Path, name: str) -> None:
    """Add a page by hand whose name a note has, to which an edge leads."""
    line = part(root, "page").read_text("utf-8").splitlines()[0]
    told = json.loads(line) | {"__id": 77, "id": name}
    part(root, "page").write_text(json.dumps(told, separators=(",", ":")) + f"\n{line}\n", "utf-8")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("broken") / "kb", ALIKE)
    do(
        ("col", "init", "shape", "--policy", "feature-store"),
        *(put("Note", id=name) for name in "abcd"),
        put("Page", id="p"),
        put("about", **{"from": "a", "to": "c"}),
        put("cites", **{"from": "c", "to": "d"}),
    )(root)
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    commit(root)
    return root


@pytest.fixture
def base(started: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(started), "kb")
    return tmp_path / "kb"


def grow(base: Path, ours: Step, theirs: Step) -> None:
    git(base, "checkout", "-q", "-b", "topic", "main")
    theirs(base)
    commit(base, "theirs")
    git(base, "checkout", "-q", "main")
    ours(base)
    commit(base, "ours")


def broken(done: Ran) -> list[tuple[str, ...]]:
    return sorted((one["code"], one["type"], one["identity"], one["path"]) for one in done.line["violations"])


def by_check(base: Path) -> list[tuple[str, ...]]:
    told = run_in(base, ["check", "--format", "jsonl"]).lines
    return sorted((one["code"], one["type"], one["identity"], one["path"]) for one in told if one["code"] in RULES)


def notes(base: Path) -> BaseStore:
    return BaseStore(Place.locate(config.read_environment(base).cache_home, base))


def noted(base: Path) -> str:
    return (notes(base).note("whole") or [""])[0]


def a_clean_merge(base: Path) -> None:
    git(base, "checkout", "-q", "-b", "side")
    do(put("Page", id="q"))(base)
    commit(base, "side")
    git(base, "checkout", "-q", "main")
    done = run_in(base, ["merge", "side", "--no-ff", "--json"])
    assert (done.code, done.line["violations"]) == (0, [])
    assert noted(base) == git(base, "rev-parse", "HEAD").strip()


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_what_both_sides_break_together_is_found_from_nothing_and_from_what_changed(base: Path, name: str) -> None:
    code, ours, theirs = CASES[name]
    a_clean_merge(base)
    whole = noted(base)
    grow(base, ours, theirs)
    start = git(base, "rev-parse", "HEAD").strip()
    done = run_in(base, ["merge", "topic", "--json"])
    assert (done.code, done.line["conflicts"]) == (1, [])
    assert {found[0] for found in broken(done)} == {code}
    assert broken(done) == by_check(base)
    assert noted(base) == whole, "what is broken is not taken for whole"
    git(base, "reset", "-q", "--hard", start)
    assert notes(base).keep("whole", None)
    assert broken(run_in(base, ["merge", "topic", "--json"])) == by_check(base)
    assert noted(base) == ""


def test_what_was_broken_before_is_told_too(base: Path) -> None:
    a_clean_merge(base)
    grow(base, lambda root: drop(root, "d"), do(put("Page", id="r")))
    git(base, "checkout", "-q", "-b", "later")
    do(put("Page", id="s"))(base)
    commit(base, "later")
    git(base, "checkout", "-q", "main")
    assert [one[0] for one in broken(run_in(base, ["merge", "topic", "--json"]))] == ["E_DANGLING_EDGE"]
    git(base, "commit", "-q", "--no-edit")
    assert [one[0] for one in broken(run_in(base, ["merge", "later", "--json"]))] == ["E_DANGLING_EDGE"]


def test_another_ontology_has_every_record_looked_at_again(base: Path) -> None:
    a_clean_merge(base)
    grow(
        base,
        lambda root: (root / "config.yaml").write_text(
            ALIKE.replace("{type: string}, title", "{type: string, maxLength: 0}, title")
        ),
        do(put("Page", id="r")),
    )
    found = broken(run_in(base, ["merge", "topic", "--json"]))
    assert found == by_check(base)
    assert [one[2] for one in found] == ["a", "b", "c", "d"]


_ODD = ("", [], ["0" * 40, 1], {"commit": "0" * 40})


@pytest.mark.parametrize(
    "said", [None, ["--all", "0"], ["0" * 40], *(pytest.param(odd, marks=pytest.mark.long) for odd in _ODD)]
)
def test_a_note_that_says_nothing_is_as_none(base: Path, said: Any) -> None:
    a_clean_merge(base)
    assert notes(base).keep("whole", said)
    grow(base, *CASES["an edge to a node that went"][1:])
    assert [one[0] for one in broken(run_in(base, ["merge", "topic", "--json"]))] == ["E_DANGLING_EDGE"]
