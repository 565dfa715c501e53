"""Derived state on disk: whatever happened to the records, to the files and to the processes, it answers as one in memory."""

import gc
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duckkb.app.retrievers import TypeLanes
from duckkb.ontology.model import Ontology
from duckkb.ports import Row, SqlLimits, TypeState
from duckkb.sql.sql_process import Isolated
from duckkb.types.queries import LaneHit, LexicalQuery
from duckkb.types.settings import Settings
from tests.conformance.lane_suite import NOTE, TOKENIZER, Held, Numbered, StatedRows, row, vector, with_vectors

WORDS = ("red", "green", "blue", "red green", "内存", "数据 red", "", "green blue 内存")
QUESTIONS = (
    LexicalQuery("red"),
    LexicalQuery("green 内存"),
    LexicalQuery("red", excluded=("blue",)),
    LexicalQuery(phrases=("red green",)),
    LexicalQuery(prefixes=("gre",)),
)
FILTERS = ("body = 'red'", "year > 3", "title LIKE 't1%'", "year IS NULL", "loose = 'x'")


class Truth:
    """Records that change, with the states that they had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[int, Row] = {}
        self.numbers = Numbered()
        self.before: list[tuple[dict[int, Row], dict[str, str]]] = []
        self.filled: dict[bytes, np.ndarray] = {}

    def change(self, put: dict[int, Row], gone: set[int]) -> None:
        self.before.append((dict(self.rows), self.numbers.digests))
        put |= {record_id: with_vectors(found, self.filled) for record_id, found in put.items()}
        for record_id in gone - put.keys():
            self.rows.pop(record_id, None)
        self.rows |= put
        self.numbers.change(put, gone - put.keys())

    def go_back(self) -> None:
        """Have the records be as they were before the last change."""
        rows, self.numbers.digests = self.before.pop()
        self.rows.clear()
        self.rows |= {record_id: with_vectors(found, self.filled) for record_id, found in rows.items()}

    def state(self) -> TypeState:
        return self.numbers.state(self.folder)

    def on_disk(self) -> Held:
        """A lanes as a new process has it."""
        made = Held(ontology=Ontology({"Note": NOTE}))
        made.load(NOTE, StatedRows(self.rows, self.state))
        return made

    def in_memory(self) -> Held:
        made = Held(ontology=Ontology({"Note": NOTE}))
        made.load(NOTE, list(self.rows.values()))
        return made


def note(record_id: int, chance: random.Random) -> Row:
    fields: dict[str, Any] = {"title": f"t{record_id % 3}", "body": chance.choice(WORDS)}
    if chance.random() < 0.5:
        fields["year"] = chance.choice((1, 5, 7, 7, 7, "soon"))
    if chance.random() < 0.2:
        fields["loose"] = chance.choice(("x", "y", 3))
    return row(record_id, embedded=chance.random() < 0.8, **fields)


def answers(lanes: Held, chance: random.Random | None = None) -> dict[str, object]:
    """What each way to ask says; a random part of the ways where a chance is given."""
    asked: dict[str, Callable[[], object]] = {
        **{f"words {number}": lambda one=one: lanes.match(NOTE, one, 20) for number, one in enumerate(QUESTIONS)},
        "vector": lambda: lanes.similar(NOTE, vector("red"), 20),
        "narrow": lambda: lanes.similar(NOTE, vector("green"), 5, frozenset(range(0, 40, 3))),
        "lacking": lambda: lanes.list_missing_texts(NOTE),
        **{text: lambda text=text: _where(lanes, text) for text in FILTERS},
        "sql": lambda: lanes.sql("SELECT * FROM note ORDER BY __id", SqlLimits()),
    }
    chosen = [name for name in asked if chance is None or chance.random() < 0.3]
    return {name: asked[name]() for name in chosen}


def _where(lanes: Held, condition: str) -> object:
    from duckkb.types.errors import FilterError

    try:
        return lanes.where(NOTE, condition)
    except FilterError as refused:
        return str(refused)


def some_rows(chance: random.Random, count: int, most: int = 60) -> dict[int, Row]:
    return {number: note(number, chance) for number in chance.sample(range(1, most + 1), count)}


@pytest.mark.long
@given(st.integers(0, 2**32), st.integers(0, 40), st.lists(st.sampled_from("cccdrrafb"), max_size=10))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_opened_answers_as_what_is_built(tmp_path: Path, seed: int, start: int, steps: list[str]) -> None:
    chance = random.Random(seed)
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(chance, start), set())
    lanes = truth.on_disk()
    for step in steps:
        match step:
            case "c" | "d":
                put = some_rows(chance, chance.randint(0, 3) if step == "c" else 20)
                gone = set(chance.sample(range(1, 61), 2 if step == "c" else 20)) - put.keys()
                truth.change(put, gone)
            case "r":
                lanes.close()
                lanes = truth.on_disk()
            case "f":
                fill(truth, lanes)
            case "b":
                truth.go_back()
            case _:
                assert_same(truth, lanes, chance)
    assert_same(truth, lanes)
    lanes.close()
    assert_same(truth, truth.on_disk())


def fill(truth: Truth, lanes: Held) -> None:
    """The vectors of some texts are computed; the rows have them from then on, as the caches do."""
    made = {key: vector(text) for key, text in lanes.list_missing_texts(NOTE)[:3]}
    truth.filled |= made
    lanes.fill(NOTE, made)


def assert_same(truth: Truth, lanes: Held, chance: random.Random | None = None) -> None:
    state = chance.getstate() if chance else None
    found = answers(lanes, chance)
    if chance and state:
        chance.setstate(state)
    plain = truth.in_memory()
    expected = answers(plain, chance)
    plain.close()
    assert {name: _rounded(value) for name, value in found.items()} == {
        name: _rounded(value) for name, value in expected.items()
    }


def _rounded(value: object) -> object:
    """Scores of words hang together with the order in which 32-bit floats are added."""
    if isinstance(value, list) and value and isinstance(value[0], LaneHit):
        return [(hit.id, round(hit.score, 4), hit.field, hit.seq) for hit in value]
    return value


@pytest.fixture
def truth(tmp_path: Path) -> Truth:
    """Fifty records, and all components of them on disk."""
    made = Truth(tmp_path / "state")
    made.change(some_rows(random.Random(5), 50), set())
    lanes = made.on_disk()
    answers(lanes)
    lanes.close()
    return made


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")


def _shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.long
@pytest.mark.parametrize("harm", [_shorten, Path.unlink, _make_folder, _empty])
def test_a_damaged_file_is_built_anew(truth: Truth, harm: Callable[[Path], object]) -> None:
    for path in files(truth.folder):
        if not path.exists():  # of a generation that the harm before ended
            continue
        harm(path)
        assert_same(truth, truth.on_disk())


def test_a_flipped_bit_in_what_names_the_rest_is_found(truth: Truth) -> None:
    for path in files(truth.folder):
        if path.name == "meta.json" and path.exists():
            _flip(path)
            assert_same(truth, truth.on_disk())


def test_nothing_is_built_that_can_be_opened(truth: Truth) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(truth.folder)}
    assert_same(truth, truth.on_disk())
    assert {path: path.stat().st_mtime_ns for path in files(truth.folder)} == before


def test_a_small_change_is_appended(tmp_path: Path) -> None:
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(random.Random(5), 400, 400), set())
    answers(truth.on_disk())
    generations = {path.parent for path in files(truth.folder)}
    truth.change({7: note(7, random.Random(1))}, {9})
    lanes = truth.on_disk()
    assert_same_ids(truth, lanes)
    assert {path.parent for path in files(truth.folder)} == generations


def assert_same_ids(truth: Truth, lanes: Held) -> None:
    """Without the scores of words, which count what was replaced until the index is built anew."""
    found, expected = answers(lanes), answers(truth.in_memory())
    for name, value in expected.items():
        if name.startswith("words"):
            value, found[name] = ({hit.id for hit in hits} for hits in (value, found[name]))
        assert found[name] == value, name


def test_who_holds_an_older_state_is_answered_from_that_beside_who_holds_the_newer_one(truth: Truth) -> None:
    older = Truth(truth.folder)
    older.rows, older.numbers.digests = dict(truth.rows), truth.numbers.digests
    older.numbers.number = truth.numbers.number
    truth.change({3: note(3, random.Random(3)), 70: note(70, random.Random(4))}, {5, 6})
    newer = truth.on_disk()
    for _ in range(2):
        for one, lanes in ((truth, newer), (older, older.on_disk()), (truth, truth.on_disk())):
            assert_same_ids(one, lanes)
    newer.close()


def test_state_of_other_settings_is_not_used(truth: Truth) -> None:
    truth.rows = some_rows(random.Random(8), 30)
    other = replace(truth.state(), key=lambda lane: "other")
    lanes = Held(ontology=Ontology({"Note": NOTE}))
    lanes.load(NOTE, StatedRows(truth.rows, lambda: other))
    assert_same(truth, lanes)


def test_without_a_folder_that_can_be_written_it_stays_in_memory(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(random.Random(5), 20), set())
    lanes = truth.on_disk()
    assert_same(truth, lanes)
    truth.change({}, {1, 2, 3})
    assert_same(truth, lanes)


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("not ours")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "vectors").symlink_to(elsewhere)
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(random.Random(5), 20), set())
    assert_same(truth, truth.on_disk())
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]


def test_discarded_state_is_gone_from_the_disk(truth: Truth) -> None:
    truth.rows = {number: replace(found, entries=()) for number, found in truth.rows.items()}
    rows = StatedRows(truth.rows, truth.state)
    lanes = TypeLanes(NOTE, rows, TOKENIZER, Settings())
    assert lanes.words.ask(QUESTIONS[0], 5)
    lanes.discard()
    assert lanes.words.ask(QUESTIONS[0], 5) == [] == truth.on_disk().similar(NOTE, vector("red"), 5)


def in_child(work: Callable[[], None]) -> int:
    """The pid of a fork that does this and exits with 0. What earlier tests left to be collected goes before: an engine
    with threads must not be taken apart in a process that does not have them."""
    gc.collect()
    gc.freeze()
    child = os.fork()
    if child:
        gc.unfreeze()
        return child
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@pytest.mark.long
@pytest.mark.parametrize("changed", [False, True])
def test_processes_that_come_at_once_all_answer_right(tmp_path: Path, changed: bool) -> None:
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(random.Random(5), 50), set())
    if changed:
        answers(truth.on_disk())
        truth.change(some_rows(random.Random(6), 9), {1, 2})
    children = [in_child(lambda: assert_same(truth, truth.on_disk())) for _ in range(4)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert_same(truth, truth.on_disk())


@pytest.mark.long
@pytest.mark.parametrize("survived", range(4))
def test_a_kill_between_data_and_meta_leaves_what_was_there(tmp_path: Path, survived: int) -> None:
    """A process is killed at the moment when it would put a new meta in place, the first or a later one."""
    truth = Truth(tmp_path / "state")
    truth.change(some_rows(random.Random(5), 300, 300), set())
    answers(truth.on_disk())
    truth.change(some_rows(random.Random(6), 3, 300), {1, 2})

    def work() -> None:
        left = survived

        def watch(event: str, args: tuple[Any, ...]) -> None:
            nonlocal left
            if event == "os.rename" and str(args[1]).endswith("meta.json"):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        answers(truth.on_disk())

    _, status = os.waitpid(in_child(work), 0)
    assert os.WIFSIGNALED(status) == (survived < 3)
    assert_same_ids(truth, truth.on_disk())
    truth.change(some_rows(random.Random(7), 3, 300), {3})
    assert_same_ids(truth, truth.on_disk())


@pytest.mark.long
def test_a_process_for_statements_sees_the_files(truth: Truth) -> None:
    for _ in range(2):
        engine = Isolated()
        lanes = Held(ontology=Ontology({"Note": NOTE}), engine=engine)
        lanes.load(NOTE, StatedRows(truth.rows, truth.state))
        assert_same(truth, lanes)
        truth.change({5: note(5, random.Random(5)), 77: note(77, random.Random(7))}, {4})
        assert_same(truth, lanes)
        lanes.close()
