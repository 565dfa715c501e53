"""migrate: what other programs keep becomes knowledge here, through the real process. The file of Chroma is written by the
statements that its migrations consist of (as of 1.5), so that no Chroma is needed."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in
from tests.fake_endpoint import FakeEndpoint

SCHEMA = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER, database_id TEXT NOT NULL,
    config_json_str TEXT, schema_str TEXT, UNIQUE (name, database_id));
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT NOT NULL, scope TEXT NOT NULL, collection TEXT NOT NULL);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL, seq_id BLOB NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (segment_id, embedding_id));
CREATE TABLE embedding_metadata (id INTEGER REFERENCES embeddings(id), key TEXT NOT NULL, string_value TEXT,
    int_value INTEGER, float_value REAL, bool_value INTEGER, PRIMARY KEY (id, key));
CREATE TABLE embedding_metadata_array (id INTEGER NOT NULL REFERENCES embeddings(id), key TEXT NOT NULL, string_value TEXT,
    int_value INTEGER, float_value REAL, bool_value INTEGER);
CREATE TABLE max_seq_id (segment_id TEXT PRIMARY KEY, seq_id INTEGER);
CREATE TABLE embeddings_queue (seq_id INTEGER PRIMARY KEY, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    operation INTEGER NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL, vector BLOB, encoding TEXT, metadata TEXT);
"""
UUIDS = {"2024 My.Docs": "6f0d3c1e-8a57-4c3b-9d35-0b1f4a7c2e01", "other": "6f0d3c1e-8a57-4c3b-9d35-0b1f4a7c2e02"}
DOCUMENTS: dict[str, dict[str, object]] = {
    "wal": {"chroma:document": "A journal survives a crash.", "year": 2024, "score": 3.0, "ok": True, "id": "inner"},
    "备份": {"chroma:document": "备份是副本。", "loc.line": 7, "tags": ["disk", "tape"], "sizes": [1, 2], "Year": "x"},
    "bare": {"source": "wiki"},
    "vector": {},
}
QUEUED = [
    (0, "late", {"chroma:document": "Not applied yet.", "year": 2025}),
    (0, "wal", {"chroma:document": "added twice: Chroma passes over it"}),
    (1, "bare", {"source": None, "pages": 3}),
    (2, "gone", {"chroma:document": "soon deleted"}),
    (3, "gone", None),
]
COLUMN = {str: "string_value", int: "int_value", float: "float_value", bool: "bool_value"}


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[Path]:
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        root = make_base(tmp_path / "kb", f"global: {{embedding_model: far, embedding: {place}}}\n")
        assert run_in(root, ["trust"]).code == 0
        commit(root)
        yield root


@pytest.fixture
def chroma(tmp_path: Path) -> Path:
    """The folder of a Chroma: two collections, of which the first has writes in its queue."""
    folder = tmp_path / "chroma"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as file, file:
        file.executescript(SCHEMA)
        for number, (name, uuid) in enumerate(UUIDS.items()):
            file.execute("INSERT INTO collections (id, name, database_id) VALUES (?, ?, 'd')", (uuid, name))
            for scope in ("METADATA", "VECTOR"):
                file.execute("INSERT INTO segments VALUES (?, 'x', ?, ?)", (f"{scope}{number}", scope, uuid))
            file.execute("INSERT INTO max_seq_id VALUES (?, 4)", (f"METADATA{number}",))
        for row, (name, entry) in enumerate(DOCUMENTS.items(), 1):
            file.execute(
                "INSERT INTO embeddings (id, segment_id, embedding_id, seq_id) VALUES (?, 'METADATA0', ?, ?)",
                (row, name, row),
            )
            for key, value in entry.items():
                table = "embedding_metadata" + ("_array" if isinstance(value, list) else "")
                for one in value if isinstance(value, list) else [value]:
                    file.execute(
                        f"INSERT INTO {table} (id, key, {COLUMN[type(one)]}) VALUES (?, ?, ?)", (row, key, one)
                    )
        for seq, (operation, name, metadata) in enumerate([(0, "wal", {"year": 1}), *QUEUED], 4):
            topic = f"persistent://default/default/{UUIDS['2024 My.Docs']}"
            values = (seq, operation, topic, name, json.dumps(metadata) if metadata else None)
            file.execute(
                "INSERT INTO embeddings_queue (seq_id, operation, topic, id, metadata) VALUES (?, ?, ?, ?, ?)", values
            )
        file.execute("INSERT INTO embeddings (id, segment_id, embedding_id, seq_id) VALUES (99, 'METADATA1', 'a', 1)")
        file.execute(
            "INSERT INTO embedding_metadata (id, key, string_value) VALUES (99, 'chroma:document', 'Elsewhere.')"
        )
    return folder


