"""Actions through `KnowledgeBase.run`: the objects that the command line prints, as their schemas say; refusals; and that each
thing a base can do is an action, or is none for a reason."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app.use_cases import Memory
from duckkb.ontology.validation import compile_rule
from duckkb.operations.action import DESCRIBED, LIMITS
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import failure
from duckkb.operations.response_types import ERROR
from duckkb.types.errors import DuckkbError
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, make_base, run_in

CONFIG = (
    NOTES
    + """\
collections:
  papers:
    source: {path: docs, pattern: "**/*"}
    policy:
      description: Files found by their words.
      identity: {fields: path}
      fields: {vectors: none, lexical: [{field: title, weight: 2.0}, headings, text], relational: auto}
      intents: {allowed: [match, where], default: match}
"""
)
RECORDS = [{"id": f"n{at}", "title": f"words {'数据库 ' * at}fox", "size": at} for at in range(4)]
NEVER = "hunter2"
"""A value that no answer to it may repeat."""


@dataclass(frozen=True)
class Ask:
    """An action with its arguments, and what to type for the same."""

    action: str
    given: Mapping[str, Any]
    typed: list[str]
    stdin: str = ""
    code: int = 0

    def __str__(self) -> str:
        return " ".join([self.action, *self.typed])


GRAPH = {
    "nodes": [{"id": "acquire", "label": "acquire()"}, {"id": "retry", "label": "retry()"}],
    "links": [{"source": "acquire", "target": "retry", "relation": "calls", "confidence_score": 0.8}],
}
ASKED = [
    Ask("find", {"type": "Note", "query": "fox 数据库", "limit": 2}, ["find", "Note", "fox 数据库", "-l", "2"]),
    Ask("find", {"type": "all", "query": "fox", "explain": True}, ["find", "all", "fox", "--explain"]),
    Ask("find", {"type": "papers", "query": "pool"}, ["find", "papers", "pool"]),
    Ask("find", {"type": "papers", "query": "pool", "full": True, "provenance": True}, ["find", "papers", "pool", "--full", "--provenance"]),
    Ask("find", {"type": "Note", "query": "fox", "fields": ["id", "_score"]}, ["find", "Note", "fox", "--fields", "id,_score"]),
    Ask("find", {"type": "Note", "query": "fox", "fields": ["+_chunk"], "at": "HEAD"}, ["find", "Note", "fox", "--fields", "+_chunk", "--at", "HEAD"], code=1),
    Ask("get", {"type": "Note", "identity": "n1", "fields": ["title"]}, ["get", "Note", "n1", "--fields", "title"]),
    Ask("list", {"type": "Note", "limit": 2, "fields": ["id"]}, ["list", "Note", "-l", "2", "--fields", "id"]),
    Ask("search", {"question": "pool", "at": "HEAD"}, ["search", "pool", "--at", "HEAD"]),
    Ask("find", {"type": "Note", "where": "size > 1", "mode": "where"}, ["find", "Note", "-w", "size > 1"]),
    Ask("find", {"type": "kept", "vector": [1, 0]}, ["find", "kept", "--vector", "-"], stdin="[1, 0]"),
    Ask("find", {"type": "Note", "where": "size > 99", "mode": "where"}, ["find", "Note", "-w", "size > 99"], code=1),
    Ask("neighbors", {"type": "Note", "identity": "n1", "label": ["cites"], "direction": "in"},
        ["graph", "neighbors", "Note", "n1", "--label", "cites", "--direction", "in"], code=1),
    Ask("path", {"start": ["Note", "n3"], "end": ["Note", "n1"], "direction": "out"}, ["graph", "path", "Note", "n3", "Note", "n1", "--direction", "out"], code=1),
    Ask("search", {"question": "zzzz"}, ["search", "zzzz"], code=1),
    Ask("pack", {"question": "zzzz"}, ["pack", "zzzz"], code=1),
    Ask("memory_search", {"query": "zzzz", "scope": "ann", "mode": "match"}, ["memory", "search", "zzzz", "--scope", "ann", "-m"], code=1),
    Ask("multi_get", {"pattern": "pool.md, none.md"}, ["multi-get", "pool.md, none.md"], code=1),
    Ask("get", {"type": "Note", "identity": "n1"}, ["get", "Note", "n1"]),
    Ask("get", {"type": "cites", "identity": ["n1", "n2"]}, ["get", "cites", '["n1","n2"]']),
    Ask("get", {"type": "kept", "identity": "x"}, ["get", "kept", "x"]),
    Ask("get", {"document": "pool.md", "first": 3, "lines": 1}, ["get", "pool.md", "--from", "3", "-l", "1"]),
    Ask("list", {"type": "Note", "after": "n0", "limit": 2.0}, ["list", "Note", "--after", "n0", "-l", "2"]),
    Ask("list", {"type": "kept"}, ["list", "kept"]),
    Ask("pack", {"question": "fox", "budget": 500, "limit": 3}, ["pack", "fox", "--budget", "500", "-l", "3"]),
    Ask("ask", {"question": "what is the capital of mongolia", "limit": 3}, ["ask", "what is the capital of mongolia", "-l", "3"], code=1),
    Ask("count", {"type": "Note"}, ["count", "Note"]),
    Ask("count", {"type": "Note", "where": "size > 1", "at": "HEAD"}, ["count", "Note", "-w", "size > 1", "--at", "HEAD"]),
    Ask("types", {}, ["schema"]),
    Ask("schema", {"type": "Note"}, ["schema", "Note"]),
    Ask("settings", {"type": "Note"}, ["schema", "Note", "--settings"]),
    Ask("settings", {"type": "kept"}, ["schema", "kept", "--settings"]),
    Ask("growth", {"limit": 2}, ["growth", "-l", "2"]),
    Ask("quality", {}, ["quality"]),
    Ask("sql", {"statement": "select id, id, 1.5::decimal(3,1), date '2020-01-01' from note", "limit": 2},
        ["sql", "select id, id, 1.5::decimal(3,1), date '2020-01-01' from note", "-l", "2"]),
    Ask("neighbors", {"type": "Note", "identity": "n1", "label": ["cites"]}, ["graph", "neighbors", "Note", "n1", "--label", "cites"]),
    Ask("neighbors", {"type": "Note", "identity": "n2", "limit": 1}, ["graph", "neighbors", "Note", "n2", "-l", "1"]),
    Ask("near", {"type": "kept", "identity": "x", "limit": 3}, ["graph", "near", "kept", "x", "-l", "3"]),
    Ask("citing", {"type": "Note", "identity": "n1"}, ["graph", "citing", "Note", "n1"]),
    Ask("blame", {"type": "Note", "identity": "n1"}, ["blame", "Note", "n1"]),
    Ask("log", {"type": "Note", "identity": "n1"}, ["log", "Note", "n1"]),
    Ask("path", {"start": ["Note", "n1"], "end": ["Note", "n3"]}, ["graph", "path", "Note", "n1", "Note", "n3"]),
    Ask("why", {"type": "Note", "identity": "n1", "query": "fox -数据库"}, ["why", "Note", "n1", "fox -数据库"]),
    Ask("check", {}, ["check"]),
    Ask("diff", {}, ["diff"]),
    Ask("diff", {"only": ["Note:n1"], "ignore": ["size"]}, ["diff", "--ignore", "size", "--", "Note:n1"]),
    Ask("diff", {"ops": ["update"]}, ["diff", "--op", "update"]),
    Ask("diff", {"branch": "topic", "ops": ["insert"]}, ["diff", "HEAD...topic", "--op", "insert"]),
    Ask("check", {"branch": "topic"}, ["check", "--since", "HEAD...topic"]),
    Ask("impact", {"branch": "topic", "k": 3}, ["impact", "HEAD...topic", "-k", "3"]),
    Ask("branches", {}, ["branches"]),
    Ask("conflicts", {"limit": 5}, ["resolve", "--list", "-l", "5"]),
    Ask("status", {}, ["status"]),
    Ask("arch_status", {}, ["arch", "status"]),
    Ask("arch_query", {"question": "what calls retry"}, ["arch", "query", "what calls retry"]),
    Ask("arch_query", {"question": "zzzz"}, ["arch", "query", "zzzz"], code=1),
    Ask("query", {"question": "pool", "limit": 3, "explain": True}, ["query", "pool", "-n", "3", "--explain"]),
    Ask("query", {"searches": [{"type": "lex", "query": "pool"}, {"type": "vec", "query": "connections\nthat wait"}], "intent": "water", "limit": 3},
        ["query", "lex: pool\nvec: connections that wait\nintent: water", "-n", "3"]),
    Ask("search", {"question": '"connection pool"', "full": True}, ["search", '"connection pool"', "--full"]),
    Ask("multi_get", {"pattern": "*.md", "most": 100, "lines": 2}, ["multi-get", "*.md", "--max-bytes", "100", "-l", "2"]),
    Ask("memory_search", {"query": "release", "scope": "ann", "mode": "match", "limit": 1}, ["memory", "search", "release", "--scope", "ann", "-m", "-l", "1"]),
    Ask("memory_history", {"key": "deploy"}, ["memory", "history", "deploy"]),
    Ask("memory_history", {"key": "deploy", "limit": 1}, ["memory", "history", "deploy", "-l", "1"]),
    Ask("memory_stats", {}, ["memory", "stats"]),
]  # fmt: skip
WRITES = [
    Ask("put", {"type": "Note", "records": RECORDS}, ["put", "Note"], stdin="\n".join(map(json.dumps, RECORDS))),
    Ask("put", {"type": "cites", "records": [{"from": "n1", "to": "n2"}, {"from": "n2", "to": "n3"}]}, ["put", "cites"],
        stdin='{"from": "n1", "to": "n2"}\n{"from": "n2", "to": "n3"}'),
    Ask("put", {"type": "Note", "records": {"id": "n0", "title": "new"}, "merge": True}, ["put", "Note", '{"id": "n0", "title": "new"}', "--merge"]),
    Ask("put", {"type": "kept", "records": {"id": "x", "tensor": [1, 0.5]}}, ["put", "kept", '{"id": "x", "tensor": [1, 0.5]}']),
    Ask("rename", {"type": "Note", "old": "n0", "new": "零"}, ["rename", "Note", "n0", "零"]),
    Ask("delete", {"type": "Note", "identities": ["零"]}, ["delete", "Note", "零"]),
    Ask("memory_put", {"key": "deploy", "text": "make release", "tags": ["ci", "ci", "ops"], "links": ["duckkb://Note/n1"], "source": "a talk"},
        ["memory", "put", "deploy", "--tag", "ci", "--tag", "ops", "--link", "duckkb://Note/n1", "--source", "a talk"], stdin="make release\n"),
    Ask("memory_mark_accessed", {"keys": ["deploy"], "scope": "ann"}, ["memory", "mark-accessed", "deploy", "--scope", "ann", "--json"]),
    Ask("put", {"type": "Note", "records": RECORDS[:1]}, ["put", "Note", json.dumps(RECORDS[0])]),
    Ask("resolve", {"answers": []}, ["resolve", "--json"]),
]  # fmt: skip


def base(root: Path) -> Path:
    make_base(root, CONFIG)
    (root / "docs").mkdir()
    (root / "docs" / "pool.md").write_text("# Pool\n\nThe connection pool\nis full.\n", "utf-8")
    (root / "docs" / "large.md").write_text("# Large\n\n" + "words of a pool\n" * 40, "utf-8")
    assert run_in(root, ["col", "init", "kept", "--policy", "feature-store", "--params", '{"dimension": 2}']).code == 0
    assert run_in(root, ["col", "init", "memory-ann", "--policy", "memory", "--params", '{"scope": "ann"}']).code == 0
    (root / "graph.json").write_text(json.dumps(GRAPH), "utf-8")
    assert run_in(root, ["arch", "import", "graph.json"]).code == 0
    commit(root)
    told = json.dumps({"id": "proposed", "title": "fox"})
    assert run_in(root, ["propose", "--branch", "topic", "put", "Note", told]).code == 0
    return root


@dataclass(frozen=True)
class Doors:
    """A base that was written by actions, and what these and the command line, in a base of its own, said of each write."""

    root: Path
    kb: duckkb.KnowledgeBase
    said: list[tuple[Ask, dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    asked, typed = (base(tmp_path_factory.mktemp(name) / "kb") for name in ("asked", "typed"))
    with duckkb.open(asked) as kb:
        said = [(one, kb.run(one.action, one.given), run_in(typed, one.typed, stdin=one.stdin).line) for one in WRITES]
        yield Doors(asked, kb, said)


def fits(answer: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """The answer is what its schema says, and, but for the fields of records, has nothing else."""
    assert [(error.message, error.instance_path) for error in compile_rule(schema).iter_errors(answer)] == []
    assert schema["type"] == "object" and json.loads(json.dumps(answer, allow_nan=False)) == answer
    known = {*schema.get("properties", answer), "notices"}
    assert set(answer) <= known or "$schema" in answer


@pytest.mark.parametrize("ask", ASKED, ids=str)
def test_an_action_gives_what_the_command_line_prints(doors: Doors, ask: Ask) -> None:
    ran = run_in(doors.root, ["--format", "json", *ask.typed], stdin=ask.stdin)
    answer = doors.kb.run(ask.action, ask.given, Caller(role="viewer"))
    printed = json.loads(
        ran.out.replace("one in full, --full prints", "one in full, `full` prints")
    )  # as each door spells it
    assert ran.code == ask.code and printed
    fits(answer, ACTIONS[ask.action].output)
    if ask.action == "status":
        assert printed.pop("server") is None  # which a server need not be told
    for one in (answer, printed) if ask.action == "status" else ():
        del one["store"]["bytes"]  # grows by what is asked
    assert answer == printed


def test_a_write_says_what_the_command_line_says(doors: Doors) -> None:
    """But for what is another in each base: times, and with them etags and the names of files."""
    for ask, answer, printed in doors.said:
        fits(answer, ACTIONS[ask.action].output)
        assert list(answer) == list(printed)
        assert {name: value for name, value in answer.items() if name not in ("etags", "files")} == {
            name: value for name, value in printed.items() if name not in ("etags", "files")
        }, ask
    assert {ask.action for ask in [*ASKED, *WRITES]} == set(ACTIONS)


def test_a_dry_run_writes_nothing_and_gives_the_patch(doors: Doors) -> None:
    before = doors.kb.run("list", {"type": "Note"})
    answer = doors.kb.run("delete", {"type": "Note", "identities": ["n1"], "cascade": True, "dry_run": True})
    fits(answer, ACTIONS["delete"].output)
    trial = ["delete", "Note", "n1", "--cascade", "--dry-run", "--format", "patch"]
    assert answer["deleted"] == 2 and answer["patch"] == run_in(doors.root, trial).out
    assert doors.kb.run("list", {"type": "Note"}) == before


def test_a_difference_is_told_page_by_page(doors: Doors) -> None:
    """With the cursor that `next` has, until nothing is left: together all of it, each entry once."""
    whole = doors.kb.run("diff", {})
    pages: list[dict[str, Any]] = []
    after = ""
    while not pages or pages[-1]["next"]:
        pages.append(doors.kb.run("diff", {"budget": 2_000, "after": after}))
        after = (pages[-1]["next"] or {"after": ""})["after"]
    assert len(pages) > 1 and [change for one in pages for change in one["changes"]] == whole["changes"]
    ran = run_in(doors.root, ["diff", "--format", "json", "--budget", "2000"])
    assert {**json.loads(ran.out), "next": None} == {**pages[0], "next": None}


def test_what_must_be_known_of_an_answer_stands_in_it(tmp_path: Path) -> None:
    root = base(tmp_path / "kb")
    with duckkb.open(root) as kb:
        assert "notices" not in kb.run("put", {"type": "Note", "records": RECORDS})
    part = next((root / "data" / "nodes" / "note").rglob("*.jsonl"))
    part.write_text(part.read_text("utf-8") + '{"id": "by hand", "title": "fox"}\n', "utf-8")
    with duckkb.open(root) as kb:
        for name, given in (("list", {"type": "Note"}), ("find", {"type": "Note", "query": "fox"}), ("types", {})):
            answer = kb.run(name, given)
            fits(answer, ACTIONS[name].output)
            assert [one["code"] for one in answer["notices"]] == ["W_INCOMPLETE"], name


REFUSED: Mapping[str, tuple[str, Any, Mapping[str, str]]] = {
    "a text for a number": ("find", {"type": "Note", "limit": "3"}, {"/limit": "must be of type integer, not string"}),
    "true for a number": ("find", {"type": "Note", "limit": True}, {"/limit": "must be of type integer, not boolean"}),
    "a part of a number": ("list", {"type": "Note", "limit": 2.5}, {"/limit": "must be of type integer, not number"}),
    "too little": ("neighbors", {"type": "Note", "identity": "n1", "depth": 0}, {"/depth": "the value is less than the minimum of 1"}),
    "too much": ("sql", {"statement": "select 1", "timeout": 3601}, {"/timeout": "the value is greater than the maximum of 3600"}),
    "null": ("find", {"type": "Note", "query": None}, {"/query": "must be of type string, not null"}),
    "another word": ("find", {"type": "Note", "mode": NEVER}, {"/mode": 'must be one of "similar", "match", "hybrid", "where"'}),
    "what is missing": ("get", {"type": "Note", "document": "a", "identiti": NEVER}, {"/identiti": 'unknown parameter "identiti"'}),
    "nothing": ("neighbors", {}, {"/type": "is required", "/identity": "is required"}),
    "no list": ("delete", {"type": "Note", "identities": NEVER}, {"/identities": "must be of type array, not string"}),
    "an empty list": ("delete", {"type": "Note", "identities": []}, {"/identities": "the value has less than 1 item"}),
    "no vector": ("find", {"type": "kept", "vector": [1, NEVER]}, {"/vector/1": "must be of type number, not string"}),
    "half a node": ("path", {"start": ["Note"], "end": ["Note", "a", NEVER]}, {"/start": "the value has less than 2 items", "/end": "the value has more than 2 items"}),
    "no identity": ("get", {"type": "Note", "identity": {NEVER: 1}}, {"/identity": "must be of type string or integer or array, not object"}),
    "no record": ("put", {"type": "Note", "records": NEVER}, {"/records": "must be of type object or array, not string"}),
    "no Unicode": ("find", {"type": "Note", "query": "\ud800" + NEVER}, {"/query": "holds a lone surrogate"}),
    "no number": ("find", {"type": "kept", "vector": [float("nan"), 1]}, {"/vector/0": "is not a finite number"}),
    "no object": ("types", [NEVER], {"": "must be one object, not array"}),
    "a long name": ("types", {"x" * 9_999: 1}, {"/" + "x" * 199: f'unknown parameter "{"x" * 58}…'}),
    "all at once": (
        "find", {"query": 1, "limit": "x", "qurey": NEVER, "explain": "yes"},
        {"/qurey": 'unknown parameter "qurey"', "/type": "is required", "/query": "must be of type string, not integer",
         "/limit": "must be of type integer, not string", "/explain": "must be of type boolean, not string"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_arguments_that_do_not_fit_are_refused_all_at_once(doors: Doors, what: str) -> None:
    name, given, wanted = REFUSED[what]
    told = refused(doors, name, given)
    assert told["code"] == "E_ARGUMENT" and told["suggestion"]
    assert {one.get("field", ""): one["message"] for one in told["details"]["findings"]} == wanted
    assert NEVER not in json.dumps(told)


def refused(doors: Doors, name: str, given: Mapping[str, Any], caller: Caller | None = None) -> dict[str, Any]:
    with pytest.raises(DuckkbError) as caught:
        doors.kb.run(name, given, caller)
    told = failure(caught.value)
    fits(told, ERROR)
    error: dict[str, Any] = told["error"]
    return error


def test_a_refusal_names_what_was_meant(doors: Doors) -> None:
    assert refused(doors, "find", {"type": "Note", "qurey": "x"})["suggestion"] == "did you mean `query`?"
    assert refused(doors, "neighbours", {})["suggestion"] == "did you mean `neighbors`?"
    assert refused(doors, "get", {"type": "Note", "document": "pool.md"})["code"] == "E_ARGUMENT"
    assert refused(doors, "get", {"type": "Nota", "identity": "n1"})["code"] == "E_UNKNOWN_TYPE"
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert refused(doors, "put", {"type": "Note", "records": [{"id": "a", "tags": deep}]})["code"] == "E_ARGUMENT"


FORBIDDEN = [
    ("viewer", "put", {"type": "Note", "records": {"id": "no"}}),
    ("viewer", "delete", {"type": "Note", "identities": ["n1"]}),
    ("viewer", "rename", {"type": "Note", "old": "n1", "new": "no"}),
    ("viewer", "put", {}),
    ("viewer", "resolve", {"answers": []}),
    ("viewer", "check", {"since": "HEAD~1"}),
    ("editor", "impact", {"range": "HEAD~1"}),
    ("viewer", "diff", {"range": "HEAD~1"}),
    ("editor", "diff", {"range": "HEAD~1"}),
    ("editor", "delete", {"type": "Note", "identities": ["n1"], "allow_shrink": True}),
]


@pytest.mark.parametrize(("role", "name", "given"), FORBIDDEN)
def test_a_role_that_may_not_is_refused_and_nothing_is_written(
    doors: Doors, role: Any, name: str, given: dict[str, Any]
) -> None:
    before = doors.kb.run("list", {"type": "Note"})
    assert refused(doors, name, given, Caller(role=role))["code"] == "E_FORBIDDEN"
    assert doors.kb.run("list", {"type": "Note"}) == before and before["total"] == 4


def test_an_editor_may_write_and_an_admin_compare_any_revisions(doors: Doors) -> None:
    written = doors.kb.run("put", {"type": "Note", "records": RECORDS[1], "dry_run": True}, Caller(role="editor"))
    assert written["unchanged"] == 1
    commit(doors.root)
    found = doors.kb.run("diff", {"range": "HEAD~1..HEAD"}, Caller(role="admin"))
    assert found["summary"]["insert"] == 8 and doors.kb.run("diff", {})["changes"] == []
    fits(found, ACTIONS["diff"].output)


def test_of_a_defect_nothing_is_told_but_that_it_is_one() -> None:
    told = failure(ValueError(NEVER))
    fits(told, ERROR)
    assert told["error"]["code"] == "E_INTERNAL" and NEVER not in json.dumps(told)


def test_every_parameter_has_a_schema_and_a_meaning_and_every_meaning_a_parameter() -> None:
    inputs = {name: action.input for name, action in ACTIONS.items()}
    used = {name for one in inputs.values() for name in one["properties"]}
    assert {*DESCRIBED} <= used and {*LIMITS} <= used
    for name, one in inputs.items():
        assert one["additionalProperties"] is False
        assert all({"type", "anyOf", "enum"} & {*rule} and rule["description"] for rule in one["properties"].values())
        assert ACTIONS[name].summary.endswith(".") and ACTIONS[name].privileged <= {*one["properties"]}
        compile_rule(one), compile_rule(ACTIONS[name].output)


UNDER_ANOTHER_NAME = {"search_documents": "query", "get_document": "get"}
NO_ACTIONS = {
    "of the process": ("root", "configured", "notices", "published", "close", "run", "watch"),
    "reads or writes files that the caller's machine names": (
        "export_file", "import_files", "backup", "apply_patch", "embed_input", "vector_input",
    ),
    "another form of an action": ("put_json", "put_batch", "export", "ls", "ddl", "field_names", "given_vectors", "document_types", "identity_fields", "is_of_documents", "names_record"),
    "takes or gives what is no JSON": ("apply", "embed", "keep_harness", "tools"),
    "for whoever runs the base": (
        "update", "fmt", "dedupe", "index_status", "index_plan", "index_refresh", "index_rebuild", "index_build", "index_shards", "index_build_shard",
        "index_adopt", "index_migrate", "scheduler",
    ),
    "groups of methods": ("collections", "documents", "migrate", "arch", "vectors", "provenance", "memory"),
}  # fmt: skip


def test_every_method_is_an_action_or_is_none_for_a_reason() -> None:
    own = {name for name in vars(duckkb.KnowledgeBase) if not name.startswith("_")}
    without = [name for names in NO_ACTIONS.values() for name in names]
    assert sorted([*own & {*ACTIONS}, *UNDER_ANOTHER_NAME, *without]) == sorted(own)
    of_memories = {f"memory_{name}": method for name, method in vars(Memory).items() if not name.startswith("_")}
    for name in of_memories:
        assert getattr(Memory, name.removeprefix("memory_")).__wrapped__ is ACTIONS[name].function, name
    for name in own & {*ACTIONS} - {"get", "pack", "ask", "status"}:
        assert getattr(duckkb.KnowledgeBase, name).__wrapped__ is ACTIONS[name].function, name
