"""An index job shared out: planned alike on every machine, made shard by shard, taken in whole or not at all; and the recipes
of the guide, which run."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import duckkb
from duckkb.engine.index_jobs import JobOptions
from duckkb.index import team_cache
from duckkb.index.cache_parquet import encode
from duckkb.index.team_cache import Shard, ShardFile, number_of, plan_digest
from duckkb.types.errors import DuckkbError, StateError, Unavailable, UsageError
from tests.conftest import ROOT, commit, git, make_base, run_in, tree_bytes, without_roots_rights
from tests.doors.test_index_jobs import Ground, make, texts_of
from tests.fakes import HashEmbedder
from tests.harness.hostile.caches import rows_of

__all__ = ["make"]
GUIDE = (ROOT / "docs/embedding-many.md").read_text("utf-8")
CONFIG = """\
global: {embedding_model: some-model, embedding: {base_url: "http://127.0.0.1:9/v1", dimensions: 64}}
nodes:
  Note:
    identity: id
    schema: {type: object, properties: {id: {type: string}, text: {type: string}}}
    search: {full_text: [text], vectors: [text]}
"""
TEAM = "data/indices/search_cache.parquet"


def _block(name: str) -> str:
    (found,) = re.findall(rf"^```\w+ {name}\n(.*?)^```$", GUIDE, re.M | re.S)
    return str(found)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", CONFIG)
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        kb.put("Note", [{"id": f"n{at}", "text": text} for at, text in enumerate(texts_of(60))], embed=False)
    commit(root)
    return root


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Go to a machine on which nothing is cached yet."""
    return lambda name: monkeypatch.setenv("DUCKKB_CACHE_HOME", str(tmp_path / "machines" / name))


def _made(root: Path, out: Path, of: int = 3, **how: Any) -> list[Path]:
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        found = [kb.index_build_shard(Shard(of, number), out, **how) for number in range(1, of + 1)]
    return [Path(one.file) for one in found]


def _refused(root: Path, out: Path) -> dict[str, str]:
    """What `adopt` says, by the name of the shard, or what stands for one."""
    with duckkb.open(root, embedder=HashEmbedder()) as kb:
        with pytest.raises(StateError) as refused:
            kb.index_adopt(out)
        assert kb.index_status()["missing"] == 60
    assert refused.value.code == "E_SHARD" and all(one.code == "E_SHARD" for one in refused.value.findings)
    return {one.path or one.message: one.message for one in refused.value.findings}


@pytest.mark.long
def test_the_same_plan_on_every_machine_and_the_same_team_cache(make: "Callable[..., Ground]", tmp_path: Path) -> None:
    ground = make()
    ground.store(texts_of(41))
    ground.store([*texts_of(5, "fact"), *texts_of(41)[:3]], "Fact", start=100)
    commit(ground.root)
    machines = [
        {"DUCKKB_CACHE_HOME": str(tmp_path / name), **ground.env} for name in ("one", "two", "adopter", "alone")
    ]
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(ground.root), str(clone))
    trusted = run_in(clone, ["trust"], env=machines[1])
    assert trusted.code == 0, trusted.err
    plans = [run_in(root, ["index", "plan", "--shards", "3"], env=env) for root, env in
             ((ground.root, machines[0]), (clone, machines[1]))]  # fmt: skip
    assert [plan.code for plan in plans] == [1, 1] and plans[0].out == plans[1].out
    plan = plans[0].line
    assert (plan["missing"], sum(one["missing"] for one in plan["shards"])) == (46, 46)
    assert [one["texts"] for one in plan["shards"]] == [one["missing"] for one in plan["shards"]]
    assert abs(sum(one["tokens"] for one in plan["shards"]) - plan["tokens"]) <= 3
    assert ground.endpoint.asked == [], "a plan spends nothing"
    out = tmp_path / "out"
    before = tree_bytes(clone)
    for number, (root, env) in enumerate([(ground.root, machines[0]), (clone, machines[1]), (clone, machines[1])], 1):
        made = run_in(root, ["index", "build", "--shard", f"{number}/3", "--out", str(out)], env=env)
        assert made.code == 0, made.err
        assert (made.line["shard"], made.line["plan"], made.line["pending"]) == (f"{number}/3", plan["plan"], 0)
        assert made.line["embedded"] == made.line["texts"] == plan["shards"][number - 1]["texts"]
    assert sorted(ground.endpoint.texts) == sorted({*texts_of(41), *texts_of(5, "fact")}), "each text once"
    assert tree_bytes(clone) == before and len(list(out.iterdir())) == 3
    adopted = run_in(ground.root, ["index", "adopt", str(out)], env=machines[2])
    assert (adopted.code, adopted.line["pending"], adopted.line["texts"]) == (0, 0, 46), adopted.err
    asked = len(ground.endpoint.asked)
    built = run_in(ground.root, ["index", "build"], env=machines[2])
    assert (built.code, built.line["embedded"], len(ground.endpoint.asked)) == (0, 0, asked)
    alone = run_in(clone, ["index", "build"], env=machines[3])
    assert alone.code == 0 and (clone / TEAM).read_bytes() == (ground.root / TEAM).read_bytes()
    done = run_in(ground.root, ["index", "plan", "--shards", "3"], env=machines[2])
    assert (done.code, done.line["missing"], done.line["plan"]) == (0, 0, plan["plan"])
    everything = run_in(ground.root, ["index", "plan", "--shards", "3", "--all"], env=machines[2])
    assert (everything.code, everything.line["missing"]) == (1, 46)


