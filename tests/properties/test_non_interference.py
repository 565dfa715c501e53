"""Who sees some types of a base cannot tell what else there is: two bases that are equal in these types answer alike, byte for
byte, whatever the others hold and whatever happens there."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.engine import index_status
from duckkb.engine.base import Base
from duckkb.engine.scoped_base import NarrowedBase, narrow_base
from duckkb.operations import record_origins
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.dispatch import failure
from duckkb.types.errors import OntologyError, Refused
from duckkb.types.request_context import Caller
from tests.harness import worlds
from tests.harness.worlds import DEEDS, GRANTED, HIDDEN, WORDS, Hidden, Visible

PACKAGE = Path(__file__).resolve().parents[2] / "duckkb"
REQUESTS, LAST = 64, 6
Request = tuple[str, Mapping[str, Any], str]
"""An action, its arguments, and the role that asks."""
Ask = Callable[[KnowledgeBase, Request], str]

KNOWN = [("Note", "n1"), ("Note", "n3"), ("note", "n19"), ("Person", "p1"), ("about", ["n0", "p0"]), ("docs", "d0.md")]
UNKNOWN = [
    *((name, "n0") for name in (*HIDDEN, *map(str.lower, HIDDEN), "Nots", "Secrt", "nope", "")),
    *(("leaks0", ["n0", "n0"]), ("inner", ["n0", "n0"]), ("both", ["n1", "p1"]), ("hid", "d0.md"), ("hid_links", ["d0.md"])),
    *(("Note", "zzz"), ("Person", "n1"), ("docs", "only.md"), ("docs", "d9.md"), ("about", ["n0", "n0"]), ("Note", 5)),
]  # fmt: skip
TABLES = ["note", "person", "about", "docs", "docs_links", "search_index"]
UNSEEN = [
    "nots",
    "search_cache",
    "__base_node_note",
    "__base_node_secret",
    "duckdb_views()",
    "information_schema.tables",
]
UNSEEN += ["duckdb_tables()", "sqlite_master", '"SECRET"', "leaks0", "inner", "both", "hid", "hid_links"]
UNSEEN += map(str.lower, HIDDEN)
FROM = [
    *("SELECT count(*) FROM {}", "SELECT * FROM {} ORDER BY ALL LIMIT 5", "DESCRIBE {}", "SUMMARIZE {}", "SHOW TABLES"),
    *("SELECT n.id, (SELECT count(*) FROM {}) FROM note n ORDER BY 1 LIMIT 2", "SHOW ALL TABLES", "PRAGMA show_tables"),
    "SELECT source_table, count(*), sum(hash(content)) FROM search_index GROUP BY 1 ORDER BY 1",
]
QUESTIONS = [
    "alpha",
    "beta gamma",
    "alpha -beta",
    '"alpha beta"',
    "al*",
    "secret alpha",
    "内存 storage",
    "title",
    "document",
]
LINES = ["lex: alpha", "vec: beta", "lex: alpha -gamma\nvec: beta", ""]
FILTERS = ["topic = 'a'", "topic like 'a%'", "id in ('n1', 'p1')", "NOT topic = 'b'", "length(text) > 12", "id <> ''"]
FILTERS += ["bogus = 1", "topic =", "secret.id = 'n1'", "id in (select id from secret)", "path like '%d0%'", "a.b = 1"]
DOCUMENTS = [
    "docs/d0.md",
    "d0.md",
    "d1.md:2",
    "duckkb://docs/d1.md",
    "duckkb://hid/d0.md",
    "hid/only.md",
    "only.md",
    "onl.md",
]
DOCUMENTS += [
    "#abcdef",
    "hid/linked.md",
    "docs/../hid/d0.md",
    "docs",
    "hid",
    "Secret",
    "note",
    "/etc/passwd",
    "../docs/d0.md",
]
PATTERNS = ["*", "**/*.md", "hid/*", "docs/*,hid/*", "docs/d0.md,hid/d0.md,nope.md"]
Draw = Callable[[random.Random], Any]


def _any(*values: Any) -> Draw:
    return lambda chance: chance.choice(values)


def _chosen(chance: random.Random) -> tuple[str, Any]:
    """A type and an identity: of three two that are there."""
    return chance.choice(KNOWN if chance.random() < 0.67 else UNKNOWN)


def _record(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.2:
        ends = ["p1", "n0", {"type": "Secret", "id": "n0"}, {"type": "Person", "id": "p2"}]
        return {"from": chance.choice(["n0", "n7", "zzz"]), "to": chance.choice(ends)}
    text = {chance.choice(["text", "text", "text", "txt"]): " ".join(chance.choices(WORDS, k=3))}
    return {"id": chance.choice(["n1", "n2", "new", "p1", "fresh"]), "topic": chance.choice("ab"), **text}


_flag = _any(True, False)
KEYS = ["k1", "k2", "k3", "kk", "hidden", "n1"]
SCOPES = ["t", "t", "t", "t/work", "u", "u/t", "t2", "tt", "no", ""]
ARGUMENTS: Mapping[str, Draw] = {
    "at": _any("HEAD", "nope"), "fields": _any(["id"], ["+_chunk"], ["text", "_score"], ["secret"], ["nope"]), "provenance": _flag,
    "answers": _any([], [{"type": "Note", "identity": "n1", "field": "text", "choose": "ours"}]), "branch": _any("main", "topic", "nope"),
    "k": _any(3, 10), "ops": _any([], ["update"], ["insert", "delete"]), "stage": _flag,
    "after": _any("n1", "n3", "", "p0", '["about","out",["n1","n2"]]'), "arch_hints": _any(False, False, True), "budget": _any(200, 2_000, 1_000_000),
    "candidates": _any(5), "cascade": _flag, "depth": _any(1, 2, 4), "direction": _any("out", "in", "both"),
    "citation": _any("duckkb://Note/n1", "duckkb://Note/n1@HEAD", "duckkb://Secret/n3", "duckkb://Secret/n1@HEAD", "duckkb://Note/nope", "no citation"), "collections": _any([], ["docs"], ["docs"], ["hid"], ["docs", "hid"], ["Note"], ["nope"]), "document": _any(*DOCUMENTS),
    "dry_run": _flag, "embed": _flag, "end": lambda chance: list(_chosen(chance)), "explain": _flag, "field": _any("id", "text", "nope"), "first": _any(1, 3),
    "form": _any("markdown", "plain", "json"), "neighbors": _flag, "types": _any([], ["Note"], ["docs"], ["Secret"], ["nope"]),
    "graph": _any("arch", "Note", "Secret"), "intent": _any("", "", "alpha"),
    "searches": _any([], [], [{"type": "lex", "query": "alpha"}, {"type": "vec", "query": "beta gamma"}], [{"type": "hyde"}]),
    "full": _flag, "identities": lambda chance: [_chosen(chance)[1]], "identity": lambda chance: _chosen(chance)[1],
    "if_match": _any("0123456789abcdef"), "ignore": _any(["topic"]), "limit": _any(1, 3, 30), "lines": _any(1, 3),
    "label": _any("about", "about", ["about"], "leaks0", "both", "nope"), "merge": _flag, "min_score": _any(0, 0.4),
    "mode": _any("similar", "match", "hybrid", "where"), "most": _any(10, 10_000), "new": _any("n1", "m1", "m2"),
    "key": _any(*KEYS), "keys": _any(["k1"], ["k1", "k2"], ["hidden"]), "links": _any(["duckkb://Note/n1"], ["no link"]),
    "scope": _any(*SCOPES), "source": _any("a talk", ""), "tags": _any([], ["a"], ["a", "b"]),
    "text": _any("alpha beta remembered", "内存 storage gamma remembered", ""), "old": lambda chance: _chosen(chance)[1], "pattern": _any(*DOCUMENTS, *PATTERNS), "query": _any(*QUESTIONS, ""),
    "only": _any(["Note"], ["Note:n3"], ["docs"], ["Secret"], ["Secret:n3"], ["hid"], ["nope"]),
    "question": _any(*QUESTIONS, *LINES), "rerank_timeout_ms": _any(1000), "start": lambda chance: list(_chosen(chance)),
    "records": lambda chance: [_record(chance)] if chance.random() < 0.5 else _record(chance),
    "statement": lambda chance: chance.choice(FROM).format(chance.choice(TABLES if chance.random() < 0.5 else UNSEEN)),
    "timeout": _any(20), "type": lambda chance: _chosen(chance)[0], "vector": _any([0.125] * 64), "where": _any(*FILTERS),
}  # fmt: skip
"""For each parameter of any action how it is drawn; whoever adds one says so here."""


def drawn(chance: random.Random) -> Request:
    """Any action with any arguments: most name what is there, as all others fail alike."""
    action = chance.choice([*ACTIONS.values()])
    draws = {name: ARGUMENTS[name] for name in action.input["properties"] if name not in action.privileged}
    chosen = [name for name in draws if name in action.input["required"] or chance.random() < 0.25]
    given = {name: draws[name](chance) for name in chosen}
    type, identity = _chosen(chance)
    match action.name:
        case "get":
            given = chance.choice([given, {"type": type, "identity": identity}, {"document": chance.choice(DOCUMENTS)}])
        case "find":
            given |= {"type": chance.choice([type, type, "all"]), "query": chance.choice(QUESTIONS)}
        case "put":
            given |= chance.choice([given, {"type": "Note", "records": _record(chance)}])
        case "neighbors" | "why" | "near" | "citing" | "blame" | "log":
            given |= {"type": type, "identity": identity}
        case "delete":
            given |= {"type": type, "identities": [identity]}
        case "rename":
            given |= {"type": type, "old": identity}
        case "memory_search" | "memory_history" | "memory_put" | "memory_mark_accessed":
            given |= {"scope": chance.choice(SCOPES)} if chance.random() < 0.9 else {}
    return action.name, given, "editor" if action.writes and chance.random() < 0.97 else "viewer"


def deeds_of(chance: random.Random) -> list[str | None]:
    """What happens in the hidden part before each request."""
    return [chance.choice(sorted(DEEDS)) if chance.random() < 0.15 else None for _ in range(REQUESTS)]


seeds = st.integers(0, 2**32 - 1)
hidden_parts = st.builds(
    Hidden,
    seeds,
    st.sampled_from([(), *combinations(HIDDEN, 1), *combinations(HIDDEN, 2)]),
    st.integers(0, 30),
    st.integers(0, 2),
    st.lists(st.sampled_from(sorted(DEEDS)), max_size=3).map(tuple),
)
visible_parts = st.builds(
    Visible, seeds, st.frozensets(st.sampled_from(["Note", "Person"])), st.booleans(), st.booleans()
)


@pytest.fixture(autouse=True)
def one_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clones write into parts of their own: here both bases are to be one clone."""
    monkeypatch.setenv("DUCKKB_WRITER", "one")


