"""A record may have a field with any name that does not begin with _: whatever is asked, by whichever door, it comes back unharmed."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="serving needs the extra `serve`")

import duckkb
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.lifecycle import OpenOptions
from duckkb.server.dispatcher import Served
from duckkb.types.request_context import Caller
from tests.conftest import NOTES, commit, make_base, run_in
from tests.doors.test_changes_in_the_reading_room import fields
from tests.harness.reading_room import room

_TAKEN = {"id", "title", "text", "status", "size", "tags", "from", "to", "scope", "key", "source", "links"}
"""What the types of this base give a meaning of their own."""
BOSS = Caller(role="admin")
_SAID = ["branch", "commit", "base", "push", "open"]
"""What receipts of proposals say besides."""


def _names(schema: Any) -> Iterator[str]:
    """Every name that an answer of this schema gives a meaning to."""
    if isinstance(schema, Mapping):
        yield from schema.get("properties", ())
        for one in schema.values():
            yield from _names(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from _names(one)


OWN = {
    name: f"own {name}"
    for name in sorted({*_SAID, *(name for action in ACTIONS.values() for name in _names(action.output))})
    if not name.startswith(("_", "$")) and name not in _TAKEN
}
"""Fields of a record, named like everything that any action says."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_base(tmp_path_factory.mktemp("names") / "kb", NOTES)
    memory = ["col", "init", "memory-ann", "--policy", "memory", "--params", '{"scope": "ann"}']
    assert run_in(root, memory).code == 0
    remembered = {"scope": "ann", "key": "k", "text": "ducks"}
    notes = [
        {"id": name, "title": "ducks", "text": f"see duckkb://Note/{cited}", **OWN} for name, cited in ("ab", "ba")
    ]
    edge = {"from": "a", "to": "b", **OWN}
    for type, records in (("Note", notes), ("cites", [edge]), ("memory-ann", [remembered | OWN])):
        ran = run_in(root, ["put", type], stdin="\n".join(map(json.dumps, records)))
        assert ran.code == 0, ran.err
    commit(root)
    return root


def holders(answer: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of an answer that are records: those with a type."""
    if isinstance(answer, Mapping):
        if "_type" in answer:
            yield answer
        for one in answer.values():
            yield from holders(one)
    elif isinstance(answer, list):
        for one in answer:
            yield from holders(one)


ASKED: list[tuple[str, dict[str, Any], list[str], int]] = [
    ("get", {"type": "Note", "identity": "a"}, ["get", "Note", "a"], 1),
    ("get", {"type": "cites", "identity": ["a", "b"]}, ["get", "cites", '["a","b"]'], 1),
    ("list", {"type": "Note"}, ["list", "Note"], 2),
    ("find", {"type": "Note", "query": "ducks"}, ["find", "Note", "ducks"], 2),
    ("find", {"type": "Note", "where": "branch = 'own branch'"}, ["find", "Note", "-w", "branch = 'own branch'"], 2),
    ("neighbors", {"type": "Note", "identity": "a"}, ["graph", "neighbors", "Note", "a"], 2),
    ("path", {"start": ["Note", "a"], "end": ["Note", "b"]}, ["graph", "path", "Note", "a", "Note", "b"], 3),
    ("citing", {"type": "Note", "identity": "a"}, ["graph", "citing", "Note", "a"], 1),
    ("memory_search", {"query": "ducks", "scope": "ann"}, ["memory", "search", "ducks", "--scope", "ann"], 1),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("action", "given", "typed", "many"), ASKED, ids=lambda one: " ".join(one) if isinstance(one, list) else ""
)
def test_fields_named_like_what_answers_say_come_back_unharmed(
    base: Path, action: str, given: dict[str, Any], typed: list[str], many: int
) -> None:
    served = Served(base, OpenOptions())
    try:
        with duckkb.open(base) as kb:
            answers = {"run": kb.run(action, given), "json": json.loads(run_in(base, ["--json", *typed]).out)}
        answers |= {"served": served.run(action, given, BOSS), "proposed": served.run_in_proposal(action, given, BOSS)}
    finally:
        served.close()
    for door, answer in answers.items():
        records = list(holders(answer))
        assert len(records) == many, (door, answer)
        for record in records:
            business = {name: value for name, value in record.items() if not name.startswith("_")}
            assert {name: business[name] for name in OWN} == OWN, door
            assert business.keys() <= {*OWN, *_TAKEN}, door
            assert record.get("_edge", {"_direction": "out"})["_direction"] == "out", door


def test_what_must_be_known_of_a_record_stands_beside_its_fields(base: Path, tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    assert run_in(root, ["put", "Note", json.dumps({"id": "a", "notices": "own"})]).code == 0
    part = next((root / "data" / "nodes" / "note").rglob("*.jsonl"))
    part.write_text(part.read_text("utf-8") + '{"id": "by hand", "title": "fox"}\n', "utf-8")
    with duckkb.open(root) as kb:
        record = kb.run("get", {"type": "Note", "identity": "a"})
        assert record["notices"] == "own" and [one["code"] for one in record["_notices"]] == ["W_INCOMPLETE"]
        kb.run("put", {"type": "Note", "records": record | {"title": "put back"}})
        again = kb.run("get", {"type": "Note", "identity": "a"})
    assert (again["title"], again["notices"]) == ("put back", "own")


def test_the_form_of_a_record_has_the_fields_of_that_record_and_no_others(base: Path) -> None:
    with room(base, edits=True) as opened:
        page = opened.signed_in().get("/web/edit", params={"type": "Note", "id": "a"}).text
    shown = {name.removeprefix("f."): value for name, value in fields(page).items() if name.startswith("f.")}
    assert {name: shown[name] for name in OWN} == OWN and shown.keys() <= {*OWN, *_TAKEN}
