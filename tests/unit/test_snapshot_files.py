"""A snapshot that is not ours, not whole or not there: it is made anew, and no answer is wrong."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from duckkb.engine import loading
from duckkb.engine.loading import Ground, load
from duckkb.errors import Unavailable
from duckkb.records import Record
from duckkb.settings import Settings
from duckkb.truth.commit import lock
from duckkb.truth.files.read import load as read_afresh
from duckkb.truth.files.read import reload
from duckkb.truth.files.tree import Tree
from duckkb.truth.snapshot import snapshot
from duckkb.truth.snapshot.snapshot import Snapshot
from tests.unit.test_truth_tree import G0, GROUP, LIMITS, ONTOLOGY, P0, P1, PERSON, T2, node, put

PEOPLE = [f"person {number}" for number in range(40)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Two parts of people and one group, and a snapshot of them."""
    for path, names in ((P0, PEOPLE[:20]), (P1, PEOPLE[20:])):
        put(tmp_path, path, *sorted(node(PERSON, name, text=f"text of {name}") for name in names))
    put(tmp_path, G0, node(GROUP, "all"))
    (tmp_path / ".duckkb").mkdir()
    load(ground(tmp_path))
    return tmp_path


def ground(root: Path, timeout: float = 5.0) -> Ground:
    return Ground(root, ONTOLOGY, Settings(snapshot_bytes=0), timeout)


def records(root: Path) -> list[Record]:
    tree = load(ground(root)).tree
    return [row.record for kind in ONTOLOGY for row in tree.rows(kind)]


def truth(root: Path) -> list[Record]:
    tree = read_afresh(root, ONTOLOGY, LIMITS)
    return [row.record for kind in ONTOLOGY for row in tree.rows(kind)]


def files(root: Path, start: str) -> list[Path]:
    return sorted((root / ".duckkb/snapshot").glob(f"*/{start}-*"))


def held(root: Path) -> frozenset[str]:
    return Snapshot.open(root, ONTOLOGY, LIMITS).holds


def test_an_unchanged_base_is_opened_and_no_part_is_read(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (P0, P1, G0):  # older than the grain of any clock
        os.utime(base / path, (1, 1))
    load(ground(base))
    opened = Snapshot.open(base, ONTOLOGY, LIMITS)
    monkeypatch.setattr(snapshot.TypeFiles, "replace", _fail)
    monkeypatch.setattr(loading, "_caught_up", _fail)
    monkeypatch.setattr("duckkb.truth.snapshot.stored_files.Part", _fail)
    assert opened.tree().count(PERSON) == 40
    row = opened.tree().get(PERSON, ("person 7",))
    assert row is not None and row.record.fields["text"] == "text of person 7"
    assert opened.tree().by_id(PERSON, row.record.id) == row


def _fail(*_: object, **__: object) -> None:
    raise AssertionError("this is not for an unchanged base")


def test_one_changed_part_is_the_only_one_that_is_taken_in(base: Path) -> None:
    before = files(base, "lines")
    put(base, P1, node(PERSON, "person 20", text="new", at=T2), *sorted(node(PERSON, name) for name in PEOPLE[21:]))
    assert records(base) == truth(base)
    assert files(base, "lines") == before
    version = Snapshot.open(base, ONTOLOGY, LIMITS).version(PERSON)
    assert version is not None and len(version.changed(0) or ()) == 20


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def swap_by_copy(path: Path) -> None:
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink, swap_by_copy])
@pytest.mark.parametrize("start", ["sheet", "lines"])
def test_a_damaged_file_is_never_an_answer(base: Path, harm: Callable[[Path], None], start: str) -> None:
    for path in files(base, start):
        harm(path)
    if (start, harm) == ("lines", flip):
        with pytest.raises(Unavailable, match="damaged"):
            records(base)
    assert records(base) == truth(base)
    assert records(base) == truth(base)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"format":1}', b'{"format":2}', b'{"format":1,"generation":"x"}', b"\xff" * 100],
)
def test_a_manifest_that_is_none_is_written_anew(base: Path, content: bytes) -> None:
    (base / ".duckkb/snapshot/manifest.json").write_bytes(content)
    assert held(base) == frozenset()
    assert records(base) == truth(base)
    assert held(base) == {"Person", "Group"}


def test_names_in_a_manifest_lead_nowhere_else(base: Path) -> None:
    path = base / ".duckkb/snapshot/manifest.json"
    said = json.loads(path.read_bytes())
    for name in ("../../config.yaml", "/etc/passwd", "..", ""):
        said["types"]["node-person"]["lines"][0] = name
        path.write_text(json.dumps(said))
        assert "Person" not in held(base)
    assert records(base) == truth(base)


