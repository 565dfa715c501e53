"""The cache that a team shares: offered where nobody has made it, and kept in Git LFS where it grew large."""

import json
import os
import shutil
from pathlib import Path

import pytest

import duckkb
from tests.conftest import NOTES, commit, git, make_base, run_in
from tests.fakes import HashEmbedder

PARQUET = "data/indices/search_cache.parquet"
VECTORS = NOTES.replace("embedding_model: none", "embedding_model: multilingual-e5-small").replace(
    "search: {full_text: [title, text]}", "search: {full_text: [title, text], vectors: [text]}"
)


def _offered(root: Path, *numbers: int) -> bool:
    records = [{"id": f"n{number}", "text": f"text {number}"} for number in numbers]
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        receipt = kb.put("Note", records)
        found = [notice for notice in receipt.notices if notice.code == "W_NO_TEAM_CACHE"]
        assert all("duckkb index build" in notice.remedy for notice in found)
        return bool(found)


def test_a_first_import_is_not_greeted_with_the_advice_to_build_a_team_cache(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", VECTORS)
    assert not _offered(root, *range(160))
    assert not _offered(root, *range(160, 320)), "nobody asked for one"
    assert run_in(root, ["init", "--github"]).code == 0
    assert _offered(root, *range(320, 480))
    fresh = make_base(tmp_path / "fresh", VECTORS)
    assert run_in(fresh, ["init", "--github"]).code == 0
    assert not _offered(fresh, *range(500, 660)), "its first records"


def test_a_write_that_misses_a_team_cache_offers_to_build_it(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", VECTORS)
    assert not _offered(root, 1001)
    assert run_in(root, ["init", "--lfs"]).code == 0
    assert not _offered(root, 1002)
    assert _offered(root, *range(1100, 1300))
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.index_build()
    (root / ".gitattributes").write_text("", "utf-8")
    commit(root)
    git(tmp_path, "clone", "-q", "kb", "clone")
    assert not _offered(tmp_path / "clone", *range(1300, 1500))
    git(tmp_path / "clone", "rm", "-r", "-q", "data/indices")
    commit(tmp_path / "clone")
    assert _offered(tmp_path / "clone", *range(1500, 1700)), "one was committed once"
    shutil.copytree(root, tmp_path / "alone", ignore=shutil.ignore_patterns(".git", ".duckkb", "indices"))
    assert not _offered(tmp_path / "alone", 1003)  # nobody to share with


def test_sql_sees_in_a_clone_what_the_team_cache_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_base(tmp_path / "kb", VECTORS)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", [{"id": f"n{number}", "text": f"text {number}"} for number in range(40)])
        kb.index_build()
    commit(root)
    git(tmp_path, "clone", "-q", "kb", "clone")
    for asked in ("search_index", "search_cache WHERE vector IS NOT NULL"):
        monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / asked[:12]))
        with duckkb.open(tmp_path / "clone", embedder=(model := HashEmbedder())) as kb:
            assert kb.sql(f"SELECT count(vector) FROM {asked}").rows == ((40,),)
        assert 0 < model.passages < 40  # a sample was computed anew, no more
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "other"))
    with duckkb.open(tmp_path / "clone", embedder=HashEmbedder(fail=True)) as kb:  # nobody can check them
        assert kb.sql("SELECT count(vector) FROM search_index").rows == ((0,),)


@pytest.mark.long
def test_a_large_cache_is_advised_into_git_lfs(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    (root / PARQUET).parent.mkdir(parents=True)
    (root / PARQUET).touch()

    def codes(size: int) -> set[str]:
        os.truncate(root / PARQUET, size)
        return {one["code"] for one in run_in(root, ["check", "--json"]).line["findings"]}

    assert "W_CACHE_SIZE" not in codes(50_000_000)
    assert "W_CACHE_SIZE" in codes(50_000_001)
    before = (root / ".gitattributes").read_text("utf-8")
    ran = run_in(root, ["init", "--lfs", "--json"])
    assert (ran.code, ran.line["files"]) == (0, [".gitattributes"]) and "git lfs install" in ran.err
    assert (root / ".gitattributes").read_text("utf-8").startswith(before)
    assert "W_CACHE_SIZE" not in codes(50_000_001)
    assert run_in(root, ["init", "--lfs", "--json"]).line["files"] == []
    if shutil.which("git-lfs") is None:
        pytest.skip(
            "git-lfs is not installed here, so what it makes of the attribute, which stands as it should, is not seen; CI installs it"
        )
    git(root, "lfs", "install", "--local")
    commit(root)
    assert git(root, "show", f"HEAD:{PARQUET}").startswith("version https://git-lfs.github.com/spec/v1\n")
    (part, *_) = json.loads(run_in(root, ["put", "Note", '{"id":"a"}']).out)["files"]
    commit(root)
    assert git(root, "show", f"HEAD:{part}").startswith('{"__id":')


def test_a_new_base_can_have_git_lfs_from_the_start(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    assert {one["file"] for one in run_in(tmp_path, ["init", "--lfs"]).lines} >= {"config.yaml", ".gitattributes"}
    assert "filter: lfs" in git(tmp_path, "check-attr", "filter", "--", PARQUET)
    assert "unspecified" in git(tmp_path, "check-attr", "filter", "--", "data/nodes/note/20260101/part_000.jsonl")