@pytest.mark.long
def test_shares_are_ranges_of_keys_that_no_other_text_moves(base: Path) -> None:
    keys = [bytes([at * 37 % 256, at]) + bytes(14) for at in range(256)]
    for of in (1, 2, 3, 7, 256, 10_000):
        digest, counts = plan_digest(b"".join(keys + keys[:9]), of)
        assert plan_digest(b"".join(reversed(keys)), of) == (digest, counts) and len(counts) == of
        assert counts == [sum(number_of(key, of) == number for key in keys) for number in range(1, of + 1)]
        assert all(Shard(of, number_of(key, of)).has(key) for key in keys)
    assert len({plan_digest(b"".join(keys), of)[0] for of in (1, 2, 3)}) == 3
    assert plan_digest(b"", 2)[1] == [0, 0]


@pytest.mark.long
def test_everything_that_is_wrong_is_said_at_once(base: Path, tmp_path: Path, elsewhere: Any) -> None:
    out = tmp_path / "out"
    paths = _made(base, out, 8)
    good = [path.read_bytes() for path in paths]
    elsewhere("adopter")
    paths[0].unlink()
    paths[1].write_bytes(good[1][:-40])
    rows = rows_of(good[2])[1]
    paths[2].write_bytes(encode((), rows[1:]))
    paths[3].write_bytes(encode((), [*rows_of(good[3])[1], rows[0]]))
    paths[4].write_bytes(encode((), [(*row[:3], row[3][:-4]) for row in rows_of(good[4])[1]]))
    table = pq.read_table(pa.BufferReader(good[5]))
    column = table.column_names.index("checksum")
    pq.write_table(table.set_column(column, table.schema.field(column), pa.array([b"8 bytes!"] * len(table), pa.binary(8))), paths[5])  # fmt: skip
    paths[6].write_bytes(encode((), [(row[0], row[1], "other/64/model", row[3]) for row in rows_of(good[6])[1]]))
    paths[7].rename(out / paths[7].name.replace(paths[7].name[-20:-8], "0123456789ab"))
    said = _refused(base, out)
    assert said["shard 1/8 is missing"]
    assert "torn" in said[paths[1].name]
    assert "1 of its texts have no row" in said[paths[2].name]
    assert "1 rows are of texts that the shard does not have" in said[paths[3].name]
    assert "another dimension" in said[paths[4].name]
    assert "the checksum does not fit" in said[paths[5].name]
    assert "another model or text" in said[paths[6].name]
    (other,) = [message for name, message in said.items() if "0123456789ab" in name]
    assert "another commit, ontology or model" in other and len(said) == 8
    for path, data in zip(paths, good, strict=True):
        path.write_bytes(data)
    with duckkb.open(base, embedder=HashEmbedder()) as kb:
        done = kb.index_adopt(out)
        assert done.pending == 0 and [one.code for one in done.notices] == ["W_SHARD"], "the leftover is named"
        assert kb.index_adopt(out) == done


