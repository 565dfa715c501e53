"""What is published answers as a clone at that commit does: the same records in the same order with the same scores, by every
question. A target is one line of `TARGETS`; what it is not exact in, it says there."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from duckkb import app
from duckkb.types.errors import DuckkbError
from tests.conftest import commit, make_base
from tests.fakes import HashEmbedder

CONFIG = """\
global: {embedding_model: multilingual-e5-small, fusion: {method: minmax, weight: 0.5, gate: 0.2}}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties:
        id: {type: string}
        title: {type: string}
        text: {type: string}
        topic: {type: string}
        size: {type: integer}
        share: {type: number}
        done: {type: boolean}
        day: {type: string, format: date}
        moment: {type: string, format: date-time}
        tags: {type: array, items: {type: string}}
        meta: {type: object}
      required: [id]
    search: {full_text: [{field: title, weight: 2.0}, text], vectors: [text]}
  Person:
    table: person
    identity: [country, number]
    schema:
      type: object
      properties: {country: {type: string}, number: {type: integer}, name: {type: string}}
    search: {full_text: [name]}
edges:
  cites: {from: Note, to: Note, schema: {type: object, properties: {why: {type: string}}}}
  about: {from: Note, to: [Note, Person]}
"""
WORDS = [
    "the",
    "river",
    "flows",
    "slowly",
    "past",
    "old",
    "mills",
    "and",
    "fish",
    "swim",
    "under",
    "a",
    "stone",
    "bridge",
    "near",
    "the",
    "quiet",
    "town",
]
CHINESE = [
    "知识引擎把记录保存在仓库里",
    "DuckDB内存数据库适合分析",
    "水是生命之源",
    "喝水有益健康",
    "数据库的内存管理很重要",
]
QUESTIONS = [
    "river",
    "fish swim slowly",
    "swimming fishes",
    '"old mills"',
    '"fish swim" riv*',
    "riv* -fish",
    "-fish",
    '-"stone bridge" town',
    '"past ol*"',
    "内存",
    "数据库 内存 fish",
    "水",
    '"内存管理"',
    "nothing of this stands anywhere",
    "bridge bridge river",
    "!!!",
]
FILTERS = [
    None,
    "topic = 'rivers' AND size > 3",
    "size IN (1, 2, 3) OR done",
    "NOT (topic LIKE 'riv%') AND share <= 2.5",
    "meta.author = 'ann'",
    "meta.author IS NULL",
    "list_contains(tags, 'a') AND NOT done",
    "day BETWEEN '2021-01-01' AND '2023-06-30'",
    "moment > '2021-01-01T00:00:00+02:00'",
    "lower(topic) = 'rivers'",
    "size % 2 = 1",
    "topic = 'no such'",
    "extra = 'one'",
    "text LIKE '%river%'",
]
STATEMENTS = [
    "SELECT topic, count(*) AS n, sum(size) AS s FROM note GROUP BY topic ORDER BY topic",
    "SELECT n.id, c.why FROM note n JOIN cites c ON c.from_id = n.__id ORDER BY n.id, c.why LIMIT 5",
    "SELECT source_table, source_field, count(*) AS n, count(vector) AS v FROM search_index GROUP BY ALL ORDER BY ALL",
    "SELECT unnest(tags) AS tag, count(*) AS n FROM note GROUP BY tag ORDER BY tag",
]
REFUSED = [
    "siz = 3",
    "size = 'x'",
    "topic = NULL",
    "day = '2020-1-1'",
    "1=1; DROP TABLE note",
    "size >",
    "topic || 'a'",
]
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Tried:
    """How an address of a target is had; `exact` scores and orders are those of a clone."""

    address: Callable[[Path], str]
    exact: bool = True


def _postgres(folder: Path) -> str:
    from tests.harness.postgres import shared

    return shared().database()


def _lance(folder: Path) -> str:
    pytest.importorskip("lancedb", reason="LanceDB is not installed: `make test-lance`")
    return f"lance:{folder / 'lance'}"


TARGETS = {"postgres": Tried(_postgres), "lance": Tried(_lance)}


def note(number: int) -> dict[str, Any]:
    """Texts of some chunks, fields that are there and are not, and values of each kind."""
    words = [WORDS[(number * step) % len(WORDS)] for step in range(1, 8 + number % 9)]
    text = " ".join(words) + ("" if number % 3 else CHINESE[number % len(CHINESE)])
    made: dict[str, Any] = {
        "id": f"n{number:03}",
        "title": " ".join(words[:3]),
        "text": text * (1 if number % 11 else 40),
    }
    more = {
        "topic": ["rivers", "towns", "Rivers", "内存"][number % 4],
        "size": number % 7,
        "share": number / 8,
        "done": number % 2 == 0,
        "day": f"202{number % 5}-0{1 + number % 9}-11",
        "moment": f"202{number % 4}-01-01T00:00:0{number % 10}{['Z', '+02:00', '.5Z'][number % 3]}",
        "tags": [["a"], ["a", "b"], []][number % 3],
        "meta": [{"author": "ann"}, {"author": 3}, {"author": None}, {"other": 1}][number % 4],
        "extra": ["one", 3, True][number % 3],
    }
    return made | {name: value for at, (name, value) in enumerate(more.items()) if (number + at) % 6}


@dataclass(frozen=True)
class Both:
    """A clone, and what is published of the commit that it has."""

    here: app.KnowledgeBase
    there: app.KnowledgeBase
    root: Path
    address: str
    exact: bool


@pytest.fixture(scope="module", params=TARGETS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    tried, folder = TARGETS[request.param], tmp_path_factory.mktemp("published")
    root, model = make_base(folder / "kb", CONFIG), HashEmbedder()
    address = tried.address(folder)
    with app.open(root, embedder=model, sql_in_process=True) as kb:
        kb.put("Note", [note(number) for number in range(90)])
        kb.put("Person", [{"country": "de", "number": number, "name": f"Ann River {number}"} for number in range(9)])
        kb.put("cites", [{"from": "n001", "to": f"n{to:03}", "why": f"w{to}"} for to in range(2, 9)])
        kb.put("about", [{"from": "n002", "to": {"type": "Person", "id": ["de", 3]}}, {"from": "n002", "to": "n003"}])
        kb.index_build()
        commit(root)
        app.publish(root, to=address, embedder=model)
        kb.put("Note", [note(number) | {"title": "changed"} for number in range(5, 9)])
        kb.put("Note", [note(number) for number in range(90, 97)])
        kb.delete("Note", "n020", "n021")
        kb.index_build()
        commit(root)
        assert app.publish(root, to=address, embedder=model).how == "delta"
        with app.open(root, embedder=model, sql_in_process=True, backend=address) as published:
            yield Both(kb, published, root, address, tried.exact)


def answered(ask: Callable[[], Any]) -> Any:
    """What is answered, or how it is refused."""
    try:
        return ask()
    except DuckkbError as problem:
        return problem.code, problem.message


def told(found: Any) -> Any:
    """Hits as plain values; scores stay numbers."""
    if isinstance(found, tuple):
        return found
    hits = [
        (hit.type, hit.identity, hit.etag, hit.chunk, hit.record, hit.score, hit.scores, _plain(hit.trace))
        for hit in found
    ]
    return hits, [one.code for one in found.notices if one.code != "W_BEHIND"], _plain(found.explain)


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list)) if value is not None else None


def assert_alike(one: Any, other: Any, where: str = "") -> None:
    """Equal, but for the millionth of a number that 32-bit floats lose."""
    if isinstance(one, float) and isinstance(other, (int, float)):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6), where
    elif isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_alike(one[name], other[name], f"{where}/{name}")
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        assert len(one) == len(other), where
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_alike(left, right, f"{where}/{at}")
    else:
        assert one == other, where


def ask_both(both: Both, **given: Any) -> None:
    there, here = (answered(lambda: kb.find(**given)) for kb in (both.there, both.here))  # noqa: B023
    assert_alike(told(there), told(here), str(given))
    assert given.get("where") in REFUSED or not isinstance(here, tuple), (given, here)


@pytest.mark.parametrize("mode", ["match", "similar", "hybrid"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_xd_06_every_mode_answers_alike_with_and_without_filters(both: Both, mode: str, question: str) -> None:
    for where in FILTERS if question in QUESTIONS[1:3] else FILTERS[:3]:
        ask_both(both, type="Note", query=question, mode=mode, where=where, limit=7)


@pytest.mark.parametrize("question", QUESTIONS)
def test_scores_are_explained_alike(both: Both, question: str) -> None:
    for mode in ("match", "hybrid"):
        ask_both(both, type="Note", query=question, mode=mode, limit=4, explain=True)


@pytest.mark.parametrize("question", QUESTIONS[:6])
def test_all_types_are_ranked_alike(both: Both, question: str) -> None:
    ask_both(both, type="all", query=question, mode="match", limit=30)
    ask_both(both, type="all", query=question, limit=100)


@pytest.mark.parametrize("where", [*FILTERS[1:], *REFUSED])
def test_filters_let_the_same_records_through(both: Both, where: str) -> None:
    ask_both(both, type="Note", where=where, limit=1000)


@pytest.mark.parametrize("fusion", ["rrf", "minmax"])
def test_dk_20_both_ways_of_fusing_and_feedback_answer_alike(both: Both, fusion: Any) -> None:
    from duckkb.types.settings import Expansion, Fusion

    for question in QUESTIONS[:5]:
        ask_both(
            both, type="Note", query=question, mode="hybrid", fusion=Fusion(fusion), expansion=Expansion("feedback")
        )


def test_records_and_edges_are_read_alike(both: Both) -> None:
    here, there = both.here, both.there
    asked: list[Callable[[app.KnowledgeBase], Any]] = [
        lambda kb: [*kb.list("Note", limit=20)],
        lambda kb: kb.list("Note", after="n050", limit=7).next,
        lambda kb: [*kb.list("Person")],
        lambda kb: kb.get("Person", ("de", 3)),
        lambda kb: kb.get("Note", "no such"),
        lambda kb: [*kb.export("cites")],
        lambda kb: [*kb.types()],
        lambda kb: kb.field_names("Note"),
        lambda kb: [*kb.neighbors("Note", "n001")],
        lambda kb: [*kb.neighbors("Person", ("de", 3), depth=3)],
        lambda kb: [*kb.neighbors("Note", "n003", direction="in", label="cites")],
        lambda kb: [*kb.path(("Note", "n001"), ("Note", "n005"))],
        *(lambda kb, text=text: kb.sql(text) for text in STATEMENTS),
        lambda kb: kb.sql("SELECT * FROM nowhere"),
    ]
    for question in asked:
        assert answered(lambda: question(there)) == answered(lambda: question(here))  # noqa: B023


def test_what_is_published_is_what_it_says(both: Both) -> None:
    told = app.verify_published(both.root, to=both.address, embedder=HashEmbedder())
    assert told["faults"] == [] and told["records"]["Note"] == 95


def test_no_clone_is_needed(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with app.open(embedder=HashEmbedder(), sql_in_process=True, backend=both.address) as alone:
        found = alone.find("Note", "river", mode="hybrid", where="size > 2")
        assert_alike(told(found), told(both.here.find("Note", "river", mode="hybrid", where="size > 2")))
        assert alone.published == both.there.published and alone.notices == ()
