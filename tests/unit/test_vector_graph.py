"""The graph beside the matrix: it finds what comparing all finds, follows changes, yields to filters, and is never followed
where it is damaged or of another matrix."""

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duckkb.app.retrievers import MemoryRows
from duckkb.index import record_vectors
from duckkb.index.vector_index import CosineLane
from duckkb.ports import Row, TypeState
from duckkb.types.queries import LaneHit
from duckkb.types.records import IndexEntry, Record
from duckkb.types.settings import VectorSettings
from tests.conformance.lane_suite import Numbered, StatedRows

COUNT, DIMENSION = 2000, 32


def vectors(count: int, seed: int = 4) -> np.ndarray:
    """Unit vectors around some centres."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((40, DIMENSION))
    found = centres[draw.integers(0, 40, count)] + 0.5 * draw.standard_normal((count, DIMENSION))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def row(record_id: int, *found: np.ndarray) -> Row:
    entries = tuple(IndexEntry("body", seq, "t", None, b"k", vector) for seq, vector in enumerate(found))
    return Row(Record("Doc", record_id, (f"n{record_id:06d}",), {}, "", ""), entries)


class Ground:
    """Records that change, and lanes over them as new processes have them."""

    def __init__(self, folder: Path, rows: dict[int, Row]) -> None:
        self.folder = folder
        self.rows = rows
        self._numbers = Numbered()
        self._numbers.change(rows)

    def change(self, put: Iterable[Row], gone: Iterable[int] = ()) -> None:
        made = {found.record.id: found for found in put}
        gone = [*gone]
        for record_id in gone:
            del self.rows[record_id]
        self.rows |= made
        self._numbers.change(made, gone)

    def lane(self, ann: str = "hnsw") -> CosineLane:
        return CosineLane(StatedRows(self.rows, self.state), VectorSettings(ann))

    def state(self) -> TypeState:
        return self._numbers.state(self.folder)

    def exact(self) -> CosineLane:
        return CosineLane(MemoryRows(self.rows.values()))

    def copy(self, folder: Path) -> "Ground":
        """The same base elsewhere."""
        shutil.copytree(self.folder, folder)
        return Ground(folder, dict(self.rows))

    @property
    def file(self) -> Path:
        (found,) = self.folder.glob("graph/*/graph")
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """2,000 records with one vector each, and their graph."""
    rows = {number: row(number, vector) for number, vector in enumerate(vectors(COUNT), 1)}
    ground = Ground(tmp_path_factory.mktemp("graph") / "type", rows)
    ground.lane().complete()
    return ground


@pytest.fixture
def ground(made: Ground, tmp_path: Path) -> Ground:
    return made.copy(tmp_path / "type")


def account(lane: CosineLane) -> dict[str, Any]:
    found = lane.account()
    assert found is not None
    return found


def lacks_graph(lane: CosineLane) -> bool:
    return account(lane)["ann"] == "exact"


def ids(hits: list[LaneHit]) -> list[int]:
    return [hit.id for hit in hits]


def agreement(ground: Ground, lane: CosineLane, depth: int = 10, allowed: frozenset[int] | None = None) -> float:
    """The share of the right hits that a lane finds, over 20 questions; those that it finds are exact."""
    exact, found = ground.exact(), 0
    for query in vectors(20, seed=99):
        everything, hits = exact.ask(query, COUNT * 2, allowed), lane.ask(query, depth, allowed)
        right = everything[:depth]
        assert len(hits) == len(right)
        assert allowed is None or allowed.issuperset(ids(hits))
        scores = {hit.id: hit.score for hit in everything}
        assert [hit.score for hit in hits] == [scores[hit.id] for hit in hits]
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        found += len(set(ids(right)) & set(ids(hits)))
    return found / (20 * len(right))


def uses_graph(lane: CosineLane, monkeypatch: pytest.MonkeyPatch, ask: Any) -> bool:
    """Whether a question was answered by the graph."""
    asked: list[int] = []
    nearest = record_vectors.Graph.nearest
    monkeypatch.setattr(
        record_vectors.Graph, "nearest", lambda self, query, count: asked.append(count) or nearest(self, query, count)
    )
    ask()
    return bool(asked)


def test_it_finds_what_comparing_all_finds(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = ground.lane()
    assert uses_graph(lane, monkeypatch, lambda: lane.ask(vectors(1)[0], 10))
    assert agreement(ground, lane) >= 0.95
    assert not lacks_graph(lane)
    assert account(lane) == {"rows": COUNT, "dimension": DIMENSION, "ann": "hnsw"}


def test_it_finds_the_first_ten_that_numpy_finds(ground: Ground) -> None:
    """Of stored vectors, each moved by 27 degrees in a random direction."""
    stored, draw = vectors(COUNT), np.random.default_rng(6)
    steps = draw.standard_normal((100, DIMENSION))
    steps *= 0.5 / np.linalg.norm(steps, axis=1, keepdims=True)
    asked = stored[draw.permutation(COUNT)[:100]] + steps
    order = np.argsort(-(asked @ stored.T.astype(np.float64)), axis=1, kind="stable")[:, :10] + 1
    lane = ground.lane()
    recalls = [
        len(set(ids(lane.ask(query, 10))) & set(right)) / 10 for query, right in zip(asked, order.tolist(), strict=True)
    ]
    assert sum(recalls) / 100 >= 0.95


@pytest.mark.parametrize("share", [0.001, 0.004, 0.02, 0.2, 0.5, 1.0])
def test_a_filter_gets_as_many_as_match(ground: Ground, share: float) -> None:
    allowed = frozenset(np.random.default_rng(7).permutation(COUNT)[: int(COUNT * share)] + 1)
    assert agreement(ground, ground.lane(), 10, frozenset(map(int, allowed))) >= 0.95


def test_a_filter_that_keeps_only_what_is_far_away_gets_its_hits(ground: Ground) -> None:
    query = vectors(1, seed=50)[0]
    far = frozenset(ids(ground.exact().ask(query, COUNT))[COUNT // 2 :])
    assert ground.lane().ask(query, 10, far) == ground.exact().ask(query, 10, far)


@pytest.mark.long
@pytest.mark.parametrize("depth", [1, 50, 1000, 3000])
def test_many_hits_are_as_exact_as_few(ground: Ground, depth: int) -> None:
    assert agreement(ground, ground.lane(), depth) >= 0.95


def test_records_of_several_chunks_are_found_by_their_best(tmp_path: Path) -> None:
    found = vectors(3000)
    rows = {number: row(number, *found[3 * number : 3 * number + 3]) for number in range(1000)}
    ground = Ground(tmp_path / "type", rows)
    ground.lane().complete()
    assert agreement(ground, ground.lane()) >= 0.95
    hit = ground.lane().ask(found[3 * 77 + 2], 1)[0]
    assert (hit.id, hit.seq, hit.score) == (77, 2, 1.0)


def test_changes_show_at_once_and_a_job_takes_them_in(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ground.file
    target = vectors(1, seed=1234)[0]
    ground.change([row(7, target), row(COUNT + 1, target)], gone=[8, 9])
    lane = ground.lane()
    assert uses_graph(lane, monkeypatch, lambda: lane.ask(target, 10))
    assert ids(lane.ask(target, 2)) == [7, COUNT + 1]
    assert agreement(ground, lane) >= 0.95
    lane.complete()
    assert ground.file == before  # two rows are not worth it
    ground.change(row(COUNT + number, vector) for number, vector in enumerate(vectors(150, seed=77), 2))
    lane = ground.lane()
    lane.complete()
    assert ground.file != before and len(list(ground.folder.glob("graph/*/graph"))) == 1
    assert agreement(ground, ground.lane()) >= 0.95 and agreement(ground, lane) >= 0.95


def test_another_process_sees_a_graph_that_came_later(ground: Ground) -> None:
    shutil.rmtree(ground.folder / "graph")
    waiting = ground.lane()
    assert waiting.ask(vectors(1)[0], 3) and lacks_graph(waiting)
    ground.lane().complete()
    assert waiting.ask(vectors(1)[0], 3) and not lacks_graph(waiting)


def test_a_matrix_made_anew_has_no_graph_until_one_is_made(ground: Ground) -> None:
    ground.change((row(number, vector) for number, vector in enumerate(vectors(600, seed=5), 1)), gone=[])
    lane = ground.lane()
    assert agreement(ground, lane) == 1.0 and lacks_graph(lane) and account(lane)["ann"] == "exact"
    lane.complete()
    assert not lacks_graph(lane) and agreement(ground, ground.lane()) >= 0.95


@pytest.mark.long
@pytest.mark.parametrize("damage", ["cut", "bytes", "gone", "meta", "other"])
def test_damage_means_comparing_all_and_a_job_mends_it(ground: Ground, damage: str) -> None:
    file = ground.file
    data = bytearray(file.read_bytes())
    match damage:
        case "cut":
            file.write_bytes(data[: len(data) // 2])
        case "bytes":
            data[500:5000] = os.urandom(4500)
            file.write_bytes(data)
        case "gone":
            file.unlink()
        case "meta":
            (ground.folder / "graph" / "meta.json").write_text("{}")
        case "other":
            file.write_bytes(b"")
    lane = ground.lane()
    assert agreement(ground, lane) == 1.0 and lacks_graph(lane)
    lane.complete()
    assert not lacks_graph(lane) and agreement(ground, ground.lane()) >= 0.95


def test_a_folder_that_was_copied_is_read_and_used(ground: Ground) -> None:
    """The fixture copies: the file has another inode and other times."""
    lane = ground.lane()
    assert lane.ask(vectors(1)[0], 3) and not lacks_graph(lane)


def test_without_the_library_all_are_compared(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without:
        """Stands before all finders: there is no faiss."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name.split(".")[0] == "faiss":
                raise ModuleNotFoundError(name)

    for name in [name for name in sys.modules if name.split(".")[0] == "faiss"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])
    lane = ground.lane()
    assert agreement(ground, lane) == 1.0 and lacks_graph(lane)
    lane.complete()
    assert account(lane)["ann"] == "exact"