def test_a_shard_of_another_commit_is_refused_by_its_name(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (first, second, _) = _made(base, out)
    with duckkb.open(base, embedder=HashEmbedder()) as kb:
        kb.put("Note", {"id": "new", "text": "what nobody embedded"}, embed=False)
        with pytest.raises(StateError, match="do not fit") as refused:
            kb.index_adopt(out)
        assert {first.name, second.name} < {one.path for one in refused.value.findings}
        with pytest.raises(StateError):
            kb.index_adopt(out, partial=True)
        assert kb.index_status()["missing"] == 61


@pytest.mark.long
def test_part_of_the_shards_can_be_taken_and_the_rest_later(base: Path, tmp_path: Path, elsewhere: Any) -> None:
    out = tmp_path / "out"
    paths = _made(base, out)
    data = paths[1].read_bytes()
    paths[1].unlink()
    elsewhere("adopter")
    model = HashEmbedder()
    with duckkb.open(base, embedder=model) as kb:
        some = kb.index_adopt(out, partial=True)
        assert (some.shards, some.pending) == (("1/3", "3/3"), 60 - some.texts)
        assert [one.message for one in some.problems] == ["shard 2/3 is missing"]
        before = model.passages
        paths[1].write_bytes(data)
        assert kb.index_adopt(out, to="team").files == (TEAM,)
        assert model.passages - before <= 32, "the first two are believed already"
        assert kb.index_status()["fresh"]
    shutil.rmtree(out)
    clone = shutil.copytree(base, tmp_path / "clone")
    (clone / TEAM).unlink()
    for root, pending in ((base, 0), (clone, 60)):  # what one base was brought never reaches another
        with duckkb.open(root, embedder=HashEmbedder()) as kb:
            assert kb.index_status()["missing"] == pending


def test_a_model_that_fails_or_a_budget_leaves_what_was_made(base: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "out", HashEmbedder(fail=True)
    with duckkb.open(base, embedder=model) as kb:
        failed = kb.index_build_shard(Shard(1, 1), out)
        assert (failed.built.pending, failed.built.code, failed.kept) == (60, "E_MODEL", 0)
        model.fail = False
        budget = kb.index_build_shard(Shard(1, 1), out, options=JobOptions(budget_tokens=70))
        made = budget.built.embedded
        assert budget.built.code == "E_BUDGET" and 0 < made < 60 and not Path(budget.file).exists()
        rest = kb.index_build_shard(Shard(1, 1), out)
        assert (rest.kept, rest.built.embedded, rest.built.pending) == (made, 60 - made, 0)
        assert model.passages == 60
    assert [path.name for path in out.iterdir()] == [Path(rest.file).name]


def test_one_process_makes_a_shard_and_another_says_so(base: Path, tmp_path: Path) -> None:
    (path, *_) = _made(base, tmp_path / "out", 1)
    path.unlink()
    file = ShardFile(tmp_path / "out", Shard(1, 1), path.name[-20:-8])
    with duckkb.open(base, embedder=HashEmbedder()) as kb:
        with team_cache.open_partial_shard(file, {}, 0.0), pytest.raises(Unavailable) as busy:
            kb.index_build_shard(Shard(1, 1), tmp_path / "out")
        assert busy.value.code == "E_LOCKED"
        assert kb.index_build_shard(Shard(1, 1), tmp_path / "out").built.pending == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["build", "--shard", "0/3", "--out", "o"], "0/3 names no shard"),
        (["build", "--shard", "4/3", "--out", "o"], "4/3 names no shard"),
        (["build", "--shard", "x", "--out", "o"], "x names no shard"),
        (["build", "--shard", "1/3"], "--out DIR"),
        (["build", "--out", "o"], "--shard I/K"),
        (["build", "--shard", "1/3", "--out", "o", "--force"], "--force"),
        (["build", "--shard", "1/3", "--out", "o", "--shards", "3"], "--shard I/K"),
        (["build", "--executor", "ray", "--out", "o"], "--shards K"),
        (["build", "--executor", "dask", "--shards", "2", "--out", "o"], "unknown executor dask"),
        (["build", "--shard", "1/3", "--out", "data/o"], "E_PATH"),
        (["plan", "--all"], "--shards K"),
        (["adopt", "o", "--to", "world"], "world"),
    ],
)
def test_what_makes_no_sense_is_said(base: Path, args: list[str], said: str) -> None:
    ran = run_in(base, ["index", *args, "--json"])
    assert ran.code == 2 and said in ran.err, ran.err
    assert not (base / "o").exists()