def _lines(ran: Ran) -> list[dict[str, object]]:
    assert ran.code == 0, ran.err
    return ran.lines


def _digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_kx_01_collections_of_chroma_become_collections_and_a_second_run_adds_nothing(kb: Path, chroma: Path) -> None:
    before = _digest(chroma)
    dry = run_in(kb, ["migrate", "chroma", str(chroma), "--dry-run"])
    assert git(kb, "status", "--short") == "", "a dry run writes nothing"
    ran = run_in(kb, ["migrate", "chroma", str(chroma)])
    first, other = _lines(ran)
    assert dry.lines == [first, other]
    numbers = {"inserted": 4, "updated": 0, "unchanged": 0, "skipped": 1}
    assert first == {"collection": "chroma-2024-My-Docs", "from": "2024 My.Docs", **numbers}
    assert (other["collection"], other["inserted"]) == ("other", 1)
    assert (
        "'2024 My.Docs'" in ran.err
        and "'year' is year_2" in ran.err
        and "'id' is meta_id" in ran.err
        and "'loc.line' is loc_line" in ran.err
    )
    assert "texts that wait for vectors: 3;" in ran.err and "left out: 1" in ran.err
    records = {line["id"]: line for line in _lines(run_in(kb, ["export", "chroma-2024-My-Docs"]))}
    fields = {id: {name: value for name, value in line.items() if name[0] != "_"} for id, line in records.items()}
    assert fields == {
        "wal": {"id": "wal", "content": "A journal survives a crash.", "year_2": 2024, "score": 3.0, "ok": True, "meta_id": "inner"},
        "备份": {"id": "备份", "content": "备份是副本。", "loc_line": 7, "tags": ["disk", "tape"], "sizes": [1, 2], "Year": "x"},
        "bare": {"id": "bare", "pages": 3},
        "late": {"id": "late", "content": "Not applied yet.", "year_2": 2025},
    }  # fmt: skip
    commit(kb)
    again = _lines(run_in(kb, ["migrate", "chroma", str(chroma / "chroma.sqlite3")]))
    assert [(line["inserted"], line["updated"], line["unchanged"]) for line in again] == [(0, 0, 4), (0, 0, 1)]
    assert git(kb, "status", "--short") == "" and run_in(kb, ["check"]).code == 0
    assert _digest(chroma) == before, "it is read and never written, and nothing is left beside it"
    assert run_in(kb, ["index", "refresh"]).code == 0
    (hit,) = _lines(run_in(kb, ["find", "chroma-2024-My-Docs", "A journal survives a crash.", "-s", "-l", "1"]))
    assert hit["id"] == "wal", "the base's own model has made the vectors"


def test_kx_01_what_was_changed_here_stays_unless_update_is_given(kb: Path, chroma: Path) -> None:
    assert run_in(kb, ["migrate", "chroma", str(chroma), "--collection", "other"]).code == 0
    assert [line["name"] for line in _lines(run_in(kb, ["col", "list"]))] == ["other"]
    assert run_in(kb, ["put", "other", '{"id": "a", "content": "Mine.", "mine": true}']).code == 0
    assert run_in(kb, ["col", "rename", "other", "moved"]).code == 0
    command = ["migrate", "chroma", str(chroma), "--collection", "other"]
    kept = run_in(kb, command)
    assert kept.line == {
        "collection": "moved",
        "from": "other",
        "inserted": 0,
        "updated": 0,
        "unchanged": 0,
        "skipped": 1,
    }
    assert "--update" in kept.err and _lines(run_in(kb, ["get", "moved", "a"]))[0]["content"] == "Mine."
    assert run_in(kb, [*command, "--update"]).line["updated"] == 1
    (record,) = _lines(run_in(kb, ["get", "moved", "a"]))
    assert (record["content"], record["mine"]) == ("Elsewhere.", True), "what Chroma does not have stays"
    unknown = run_in(kb, ["migrate", "chroma", str(chroma), "--collection", "othr", "--json"])
    assert unknown.code == 1 and "other" in unknown.error["suggestion"]


