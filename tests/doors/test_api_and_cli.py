"""One table of cases through the Python API and the command line: equal answers, equal refusals."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.types.errors import DuckkbError
from tests.conftest import make_base, run_in
from tests.fake_endpoint import FakeEndpoint

Kb = duckkb.KnowledgeBase
TEXTS = ("the quick brown fox", "内存数据库很快", "git keeps every journal", "断电时数据不会丢失", "fox and 数据库", "")
LINES = "".join(json.dumps({"id": f"n{n}", "content": text, "size": n}) + "\n" for n, text in enumerate(TEXTS))


@dataclass(frozen=True)
class Case:
    """What to type, and the same as a call; `shown` makes of its value what the command line prints."""

    args: list[str]
    call: Callable[[Kb], Any]
    stdin: str = ""
    shown: Callable[[Any], Any] = lambda value: value

    def __str__(self) -> str:
        return " ".join(self.args)


def receipt(made: Any) -> dict[str, Any]:
    """What both doors say of a write in two bases: all but times, which the etags are made of, too."""
    identities = [one[0] if len(one) == 1 else list(one) for one in made.identities]
    counts = {name: getattr(made, name) for name in ("inserted", "updated", "unchanged", "deleted", "pending")}
    return counts | {"identities": identities, "ids": list(made.ids)}


def counts(made: Any) -> dict[str, Any]:
    return {"inserted": made.inserted, "updated": made.updated, "unchanged": made.unchanged, "errors": len(made.errors)}


def changed(made: Any) -> dict[str, Any]:
    return {"name": made.name, "records": made.records, "files": list(made.files)}


WRITES = [
    Case(["col", "init", "notes", "--policy", "knowledge-base"], lambda kb: kb.collections.init("notes", policy="knowledge-base"), shown=changed),
    Case(["col", "init", "kv", "--policy", "simple-kv"], lambda kb: kb.collections.init("kv", policy="simple-kv"), shown=changed),
    Case(
        ["col", "init", "vectors", "--policy", "feature-store", "--params", '{"dimension": 2}'],
        lambda kb: kb.collections.init("vectors", policy="feature-store", params={"dimension": 2}), shown=changed,
    ),
    Case(["put", "notes"], lambda kb: kb.put("notes", [json.loads(line) for line in LINES.splitlines()]), LINES, receipt),
    Case(["put", "kv", '{"key": "语言", "value": {"a": [1, null]}}'], lambda kb: kb.put("kv", {"key": "语言", "value": {"a": [1, None]}}), shown=receipt),
    Case(["put", "kv", '{"key": "语言", "more": 1}', "--merge"], lambda kb: kb.put("kv", {"key": "语言", "more": 1}, merge=True), shown=receipt),
    Case(["put", "kv", "--batch"], lambda kb: kb.put_batch("kv", b'{"key": "b"}\n{"key": 5}\n{\n'), '{"key": "b"}\n{"key": 5}\n{\n', counts),
    Case(["put", "vectors"], lambda kb: kb.put("vectors", [{"id": "x", "tensor": [1, 0]}, {"id": "y", "tensor": [0.6, 0.8]}]),
         '{"id": "x", "tensor": [1, 0]}\n{"id": "y", "tensor": [0.6, 0.8]}\n', receipt),
    Case(["delete", "kv", "b"], lambda kb: kb.delete("kv", "b"), shown=receipt),
    Case(["rename", "notes", "n5", "空"], lambda kb: kb.rename("notes", "n5", "空"), shown=receipt),
]  # fmt: skip


EVERY = "+__id,__created_at,__updated_at,_scores"


def hits(found: Any) -> list[dict[str, Any]]:
    """Each hit as its line, less the chunk that is shown."""
    lines = []
    for hit in found:
        line = {"__id": hit.id, **hit.record, "__created_at": hit.times[0], "__updated_at": hit.times[1]}
        line |= {"_type": hit.type, "_etag": hit.etag, "_engine": hit.engine}
        line |= {} if hit.score is None else {"_score": hit.score}
        lines.append(line | ({} if hit.scores is None else {"_scores": hit.scores}))
    return lines


def find(*args: str, **asked: Any) -> Case:
    query = next((arg for arg in args[:1] if not arg.startswith("-")), None)
    return Case(["find", "notes", *args, "--fields", EVERY], lambda kb: kb.find("notes", query, **asked), shown=hits)


READS = [
    find("fox 数据库"),
    find("fox 数据库", "-s", mode="similar"),
    find("fox 数据库", "-m", "-l", "2", mode="match", limit=2),
    find("fox 数据库", "-H", "-w", "size < 4", mode="hybrid", where="size < 4"),
    find("-w", "content LIKE '%数据%' OR size = 5", where="content LIKE '%数据%' OR size = 5"),
    Case(["find", "vectors", "--vector", "-", "-w", "id <> 'z'", "--fields", f"{EVERY},tensor"], lambda kb: kb.find("vectors", vector=[0.0, 2.0], where="id <> 'z'"), "[0, 2]", hits),
    Case(["get", "kv", "语言"], lambda kb: kb.get("kv", "语言"), shown=lambda line: [line]),
    Case(["list", "notes", "--after", "n1", "-l", "9", "--fields", "+__id,__created_at,__updated_at"], lambda kb: kb.list("notes", after="n1", limit=9), shown=list),
    Case(["export", "notes"], lambda kb: kb.export("notes"), shown=list),
    Case(["col", "list"], lambda kb: kb.collections.list()),
    Case(["col", "show", "vectors"], lambda kb: kb.collections.show("vectors"), shown=lambda line: [line]),
    Case(["policy", "list"], lambda kb: kb.collections.policies()),
    Case(["policy", "show", "hybrid/knowledge-base"], lambda kb: kb.collections.policy("hybrid/knowledge-base"), shown=lambda line: [line]),
]  # fmt: skip
WRONG = [
    Case(["find", "kv", "words", "-s"], lambda kb: kb.find("kv", "words", mode="similar")),
    Case(["find", "vectors", "words", "-m"], lambda kb: kb.find("vectors", "words", mode="match")),
    Case(["find", "vectors", "words"], lambda kb: kb.find("vectors", "words")),
    Case(["find", "vectors"], lambda kb: kb.find("vectors")),
    Case(["find", "vectors", "--vector", "-"], lambda kb: kb.find("vectors", vector=[1.0, 2.0, 3.0]), "[1, 2, 3]"),
    Case(["find", "notes", "-w", "sizes = 1"], lambda kb: kb.find("notes", where="sizes = 1")),
    Case(["find", "nothing", "fox"], lambda kb: kb.find("nothing", "fox")),
    Case(["get", "kv", "nothing"], lambda kb: kb.get("kv", "nothing")),
    Case(["put", "kv", '{"value": 1}'], lambda kb: kb.put("kv", {"value": 1})),
    Case(["put", "vectors", '{"tensor": [1]}'], lambda kb: kb.put("vectors", {"tensor": [1]})),
    Case(["col", "init", "kv", "--policy", "simple-kv"], lambda kb: kb.collections.init("kv", policy="simple-kv")),
    Case(["col", "init", "new", "--policy", "simple"], lambda kb: kb.collections.init("new", policy="simple")),
    Case(["col", "init", "new", "--policy", "simple-kv", "--params", '{"a": 1}'], lambda kb: kb.collections.init("new", policy="simple-kv", params={"a": 1})),
    Case(["col", "rm", "kv"], lambda kb: kb.collections.remove("kv")),
    Case(["col", "rename", "kv", "notes"], lambda kb: kb.collections.rename("kv", "notes")),
    Case(["col", "restore", "nowhere"], lambda kb: kb.collections.restore("nowhere")),
]  # fmt: skip


@dataclass(frozen=True)
class Doors:
    """Two bases that the same writes went into, one by each door, and what each door said of them."""

    typed: Path
    kb: Kb
    said: list[tuple[Case, Mapping[str, Any], Mapping[str, Any]]]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        config = f"global: {{embedding_model: far, embedding: {place}}}\n"
        roots = [make_base(tmp_path_factory.mktemp(name) / "kb", config) for name in ("typed", "called")]
        for root in roots:
            assert run_in(root, ["trust"]).code == 0
        with duckkb.open(roots[1]) as kb:
            said = [
                (case, run_in(roots[0], case.args, stdin=case.stdin).line, case.shown(case.call(kb))) for case in WRITES
            ]
        with duckkb.open(roots[0]) as kb:
            yield Doors(roots[0], kb, said)


def test_writes_say_the_same_through_both_doors(doors: Doors) -> None:
    for case, line, shown in doors.said:
        assert {name: line[name] for name in shown} == shown, case
    assert len(doors.said) == len(WRITES)


@pytest.mark.long
@pytest.mark.parametrize("case", READS, ids=str)
def test_answers_are_equal_through_both_doors(doors: Doors, case: Case) -> None:
    ran = run_in(doors.typed, case.args, stdin=case.stdin)
    assert ran.code == 0 and ran.err == ""
    lines = [{name: value for name, value in line.items() if name != "_chunk"} for line in ran.lines]
    assert lines == json.loads(json.dumps(case.shown(case.call(doors.kb)))) and lines


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_refusals_are_equal_through_both_doors(doors: Doors, case: Case) -> None:
    ran = run_in(doors.typed, [*case.args, "--json"], stdin=case.stdin)
    with pytest.raises(DuckkbError) as caught:
        case.call(doors.kb)
    error = caught.value
    assert (ran.code, ran.out) == (error.exit_code, "")
    assert ran.error["error"] == error.message and ran.error["code"] == error.code
    suggestion = ran.error["suggestion"]
    if error.suggestion.startswith("duckkb "):  # the command line keeps the options that were typed
        suggestion = suggestion.removesuffix(" --json")
    if case.args == ["find", "vectors"]:  # and knows that `find TYPE` alone means to list it
        assert suggestion == "duckkb list vectors" and error.suggestion
        return
    assert suggestion == error.suggestion != ""