def test_a_folder_without_shards_and_shards_that_are_too_large_are_refused(base: Path, tmp_path: Path) -> None:
    with duckkb.open(base, embedder=HashEmbedder()) as kb:
        for folder, error in ((tmp_path / "none", UsageError), (tmp_path, StateError)):
            with pytest.raises(error) as refused:
                kb.index_adopt(folder)
            assert isinstance(refused.value, DuckkbError) and refused.value.exit_code == 1
    with pytest.raises(UsageError, match="a file may take") as refused:
        team_cache.refuse_too_large(4, 1_000_000, 384)
    assert "--shards 16" in refused.value.suggestion


@pytest.mark.long
def test_a_clone_that_cannot_be_written_is_enough(make: "Callable[..., Ground]", tmp_path: Path) -> None:
    ground, out = make(), tmp_path / "out"
    ground.store(texts_of(9))
    commit(ground.root)
    out.mkdir()
    for path in (ground.root, *ground.root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        command = [*without_roots_rights(), sys.executable, "-m", "duckkb", "index", "build", "--shard", "1/1", "--out", str(out)]  # fmt: skip
        env = {**os.environ, **ground.env, "DUCKKB_CACHE_HOME": str(tmp_path / "cache")}
        done = subprocess.run(command, cwd=ground.root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["texts"] == 9
    finally:
        for path in (ground.root, *ground.root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


# --- the recipes of the guide


@pytest.fixture
def there(make: "Callable[..., Ground]", tmp_path: Path) -> Iterator[tuple[Ground, Path, Callable[..., None]]]:
    """A base, the folder for shards, and what runs a script as its user would."""
    ground, out = make(), tmp_path / "shards"
    ground.store(texts_of(12))
    commit(ground.root)
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "duckkb").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m duckkb "$@"\n', "utf-8")
    (commands / "duckkb").chmod(0o755)
    around = {**os.environ, **ground.env, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}

    def run(script: str, shell: str = "sh", **env: str) -> None:
        told = {"KB": str(ground.root), "OUT": str(out), **env}
        done = subprocess.run([shell, "-c", script], env=around | told, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout, done.stderr)

    yield ground, out, run


@pytest.mark.long
def test_the_shell_loop_runs(there: Any) -> None:
    ground, out, run = there
    run(_block("loop"), K="3")
    assert len(list(out.iterdir())) == 3 and (ground.root / TEAM).exists()
    assert ground.run("index", "status").code == 0
    parallel = _block("parallel")
    assert subprocess.run(["bash", "-n", "-c", parallel], check=False).returncode == 0
    assert re.search(r"duckkb --kb \S+ index build --shard \{\}/64 --out \S+", parallel)


@pytest.mark.long
def test_the_array_of_slurm_and_the_job_of_kubernetes_make_their_shards(there: Any) -> None:
    _, out, run = there
    run(_block("slurm"), "bash", SLURM_ARRAY_TASK_ID="2", SLURM_ARRAY_TASK_COUNT="64")
    job = yaml.safe_load(_block("kubernetes"))
    assert (job["kind"], job["spec"]["completionMode"], job["spec"]["completions"]) == ("Job", "Indexed", 64)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:2] == ["sh", "-c"]
    run(container["command"][2], JOB_COMPLETION_INDEX="4")
    assert sorted(path.name.split("-of-")[0] for path in out.iterdir()) == ["shard-2", "shard-5"]


@pytest.mark.long
def test_the_matrix_of_ci_passes_the_linter_and_its_commands_run(there: Any, tmp_path: Path) -> None:
    ground, out, run = there
    workflow = tmp_path / "hosted/.github/workflows/embed.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(_block("github"), "utf-8")
    git(tmp_path / "hosted", "init", "-q")
    linter = Path(sys.executable).parent / "actionlint"
    linted = subprocess.run([linter], cwd=tmp_path / "hosted", capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
    jobs = yaml.safe_load(_block("github"))["jobs"]
    (make_shard, adopt) = [
        next(step["run"] for step in jobs[name]["steps"] if step.get("run", "").startswith("duckkb")) for name in ("shard", "adopt")
    ]  # fmt: skip
    for number in jobs["shard"]["strategy"]["matrix"]["shard"]:
        run(f'cd "$KB" && {make_shard}', SHARD=str(number))
    assert len(list((ground.root / "shards").iterdir())) == 8
    run(f'cd "$KB" && {adopt}')
    assert (ground.root / TEAM).exists() and not out.exists()