def test_after_a_restart_every_byte_is_looked_at(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_boot_id", lambda: "another start of the machine")
    assert held(base) == {"Person", "Group"}
    for path in files(base, "lines"):
        flip(path)
    assert held(base) == frozenset()
    assert records(base) == truth(base)


def test_a_type_with_other_identity_fields_is_read_anew(base: Path) -> None:
    assert held(base) == {"Person", "Group"}
    limits = type(LIMITS)(LIMITS.max_record_bytes, LIMITS.depth + 1)
    assert Snapshot.open(base, ONTOLOGY, limits).holds == frozenset()


def test_links_are_not_followed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(base / ".duckkb/snapshot", elsewhere / "snapshot")
    shutil.rmtree(base / ".duckkb/snapshot")
    (base / ".duckkb/snapshot").symlink_to(elsewhere / "snapshot")
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    opened = load(ground(base))
    assert opened.snapshot is None
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


def test_while_another_process_writes_the_snapshot_this_one_reads_the_files(base: Path) -> None:
    put(base, P1, node(PERSON, "person 20"))
    with lock.holding(base / ".duckkb/snapshot/lock", 1.0):
        opened = load(ground(base, timeout=0.05))
        assert opened.snapshot is None
        assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)


def test_what_a_change_writes_follows_the_change(tmp_path: Path) -> None:
    """Of 26,000 records 5,000 change, then 1,000 others twice: shorter and shorter sheets, and the longer ones stay."""
    parts = [P0.replace("000", f"{number:03}") for number in range(26)]

    def fill(path: str, text: str) -> None:
        start = 1_000 * parts.index(path)
        put(tmp_path, path, *(node(PERSON, f"{start + number:05}", text=text) for number in range(1_000)))

    for path in parts:
        fill(path, "old")
    (tmp_path / ".duckkb").mkdir()
    load(ground(tmp_path))
    seen = [set(files(tmp_path, "sheet"))]
    for number, changed in enumerate((parts[:5], parts[6:7], parts[6:7])):
        for path in changed:
            fill(path, f"new {number}")
        load(ground(tmp_path))
        seen.append(set(files(tmp_path, "sheet")))
    assert [len(sheets) for sheets in seen] == [1, 2, 3, 3]
    assert seen[0] < seen[1] < seen[2] and len(seen[2] & seen[3]) == 2
    opened = load(ground(tmp_path)).tree
    assert lines_of(opened) == lines_of(read_afresh(tmp_path, ONTOLOGY, LIMITS))
    for name in ("00000", "06999", "25999"):
        row = opened.get(PERSON, (name,))
        assert row is not None and opened.by_id(PERSON, row.record.id) == row


def lines_of(tree: Tree) -> dict[int, bytes]:
    return {row.record.id: row.line for row in tree.rows(PERSON)}


def test_a_tree_holds_what_is_fresh_only_until_the_files_have_it(base: Path) -> None:
    opened = load(ground(base))
    put(base, P1, node(PERSON, "person 20", text="new", at=T2))
    assert opened.snapshot is not None
    with opened.snapshot.writing(1.0):
        changes = opened.tree.replace(reload(opened.tree, base, [P1]))
        opened.snapshot.save(opened.tree, changes, [P1])
    assert opened.tree.held(PERSON) == 1
    opened.snapshot.relieve(opened.tree)
    assert opened.tree.held(PERSON) == 1  # not worth it
    opened.snapshot.relieve(opened.tree, beyond=0)
    assert opened.tree.held(PERSON) == 0
    assert [row.record for kind in ONTOLOGY for row in opened.tree.rows(kind)] == truth(base)


def test_dead_lines_do_not_pile_up(base: Path) -> None:
    for turn in range(60):
        text = str(turn) * 2_000
        put(base, P1, *sorted(node(PERSON, name, text=text) for name in PEOPLE[20:]))
        assert records(base) == truth(base)
    size = sum(path.stat().st_size for path in (base / ".duckkb/snapshot").rglob("*") if path.is_file())
    assert size < 4 << 20
    assert len(files(base, "lines")) == 2 and len(files(base, "sheet")) <= 4


def test_nothing_stays_of_a_type_that_is_no_more(base: Path) -> None:
    (base / ".duckkb/snapshot/node-group/lexical").mkdir()
    (base / ".duckkb/snapshot/node-group/lexical/meta.json").write_bytes(b"{}")
    ontology = type(ONTOLOGY)({"Person": PERSON})
    put(base, P1, node(PERSON, "person 20"))
    load(Ground(base, ontology, Settings(snapshot_bytes=0), 5.0))
    assert [path.name for path in (base / ".duckkb/snapshot").iterdir() if path.is_dir()] == ["node-person"]