def test_kx_01_a_key_that_comes_later_takes_no_field_from_one_that_was_there(kb: Path, chroma: Path) -> None:
    command = ["migrate", "chroma", str(chroma), "--collection", "other"]
    for row, key in ((99, "topic"), (100, "Topic")):
        with closing(sqlite3.connect(chroma / "chroma.sqlite3")) as opened, opened:
            opened.execute(
                "INSERT OR IGNORE INTO embeddings (id, segment_id, embedding_id, seq_id) VALUES (?, 'METADATA1', 'b', 1)",
                (row,),
            )
            opened.execute("INSERT INTO embedding_metadata (id, key, string_value) VALUES (?, ?, 'disks')", (row, key))
        line = run_in(kb, command).line
    assert (line["inserted"], line["unchanged"]) == (1, 1)
    found = {line["id"]: line for line in _lines(run_in(kb, ["export", "other"]))}
    assert found["a"]["topic"] == found["b"]["Topic_2"] == "disks"


def test_kx_01_a_file_that_is_damaged_or_foreign_is_refused_and_a_bad_entry_writes_nothing(
    kb: Path, chroma: Path
) -> None:
    file = chroma / "chroma.sqlite3"
    whole = file.read_bytes()
    page = whole.index(b"A journal survives a crash.") // 4096 * 4096
    for data in (
        b"",
        b"no database at all" * 99,
        whole[: len(whole) // 2],
        whole[:page] + b"\xff" * 60 + whole[page + 60 :],
    ):
        file.write_bytes(data)
        refused = run_in(kb, ["migrate", "chroma", str(chroma), "--json"])
        assert (refused.code, refused.error["code"], refused.out) == (1, "E_FOREIGN", ""), refused.err
    for metadata in ("[1]", "[" * 200_000):
        file.write_bytes(whole)
        with closing(sqlite3.connect(file)) as opened, opened:
            opened.execute("UPDATE embeddings_queue SET metadata = ? WHERE metadata IS NOT NULL", (metadata,))
        assert run_in(kb, ["migrate", "chroma", str(chroma), "--json"]).error["code"] == "E_FOREIGN"
    file.write_bytes(whole)
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.execute("UPDATE embeddings SET embedding_id = '' WHERE embedding_id = '备份'")
    bad = run_in(kb, ["migrate", "chroma", str(chroma), "--json"])
    assert bad.code == 1 and "E_IDENTITY" in bad.err and "2024 My.Docs" in bad.err
    assert run_in(kb, ["migrate", "chroma", str(kb), "--json"]).error["code"] == "E_PATH"
    assert git(kb, "status", "--short") == ""


def test_kx_01_the_memory_of_openclaw_is_a_collection_over_its_folder(kb: Path, tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    workspace = state / "workspace"
    files = {
        "MEMORY.md": "# Memory\n\nThe user likes zebras.\n",
        "memory/2026-11-01.md": "# Day\n\nA zebra was seen.\n",
        "memory/projects/zoo.md": "# Zoo\n\nzebra\n",
        "AGENTS.md": "# Rules about zebra\n",
        "memory/photo.png": "zebra",
        "skills/zebra/MEMORY.md": "zebra\n",
    }
    for path, text in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text, "utf-8")
    refused = run_in(kb, ["migrate", "openclaw", str(state), "--json"])
    assert (refused.code, refused.error["code"]) == (1, "E_FOREIGN") and "MEMORY.md" in refused.error["error"]
    assert str(workspace) in refused.error["suggestion"]
    first = run_in(kb, ["migrate", "openclaw", str(workspace), "--name", "memory"]).line
    assert first == {"name": "memory", "folder": str(workspace), "documents": 3, "added": True}
    assert git(kb, "status", "--short") == "", "a folder outside is known to this machine alone"
    paths = {line["path"] for line in _lines(run_in(kb, ["ls", "memory"]))}
    assert paths == {"memory/MEMORY.md", "memory/memory/2026-11-01.md", "memory/memory/projects/zoo.md"}
    again = run_in(kb, ["migrate", "openclaw", str(workspace)])
    assert again.line == {**first, "added": False} and "already" in again.err
    assert len(_lines(run_in(kb, ["collection", "list"]))) == 1
    inside = kb / "agent"
    (inside / "memory").mkdir(parents=True)
    (inside / "memory/day.md").write_text("# Day\n", "utf-8")
    assert run_in(kb, ["migrate", "openclaw", "agent"]).line["added"] is True
    assert (kb / "ontology/collections/agent.yaml").exists()
    assert {path: (workspace / path).read_text("utf-8") for path in files} == files