def asked(kb: KnowledgeBase, request: Request) -> str:
    """The answer or the error, as a server gives it."""
    name, arguments, role = request
    try:
        told = kb.run(name, arguments, Caller("t", role, GRANTED))  # type: ignore[arg-type]
    except Exception as problem:
        told = failure(problem)
        assert told["error"]["code"] != "E_INTERNAL", (request, repr(problem))
    return json.dumps(told, ensure_ascii=False)


def answers(
    root: Path, visible: Visible, hidden: Hidden, requests: Sequence[Request], deeds: Sequence[str | None], ask: Ask
) -> list[str]:
    worlds.base(root, visible, hidden)
    found: list[str] = []
    with worlds.opened(root) as kb:
        for request, deed in zip(requests, deeds, strict=True):
            if deed:
                worlds.do(deed, root, kb)
            if visible.torn and len(found) == REQUESTS - LAST:
                worlds.tear(next((root / "data" / "nodes" / "person").glob("*/*.jsonl")))
            found.append(ask(kb, request))
            assert str(root) not in found[-1], request
    return found


@pytest.mark.long
@settings(max_examples=32, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(visible=visible_parts, one=hidden_parts, other=hidden_parts, seed=seeds)
def test_what_is_hidden_changes_no_byte(
    tmp_path_factory: pytest.TempPathFactory, visible: Visible, one: Hidden, other: Hidden, seed: int
) -> None:
    home, chance = tmp_path_factory.mktemp("worlds"), random.Random(seed)
    requests = [drawn(chance) for _ in range(REQUESTS)]
    first = answers(home / "one", visible, one, requests, deeds_of(chance), asked)
    second = answers(home / "other", visible, other, requests, deeds_of(chance), asked)
    for request, told, told_there in zip(requests, first, second, strict=True):
        assert told == told_there, request


LEAKS: Sequence[Request] = (
    ("find", {"type": "all", "query": "alpha beta", "mode": "match", "limit": 5}, "viewer"),
    ("sql", {"statement": "SHOW TABLES"}, "viewer"),
    ("get", {"type": "Secrt", "identity": "n1"}, "viewer"),
    ("get", {"type": "Secret", "identity": "n1"}, "viewer"),
    ("neighbors", {"type": "Note", "identity": "n1", "label": "leaks0"}, "viewer"),
    ("query", {"question": "alpha", "limit": 3}, "viewer"),
    ("check", {}, "viewer"),
    ("put", {"type": "Note", "records": {"id": "x", "text": "all hidden text"}, "embed": False}, "editor"),
    ("find", {"type": "Note", "query": "alpha", "mode": "similar"}, "viewer"),
)


def behind(kb: KnowledgeBase, request: Request) -> str:
    """What a door does that asks the whole base and leaves out of the answer what the caller may not see."""
    name, arguments, role = request
    try:
        told = kb.run(name, arguments, Caller("t", role))  # type: ignore[arg-type]
    except Exception as problem:
        told = failure(problem)
    return json.dumps(worlds.left_out(told), ensure_ascii=False, sort_keys=True)


@pytest.mark.long
def test_a_filter_behind_the_answer_would_be_seen(tmp_path: Path) -> None:
    """The control: with it each of these requests tells one base from the other."""
    visible, none = Visible(touched=frozenset({"Note"})), Hidden()
    secret = Hidden(1, ("Secret",), 30, 2, ("stray",))
    for ask, differs in ((behind, True), (asked, False)):
        home = tmp_path / ask.__name__
        both = []
        for name, hidden in (("none", none), ("secret", secret)):
            worlds.base(home / name, visible, hidden)
            with worlds.opened(home / name) as kb:
                if hidden.types:
                    kb.put("Secret", {"id": "guess", "text": "all hidden text"})
                both.append([ask(kb, request) for request in LEAKS])
        told = {json.dumps(request[:2]): one != other for request, one, other in zip(LEAKS, *both, strict=True)}
        assert told == dict.fromkeys(told, differs)


def test_a_record_at_which_hidden_edges_may_end_is_not_deleted_whether_there_are_any_or_not(tmp_path: Path) -> None:
    worlds.base(tmp_path / "kb", Visible(touched=frozenset({"Note"})), Hidden(1, ("Secret",), 5))
    with worlds.opened(tmp_path / "kb") as kb:
        before = kb.check().findings
        gone = [("delete", {"type": "Note", "identities": [name]}, "editor") for name in ("n1", "n15", "nowhere")]
        told = {asked(kb, request) for request in gone}
        assert len(told) == 1 and "E_FORBIDDEN" in told.pop()
        assert "E_FORBIDDEN" in asked(kb, ("rename", {"type": "Note", "old": "n15", "new": "n99"}, "editor"))
        done = asked(kb, ("delete", {"type": "Person", "identities": ["p3"], "cascade": True}, "editor"))
        assert json.loads(done)["deleted"] == 2, "the person, and the edge that leads there"
        assert kb.check().findings == before


def test_where_the_whole_base_cannot_be_loaded_all_are_told_one_error_and_no_name(tmp_path: Path) -> None:
    root = worlds.base(tmp_path / "kb", Visible(), Hidden(1, ("Secret",), 5))
    types = root / "ontology" / "types.yaml"
    with worlds.opened(root) as kb:
        before = types.read_text("utf-8")
        types.write_text(before + "  Secretive: {from: Secret, to: Nowhere}\n", "utf-8")
        told = asked(kb, ("find", {"type": "Note", "query": "alpha"}, "viewer"))
        assert json.loads(told)["error"]["code"] == "E_UNAVAILABLE" and "ecret" not in told
        with pytest.raises(OntologyError, match="Nowhere"):
            kb.run("types", {})
        types.write_text(before, "utf-8")
        assert "E_UNAVAILABLE" not in asked(kb, ("find", {"type": "Note", "query": "alpha"}, "viewer"))


def test_what_tells_of_the_machine_is_refused(tmp_path: Path) -> None:
    root = worlds.base(tmp_path / "kb", Visible(), Hidden(1, ("Secret",), 5))
    with worlds.opened(root) as kb:
        view = narrow_base(kb._base, GRANTED)
        for ask in (
            index_status.status,
            lambda base: record_origins.Provenance(lambda: nullcontext(base)).log("Note", "n1"),
        ):
            with pytest.raises(Refused) as refused:
                ask(view)
            assert refused.value.code == "E_FORBIDDEN"
        assert "E_FORBIDDEN" in asked(kb, ("diff", {"range": "main"}, "editor"))
    with pytest.raises(Refused), duckkb.open(root, at="HEAD") as kb:
        narrow_base(kb._base, GRANTED)


INHERITED = {
    "checked": "kept by the whole, for each part by its types",
    "dropped": "for lanes, which are the whole's",
    "embedder": "of the settings",
    "fingerprint": "of the settings",
    "holders": "of tree and counts",
    "in_memory": "of the whole's state",
    "is_narrowed": "of whole",
    "is_quickly_loaded": "for who opens a whole base",
    "lengths": "of the counts",
    "live_keys": "of tree and builder",
    "limits": "of the settings",
    "ontology": "of the wiring",
    "settings": "of the wiring",
    "list_notices": "asked of the whole base, for the visible types",
    "validator": "made by the visible types",
}
"""What a part has of `Base` as it is, and why that is right."""
ROOT = {
    "engine/boot.py",
    "engine/write.py",
    "operations/document_lookup.py",
    "operations/memories.py",
    "operations/version_diff.py",
}
"""Where files or git of the whole base are asked for a caller who may see a part: each looks at what is visible alone."""


def test_whatever_a_base_has_is_the_parts_own_or_shared_on_purpose(tmp_path: Path) -> None:
    worlds.base(tmp_path / "kb", Visible(), Hidden())
    with worlds.opened(tmp_path / "kb") as kb:
        own = {*vars(NarrowedBase), *vars(narrow_base(kb._base, GRANTED))}
        public = {name for name in {*vars(Base), *vars(kb._base)} if not name.startswith("_")}
    assert public - own == INHERITED.keys()


def test_the_places_that_know_of_parts_are_few() -> None:
    text = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    assert {name for name, source in text.items() if ".whole.root" in source} == ROOT
    assert sum(source.count("is_narrowed") + source.count("NarrowedBase)") for source in text.values()) < 17
