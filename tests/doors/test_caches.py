"""Caches that are gone or come from elsewhere: what a search, a check and the API say of them, with the real offline model."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckkb
from duckkb.index.cache_database import vector_of
from duckkb.index.cache_parquet import encode
from tests.conftest import commit, make_base, run_in
from tests.harness.hostile.caches import rows_of

TEAM = "data/indices/search_cache.parquet"
CONFIG = """\
nodes:
  Note:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}
    search: {full_text: [text], vectors: [text]}
"""
TEXTS = {"a": "a fox in the snow", "b": "ranked lists joined into one", "c": "断电时数据不丢失"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with the team's cache."""
    root = make_base(tmp_path_factory.mktemp("built") / "kb", CONFIG)
    with duckkb.open(root) as kb:
        kb.put("Note", [{"id": name, "text": text} for name, text in TEXTS.items()])
    assert run_in(root, ["index", "build"]).code == 0
    commit(root)
    return root


def cloned(built: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """As another machine has it: no local state, nothing checked yet."""
    root = tmp_path / "kb"
    shutil.copytree(built, root, ignore=shutil.ignore_patterns(".duckkb"))
    return root, {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(own_cache(tmp_path / "cache"))}


def own_cache(home: Path) -> Path:
    """A user's cache folder with nothing in it but the converted models, which take seconds to make."""
    models = Path(os.environ["XDG_CACHE_HOME"]) / "duckkb/models"
    (home / "duckkb").mkdir(parents=True)
    (home / "duckkb/models").symlink_to(models.resolve())
    return home


def forget(home: Path) -> None:
    """As if the user had never computed a vector."""
    shutil.rmtree(home / "duckkb/shared")
    shutil.rmtree(home / "duckkb/bases", ignore_errors=True)


def test_a_search_that_has_to_compute_vectors_says_how_many(built: Path, tmp_path: Path) -> None:
    root, env = cloned(built, tmp_path)
    cached = run_in(root, ["find", "Note", "fox", "-s"], env=env)
    assert cached.code == 0 and "W_COMPUTED" not in cached.err
    shutil.rmtree(root / "data" / "indices")
    forget(tmp_path / "cache")
    for flag in (["-s"], ["-H"]):
        again = run_in(root, ["find", "Note", "fox", *flag], env=env)
        assert ("W_COMPUTED: 3 vectors" in again.err) is (flag == ["-s"]), "the second search has them"
        assert [line["id"] for line in again.lines][:1] == ["a"]


def test_a_cache_folder_inside_the_base_is_said_with_the_variable_that_names_another(
    built: Path, tmp_path: Path
) -> None:
    root, env = cloned(built, tmp_path)
    put = ["put", "Note", '{"id": "d", "text": "a heron by the lake"}']
    ran = run_in(root, put, env=env | {"DUCKKB_CACHE_HOME": str(root / "cache")})
    assert (
        ran.code == 0 and "W_PENDING" in ran.err and "a cache folder inside the knowledge base is not used" in ran.err
    )
    assert "DUCKKB_CACHE_HOME=" in ran.err and os.devnull not in ran.err


def test_a_question_given_as_a_vector_finds_records_whose_vectors_are_gone(built: Path, tmp_path: Path) -> None:
    root, env = cloned(built, tmp_path)
    question = run_in(root, ["embed", "--json", TEXTS["b"]], env=env).out
    vector = json.dumps(json.loads(question)["embedding"])
    with_cache = run_in(root, ["find", "Note", "--vector", "-"], stdin=vector, env=env).lines
    shutil.rmtree(root / "data" / "indices")
    forget(tmp_path / "cache")
    without = run_in(root, ["find", "Note", "--vector", "-"], stdin=vector, env=env)
    assert [line["id"] for line in without.lines] == [line["id"] for line in with_cache] and len(without.lines) == 3
    assert "W_COMPUTED: 3 vectors" in without.err and "W_DEGRADED" not in without.err


def test_check_tells_of_a_forged_team_cache_as_a_search_does(built: Path, tmp_path: Path) -> None:
    root, env = cloned(built, tmp_path)
    assert run_in(root, ["check", "--json"], env=env).line["findings"] == []
    tokens, vectors = rows_of((root / TEAM).read_bytes())
    (root / TEAM).write_bytes(encode(tokens, [(*row[:3], (-vector_of(row[3])).tobytes()) for row in vectors]))
    told = run_in(root, ["check", "--json"], env=env).line
    assert [(one["code"], one["path"]) for one in told["findings"]] == [("W_CACHE_UNTRUSTED", TEAM)]
    found = run_in(root, ["find", "Note", "fox", "-s"], env=env)
    assert found.lines[0]["id"] == "a" and found.err.count("W_CACHE_UNTRUSTED") == 1


def test_a_damaged_cache_is_told_once(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, env = cloned(built, tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    table = pq.read_table(root / TEAM)
    kinds, sums = table["kind"].to_pylist(), table["checksum"].to_pylist()
    for kind in set(kinds):  # a row of each kind, each looked at by itself
        sums[kinds.index(kind)] = bytes(8)
    at, form = table.column_names.index("checksum"), table.schema.field("checksum")
    pq.write_table(table.set_column(at, form, pa.array(sums, form.type)), root / TEAM)
    with duckkb.open(root) as kb:
        for said in (kb.find("Note", "fox", mode="hybrid").notices, kb.notices):
            caches = [notice for notice in said if notice.code.startswith("W_CACHE")]
            assert len(caches) == len(set(caches)) and caches
