"""Collections as wholes, through the real process: made by a policy, listed, renamed, packed, restored, carried elsewhere."""

import json
import random
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

import duckkb
from duckkb.ontology import names
from duckkb.types.errors import DuckkbError
from tests.conftest import Ran, commit, git, make_base, run_in, tree_bytes

OWN = """\
policies:
  pages:
    description: Pages of a book, found by their words.
    identity: {fields: page}
    schema: {properties: {page: {type: integer}}}
    fields: {lexical: [body], vectors: none}
    intents: {allowed: [match, where], default: match}
    refuse: {similar: "pages are looked up by words: -m"}
    params: {text: /fields/lexical/0}
"""
LINES = [{"id": f"r{n:02}", "内容": f"数据库 record {n}", "n": n, "nested": {"a": [n, None]}} for n in range(40)]


def make(root: Path, policies: str = "") -> Path:
    """A base of words only, with policies of its own."""
    make_base(root, "global: {embedding_model: none}\n")
    if policies:
        (root / "ontology" / "policies").mkdir(parents=True)
        (root / "ontology" / "policies" / "x.yaml").write_text(policies, "utf-8")
    return root


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make(tmp_path_factory.mktemp("collections") / "kb", OWN)
    with duckkb.open(root) as kb:
        kb.collections.init("held", policy="knowledge-base")
        kb.put("held", LINES)
    return root


