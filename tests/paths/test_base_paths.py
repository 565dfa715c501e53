"""Boot, write and query through the Python API with a counted embedder and a frozen clock."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import duckkb
from duckkb.types.errors import Conflict, InvalidRecord, NotFound, Unavailable, UsageError
from tests.conftest import NOTES, commit, git, make_base, tree_bytes
from tests.fakes import FrozenClock, HashEmbedder
from tests.harness.waiting import HANG_S

VECTORS = """\
global: {embedding_model: multilingual-e5-small, chunk_size: 200}
nodes:
  Doc:
    identity: id
    schema:
      type: object
      properties: {id: {type: string}, text: {type: string}, note: {type: string}, grade: {type: integer}}
      required: [id]
    search: {full_text: [text, note], vectors: [text]}
"""
START = "2026-05-04T10:00:00.000000Z"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return make_base(tmp_path / "docs", VECTORS)


def _open(root: Path, embedder: HashEmbedder | None = None, start: str = START) -> duckkb.KnowledgeBase:
    return duckkb.open(root, embedder=embedder or HashEmbedder(), clock=FrozenClock(start))


def _long(subject: str) -> str:
    return "Something else entirely, at length. " * 20 + subject


def test_the_example_of_the_readme(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        receipt = kb.put("Note", [{"id": "a", "text": "how ids are given"}, {"id": "b", "status": "final"}])
        assert (receipt.inserted, receipt.updated, receipt.unchanged) == (2, 0, 0)
        assert len(receipt.etags) == len(receipt.files) + 1 == 2
        result = kb.find("Note", "ids", where="status IS NULL", limit=10)
        assert [(hit.identity, hit.record["text"]) for hit in result] == [("a", "how ids are given")]
        assert result[0].chunk.text == "how ids are given"
        assert kb.get("Note", "a")["_etag"] == receipt.etags[0]
        assert [record["id"] for record in kb.list("Note")] == ["a", "b"]
        assert kb.sql("SELECT count(*) FROM note").rows == ((2,),)
        assert kb.check().findings == ()
        assert kb.delete("Note", "a").deleted == 1
        with pytest.raises(NotFound):
            kb.get("Note", "a")


def test_dk_06_one_changeset_in_three_orders_gives_identical_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKKB_WRITER", "one-writer")
    records = [{"id": f"n{number}", "size": number, "text": "文" * number} for number in range(40)]
    trees = []
    for seed in range(3):
        root = make_base(tmp_path / str(seed), NOTES)
        random.Random(seed).shuffle(records)
        with _open(root) as kb:
            kb.put("Note", records)
            kb.put(
                "cites", [{"from": f"n{number}", "to": "n0"} for number in random.Random(seed).sample(range(40), 40)]
            )
        trees.append(tree_bytes(root))
    assert trees[0] == trees[1] == trees[2] and len(trees[0]) == 3


def test_dk_07_one_record_is_one_line_of_diff(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": f"n{number:05}", "text": f"text {number}"} for number in range(10_000)])
        commit(notes)
        kb.put("Note", {"id": "n05000", "text": "changed"})
        assert git(notes, "diff", "--numstat").split()[:2] == ["1", "1"]
        assert len(git(notes, "diff", "--numstat").splitlines()) == 1
        commit(notes)
        kb.put("Note", {"id": "n05000x"})
        git(notes, "add", "-A")
        assert git(notes, "diff", "--cached", "--numstat").split()[:2] == ["1", "0"]
        commit(notes)
        kb.delete("Note", "n05000x")
        assert git(notes, "diff", "HEAD", "--numstat").split()[:2] == ["0", "1"]


def test_dk_05_every_line_is_canonical_json(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "é", "zeta": 1.0, "alpha": {"b": 1, "a": [1, 2]}, "text": "线\u2028\u202e"}])
    line = next((notes / "data").rglob("part_*.jsonl")).read_bytes()
    record = json.loads(line)
    assert list(record) == ["__id", "id", "alpha", "text", "zeta", "__created_at", "__updated_at"]
    assert b'"alpha":{"a":[1,2],"b":1}' in line and b"\\u2028\\u202e" in line and "线".encode() in line
    assert line.endswith(b"}\n") and b": " not in line


def test_an_update_keeps_the_record_in_its_creation_day_file(notes: Path) -> None:
    with _open(notes, start="2026-01-02T00:00:00.000000Z") as kb:
        first = kb.put("Note", {"id": "a"})
    with _open(notes, start="2026-03-04T00:00:00.000000Z") as kb:
        second = kb.put("Note", {"id": "a", "title": "later"})
        record = kb.get("Note", "a")
    assert first.files == second.files and "/20260102/" in first.files[0]
    assert record["__created_at"] == "2026-01-02T00:00:00.000000Z"
    assert record["__updated_at"] == "2026-03-04T00:00:00.000000Z"


def test_updated_at_moves_on_even_when_the_clock_does_not(notes: Path) -> None:
    with _open(notes, start="2026-01-02T00:00:00.000000Z") as kb:
        kb.put("Note", {"id": "a"})
    with _open(notes, start="2020-01-01T00:00:00.000000Z") as kb:
        kb.put("Note", {"id": "a", "title": "x"})
        assert kb.get("Note", "a")["__updated_at"] == "2026-01-02T00:00:00.000001Z"


def test_dk_10_two_clones_that_insert_merge_without_a_conflict(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "base"})
    commit(notes)
    other = tmp_path / "other"
    git(notes, "clone", "-q", str(notes), str(other))
    for root, own in ((notes, "ours"), (other, "theirs")):
        monkeypatch.setenv("DUCKKB_WRITER", own)
        with duckkb.open(root) as kb:
            kb.put("Note", [{"id": own}, {"id": "both", "text": f"from {own}"}])
        commit(root)
    git(notes, "pull", "-q", "--no-rebase", "--no-edit", str(other), "main")
    with duckkb.open(notes) as kb:
        assert [record["id"] for record in kb.list("Note")] == ["base", "both", "ours", "theirs"]
        double, *merged = kb.check().findings
        assert (double.code, [one.code for one in merged]) == ("E_DUP_IDENTITY", ["W_MERGED", "W_MERGED"])
        assert any("both versions remain" in one.message for one in merged), merged
        assert not any("took one" in one.message for one in merged)
        assert [notice.code for notice in kb.notices] == ["W_DUPLICATE"]
        kb.dedupe()
        assert {finding.code for finding in kb.check().findings} <= {"W_MERGED"}, "which HEAD keeps until a commit"


def test_dk_11_with_the_cache_the_provider_is_called_for_no_passage(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"id": f"d{number}", "text": _long(f"subject {number}")} for number in range(12)]
    first = HashEmbedder()
    with _open(docs, first) as kb:
        assert kb.put("Doc", records).pending == 0
        expected = kb.find("Doc", "subject 7", mode="similar", limit=5)
        assert kb.index_build().files == ("data/indices/search_cache.parquet",)
    assert first.passages > 12
    commit(docs)
    clone = tmp_path / "clone"
    git(docs, "clone", "-q", str(docs), str(clone))
    second = HashEmbedder()
    with _open(clone, second) as kb:  # of the same user, who has all of it already
        found = kb.find("Doc", "subject 7", mode="similar", limit=5)
        assert not found.degraded
    assert second.passages == 0
    shutil.rmtree(clone / "data/indices")
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "another user"))
    third = HashEmbedder()
    with _open(clone, third) as kb:
        again = kb.find("Doc", "subject 7", mode="similar", limit=5)
    assert third.passages == first.passages
    ranked = [[(hit.identity, hit.score) for hit in result] for result in (expected, found, again)]
    assert ranked[0] == ranked[1] == ranked[2]


@pytest.mark.parametrize(
    "damage",
    [
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        b"<<<<<<< HEAD\nPAR1\n=======\n>>>>>>> x\n",
        b"PAR1 cut short",
        b"",
    ],
)
def test_dk_12_a_damaged_team_cache_is_said_and_missed(
    docs: Path, damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _open(docs) as kb:
        kb.put("Doc", {"id": "a", "text": "内存 fox"})
        kb.index_build()
    (docs / "data/indices/search_cache.parquet").write_bytes(damage)
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "another user"))
    embedder = HashEmbedder()
    with _open(docs, embedder) as kb:
        result = kb.find("Doc", "fox", mode="match")
        assert [hit.identity for hit in result] == ["a"]
        assert "W_CACHE" in [notice.code for notice in kb.notices]
        assert [hit.identity for hit in kb.find("Doc", "fox", mode="similar")] == ["a"]
    assert embedder.passages == 1


def test_a_changed_model_never_meets_old_vectors(docs: Path) -> None:
    with _open(docs) as kb:
        kb.put("Doc", {"id": "a", "text": "fox"})
    other = HashEmbedder(dimension=32, name="other")
    with _open(docs, other) as kb:
        assert [hit.identity for hit in kb.find("Doc", "fox", mode="similar")] == ["a"]
    assert other.passages == 1


def test_dk_18_a_file_edited_between_load_and_write_is_never_overwritten(notes: Path) -> None:
    with duckkb.open(notes) as ours, duckkb.open(notes) as theirs:
        ours.put("Note", [{"id": "a"}, {"id": "b"}])
        theirs.put("Note", {"id": "a", "title": "theirs"})
        ours.put("Note", {"id": "b", "title": "ours"})
        assert theirs.get("Note", "b")["title"] == "ours"
        assert ours.get("Note", "a")["title"] == "theirs"
        part = next((notes / "data").rglob("part_*.jsonl"))
        part.write_text(part.read_text("utf-8").replace("theirs", "by an editor"), "utf-8")
        ours.put("Note", {"id": "c"})
        assert ours.get("Note", "a")["title"] == "by an editor"
        assert [hit.identity for hit in ours.find("Note", "editor", mode="match")] == ["a"]


def test_dk_18_a_stale_precondition_fails_and_changes_nothing(notes: Path) -> None:
    with duckkb.open(notes) as ours, duckkb.open(notes) as theirs:
        etag = ours.put("Note", {"id": "a"}).etags[0]
        theirs.put("Note", {"id": "a", "title": "x"})
        before = tree_bytes(notes)
        with pytest.raises(Conflict):
            ours.put("Note", {"id": "a", "title": "y"}, if_match=etag)
        assert tree_bytes(notes) == before


@pytest.mark.long
def test_dk_17_processes_that_write_at_once_lose_nothing(notes: Path) -> None:
    """A small version of the campaign: 5 processes of 8 puts each."""
    script = (
        "import duckkb, sys\n"
        "with duckkb.open(sys.argv[1], lock_timeout=120) as kb:\n"
        "    for number in range(8):\n"
        "        kb.put('Note', {'id': f'{sys.argv[2]}-{number}'})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(notes), str(number)]) for number in range(5)]
    assert [process.wait(timeout=HANG_S) for process in running] == [0] * 5
    with duckkb.open(notes) as kb:
        expected = sorted(f"{process}-{number}" for process in range(5) for number in range(8))
        assert [record["id"] for record in kb.list("Note", limit=1000)] == expected
        assert kb.check().findings == ()


def test_dk_19_one_hit_per_record_with_its_best_chunk(docs: Path) -> None:
    with _open(docs) as kb:
        kb.put(
            "Doc", [{"id": "long", "text": _long("The zebra stands at the very end.")}, {"id": "x", "text": "a zebu"}]
        )
        for mode in ("match", "similar", "hybrid"):
            hits = kb.find("Doc", "zebra stands at the very end", mode=mode, limit=10)
            assert [hit.identity for hit in hits].count("long") == 1
            best = next(hit for hit in hits if hit.identity == "long")
            assert "zebra" in best.chunk.text and best.chunk.seq >= 3


@pytest.mark.long
@pytest.mark.parametrize("limit", [1, 3, 12, 60])
def test_dk_20_hybrid_is_rrf_over_the_two_single_lists(docs: Path, limit: int) -> None:
    rng = random.Random(7)
    words = ["fox", "duck", "内存", "融合", "journal", "tree", "branch", "git", "line", "vector"]
    records = [
        {"id": f"d{number:03}", "text": " ".join(rng.choices(words, k=rng.randint(3, 60)))} for number in range(150)
    ]
    with _open(docs) as kb:
        kb.put("Doc", records)
        for query in ("fox 内存 journal", "融合", "git branch line vector tree"):
            depth = max(50, 5 * limit)
            expected: dict[str, float] = {}
            ranks: dict[str, dict[str, int]] = {}
            for mode, lane in (("similar", "vector"), ("match", "fts")):
                for rank, hit in enumerate(kb.find("Doc", query, mode=mode, limit=depth), 1):
                    expected[hit.identity] = expected.get(hit.identity, 0.0) + 1 / (60 + rank)
                    ranks.setdefault(hit.identity, {})[lane] = rank
            order = sorted(expected, key=lambda identity: (-expected[identity], identity))[:limit]
            found = kb.find("Doc", query, mode="hybrid", limit=limit)
            assert [hit.identity for hit in found] == order
            for hit in found:
                assert abs(hit.score - expected[hit.identity]) < 1e-9
                assert hit.scores["final"] == hit.score
                assert {lane: rank for lane, rank in hit.scores["rank"].items() if rank} == ranks[hit.identity]


def test_dk_22_a_failing_model_degrades_to_words_and_says_so(docs: Path) -> None:
    embedder = HashEmbedder()
    with _open(docs, embedder) as kb:
        kb.put("Doc", {"id": "a", "text": "内存 fox"})
        embedder.fail = True
        stored = kb.put("Doc", {"id": "b", "text": "another fox"})
        assert (stored.inserted, stored.pending) == (1, 1)
        assert [notice.code for notice in stored.notices] == ["W_PENDING"]
        result = kb.find("Doc", "fox", mode="hybrid")
        assert result.degraded and {hit.identity for hit in result} == {"a", "b"}
        with pytest.raises(Unavailable):
            kb.find("Doc", "fox", mode="similar")
        embedder.fail = False
        healed = kb.find("Doc", "fox", mode="hybrid")
        assert not healed.degraded and kb.index_status()["missing"] == 0


def test_a_given_vector_searches_without_the_model(docs: Path) -> None:
    embedder = HashEmbedder()
    with _open(docs, embedder) as kb:
        kb.put("Doc", [{"id": "a", "text": "内存 fox"}, {"id": "b", "text": "a quiet duck"}])
        vector = embedder.embed_queries(["a quiet duck"])[0]
        asked = embedder.queries
        assert kb.find("Doc", vector=vector, limit=1)[0].identity == "b"
        assert kb.find("Doc", vector=vector.tolist(), limit=1)[0].identity == "b"
        assert kb.find("Doc", "fox", vector=vector, limit=2).mode == "hybrid"
        assert embedder.queries == asked
        for bad in ([0.0] * 64, [1.0] * 63, [float("nan")] * 64, np.zeros(64)):
            with pytest.raises(UsageError):
                kb.find("Doc", vector=bad)


def test_a_filter_is_a_true_prefilter_in_every_mode(docs: Path) -> None:
    rng = random.Random(3)
    words = ["fox", "duck", "内存", "融合", "tree"]
    records = [{"id": f"d{n:03}", "text": " ".join(rng.choices(words, k=8)), "grade": n % 97} for n in range(300)]
    with _open(docs) as kb:
        kb.put("Doc", records)
        for bound in (0, 1, 2, 40):
            wanted = {record["id"] for record in records if record["grade"] <= bound}
            words_match = {record["id"] for record in records if record["id"] in wanted and "fox" in record["text"]}
            for mode, within in (("similar", wanted), ("match", words_match), ("hybrid", wanted)):
                found = kb.find("Doc", "fox", mode=mode, where=f"grade <= {bound}", limit=300)
                assert {hit.identity for hit in found} == within, (mode, bound)


def test_hybrid_with_a_negation_leaves_out_what_it_excludes_in_both_lanes(docs: Path) -> None:
    with _open(docs) as kb:
        kb.put("Doc", [{"id": "a", "text": "python the snake"}, {"id": "b", "text": "python the language"}])
        found = kb.find("Doc", "python -snake", mode="hybrid")
        assert [hit.identity for hit in found] == ["b"]


def test_minmax_weighs_scaled_scores(docs: Path) -> None:
    with _open(docs) as kb:
        kb.put("Doc", [{"id": f"d{n}", "text": "fox " * n + "duck " * (9 - n)} for n in range(1, 9)])
        lanes = {}
        for mode in ("similar", "match"):
            hits = kb.find("Doc", "fox fox", mode=mode, limit=50)
            low, high = min(hit.score for hit in hits), max(hit.score for hit in hits)
            lanes[mode] = {hit.identity: (hit.score - low) / (high - low) for hit in hits}
        found = kb.find("Doc", "fox fox", mode="hybrid", fusion=duckkb.Fusion("minmax", weight=0.7))
        for hit in found:
            expected = 0.7 * lanes["similar"].get(hit.identity, 0) + 0.3 * lanes["match"].get(hit.identity, 0)
            assert hit.score == pytest.approx(expected, abs=1e-9)


def test_a_changeset_applies_and_its_inverse_takes_it_back(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": "a", "title": "old"}, {"id": "b"}])
        before = tree_bytes(notes)
        row = kb.get("Note", "a")
        old = duckkb.Record(
            "Note", row["__id"], ("a",), {"id": "a", "title": "old"}, row["__created_at"], row["__updated_at"]
        )
        new = duckkb.Record(
            "Note", row["__id"], ("a",), {"id": "a", "title": "new"}, row["__created_at"], row["__updated_at"]
        )
        changeset = duckkb.Changeset((duckkb.Change(old, new),))
        assert kb.apply(changeset).updated == 1
        assert kb.get("Note", "a")["title"] == "new"
        with pytest.raises(Conflict):
            kb.apply(changeset)
        kb.apply(changeset.inverse())
        assert tree_bytes(notes) == before


def test_a_changed_configuration_is_loaded_again(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "extra": 1})
        config = notes / "config.yaml"
        config.write_text(config.read_text("utf-8").replace("size: {type: integer}", "extra: {type: string}"), "utf-8")
        with pytest.raises(InvalidRecord):
            kb.put("Note", {"id": "b", "extra": 1})
        assert [finding.code for finding in kb.check().findings] == ["E_SCHEMA"]


def test_a_field_that_the_schema_does_not_know_is_kept(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "a", "colour": {"名": [1, 2.0, None]}})
    with duckkb.open(notes) as kb:
        assert kb.get("Note", "a")["colour"] == {"名": [1, 2.0, None]}
        assert [hit.identity for hit in kb.find("Note", where="colour IS NOT NULL")] == ["a"]


def test_a_base_works_without_git_and_without_data(tmp_path: Path) -> None:
    root = tmp_path / "plain"
    root.mkdir()
    (root / "config.yaml").write_text(NOTES, "utf-8")
    with duckkb.open(root) as kb:
        assert kb.list("Note").total == 0
        assert kb.put("Note", {"id": "a"}).inserted == 1
        assert kb.status()["revision"] is None
    assert json.loads((root / "data/FORMAT.json").read_bytes()) == {"format": 1}


def test_threads_share_one_open_base(notes: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with duckkb.open(notes) as kb:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: kb.put("Note", {"id": f"t{number}", "text": "fox"}), range(24)))
            counts = list(pool.map(lambda _: len(kb.find("Note", "fox", mode="match", limit=100)), range(8)))
        assert counts == [24] * 8


def test_a_base_that_grows_while_it_is_open_goes_on_out_of_the_store(docs: Path) -> None:
    """It was too small for one when it was opened, and a type that was empty then is in it from its first records on."""
    (docs / "config.yaml").write_text(
        f"{VECTORS}  Tag: {{identity: id, schema: {{properties: {{id: {{type: string}}}}}}}}\n", "utf-8"
    )

    def some(start: int, text: str) -> list[dict[str, object]]:
        return [
            {"id": f"d{number:03}", "text": f"{text} {number} ".ljust(900, "x")} for number in range(start, start + 200)
        ]

    with _open(docs) as kb:
        assert [hit.identity for hit in kb.find("Doc", "anything", mode="match")] == []
        for start in (0, 200):
            kb.put("Doc", some(start, "old"), embed=False)
        kb.put("Tag", {"id": "t"})
        kb.put("Doc", some(100, "new"), embed=False)
        kb.delete("Doc", "d000")
        found = [kb.find("Doc", words, mode="match", limit=500) for words in ("new", "old")]
        assert [len(hits) for hits in found] == [200, 199]
        assert len(kb.list("Doc", limit=1_000)) == 399 and kb.get("Tag", "t")["id"] == "t"
        assert kb._base.lines is not None and kb._base.lines.holds == {"Doc", "Tag"}
    with _open(docs) as again:
        assert [
            [hit.identity for hit in again.find("Doc", words, mode="match", limit=500)] for words in ("new", "old")
        ] == [[hit.identity for hit in hits] for hits in found]