@pytest.mark.parametrize("ann", ["auto", "exact"])
def test_where_no_graph_is_wanted_none_is_made_or_read(
    ground: Ground, ann: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = ground.lane(ann)
    assert not uses_graph(lane, monkeypatch, lambda: lane.ask(vectors(1)[0], 10))
    assert lacks_graph(lane)
    shutil.rmtree(ground.folder / "graph")
    lane.complete()
    assert not (ground.folder / "graph").exists()


def test_auto_wants_a_graph_of_very_many() -> None:
    assert [VectorSettings("auto").wants_graph(rows) for rows in (1_999_999, 2_000_000)] == [False, True]
    assert VectorSettings("hnsw").wants_graph(1) and not VectorSettings("exact").wants_graph(10**9)


def test_a_zero_vector_and_none_do_no_harm(tmp_path: Path) -> None:
    rows = {1: row(1, np.zeros(DIMENSION, np.float32)), 2: row(2, vectors(1)[0]), 3: row(3)}
    ground = Ground(tmp_path / "some", rows)
    ground.lane().complete()
    assert ground.lane().ask(vectors(1)[0], 5) == ground.exact().ask(vectors(1)[0], 5)
    empty = Ground(tmp_path / "none", {3: row(3)})
    empty.lane().complete()
    assert empty.lane().ask(vectors(1)[0], 5) == []
