"""Bases that are equal in what a caller may see and differ in all else: types, edges, records, documents, broken files."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.types.errors import DuckkbError
from tests.conftest import commit, make_base
from tests.fakes import HashEmbedder

GRANTED = frozenset({"Note", "Person", "about", "docs", "both", "nothing"})
"""`both` may be there with an end that is not granted, and is hidden then; `nothing` is nowhere."""
HIDDEN = ("Notes", "Nota", "Secret", "Personal", "Search")
"""Near the visible names, and far from them."""
EDGES = ("leaks", "inner", "both")
WORDS = ("alpha", "beta", "gamma", "delta", "内存", "storage")
NOW = "2026-01-01T00:00:00.000000Z"
_SCHEMA = (
    "{type: object, properties: {id: {type: string}, topic: {type: string}, text: {type: string}}, required: [id]}"
)
_NODE = "  %s: {table: %s, identity: id, schema: " + _SCHEMA + ", search: {full_text: [text]%s}}\n"
_TEXT = {"alpha beta": "the same as of visible records", "beta": "the same as of a question"}


class _Clock:
    def now(self) -> str:
        return NOW


CLOCK = _Clock()


@dataclass(frozen=True)
class Visible:
    """What the bases have in common: records of a seed, and the types at which hidden edges end. With a `store` what is
    derived is kept on disk; of one that is `torn` a line is cut at the end."""

    seed: int = 0
    touched: frozenset[str] = frozenset()
    store: bool = False
    torn: bool = False


@dataclass(frozen=True)
class Hidden:
    """What one has besides: types with so many records of a seed, and what is done there that nobody else may notice: at once,
    and between the requests."""

    seed: int = 0
    types: tuple[str, ...] = ()
    records: int = 0
    documents: int = 0
    deeds: tuple[str, ...] = ()


def _records(chance: random.Random, letter: str, count: int) -> list[dict[str, Any]]:
    return [{"id": f"{letter}{at}", "topic": chance.choice("ab"), "text": _text(chance)} for at in range(count)]


def _text(chance: random.Random) -> str:
    return chance.choice([*_TEXT, *(" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(6))])


def _put(kb: KnowledgeBase, type: str, records: Iterable[Mapping[str, Any]]) -> None:
    if lines := b"".join(json.dumps(one).encode() + b"\n" for one in records):
        receipt = kb.put_batch(type, lines)
        assert not receipt.errors, receipt.errors


def _ontology(visible: Visible, hidden: Hidden) -> str:
    """Visible types in one order among each other, with the hidden ones before, between or behind them."""
    chance = random.Random(hidden.seed)
    nodes = ["Note", "Person"]
    for name in hidden.types:
        nodes.insert(chance.randint(0, len(nodes)), name)
    if nodes.index("Note") > nodes.index("Person"):
        raise AssertionError(nodes)
    ends = {name: chance.choice([name, *hidden.types]) for name in sorted(visible.touched)}
    edges = [f"  leaks{at}: {{from: {name}, to: {other}}}\n" for at, (name, other) in enumerate(ends.items())]
    edges.insert(chance.randint(0, len(edges)), "  about: {from: Note, to: Person}\n")
    if hidden.types:
        edges.append(f"  inner: {{from: {hidden.types[0]}, to: {hidden.types[-1]}}}\n")
    if hidden.types and visible.touched == {"Note", "Person"}:
        edges.append(f"  both: {{from: Note, to: [Person, {hidden.types[0]}]}}\n")
    vectors = {"Person": ""}
    text = "".join(_NODE % (name, name.lower(), vectors.get(name, ", vectors: [text]")) for name in nodes)
    return f"nodes:\n{text}edges:\n{''.join(edges)}"


def _fill(kb: KnowledgeBase, visible: Visible, hidden: Hidden) -> None:
    chance = random.Random(visible.seed)
    _put(kb, "Note", _records(chance, "n", 20))
    _put(kb, "Person", _records(chance, "p", 4))
    _put(kb, "about", [{"from": f"n{at}", "to": f"p{at % 4}"} for at in range(6)])
    chance = random.Random(hidden.seed)
    for name in hidden.types:
        _put(kb, name, _records(chance, "n", hidden.records))
    if hidden.types and hidden.records:
        _put(kb, "inner", [{"from": "n0", "to": "n0"}])
    for kind in kb._base.ontology.edges.values():
        if kind.name.startswith("leaks") and hidden.records:
            others = {"Note": "n", "Person": "p"}
            first, second = (others.get(name, "n") for name in (*kind.from_types, *kind.to_types))
            _put(kb, kind.name, [{"from": f"{first}{at}", "to": f"{second}0"} for at in range(3)])


def _memories(kb: KnowledgeBase, visible: Visible, hidden: Hidden) -> None:
    """Those of the tenant `t`, which it sees without a grant; and those of others, of whom one is near."""
    scopes = {"t": visible.seed, "t/work": visible.seed}
    scopes |= dict.fromkeys(("u", "u/t", "t2")[: hidden.records % 4], hidden.seed)
    for scope, seed in scopes.items():
        chance, is_own, name = random.Random(seed), scope in ("t", "t/work"), f"memory-{scope.replace('/', '-')}"
        kb.collections.init(name, policy="memory", params={"scope": scope})
        keys = [f"k{at}" for at in range(3)] if is_own else ["hidden", *(f"k{at}" for at in range(hidden.records))]
        _put(
            kb,
            name,
            [{"scope": scope, "key": key, "text": _text(chance), "tags": [chance.choice("ab")]} for key in keys],
        )
        if scope != "t":
            kb.memory.mark_accessed(["k0" if is_own else "hidden"], scope=scope)


def _documents(root: Path, kb: KnowledgeBase, hidden: Hidden) -> None:
    for name, count in (("docs", 2), ("hid", hidden.documents)):
        if not count:
            continue
        (root / name).mkdir()
        for at in range(count):
            linked = "[to](d1.md) [over](../hid/d0.md) [out](../docs/d0.md)"
            (root / name / f"d{at}.md").write_text(f"# Title {at}\n\nalpha document {at} {linked}\n", "utf-8")
        kb.documents.add(root / name, name=name)
    if hidden.documents:
        (root / "hid" / "only.md").write_text("# Only\n\nalpha alpha secret\n", "utf-8")
        (root / "hid" / "linked.md").symlink_to("/etc/passwd")
        (root / "hid" / "bytes.md").write_bytes(b"\xff\xfe\x00")
        kb.documents.add_context("hid", "very secret")


def base(root: Path, visible: Visible, hidden: Hidden) -> Path:
    """Make one, with a commit, and a change since."""
    settings = "search: {embed_wait_s: 600}\n" + ("snapshot: {min_bytes: 0}\n" if visible.store else "")
    make_base(root, settings)
    (root / "ontology").mkdir()
    (root / "ontology" / "types.yaml").write_text(_ontology(visible, hidden), "utf-8")
    with opened(root) as kb:
        _fill(kb, visible, hidden)
        _documents(root, kb, hidden)
        _memories(kb, visible, hidden)
        kb.find("all", "alpha beta")  # whether a text has a vector yet goes by whoever asked first, and is no secret
    commit(root)
    with opened(root) as kb:
        kb.put("Note", {"id": "n3", "topic": "a", "text": "changed since alpha"})
        for deed in hidden.deeds:
            do(deed, root, kb)
    return root


@contextmanager
def opened(root: Path) -> Iterator[KnowledgeBase]:
    """A base as a server has it: whole, lenient; with a search cache of its own, which knows no text of another."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DUCKKB_CACHE_HOME", str(root.with_name(f"{root.name}-cache")))
        with duckkb.open(root, embedder=HashEmbedder(), clock=CLOCK, lenient=True, sql_in_process=True) as kb:
            yield kb


