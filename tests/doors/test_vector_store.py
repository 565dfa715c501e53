"""The vector store actions: through the real process where commands are meant, through `kb.vectors` for the rest."""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import duckkb
from duckkb.app import KnowledgeBase
from duckkb.index.text_chunks import chunk
from duckkb.operations import vector_store
from duckkb.types.errors import NotFound, Refused, StateError, Unavailable, UsageError
from tests.conftest import NOTES, Ran, git, make_base, run_in, tree_bytes, without_roots_rights
from tests.fake_endpoint import FakeEndpoint
from tests.fakes import HashEmbedder

LONG = "\n\n".join(f"Paragraph {number} is about storage, journals and recovery. " * 9 for number in range(6))
RECIPE = f"{LONG}\n\nSaffron rice wants a slow fire."


def namespace(collection: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"duckkb:collection:{collection}")


def distance(first: Any, second: Any) -> float:
    """The cosine distance in 64 bits."""
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return float(1.0 - one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def said(ran: Ran) -> Any:
    """The one JSON value on stdout."""
    assert ran.code == 0, ran.err
    assert ran.out.count("\n") == 1
    return json.loads(ran.out)


def files(root: Path) -> dict[str, bytes]:
    """Everything but local state and git's own."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path): path.read_bytes() for path in found if not {".duckkb", ".git"} & set(path.parts)}


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with the offline model that knows what animals say, by commands, and a long file."""
    config = NOTES.replace("embedding_model: none", "embedding_model: multilingual-e5-small")
    root = make_base(tmp_path_factory.mktemp("spoken") / "kb", config)
    for animal, word in (("cat", "meow"), ("猫", "喵")):
        ran = run_in(root, ["vector", "store", "--embedding-text", animal, "--value", word])
        assert (ran.code, ran.err) == (0, "") and ran.out == f"{uuid.uuid5(namespace('vectors'), animal)}\n"
    with duckkb.open(root) as kb:
        for number in range(5):
            kb.vectors.store(f"a sentence about the number {number}, of some length", number)
    return root


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A base whose model is behind an endpoint, which answers faster than a model loads."""
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        config = NOTES.replace("embedding_model: none", f"embedding_model: far, embedding: {place}")
        root = make_base(tmp_path_factory.mktemp("far") / "kb", config)
        assert run_in(root, ["trust"]).code == 0
        yield root


@pytest.fixture
def kb(notes: Path) -> Iterator[KnowledgeBase]:
    (notes / "config.yaml").write_text(
        NOTES.replace("embedding_model: none", "embedding_model: multilingual-e5-small"), "utf-8"
    )
    with duckkb.open(notes, embedder=HashEmbedder()) as opened:
        yield opened


def test_vd_01_every_action_is_one_json_object_and_gives_one_json_value(far: Path) -> None:
    (far / "page.txt").write_text("a page of text", "utf-8")

    def act(**action: Any) -> Any:
        return said(run_in(far, ["vector", "run", json.dumps(action)]))

    key = act(action="store", embeddingText="a text", value={"says": ["any", 1, True, {"json": None}]})
    action = json.dumps({"action": "retrieve", "key": key[:8]})
    assert said(run_in(far, ["vector", "run"], stdin=action)) == {"says": ["any", 1, True, {"json": None}]}
    page = act(action="import_file", path="page.txt")
    found = act(action="search", query="a page of text", topK=1)
    assert [(one["key"], one["value"], one["score"]) for one in found] == [(page, "page.txt", 0.0)]
    with duckkb.open(far) as kb:  # the others take the same way
        assert kb.vectors.run({"action": "delete", "key": page}) == page
        assert [one["key"] for one in kb.vectors.run({"action": "list", "limit": 5})] == [key]
        assert kb.vectors.run({"action": "set_database", "path": "inner"}) == str((far / "inner").resolve())
        assert kb.vectors.run({"action": "set_database", "path": "."}) == str(far.resolve())


def test_vd_01_an_unknown_action_or_missing_argument_names_itself(far: Path, kb: KnowledgeBase) -> None:
    ran = run_in(far, ["vector", "run", '{"action": "serch", "query": "x"}', "--json"])
    assert (ran.code, ran.out) == (2, "") and "'serch'" in ran.error["error"] and "search" in ran.error["suggestion"]
    ran = run_in(far, ["vector", "store", "--embedding-text", "x"])
    assert ran.code == 2 and "--value" in ran.err
    wrong = {
        "embeddingText": {"action": "store", "value": 1},
        "value": {"action": "store", "embedding_text": "x"},
        "key": {"action": "retrieve"},
        "path": {"action": "import_file"},
        "query": {"action": "search", "topK": 3},
        "top_k must": {"action": "search", "query": "x", "top_k": 0},
        "limit must": {"action": "list", "limit": "5"},
        "'colection'": {"action": "list", "colection": "x"},
        "given twice": {"action": "search", "query": "x", "topK": 1, "top_k": 1},
        "argument action": {"query": "x"},
        "other than null": {"action": "store", "embeddingText": "x", "value": None},
        "one JSON object": ["store"],
    }
    for named, action in wrong.items():
        with pytest.raises(UsageError, match=named) as refused:
            kb.vectors.run(json.dumps(action).encode())
        assert refused.value.exit_code == 2
    assert not (kb.root / "ontology").exists()


def test_vd_01_the_schema_says_what_each_action_takes(kb: KnowledgeBase) -> None:
    ran = run_in(kb.root.parent, ["vector", "schema"])  # where there is no base
    schema = said(ran)
    jsonschema.Draft202012Validator.check_schema(schema)
    names = [one["properties"]["action"]["const"] for one in schema["oneOf"]]
    assert names == ["import_file", "store", "retrieve", "delete", "list", "search", "set_database"]
    good: list[dict[str, Any]] = [
        {"action": "store", "embeddingText": "x", "value": [1, "two"]},
        {"action": "search", "query": "x", "topK": 2, "collection": "vectors"},
        {"action": "list", "limit": 1, "offset": 0},
        {"action": "store", "embedding_text": "x", "value": 1},
        {"action": "search", "query": "x", "top_k": 2},
        {"action": "set_database", "filepath": "."},
    ]
    bad: list[dict[str, Any]] = [
        {"action": "store", "embeddingText": "x"},
        {"action": "store", "value": 1},
        {"action": "store", "embeddingText": "", "value": 1},
        {"action": "search", "query": "x", "topK": 0},
        {"action": "list", "more": 1},
    ]
    for action in good:
        jsonschema.validate(action, schema)
        kb.vectors.run(action)
    for action in bad:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(action, schema)
        with pytest.raises(UsageError):
            kb.vectors.run(action)


def test_vd_01_a_collection_of_another_kind_is_refused(kb: KnowledgeBase) -> None:
    kb.collections.init("pages", policy="knowledge-base")
    before = files(kb.root)
    for name, told in (("pages", "the policy knowledge-base"), ("Note", "not a collection")):
        for act in (
            lambda name=name: kb.vectors.store("x", 1, collection=name),
            lambda name=name: kb.vectors.list(collection=name),
        ):
            with pytest.raises(UsageError, match=told) as refused:
                act()
            assert refused.value.code == "E_INTENT"
    with pytest.raises(UsageError, match="cannot name a collection"):
        kb.vectors.store("x", 1, collection="no/name")
    assert files(kb.root) == before


def test_vd_01_other_formats_than_json_are_refused(far: Path) -> None:
    ran = run_in(far, ["vector", "list", "--format", "csv"])
    assert ran.code == 2 and "csv" in ran.err and ran.out == ""


@pytest.mark.model
def test_vd_02_store_prints_a_uuid_and_the_same_text_keeps_it_and_takes_the_new_value(spoken: Path) -> None:
    first = run_in(spoken, ["vector", "store", "--embedding-text", "cow", "--value", "moo"])
    again = run_in(spoken, ["vector", "store", "--embedding-text", "cow", "--value", "moo, twice", "--json"])
    key = first.out.strip()
    assert str(uuid.UUID(key)) == key and said(again) == key
    assert run_in(spoken, ["vector", "retrieve", key]).out == "moo, twice\n"
    with duckkb.open(spoken) as kb:
        assert [one["key"] for one in kb.vectors.list() if one["embedding_text"] == "cow"] == [key]
        kb.vectors.delete(key)


def test_vd_02_the_key_that_is_stored_counts_not_the_computed_one(kb: KnowledgeBase) -> None:
    kb.collections.init("vectors", policy="vector-store")
    kb.put("vectors", {"key": "chosen-by-hand", "embedding_text": "cat", "value": "meow", "note": "stays"})
    assert kb.vectors.store("cat", "purr") == "chosen-by-hand"
    record = kb.get("vectors", "chosen-by-hand")
    assert (record["value"], record["note"]) == ("purr", "stays") and len(kb.vectors.list()) == 1

    taken = str(uuid.uuid5(namespace("vectors"), "dog"))
    kb.put("vectors", {"key": taken, "embedding_text": "wolf", "value": "howl"})
    other = kb.vectors.store("dog", "woof")
    assert other != taken and str(uuid.UUID(other)) == other and kb.vectors.store("dog", "wuff") == other
    assert kb.vectors.retrieve(taken) == "howl" and kb.vectors.retrieve(other) == "wuff"


def test_vd_02_one_text_has_one_key_in_two_bases_and_follows_a_renamed_collection(
    kb: KnowledgeBase, tmp_path: Path
) -> None:
    duckkb.init(tmp_path / "other")
    with duckkb.open(tmp_path / "other", embedder=HashEmbedder()) as other:
        assert (
            other.vectors.store("cat", 1) == kb.vectors.store("cat", 2) == str(uuid.uuid5(namespace("vectors"), "cat"))
        )
    assert kb.vectors.store("cat", 2, collection="others") == str(uuid.uuid5(namespace("others"), "cat"))
    kb.collections.rename("others", "renamed")
    assert kb.vectors.store("cat", 3, collection="renamed") == str(uuid.uuid5(namespace("others"), "cat"))


def test_vd_03_an_unknown_key_is_a_message_and_exit_1(far: Path) -> None:
    for verb in ("retrieve", "delete"):
        ran = run_in(far, ["vector", verb, "0000-no-such-key"])
        assert (ran.code, ran.out) == (1, "") and "0000-no-such-key" in ran.err


def test_vd_03_a_unique_beginning_works_and_an_ambiguous_one_lists_the_candidates(kb: KnowledgeBase) -> None:
    kb.collections.init("vectors", policy="vector-store")
    keys = ["abcd1111", "abcd2222", "abce", "abcd"]
    kb.put("vectors", [{"key": key, "embedding_text": f"text {key}", "value": key} for key in keys[:3]])
    assert kb.vectors.retrieve("abcd1") == "abcd1111"
    with pytest.raises(Refused, match="abcd1111, abcd2222") as refused:
        kb.vectors.delete("abcd")
    assert refused.value.exit_code == 1 and refused.value.details["candidates"] == ["abcd1111", "abcd2222"]
    with pytest.raises(NotFound, match="'abc'"):  # unique or not: fewer than 4 characters are no beginning
        kb.vectors.retrieve("abc")
    kb.put("vectors", {"key": "abcd", "embedding_text": "the key itself", "value": "whole"})
    assert kb.vectors.retrieve("abcd") == "whole"
    assert kb.vectors.delete("abcd2") == "abcd2222" and [one["key"] for one in kb.vectors.list()] == [
        "abcd",
        "abcd1111",
        "abce",
    ]


def test_vd_04_list_pages_in_a_stable_order(kb: KnowledgeBase) -> None:
    assert list(kb.vectors.list()) == [] and not (kb.root / "ontology").exists()  # asking makes nothing
    assert [notice.code for notice in kb.vectors.list().notices] == ["W_NO_COLLECTION"]
    keys = sorted(kb.vectors.store(f"text {number}", number) for number in range(60))
    assert [one["key"] for one in kb.vectors.list()] == keys[:50]
    assert [one["key"] for one in kb.vectors.list(limit=7, offset=55)] == keys[55:]
    assert list(kb.vectors.list(offset=60)) == []
    one = kb.vectors.list(limit=1)[0]
    assert list(one) == ["key", "embedding_text", "value", "embedding"]
    (vector,) = HashEmbedder().embed_passages([one["embedding_text"]])
    assert np.array_equal(np.asarray(one["embedding"], np.float32), vector)  # as short as they are, bit for bit
    for limit, offset in ((0, 0), (-1, 0), (5, -1)):
        with pytest.raises(UsageError):
            kb.vectors.list(limit=limit, offset=offset)


@pytest.mark.model
def test_vd_05_scores_are_cosine_distances_ascending_and_the_exact_text_comes_first(spoken: Path) -> None:
    rows = said(run_in(spoken, ["vector", "list"]))
    assert all(
        list(row) == ["key", "embedding_text", "value", "embedding"] and len(row["embedding"]) == 384 for row in rows
    )
    vectors = {row["key"]: row["embedding"] for row in rows}
    ran = run_in(spoken, ["vector", "search", "cat", "--top-k", "99"])
    found = said(ran)
    assert ran.err == "" and len(found) == len(rows) == 7  # past the size gives all
    assert all(list(one) == ["key", "embedding_text", "value", "score"] for one in found)
    assert found[0]["embedding_text"] == "cat" and found[0]["value"] == "meow" and abs(found[0]["score"]) < 1e-5
    scores = [one["score"] for one in found]
    assert scores == sorted(scores)
    for one in found:
        assert one["score"] == pytest.approx(distance(vectors[found[0]["key"]], vectors[one["key"]]), abs=2e-6)
    with duckkb.open(spoken) as kb:
        for row in rows:
            (nearest, *_) = kb.vectors.search(row["embedding_text"])
            assert nearest["key"] == row["key"] and 0 <= nearest["score"] < 1e-5
        assert len(kb.vectors.search("an animal")) == 5
        similar = kb.find("vectors", "cat", limit=7)
        assert [hit.identity for hit in similar.hits] == [one["key"] for one in found]
        assert [1 - hit.score for hit in similar.hits] == pytest.approx(scores, abs=2e-6)


def test_vd_05_the_exact_text_is_first_among_texts_that_the_model_takes_for_the_same(kb: KnowledgeBase) -> None:
    texts = ["cat", "Cat", "CAT", "cAT", "caT"]
    for text in texts:
        kb.vectors.store(text, text)
    for text in texts:
        assert [(one["value"], one["score"]) for one in kb.vectors.search(text, top_k=1)] == [(text, 0.0)]
        assert kb.vectors.search(text)[0]["value"] == text and len(kb.vectors.search(text)) == 5


def test_vd_05_search_refuses_what_is_no_question(kb: KnowledgeBase) -> None:
    kb.vectors.store("cat", "meow")
    for query, top_k in (("", 5), (" \n", 5), ("a\0b", 5), ("cat", 0), ("cat", -3)):
        with pytest.raises(UsageError):
            kb.vectors.search(query, top_k=top_k)


def test_vd_06_a_long_file_is_chunked_its_embedding_the_mean_its_score_the_best_chunk(kb: KnowledgeBase) -> None:
    (kb.root / "recipe.txt").write_bytes(RECIPE.encode())
    kb.vectors.store("something else entirely", 1)
    key = kb.vectors.import_file(kb.root / "recipe.txt")
    record = kb.get("vectors", key)
    assert record["embedding_text"] == RECIPE and record["value"] == str(kb.root / "recipe.txt")
    model = HashEmbedder()
    texts = [piece.text for piece in chunk(RECIPE, 800)]
    windows = model.embed_passages(texts).astype(np.float64)
    assert len(texts) > 3
    mean = windows.mean(axis=0)
    (embedding,) = [one["embedding"] for one in kb.vectors.list() if one["key"] == key]
    assert np.allclose(embedding, mean / np.linalg.norm(mean), atol=1e-6)
    for query in ("Saffron rice wants a slow fire.", "journals", texts[2]):
        (vector,) = model.embed_queries([query])
        (score,) = [one["score"] for one in kb.vectors.search(query) if one["key"] == key]
        assert score == pytest.approx(min(distance(vector, window) for window in windows), abs=2e-6)
    exact, *_ = kb.vectors.search(RECIPE)  # a question of several chunks
    assert exact["key"] == key and 0 <= exact["score"] < 1e-5
    question = RECIPE[100:2000]
    asked = model.embed_queries([piece.text for piece in chunk(question, 800)])
    (score,) = [one["score"] for one in kb.vectors.search(question) if one["key"] == key]
    assert score == pytest.approx(
        np.mean([min(distance(one, window) for window in windows) for one in asked]), abs=2e-6
    )


def test_vd_06_missing_empty_folder_and_binary_files_each_have_their_own_error(far: Path) -> None:
    place = far / "files"
    place.mkdir()
    for name, data in (("empty", b""), ("blank", b" \n"), ("picture", b"\x89PNG\r\n\x1a\n"), ("nul", b"a\0b")):
        (place / name).write_bytes(data)
    before = files(far)
    told = {}
    for name in ("missing", "empty", "", "picture", "nul"):
        ran = run_in(far, ["vector", "import-file", f"files/{name}", "--json"])
        assert ran.code in (1, 2) and ran.out == "" and f"files/{name}" in ran.error["error"]
        told[name] = ran.error["error"]
    assert len(set(told.values())) == 5 and files(far) == before
    assert "does not exist" in told["missing"] and "empty" in told["empty"] and "folder" in told[""]
    assert "UTF-8" in told["picture"] and "NUL" in told["nul"]
    with duckkb.open(far, embedder=HashEmbedder()) as kb, pytest.raises(UsageError, match="white space"):
        kb.vectors.import_file(place / "blank")


def test_vd_06_a_path_in_an_action_stays_inside_the_base(kb: KnowledgeBase) -> None:
    (kb.root.parent / "secret.txt").write_text("secret", "utf-8")
    (kb.root / "link.txt").symlink_to(kb.root.parent / "secret.txt")
    for path in (
        "../secret.txt",
        str(kb.root.parent / "secret.txt"),
        "link.txt",
        ".git/config",
        "docs/../.duckkb/clone_id",
    ):
        for action in ("import_file", "set_database"):
            with pytest.raises(UsageError) as refused:
                kb.vectors.run({"action": action, "path": path})
            assert refused.value.code == "E_PATH"
    assert not (kb.root / "ontology").exists()
    key = kb.vectors.import_file(kb.root.parent / "secret.txt")  # typed by a person: that is the grant
    assert kb.vectors.retrieve(key).endswith("secret.txt")
    sandbox = {**os.environ, "DUCKKB_SANDBOX": "1"}
    ran = run_in(kb.root, ["vector", "import-file", "../secret.txt", "--json"], env=sandbox)
    assert ran.code == 2 and ran.error["code"] == "E_PATH"


def test_vd_07_set_database_switches_to_another_folder_and_the_first_stays_as_it_was(far: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = make_base(tmp_path / "first" / "kb", (far / "config.yaml").read_text("utf-8"))
    assert run_in(first, ["trust"]).code == 0
    assert run_in(first, ["vector", "store", "--embedding-text", "here", "--value", "first"]).code == 0
    git(first, "add", "-A")
    git(first, "commit", "-q", "-m", "as it was")
    second = tmp_path / "second" / "kb"
    ran = run_in(first, ["vector", "set-database", "../../second/kb"])
    assert (ran.code, ran.out) == (0, f"{second.resolve()}\n") and (second / "config.yaml").is_file()
    config = (second / "config.yaml").read_text("utf-8").replace("multilingual-e5-small", "none")
    (second / "config.yaml").write_text(config, "utf-8")
    with duckkb.open(first, embedder=HashEmbedder()) as kb:
        assert list(kb.vectors.list()) == []
        key = kb.vectors.store("there", "second")
        with pytest.raises(NotFound):
            kb.get("vectors", key)  # other verbs stay with the first
    assert git(first, "status", "--porcelain") == ""
    with duckkb.open(second, embedder=HashEmbedder()) as kb:
        assert kb.vectors.retrieve(key) == "second"
    back = run_in(first, ["vector", "set-database", "."])
    assert back.code == 0 and json.loads(run_in(first, ["vector", "list"]).out)[0]["value"] == "first"
    assert tree_bytes(second) and git(first, "status", "--porcelain") == ""


def test_vd_07_a_place_that_cannot_be_written_or_be_a_base_is_an_error(kb: KnowledgeBase) -> None:
    (kb.root / "file").write_text("x", "utf-8")
    before = files(kb.root)
    for path in ("file", "file/inner", "data/inner", "ontology"):
        with pytest.raises(UsageError) as refused:
            kb.vectors.set_database(kb.root / path)
        assert refused.value.code == "E_PATH"
    assert files(kb.root) == before and list(kb.vectors.list()) == []
    broken = kb.root.parent / "broken"
    broken.mkdir()
    (broken / "config.yaml").write_text("nodes: 5", "utf-8")
    with pytest.raises(UsageError):  # it does not load: nothing is switched
        kb.vectors.set_database(broken)
    assert list(kb.vectors.list()) == []


@pytest.mark.skipif(
    sys.platform == "win32", reason="rights of folders are a POSIX matter; test_errnos.py refuses the calls"
)
def test_vd_07_a_folder_without_rights_is_an_error(kb: KnowledgeBase) -> None:
    kb.vectors.list()
    closed = kb.root.parent / "closed"
    duckkb.init(closed / "kb")
    for folder in (closed, closed / "kb"):
        folder.chmod(0o555)
    drop = without_roots_rights()
    try:
        for path in ("../closed/new", "../closed/kb"):
            command = [*drop, sys.executable, "-m", "duckkb", "vector", "set-database", path, "--json"]
            done = subprocess.run(command, cwd=kb.root, capture_output=True, text=True, check=False)
            assert done.returncode == 1 and done.stdout == "", done.stderr
            assert json.loads(done.stderr.splitlines()[-1])["code"] == "E_READ_ONLY"
    finally:
        for folder in (closed, closed / "kb"):
            folder.chmod(0o755)
    assert not (kb.root / ".duckkb" / "vectors.json").exists()


def test_vd_07_a_folder_that_vanished_is_an_error_that_names_the_command_which_mends_it(kb: KnowledgeBase) -> None:
    kb.vectors.store("here", 1)
    other = kb.root.parent / "other"
    kb.vectors.set_database(other)
    kb.vectors.store("there", 2)
    other.rename(kb.root.parent / "moved")
    for act in (lambda: kb.vectors.list(), lambda: kb.vectors.store("x", 1)):
        with pytest.raises(StateError, match=re.escape(str(other))) as refused:
            act()
        assert "duckkb vector set-database" in refused.value.suggestion and refused.value.exit_code == 1
    assert not other.exists() and kb.find("vectors", "here").hits
    kb.vectors.set_database(kb.root)
    assert [one["value"] for one in kb.vectors.list()] == [1]


def test_vd_07_a_sandbox_does_not_follow_out_of_the_base(kb: KnowledgeBase) -> None:
    kb.vectors.set_database(kb.root.parent / "outside")
    sandbox = {**os.environ, "DUCKKB_SANDBOX": "1"}
    ran = run_in(kb.root, ["vector", "list", "--json"], env=sandbox)
    assert ran.code == 1 and "DUCKKB_SANDBOX" in ran.error["error"] and "set-database" in ran.error["suggestion"]
    ran = run_in(kb.root, ["vector", "set-database", "../outside", "--json"], env=sandbox)
    assert ran.code == 2 and ran.error["code"] == "E_PATH"
    assert run_in(kb.root, ["vector", "set-database", "inside"], env=sandbox).code == 0
    assert run_in(kb.root, ["vector", "list"], env=sandbox).out == "[]\n"


def test_vd_07_neither_a_clone_nor_a_copy_brings_a_folder_along(kb: KnowledgeBase, tmp_path: Path) -> None:
    kb.vectors.set_database(kb.root.parent / "outside")
    pointer = kb.root / ".duckkb" / "vectors.json"
    copy = make_base(tmp_path / "copy", NOTES)
    (copy / ".duckkb").mkdir()
    (copy / ".duckkb" / "vectors.json").write_bytes(pointer.read_bytes())  # as an archive would bring it
    with duckkb.open(copy, embedder=HashEmbedder()) as other, pytest.raises(StateError, match="another place"):
        other.vectors.list()
    led_out = {"base": "/elsewhere", "target": "../outside"}
    (copy / ".duckkb" / "vectors.json").write_text(json.dumps(led_out), "utf-8")
    with duckkb.open(copy, embedder=HashEmbedder()) as other, pytest.raises(StateError, match="another place"):
        other.vectors.list()
    (copy / ".duckkb" / "vectors.json").write_text("{", "utf-8")
    with duckkb.open(copy, embedder=HashEmbedder()) as other, pytest.raises(StateError, match="damaged"):
        other.vectors.list()
    git(kb.root, "add", "-f", ".duckkb/vectors.json")
    with pytest.raises(StateError) as refused:
        kb.vectors.list()
    assert refused.value.code == "E_TRACKED_STATE"


@pytest.mark.long
def test_vd_08_rows_without_a_key_get_the_computed_one_on_every_load_and_fmt_writes_it(kb: KnowledgeBase) -> None:
    kb.vectors.store("cat", "meow")
    (part,) = [path for path in tree_bytes(kb.root) if path.endswith(".jsonl")]
    texts = ["dog", "a longer text", "文字"]
    rows = "".join(json.dumps({"embedding_text": text, "value": text.upper()}) + "\n" for text in texts)
    (kb.root / part).write_bytes((kb.root / part).read_bytes() + rows.encode())
    keys = {str(uuid.uuid5(namespace("vectors"), text)): text for text in texts}
    loads = []
    for _ in range(2):
        with duckkb.open(kb.root, embedder=HashEmbedder()) as loaded:
            loads.append({one["key"]: one["embedding_text"] for one in loaded.vectors.list()})
            assert loaded.vectors.search("dog")[0]["value"] == "DOG"
    assert loads[0] == loads[1] and keys.items() <= loads[0].items() and len(loads[0]) == 4
    assert rows.encode() in (kb.root / part).read_bytes()  # loading writes nothing
    assert run_in(kb.root, ["fmt"]).code == 0
    written = [
        json.loads(line)
        for path, data in tree_bytes(kb.root).items()
        if path.endswith(".jsonl")
        for line in data.splitlines()
    ]
    assert {one["key"]: one["embedding_text"] for one in written} == loads[0]
    assert kb.vectors.store("dog", "woof") in keys and len(kb.vectors.list()) == 4


def test_vd_09_without_a_usable_model_nothing_is_stored_and_the_error_says_why(notes: Path) -> None:
    before = files(notes)
    for verb in (
        ["store", "--embedding-text", "cat", "--value", "meow"],
        ["import-file", "config.yaml"],
        ["search", "cat"],
    ):
        ran = run_in(notes, ["vector", *verb, "--json"])  # embedding_model: none
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", "E_MODEL") and ran.error["suggestion"]
    assert files(notes) == before

    far = "embedding_model: far, embedding: {base_url: 'https://models.example.org/v1', dimensions: 16}"
    (notes / "config.yaml").write_text(NOTES.replace("embedding_model: none", far), "utf-8")
    before = files(notes)
    ran = run_in(notes, ["vector", "store", "--embedding-text", "cat", "--value", "meow", "--json"])
    assert (ran.code, ran.error["code"]) == (1, "E_UNTRUSTED") and "duckkb trust" in ran.error["suggestion"]
    assert files(notes) == before


def test_vd_09_a_model_that_fails_later_leaves_the_store_as_it_was(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "another user"))  # who has no vector of these texts
    model = HashEmbedder()
    (notes / "config.yaml").write_text(
        NOTES.replace("embedding_model: none", "embedding_model: multilingual-e5-small"), "utf-8"
    )
    with duckkb.open(notes, embedder=model) as kb:
        key = kb.vectors.store("cat", "meow")
        kb.put("vectors", {"embedding_text": "put", "value": "pending"}, embed=False)
        before = files(notes)
        model.fail = True
        for act in (lambda: kb.vectors.store("dog", "woof"), lambda: kb.vectors.search("cat")):
            with pytest.raises(Unavailable, match="switched off"):
                act()
        assert files(notes) == before
        assert kb.vectors.retrieve(key) == "meow"
        assert kb.vectors.store("cat", "purr") == key  # its vector is there already
        page = kb.vectors.list()
        assert sorted((one["value"], one["embedding"] is None) for one in page) == [("pending", True), ("purr", False)]
        assert [notice.code for notice in page.notices] == ["W_DEGRADED"]
        model.fail = False
        assert [one["value"] for one in kb.vectors.search("put")] == ["pending", "purr"]
    for value in (object(), {1: 2}, None):
        with duckkb.open(notes, embedder=model) as kb, pytest.raises(UsageError):
            kb.vectors.store("x", value, collection="never-made")
    assert not (notes / "ontology/collections/never-made.yaml").exists()


def test_vd_09_a_collection_that_another_process_made_meanwhile_is_used(kb: KnowledgeBase, notes: Path) -> None:
    with duckkb.open(notes, embedder=HashEmbedder()) as other, kb._now() as stale:
        other.vectors.store("cat", 1)
        vector_store._prepare(stale, "vectors", "dog", 2)
    assert kb.vectors.store("dog", 2) and len(kb.vectors.list()) == 2