def ok(root: Path, *args: str, stdin: str = "") -> dict[str, Any]:
    ran = run_in(root, args, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran.line


def refused(ran: Ran, exit_code: int, code: str, suggestion: str = "") -> None:
    assert (ran.code, ran.out) == (exit_code, ""), (ran.out, ran.err)
    assert ran.error["code"] == code and suggestion in ran.error["suggestion"], ran.err


def files(root: Path) -> dict[str, bytes]:
    """Every file of the truth: ontology and data."""
    found = [path for name in ("ontology", "data") for path in (root / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def definition(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "ontology" / "collections" / f"{name}.yaml").read_text("utf-8"))
    return found["collections"][name]["policy"]


# policies


@pytest.mark.parametrize(
    ("policy", "name", "fields", "intents"),
    [
        ("knowledge-base", "knowledge-base", {"vectors": ["content"], "lexical": "auto", "relational": "auto"}, None),
        ("hybrid/knowledge-base", "knowledge-base", {"vectors": ["content"], "lexical": "auto", "relational": "auto"}, None),
        ("structured-logs", "structured-logs", {"vectors": "none", "lexical": "none", "relational": "all"}, ["where"]),
        ("feature-store", "feature-store", {"vectors": [{"field": "tensor", "given": True}], "lexical": "none", "relational": ["id"]}, ["similar", "where"]),
        ("simple-kv", "simple-kv", {"vectors": "none", "lexical": "none", "relational": "auto"}, ["where"]),
        ("vector-store", "vector-store", {"vectors": ["embedding_text"], "lexical": ["embedding_text"], "relational": "auto"}, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_xd_07_init_writes_the_policy_into_the_ontology(
    base: Path, policy: str, name: str, fields: dict[str, Any], intents: list[str] | None
) -> None:
    made = "made-" + policy.replace("/", "-")
    assert ok(base, "col", "init", made, "--policy", policy) == {
        "name": made,
        "records": 0,
        "files": [f"ontology/collections/{made}.yaml"],
    }
    written = definition(base, made)
    assert written["name"] == name and written["fields"] == fields
    assert written["intents"].get("allowed") == intents and "params" not in written


@pytest.mark.parametrize(
    ("policy", "params", "expected"),
    [
        ("knowledge-base", {"model": "multilingual-e5-small"}, {"embedding": {"model": "multilingual-e5-small"}}),
        ("knowledge-base", {"content": "正文"}, {"fields": {"vectors": ["正文"], "lexical": "auto", "relational": "auto"}}),
        ("feature-store", {"dimension": 64, "intents": {"default": "where"}}, {"intents": {"allowed": ["similar", "where"], "default": "where"}}),
        ("structured-logs", {"identity": ["host", "seq"], "chunk_size": 500}, {"identity": ["host", "seq"], "chunk_size": 500}),
    ],
    ids=str,
)  # fmt: skip
def test_xd_07_params_set_what_the_policy_declares_and_its_own_keys(
    base: Path, policy: str, params: dict[str, Any], expected: dict[str, Any]
) -> None:
    name = f"set-{policy}-{next(iter(params))}"
    ok(base, "col", "init", name, "--policy", policy, "--params", json.dumps(params))
    written = definition(base, name)
    assert {key: written[key] for key in expected} == expected
    if "dimension" in params:
        assert written["fields"]["vectors"] == [{"field": "tensor", "given": True, "dimension": 64}]


def test_xd_07_a_policy_of_the_bases_own_makes_collections_without_any_code(base: Path) -> None:
    assert ok(base, "col", "init", "书-1", "--policy", "pages", "--params", '{"text": "正文"}')["name"] == "书-1"
    assert ok(base, "put", "书-1", '{"page": 7, "正文": "内存数据库"}')["identities"] == [7]
    assert ok(base, "find", "书-1", "内存")["page"] == 7
    refused(run_in(base, ["find", "书-1", "内存", "-s", "--json"]), 2, "E_INTENT", "pages are looked up by words: -m")
    shown = ok(base, "col", "show", "书-1")
    assert shown["policy"] == "pages" and shown["lexical"] == [{"field": "正文"}] and shown["identity"] == ["page"]
    assert shown["fields"] == {"page": {"a number": 1}, "正文": {"text": 1}}
    listed = {line["name"]: line["origin"] for line in run_in(base, ["policy", "list"]).lines}
    assert listed["pages"].startswith("ontology/policies/x.yaml") and "simple-kv" in listed


def test_xd_07_a_policy_that_changes_later_leaves_the_collection_as_it_is(tmp_path: Path) -> None:
    root = make(tmp_path / "kb", OWN)
    ok(root, "col", "init", "book", "--policy", "pages")
    before = files(root)
    own = root / "ontology" / "policies" / "x.yaml"
    own.write_text(OWN.replace("lexical: [body]", "lexical: [title]").replace("fields: page", "fields: title"), "utf-8")
    ok(root, "put", "book", '{"page": 1, "body": "a fox", "title": "words"}')
    assert ok(root, "find", "book", "fox")["page"] == 1 and run_in(root, ["find", "book", "words"]).code == 1
    own.unlink()
    assert ok(root, "find", "book", "fox")["page"] == 1
    path = "ontology/collections/book.yaml"
    assert (root / path).read_bytes() == before[path]


def test_xd_07_simple_kv_upserts_by_key_and_a_feature_store_takes_one_dimension(base: Path, tmp_path: Path) -> None:
    ok(base, "col", "init", "kv", "--policy", "simple-kv")
    receipts = [ok(base, "put", "kv", json.dumps({"key": "a", "value": value})) for value in (1, "two")]
    assert [(one["inserted"], one["updated"]) for one in receipts] == [(1, 0), (0, 1)]
    ok(base, "col", "init", "three", "--policy", "feature-store", "--params", '{"dimension": 3}')
    refused(run_in(base, ["put", "three", '{"tensor": [1, 2]}', "--json"]), 2, "E_SCHEMA")
    assert ok(base, "put", "three", '{"id": "x", "tensor": [0.5, 1, -2]}')["inserted"] == 1
    (tmp_path / "near").write_text("[0.5, 1, -2]")
    assert ok(base, "find", "three", "--vector", str(tmp_path / "near"))["_score"] == pytest.approx(1.0)


BAD = [
    (["new", "--policy", "knowlege-base"], 2, "E_POLICY", "knowledge-base"),
    (["new", "--policy", "pages", "--params", '{"txt": "a"}'], 2, "E_PARAMS", "duckkb policy show pages"),
    (["new", "--policy", "pages", "--params", '{"text": 5}'], 2, "E_PARAMS", "duckkb policy show pages"),
    (["new", "--policy", "feature-store", "--params", '{"dimension": "64"}'], 2, "E_PARAMS", "duckkb policy show feature-store"),
    (["new", "--policy", "pages", "--params", "{text: a}"], 2, "E_PARAMS", "--params"),
    (["new", "--policy", "pages", "--params", '["text"]'], 2, "E_PARAMS", "--params"),
    (["new", "--policy", "pages", "--params", '{"text": "a", "text": "b"}'], 2, "E_PARAMS", "--params"),
    (["../new", "--policy", "pages"], 2, "E_USAGE", "choose another name"),
    (["new"], 2, "E_USAGE", "duckkb col init new --json --policy knowledge-base"),
    (["held", "--policy", "pages"], 1, "E_EXISTS", "duckkb col show held"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "exit_code", "code", "suggestion"), BAD, ids=[" ".join(case[0]) for case in BAD])
def test_xd_07_what_init_refuses_leaves_everything_as_it_was(
    base: Path, args: list[str], exit_code: int, code: str, suggestion: str
) -> None:
    before = files(base)
    refused(run_in(base, ["col", "init", *args, "--json"]), exit_code, code, suggestion)
    assert files(base) == before


# list, show, rm


def test_xd_08_list_and_show_count_records_and_bytes(base: Path) -> None:
    listed = {line["name"]: line for line in run_in(base, ["col", "list"]).lines}
    size = sum(path.stat().st_size for path in (base / "data" / "nodes" / "held").rglob("*.jsonl"))
    assert listed["held"] == {"name": "held", "policy": "knowledge-base", "records": 40, "bytes": size}
    shown = ok(base, "col", "show", "held")
    assert {name: shown[name] for name in listed["held"]} == listed["held"]
    assert shown["fields"] == {
        "id": {"text": 40},
        "n": {"a number": 40},
        "nested": {"an object": 40},
        "内容": {"text": 40},
    }
    for verb in (["show", "nothing"], ["rm", "nothing", "--yes"]):
        refused(run_in(base, ["col", *verb, "--json"]), 1, "E_UNKNOWN_TYPE", "duckkb col list")


def test_xd_08_rm_asks_for_yes_where_there_are_records(tmp_path: Path) -> None:
    root = make(tmp_path / "kb")
    with duckkb.open(root) as kb:
        for name in ("empty", "full"):
            kb.collections.init(name, policy="structured-logs")
        kb.put("full", LINES)
    before = files(root)
    refused(run_in(root, ["col", "rm", "full", "--json"]), 1, "E_SHRINK", "duckkb col rm full --yes")
    assert files(root) == before
    assert ok(root, "col", "rm", "empty")["records"] == 0
    assert ok(root, "col", "rm", "full", "--yes")["records"] == 40
    assert [path for path in files(root) if "FORMAT" not in path] == []
    assert run_in(root, ["col", "list"]).out == "" and run_in(root, ["get", "full", "r01"]).code == 1


def test_xd_08_what_the_ontology_or_an_edge_still_names_is_neither_removed_nor_renamed(tmp_path: Path) -> None:
    root = make(tmp_path / "kb")
    ok(root, "col", "init", "people", "--policy", "simple-kv")
    (root / "ontology" / "edges.yaml").write_text("edges:\n  knows: {from: people, to: people}\n", "utf-8")
    ok(root, "put", "people", stdin='{"key": "a"}\n{"key": "b"}\n')
    ok(root, "put", "knows", '{"from": "a", "to": "b"}')
    before = files(root)
    refused(run_in(root, ["col", "rm", "people", "--yes", "--json"]), 1, "E_EDGES", "--cascade")
    refused(run_in(root, ["col", "rename", "people", "folk", "--json"]), 2, "E_USAGE", "ontology/edges.yaml:2")
    assert files(root) == before
    ok(root, "delete", "knows", '["a", "b"]')
    gone = run_in(root, ["col", "rm", "people", "--yes", "--json"])
    refused(gone, 2, "E_USAGE", "change ontology/edges.yaml:2 first")
    assert gone.error["error"] == "people is an end of knows in the ontology"
    (root / "ontology" / "edges.yaml").unlink()
    assert ok(root, "col", "rm", "people", "--yes")["records"] == 2


def test_rename_keeps_ids_and_etags_and_git_sees_renamed_files(tmp_path: Path) -> None:
    root = make(tmp_path / "kb")
    with duckkb.open(root) as kb:
        kb.collections.init("old-name", policy="vector-store")
        kb.put("old-name", [{"embedding_text": f"text {n}", "value": n} for n in range(5)])
        before = {line["key"]: (line["__id"], line["_etag"]) for line in kb.list("old-name")}
    commit(root)
    ok(root, "col", "rename", "old-name", "新-名")
    after = {
        line["key"]: (line["__id"], line["_etag"])
        for line in run_in(root, ["list", "新-名", "--fields", "+__id"]).lines
    }
    assert after == before and run_in(root, ["list", "old-name"]).code == 1
    assert ok(root, "put", "新-名", '{"embedding_text": "text 3", "value": 3}')["unchanged"] == 1, (
        "keys stay as they were"
    )
    commit(root)
    git(root, "config", "core.quotepath", "off")
    moved = {*git(root, "show", "--format=", "--diff-filter=R", "--name-only").splitlines()}
    assert len(moved) == 2 and "ontology/collections/新-名.yaml" in moved
    for path in moved:
        assert git(root, "log", "--follow", "--format=%h", "--", path).count("\n") == 2, path
    assert run_in(root, ["check"]).code == 0


# elsewhere and back


def test_xd_09_a_collection_copied_by_hand_works_elsewhere(base: Path, tmp_path: Path) -> None:
    root = make(tmp_path / "other")
    for path in ("ontology/collections", "data/nodes"):
        (root / path).mkdir(parents=True)
    shutil.copy(base / "ontology" / "collections" / "held.yaml", root / "ontology" / "collections")
    shutil.copytree(base / "data" / "nodes" / "held", root / "data" / "nodes" / "held")
    assert ok(root, "col", "list")["records"] == 40
    assert ok(root, "find", "held", '"record 17"', "-l", "1")["id"] == "r17"
    assert ok(root, "find", "held", "-w", "n = 5 AND nested.a IS NOT NULL")["id"] == "r05"
    assert ok(root, "put", "held", '{"id": "new", "content": "fox"}')["inserted"] == 1
    assert run_in(root, ["check"]).code == 0


def test_xd_09_a_snapshot_removed_and_restored_is_equal_to_the_byte(base: Path, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    shutil.copytree(base, root)
    before, first = files(root), tmp_path / "first.snapshot"
    line = ok(root, "col", "snapshot", "held", str(first))
    assert line == {"name": "held", "file": str(first), "bytes": first.stat().st_size} and files(root) == before
    refused(run_in(root, ["col", "snapshot", "held", str(first), "--json"]), 2, "E_PATH", "--force")
    ok(root, "col", "rm", "held", "--yes")
    assert not (root / "ontology" / "collections" / "held.yaml").exists()
    assert ok(root, "col", "restore", str(first))["records"] == 40
    assert files(root) == before
    ok(root, "col", "snapshot", "held", str(tmp_path / "second"))
    assert (tmp_path / "second").read_bytes() == first.read_bytes()
    again = run_in(root, ["col", "restore", str(first), "--json"])
    refused(again, 1, "E_EXISTS", "duckkb col show held")
    assert again.error["error"] == "held exists already"


def test_xd_09_restored_as_another_name_or_in_another_base_it_holds_the_same_records(
    base: Path, tmp_path: Path
) -> None:
    root, packed = make(tmp_path / "other"), tmp_path / "packed"
    ok(base, "col", "snapshot", "held", str(packed))
    for name, args in (("held", []), ("持有-2", ["--as", "持有-2"])):
        assert ok(root, "col", "restore", str(packed), *args)["name"] == name
    stored, lines = (
        run_in(base, ["export", "held"]).out,
        [run_in(root, ["export", name]).out for name in ("held", "持有-2")],
    )
    assert lines == [stored, stored] and stored.count("\n") == 40
    assert ok(root, "find", "持有-2", '"record 17"', "-l", "1")["id"] == "r17"
    assert run_in(root, ["check"]).code == 0


def test_xd_09_a_snapshot_damaged_anywhere_is_refused_and_changes_nothing(base: Path, tmp_path: Path) -> None:
    root, packed = make(tmp_path / "other"), tmp_path / "packed"
    with duckkb.open(base) as kb:
        kb.collections.snapshot("held", packed)
    whole, before, chance = packed.read_bytes(), files(root), random.Random(40)
    head = whole.index(b"\n")
    places = [0, head, whole.index(b"\n", head + 1), len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(40))]
    damaged = [whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :] for at in places]
    damaged += [whole[:-1], whole + b"\n", whole[: head + 1], b"", b"{}\n{}\n"]
    packed.write_bytes(damaged[10])
    refused(run_in(root, ["col", "restore", str(packed), "--json"]), 1, "E_SNAPSHOT", "duckkb col snapshot NAME FILE")
    with duckkb.open(root) as kb:
        for data in damaged:
            packed.write_bytes(data)
            with pytest.raises(DuckkbError) as caught:
                kb.collections.restore(packed)
            assert (caught.value.code, caught.value.exit_code) == ("E_SNAPSHOT", 1)
    assert files(root) == before and tree_bytes(root) == {}


def test_xd_09_of_an_empty_collection_no_byte_may_change_either(tmp_path: Path) -> None:
    root, packed = make(tmp_path / "kb"), tmp_path / "packed"
    with duckkb.open(root) as kb:
        kb.collections.init("empty", policy="simple-kv")
        kb.collections.snapshot("empty", packed)
        kb.collections.remove("empty")
        whole = packed.read_bytes()
        for data in (whole[:-1], whole[:-1] + b"\r", whole[:-1] + b" ", whole.replace(b'": "', b'":\t"')):
            packed.write_bytes(data)
            with pytest.raises(DuckkbError):
                kb.collections.restore(packed)
        packed.write_bytes(whole)
        assert kb.collections.restore(packed).records == 0


@pytest.mark.long
@pytest.mark.parametrize("sandbox", [{}, {"DUCKKB_SANDBOX": "1"}])
def test_no_file_of_a_repository_or_a_base_is_replaced_by_a_snapshot_or_an_export(
    tmp_path: Path, sandbox: dict[str, str]
) -> None:
    root = make(tmp_path / "repo" / "kb", OWN)
    shutil.rmtree(root / ".git")
    git(tmp_path / "repo", "init", "-q")
    ok(root, "col", "init", "held", "--policy", "simple-kv")

    def held() -> dict[Path, bytes]:
        kept = [path for path in (tmp_path / "repo").rglob("*") if path.is_file() and ".duckkb" not in path.parts]
        return {path: path.read_bytes() for path in kept}

    before = held()
    for place in ("../.git/HEAD", "../.git/hooks/new", "../.gitattributes", "config.yaml", "data/new", ".duckkb/x"):
        for verb in (["col", "snapshot", "held", place], ["export", "held", "-o", place]):
            refused(run_in(root, [*verb, "--force", "--json"], env=sandbox), 2, "E_PATH")
    assert held() == before


def sealed(head: dict[str, Any] | bytes, body: bytes) -> bytes:
    """A snapshot's file of this head and body, with checksums that agree: as somebody forges one."""
    line = head if isinstance(head, bytes) else json.dumps(head, ensure_ascii=False, sort_keys=True).encode()
    return line + b"\n" + json.dumps({"sha256": sha256(line + body).hexdigest()}).encode() + b"\n" + body


def forgeries(head: dict[str, Any], body: bytes) -> Iterator[tuple[str, bytes]]:
    """Files whose outer checksum is right and that hold more, less or other than one collection."""

    def parts(*datas: bytes, names: tuple[str, ...] = (), records: int | None = None) -> bytes:
        paths = names or tuple(f"20260101/part_{number:03}.jsonl" for number in range(len(datas)))
        entries = [
            {"path": path, "bytes": len(data), "sha256": sha256(data).hexdigest()}
            for path, data in zip(paths, datas, strict=True)
        ]
        whole = b"".join(datas)
        counted = whole.count(b"\n") if records is None else records
        return sealed({**head, "parts": entries, "records": counted}, whole)

    lines = body.splitlines(keepends=True)
    for name, tail in (("torn", b'{"id": "x"'), ("no text", b"\xff\0"), ("pointer", b"version https://git-lfs")):
        yield name, parts(body + tail)
    yield "one identity twice", parts(body, lines[0])
    yield (
        "one __id twice",
        parts(lines[0] + lines[1].replace(*(str(json.loads(one)["__id"]).encode() for one in lines[1::-1]))),
    )
    yield "a line without id and times", parts(b'{"id": "x"}\n')
    yield "a part twice", parts(lines[0], lines[1], names=("20260101/part_000.jsonl",) * 2)
    yield "an empty part", parts(body, b"")
    yield "a path out of the folder", parts(lines[0], names=("../other/20260101/part_000.jsonl",))
    yield "records that are not there", parts(body, records=10**12)
    yield "other checksums", sealed({**head, "parts": [{**one, "sha256": "0" * 64} for one in head["parts"]]}, body)
    yield "a key too many", sealed({**head, "more": 1}, body)
    yield (
        "a key twice",
        sealed(b'{"name": "other", ' + json.dumps(head, ensure_ascii=False, sort_keys=True).encode()[1:], body),
    )
    yield "another name", sealed({**head, "name": "other"}, body)
    yield "no text in the definition", sealed({**head, "definition": ["x"]}, body)
    yield "half a character", sealed(json.dumps({**head, "definition": "\ud800"}, sort_keys=True).encode(), body)
    types = head["definition"] + "nodes: {Extra: {identity: id, schema: {properties: {id: {type: string}}}}}\n"
    for definition in (
        "",
        "[]",
        "collections: {}",
        "collections: 5",
        "collections: {held: 5}",
        "nodes: {}",
        "a: &a [*a]",
    ):
        yield f"the definition {definition}", sealed({**head, "definition": definition}, body)
    for name, definition in (
        ("types beside it", types),
        ("questions beside it", head["definition"] + "questions: []\n"),
        ("two collections", head["definition"] + head["definition"].split("collections:\n")[1].replace("held", "more")),
    ):
        yield name, sealed({**head, "definition": definition}, body)


def test_a_forged_snapshot_is_refused_whole_whatever_its_checksum_says(base: Path, tmp_path: Path) -> None:
    root, packed = make(tmp_path / "other"), tmp_path / "packed"
    with duckkb.open(base) as kb:
        kb.collections.snapshot("held", packed)
    line, _, body = packed.read_bytes().split(b"\n", 2)
    head, before = json.loads(line), files(root)
    with duckkb.open(root) as kb:
        for what, data in forgeries(head, body):
            for name in (None, "renamed"):
                packed.write_bytes(data)
                with pytest.raises(DuckkbError) as caught:
                    kb.collections.restore(packed, name=name)
                assert (caught.value.code, caught.value.exit_code) == ("E_SNAPSHOT", 1), (what, str(caught.value))
    assert files(root) == before and tree_bytes(root) == {}
    packed.write_bytes(sealed(head, body))
    assert ok(root, "col", "restore", str(packed))["records"] == 40


def test_what_could_not_be_restored_is_not_packed_and_a_file_with_other_declarations_is_not_removed(
    base: Path, tmp_path: Path
) -> None:
    root = tmp_path / "kb"
    shutil.copytree(base, root)
    (part,) = (root / "data" / "nodes" / "held").rglob("*.jsonl")
    part.write_bytes(part.read_bytes() + part.read_bytes().splitlines(keepends=True)[0])
    refused(run_in(root, ["col", "snapshot", "held", str(tmp_path / "s"), "--json"]), 1, "E_DUP_IDENTITY", "dedupe")
    own = root / "ontology" / "collections" / "held.yaml"
    own.write_text(own.read_text("utf-8") + "questions: []\n", "utf-8")
    refused(run_in(root, ["col", "rm", "held", "--yes", "--json"]), 1, "E_REFUSED")
    assert own.exists() and not (tmp_path / "s").exists()


RESERVED = ("con", "AUX", "nul", "com1", "main", "temp", "system", "Information_Schema", "pg_catalog", "search_index")


def test_a_name_that_a_system_or_sql_keeps_for_itself_is_refused_with_the_reason(tmp_path: Path) -> None:
    root, packed = make(tmp_path / "kb"), tmp_path / "packed"
    with duckkb.open(root) as kb:
        kb.collections.init("held", policy="simple-kv")
        kb.collections.snapshot("held", packed)
        before = files(root)
        for name in (*RESERVED, "search-index", "sqlite_master"):
            for call in (
                lambda name: kb.collections.init(name, policy="simple-kv"),
                lambda name: kb.collections.rename("held", name),
                lambda name: kb.collections.restore(packed, name=name),
            ):
                with pytest.raises(DuckkbError) as caught:
                    call(name)
                assert (caught.value.code, caught.value.exit_code) == ("E_RESERVED", 2) and "is a" in str(caught.value)
        assert files(root) == before


def test_every_name_that_duckdb_answers_to_by_itself_is_reserved() -> None:
    asked = "SELECT schema_name FROM duckdb_schemas() UNION SELECT database_name FROM duckdb_databases()"
    asked += " UNION SELECT view_name FROM duckdb_views() WHERE schema_name != 'information_schema'"
    found = [name for (name,) in duckdb.sql(asked).fetchall()]
    assert len(found) > 20 and [name for name in found if not names.describe_reservation(name)] == []


def test_a_base_that_has_such_a_name_already_is_read_and_check_says_so(tmp_path: Path) -> None:
    root = make_base(
        tmp_path / "kb",
        "global: {embedding_model: none}\n"
        "nodes: {M: {table: main, identity: id, schema: {properties: {id: {type: string}}}}}\n"
        "edges: {Pg_Of: {from: M, to: M}}\n",
    )
    with duckkb.open(root) as kb:
        kb.collections.init("held", policy="simple-kv")
    own = root / "ontology" / "collections" / "held.yaml"
    own.with_name("con.yaml").write_text(
        own.read_text("utf-8").replace("held", "con").replace("table: con", "table: c_1")
    )
    assert ok(root, "put", "con", '{"key": "k", "value": 1}')["inserted"] == 1
    assert ok(root, "put", "M", '{"id": "a"}')["inserted"] == 1
    assert ok(root, "put", "pg_of", '{"from": "a", "to": "a"}')["inserted"] == 1
    checked = run_in(root, ["check", "--json"])
    assert checked.code == 1 and [(one["code"], one["path"]) for one in checked.line["findings"]] == [
        ("E_RESERVED", "config.yaml"),
        ("E_RESERVED", "config.yaml"),
        ("E_RESERVED", "ontology/collections/con.yaml"),
    ]
    ok(root, "col", "rename", "con", "conifers")
    assert ok(root, "get", "conifers", "k")["value"] == 1