def _parts(root: Path) -> list[Path]:
    tables = {name.lower() for name in HIDDEN}
    return sorted(path for path in (root / "data" / "nodes").glob("*/*/*.jsonl") if path.parts[-3] in tables)


def tear(path: Path) -> None:
    """Have a part end in a line that cannot be read."""
    path.write_bytes(path.read_bytes() + b'{"torn": \n')


def _tear(root: Path, kb: KnowledgeBase) -> None:
    for path in _parts(root)[:1]:
        tear(path)


def _empty(root: Path, kb: KnowledgeBase) -> None:
    for path in _parts(root)[-1:]:
        path.write_bytes(b"")


def _lose(root: Path, kb: KnowledgeBase) -> None:
    for path in _parts(root)[-1:]:
        path.unlink()


def _stray(root: Path, kb: KnowledgeBase) -> None:
    (root / "data" / "nodes" / "stray").mkdir(exist_ok=True)
    (root / "data" / "nodes" / "stray" / "file").write_text("x")
    (root / "data" / "unknown").write_text("x")


def _link(root: Path, kb: KnowledgeBase) -> None:
    for path in _parts(root)[:1]:
        with suppress(FileExistsError):
            (path.parent / "link.jsonl").symlink_to("/etc/passwd")
        with suppress(FileExistsError):
            (path.parent / "part_999.jsonl").symlink_to("/etc/passwd")


def _write(root: Path, kb: KnowledgeBase) -> None:
    for kind in list(kb._base.ontology.nodes):
        if kind in HIDDEN:
            kb.put(kind, [{"id": f"n{at}", "text": "alpha alpha beta written"} for at in range(30)])


def _ask(root: Path, kb: KnowledgeBase) -> None:
    kb.find("all", "alpha beta")
    kb.sql(f"SELECT count(*) FROM {kb._base.ontology.nodes[next(iter(kb._base.ontology.nodes))].table}, search_cache")


def _describe(root: Path, kb: KnowledgeBase) -> None:
    path = root / "ontology" / "types.yaml"
    path.write_text(path.read_text("utf-8") + "# changed\n", "utf-8")


def _edit(root: Path, kb: KnowledgeBase) -> None:
    for path in sorted((root / "hid").glob("d*.md"))[:1]:
        path.write_text(path.read_text("utf-8") + "alpha edited\n", "utf-8")


def _rename(root: Path, kb: KnowledgeBase) -> None:
    for path in sorted((root / "hid").glob("d*.md"))[:1]:
        path.rename(path.with_name("moved.md"))


DEEDS: Mapping[str, Callable[[Path, KnowledgeBase], None]] = {
    one.__name__.strip("_"): one
    for one in (_tear, _empty, _lose, _stray, _link, _write, _ask, _describe, _edit, _rename)
}
"""What happens in the hidden part, or is done by who sees all of it."""


def do(deed: str, root: Path, kb: KnowledgeBase) -> None:
    """Do it, where the base as it has become allows it."""
    with suppress(DuckkbError):
        DEEDS[deed](root, kb)


def left_out(told: dict[str, Any]) -> dict[str, Any]:
    """What is left of an answer about the whole base where a filter behind it leaves out the types that are not granted."""
    for several in ("results", "records", "path"):
        if isinstance(told.get(several), list):
            told[several] = [one for one in told[several] if one.get("_type", "Note") in GRANTED]
    if isinstance(told.get("records"), dict):
        told["records"] = {name: count for name, count in told["records"].items() if name in GRANTED}
    return {name: told[name] for name in told.keys() - {"root", "revision", "store", "cache"}}
