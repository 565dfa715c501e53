"""A patch leads from one version to the other and back, byte for byte, whatever became of the records."""

import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import duckkb
from duckkb.app import KnowledgeBase
from duckkb.config import environment, load
from duckkb.operations.lifecycle import OpenOptions
from duckkb.review.diff_model import Diff, DiffOptions, Label, Versions, parse, render
from duckkb.review.record_changes import Types, compare
from duckkb.storage.line import Limits
from duckkb.types.errors import Conflict
from tests.conftest import make_base, tree_bytes

CONFIG = """\
global: {embedding_model: none}
nodes:
  Note: {table: note, identity: id, schema: {properties: {id: {type: string}}}}
  Person:
    table: person
    identity: [country, number]
    schema: {properties: {country: {type: string}, number: {type: integer}}}
edges:
  cites: {from: Note, to: Note}
  wrote: {from: Person, to: Note, identity: [since], schema: {properties: {since: {type: integer}}}}
"""
IDENTITY = {"note": ("id",), "person": ("country", "number"), "cites": ("from", "to"), "wrote": ("from", "to", "since")}
EDGES = ("cites", "wrote")
TEXTS = (
    "",
    "fox",
    "知识库 engine",
    'a\nb\t"c" \\d',
    "e\u0301 é 🦆",
    "\u202e reordered \u2028",
    "x" * 900,
    "🧑‍🚀 𠀀",
    "null",
)
DAYS = ("20260101", "20260102", "20251231")
State = Mapping[str, Mapping[int, tuple[str, Mapping[str, Any]]]]
"""By table and `__id`: the part and the record."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: hundreds of writes wait for the disk several times each."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


@pytest.mark.long
def test_a_patch_leads_to_the_newer_version_and_back(folder: Path, request: pytest.FixtureRequest) -> None:
    pairs = 2_000 if request.config.getoption("--campaign") == "full" else 250
    chance = random.Random(request.config.getoption("--seed"))
    root = make_base(folder / "kb", CONFIG)
    kinds = load(root, environment()).ontology
    state = _random_state(chance)
    _write(root, _files(state))
    with KnowledgeBase(root, OpenOptions()) as kb:
        for number in range(pairs):
            after = _random_state(chance) if number % 25 == 24 else _changed(state, chance)
            old, new = _files(state), _files(after)
            found = _compared(old, new, Types(kinds, kinds))
            assert {(one.table, one.id): one.op for one in found.changes} == _ops(state, after), f"pair {number}"
            patch = _patch(found)
            receipt = kb.apply_patch(patch, allow_shrink=True)
            assert _held(root) == new, f"pair {number}"
            assert (receipt.inserted, receipt.deleted) == _come_and_gone(state, after), f"pair {number}"
            if number % 10 == 0:
                _refuses(kb, patch)
                kb.apply_patch(patch, reverse=True, allow_shrink=True)
                assert _held(root) == old, f"pair {number}, reversed"
            else:
                state = after


def test_a_diff_of_nothing_is_an_empty_patch(tmp_path: Path) -> None:
    files = _files(_random_state(random.Random(1)))
    root = make_base(tmp_path / "kb", CONFIG)
    kinds = load(root, environment()).ontology
    assert parse(_patch(_compared(files, files, Types(kinds, kinds))), kinds, Limits()).changeset.changes == ()


def _refuses(kb: duckkb.KnowledgeBase, patch: bytes) -> None:
    """What was applied does not apply again: each record is named that is not as it was."""
    values = [line for line in patch.splitlines()[1:] if b'"op":"move"' not in line]
    if values:
        with pytest.raises(Conflict) as caught:
            kb.apply_patch(patch, allow_shrink=True)
        assert caught.value.code == "E_STALE"
        assert len(caught.value.findings) == len(values)


def _compared(old: Mapping[str, bytes], new: Mapping[str, bytes], types: Types) -> Diff:
    paths = sorted(path for path in {**old, **new} if old.get(path) != new.get(path))
    sides = ({path: side[path] for path in paths if path in side} for side in (old, new))
    found = compare(Versions(Label("a"), Label("b"), *sides, (), tuple(paths)), types, Limits())
    assert {one.code for one in found.findings} <= {"E_ID_CHANGED"}
    return found


def _patch(found: Diff) -> bytes:
    return "".join(f"{line}\n" for line in render(found, DiffOptions())).encode()


def _ops(before: State, after: State) -> dict[tuple[str, int], str]:
    """What became of each record; one that came under the identity of another that went is that one with another id."""
    ops = {}
    for table, names in IDENTITY.items():
        old, new = ({no: record for no, (_, record) in side[table].items()} for side in (before, after))
        named = [{no: str([record[name] for name in names]) for no, record in side.items()} for side in (old, new)]
        gone = {named[0][no]: no for no in old.keys() - new.keys()}
        come = {named[1][no]: no for no in new.keys() - old.keys()}
        ops |= {(table, no): "update" if name in gone else "insert" for name, no in come.items()}
        ops |= {(table, no): "delete" for name, no in gone.items() if name not in come}
        for no in old.keys() & new.keys():
            if _source(old[no]) != _source(new[no]):
                ops[table, no] = "rename" if named[0][no] != named[1][no] else "update"
    return ops


def _come_and_gone(before: State, after: State) -> tuple[int, int]:
    come = sum(len(after[table].keys() - before[table].keys()) for table in IDENTITY)
    return come, sum(len(before[table].keys() - after[table].keys()) for table in IDENTITY)


def _random_state(chance: random.Random) -> State:
    state: dict[str, dict[int, tuple[str, Mapping[str, Any]]]] = {table: {} for table in IDENTITY}
    for table in IDENTITY:
        for _ in range(chance.randrange(25)):
            _put(state, table, chance)
    return _sound(state)


def _changed(before: State, chance: random.Random) -> State:
    """Some records edited, renamed, moved to another part, deleted and added."""
    state = {table: dict(records) for table, records in before.items()}
    for _ in range(chance.choice((0, 1, 1, 2, 5, 30))):
        table = chance.choice(tuple(IDENTITY))
        match chance.randrange(5):
            case 0:
                _put(state, table, chance)
            case _ if not state[table]:
                continue
            case 1:
                del state[table][chance.choice(tuple(state[table]))]
            case 2:
                number = chance.choice(tuple(state[table]))
                state[table][number] = (_part(table, chance), state[table][number][1])
            case 3:
                _rename(state[table], table, chance)
            case _:
                number = chance.choice(tuple(state[table]))
                path, record = state[table][number]
                kept = {name: record[name] for name in (*IDENTITY[table], "__created_at")}
                state[table][number] = (path, _fields(chance) | kept)
    return _sound(state)


def _put(state: dict[str, Any], table: str, chance: random.Random) -> None:
    identity = _identity(table, chance, state)
    if identity is not None and not _is_taken(state[table], table, identity):
        number = chance.choice((chance.randrange(1, 2**53), chance.randrange(1, 99)))
        if number not in state[table]:
            state[table][number] = (_part(table, chance), _fields(chance) | identity)


def _rename(records: dict[int, Any], table: str, chance: random.Random) -> None:
    number = chance.choice(tuple(records))
    path, record = records[number]
    if table not in EDGES:
        identity = _identity(table, chance, {})
        if identity is not None and not _is_taken(records, table, identity):
            records[number] = (path, {**record, **identity})


def _identity(table: str, chance: random.Random, state: Mapping[str, Any]) -> dict[str, Any] | None:
    if table == "note":
        return {"id": chance.choice(("狐", "n", "N", "-rf", "a b")) + str(chance.randrange(40))}
    if table == "person":
        return {"country": chance.choice(("CH", "中国")), "number": chance.randrange(-3, 20)}
    starts = list(state["note" if table == "cites" else "person"].values())
    ends = list(state["note"].values())
    if not starts or not ends:
        return None
    start, end = chance.choice(starts)[1], chance.choice(ends)[1]
    source: Any = start["id"] if table == "cites" else [start["country"], start["number"]]
    since = {} if table == "cites" else {"since": chance.randrange(2)}
    return {"from": source, "to": end["id"], **since}


def _is_taken(records: Mapping[int, Any], table: str, identity: Mapping[str, Any]) -> bool:
    return any(all(record[name] == identity[name] for name in IDENTITY[table]) for _, record in records.values())


def _sound(state: dict[str, dict[int, tuple[str, Mapping[str, Any]]]]) -> State:
    """Without the edges whose ends are gone."""
    notes = {record["id"] for _, record in state["note"].values()}
    people = [[record["country"], record["number"]] for _, record in state["person"].values()]
    for table, starts in (("cites", notes), ("wrote", people)):
        state[table] = {
            number: (path, record)
            for number, (path, record) in state[table].items()
            if record["from"] in starts and record["to"] in notes
        }
    return state


def _part(table: str, chance: random.Random) -> str:
    folder = "edges" if table in EDGES else "nodes"
    return f"data/{folder}/{table}/{chance.choice(DAYS)}/part_{chance.choice((0, 7, 1234)):03d}.jsonl"


def _fields(chance: random.Random) -> dict[str, Any]:
    values = (1, 1.0, -7, 2.5, True, [], ["x", "y"], {"b": 1, "a": [None, "知"]}, *TEXTS)
    fields = {name: chance.choice(values) for name in ("text", "size", "标题", "tags") if chance.random() < 0.6}
    time = f"2026-01-0{chance.randrange(1, 4)}T00:00:00.{chance.randrange(10**6):06d}Z"
    return fields | {"__created_at": "2026-01-01T00:00:00.000000Z", "__updated_at": time}


def _files(state: State) -> dict[str, bytes]:
    """The files of a version, written without the code that is tested."""
    parts: dict[str, list[tuple[Any, bytes]]] = {}
    for table, records in state.items():
        for number, (path, record) in records.items():
            identity = [record[name] for name in IDENTITY[table]]
            rest = sorted(record.keys() - {*IDENTITY[table], "__created_at", "__updated_at"})
            names = [*IDENTITY[table], *rest, "__created_at", "__updated_at"]
            line = json.dumps(
                {"__id": number, **{name: _ordered(record[name]) for name in names}},
                ensure_ascii=False,
                separators=(",", ":"),
            )
            for unseen in "\u202e\u2028":
                line = line.replace(unseen, f"\\u{ord(unseen):04x}")
            parts.setdefault(path, []).append(([_rank(value) for value in identity], line.encode()))
    return {path: b"".join(line + b"\n" for _, line in sorted(lines)) for path, lines in parts.items()}


def _source(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)


def _ordered(value: Any) -> Any:
    return {key: value[key] for key in sorted(value)} if isinstance(value, dict) else value


def _rank(value: Any) -> tuple[Any, ...]:
    """Integers before strings before lists."""
    if isinstance(value, list):
        return (2, tuple(_rank(one) for one in value))
    return (0, value, b"") if isinstance(value, int) else (1, 0, value.encode())


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    (root / "data").mkdir()
    (root / "data/FORMAT.json").write_bytes(b'{"format":1}\n')
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def _held(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in tree_bytes(root).items() if path.endswith(".jsonl")}
