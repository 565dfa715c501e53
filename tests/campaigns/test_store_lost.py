"""Any call on the store of a base fails, once or from then on: no answer and no write is lost, and what was done is said."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

import duckkb
from duckkb.store.store_database import Database, Unusable
from duckkb.store.stored_rows import FILE
from tests.conftest import NOTES, make_base
from tests.harness import oracle
from tests.harness.campaign import Campaign

TEXTS = {f"n{at}": f"word {at}" for at in range(6)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A base whose lines lie in the store."""
    made = make_base(tmp_path / "kb", NOTES + "snapshot: {min_bytes: 0}\n")
    with duckkb.open(made) as kb:
        kb.put("Note", [{"id": name, "text": text} for name, text in TEXTS.items()])
    return made


class Faults:
    """Counts what is asked of the store, and fails at number `at`, where it `lasts` also at all that follow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.lasts, self.count = -1, False, 0
        read, writing = Database.read, Database.begin_write

        def failing(call: Any) -> Any:
            def asked(database: Database, *given: Any) -> Any:
                self.meet(database)
                return call(database, *given)

            return asked

        @contextmanager
        def written(database: Database) -> Iterator[Connection]:
            self.meet(database)
            with writing(database) as connection:
                yield connection
                self.meet(database)

        monkeypatch.setattr(Database, "read", failing(read))
        monkeypatch.setattr(Database, "begin_write", written)

    def meet(self, database: Database) -> None:
        if database.path is not None and database.path.name == FILE:
            self.count += 1
            if self.count == self.at or (self.lasts and 0 < self.at < self.count):
                raise Unusable("no call is answered")

    def begin(self, at: int, *, lasts: bool) -> None:
        self.at, self.lasts, self.count = at, lasts, 0


def edit(root: Path, old: str, new: str) -> None:
    for part in root.glob("data/**/*.jsonl"):
        part.write_text(part.read_text("utf-8").replace(old, new), "utf-8")


def live(root: Path, turn: int) -> None:
    """Questions and writes of a session, each held against what the files have."""
    with duckkb.open(root) as kb:
        answers(kb, root)
        said = kb.put(
            "Note",
            [
                {"id": f"new {turn}", "text": "word"},
                {"id": "n1", "text": f"word {turn}"},
                {"id": "n2", "text": "word 2"},
            ],
        )
        assert (said.inserted, said.updated, said.unchanged) == (1, 1, 1)
        assert len(said.ids) == len(said.etags) == 3
        answers(kb, root)
        edit(root, '"word 3', f'"word 3 {turn}')
        answers(kb, root)
        assert kb.delete("Note", [f"new {turn}"]).deleted == 1
        answers(kb, root)
        assert kb.delete("Note", ["n5"]).deleted == 1
        assert kb.put("Note", {"id": "n5", "text": "word 5"}).inserted == 1


def answers(kb: Any, root: Path) -> None:
    right = {str(record["id"]): str(record["text"]) for record in oracle.records(root).values()}
    assert {one["id"]: one["text"] for one in kb.list("Note", limit=100)} == right
    assert {hit.identity: hit.record["text"] for hit in kb.find("Note", "word", limit=100)} == right
    assert {name: kb.get("Note", name)["text"] for name in right} == right


def test_a_call_on_the_store_that_fails_costs_no_answer_and_no_write(
    campaign: Campaign, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    live(root, 0)
    calls = faults.count
    assert calls > 30
    for turn, (at, lasts) in enumerate(
        ((at, lasts) for at in range(1, calls + 1, campaign.pick(29, 1)) for lasts in (False, True)), 1
    ):
        faults.begin(at, lasts=lasts)
        live(root, turn)
        campaign.count("calls on the store that failed in a session", faults.count >= at)
    faults.begin(-1, lasts=False)
    live(root, -1)


@pytest.mark.parametrize("lasts", [False, True])
def test_a_part_that_is_lost_and_was_changed_is_answered_as_it_is_now(
    lasts: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the files and the reading of the store: neither has what was read before."""
    faults = Faults(monkeypatch)
    with duckkb.open(root) as kb:
        faults.begin(1, lasts=lasts)
        meet = faults.meet

        def changing(database: Database) -> None:
            edit(root, '"word 3"', '"word 33"')
            meet(database)

        monkeypatch.setattr(faults, "meet", changing)
        assert {hit.identity: hit.record["text"] for hit in kb.find("Note", "word", limit=100)} == TEXTS | {
            "n3": "word 33"
        }
