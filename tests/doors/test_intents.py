"""What agents ask for and never how: put and find on collections of every policy, through the real process."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import duckkb
from tests.conftest import Ran, make_base, run_in, tree_bytes
from tests.fake_endpoint import FakeEndpoint
from tests.harness.waiting import HANG_S

OWN = """\
policies:
  words:
    fields: {lexical: [content], vectors: none}
  nearness:
    fields: {vectors: [content], lexical: none}
  strict-words:
    fields: {lexical: [content], vectors: [content]}
    intents: {allowed: [match], default: match}
    refuse: {similar: "these are compared by words: -m", hybrid: "-m alone"}
"""
TEXTS = (
    "the quick brown fox",
    "内存数据库很快",
    "git keeps every journal",
    "a lane of vectors",
    "断电时数据不会丢失",
    "fox and 数据库",
)
POLICIES = {
    "notes": "knowledge-base",
    "logs": "structured-logs",
    "features": "feature-store",
    "settings": "simple-kv",
    "answers": "vector-store",
    "worded": "words",
    "near": "nearness",
    "strict": "strict-words",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A collection of each policy with records in it; the model answers from an endpoint on this machine."""
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        root = make_base(
            tmp_path_factory.mktemp("intents") / "kb", f"global: {{embedding_model: far, embedding: {place}}}\n"
        )
        (root / "ontology" / "policies").mkdir(parents=True)
        (root / "ontology" / "policies" / "own.yaml").write_text(OWN, "utf-8")
        assert run_in(root, ["trust"]).code == 0
        with duckkb.open(root) as kb:
            for name, policy in POLICIES.items():
                kb.collections.init(name, policy=policy)
            kb.put("notes", [note(number) for number in range(120)])
            kb.put(
                "logs",
                [{"id": f"l{n}", "level": "error" if n % 3 else "info", "http": {"status": 500 + n}} for n in range(9)],
            )
            kb.put(
                "features", [{"id": f"v{n}", "tensor": [1, n, 0], "kind": "odd" if n % 2 else "even"} for n in range(9)]
            )
            kb.put(
                "settings",
                [
                    {"key": "app.theme", "value": "dark"},
                    {"key": "app.语言", "value": "中文"},
                    {"key": "db", "value": 3},
                ],
            )
            kb.put("answers", [{"embedding_text": text, "value": number} for number, text in enumerate(TEXTS)])
            for name in ("worded", "near", "strict"):
                kb.put(name, [{"id": str(number), "content": text} for number, text in enumerate(TEXTS)])
        yield root  # fmt: skip


def note(number: int) -> dict[str, Any]:
    author = "张三" if number % 4 == 0 else f"author {number % 7}"
    content = f"{TEXTS[number % len(TEXTS)]} {'storage ' * (number % 5)}number {number}"
    return {"id": f"n{number:03}", "content": content, "metadata": {"author": author}, "size": number}


def ask(base: Path, *args: str, stdin: str | bytes = "") -> list[dict[str, Any]]:
    ran = run_in(base, ["find", *args], stdin=stdin)
    said = [line for line in ran.err.splitlines() if not line.startswith(("W_OMITTED", "W_TRUNCATED"))]
    assert ran.code == 0 and not said, ran.err
    return ran.lines


def files(base: Path) -> dict[Path, bytes]:
    """Every file that git would see."""
    found = [path for path in base.rglob("*") if path.is_file() and not {".git", ".duckkb"} & set(path.parts)]
    return {path: path.read_bytes() for path in found}


def refused(ran: Ran, exit_code: int, code: str, suggestion: str) -> None:
    assert (ran.code, ran.out) == (exit_code, "")
    assert ran.error["code"] == code and suggestion in ran.error["suggestion"], ran.err


# put


def test_xd_01_put_upserts_by_id_and_gives_a_uuid_where_there_is_none(base: Path) -> None:
    made = run_in(base, ["put", "notes", '{"content": "without an id"}']).line
    (name,) = made["identities"]
    assert uuid.UUID(name).version == 4 and str(uuid.UUID(name)) == name
    again = run_in(base, ["put", "notes", json.dumps({"id": name, "content": "changed"})]).line
    assert (made["inserted"], again["inserted"], again["updated"]) == (1, 0, 1)
    assert again["ids"] == made["ids"] and again["etags"] != made["etags"]
    stored = run_in(base, ["get", "notes", name]).line
    assert stored["content"] == "changed" and stored["__id"] == made["ids"][0]


@pytest.mark.parametrize(
    ("dash", "stdin"),
    [
        ([], '{"id": "s1", "v": 1}\n\n{"id": "s2", "v": 2}'),
        (["-"], '[\n  {"id": "s1", "v": 1},\n  {"id": "s2", "v": 2}\n]\n'),
    ],
    ids=["lines", "- and an array"],
)
def test_xd_01_json_comes_on_stdin_where_no_argument_is_given(base: Path, dash: list[str], stdin: str) -> None:
    line = run_in(base, ["put", "logs", *dash], stdin=stdin).line
    assert line["identities"] == ["s1", "s2"] and line["inserted"] + line["unchanged"] == 2


def test_xd_01_one_object_over_several_lines_is_one_record(base: Path) -> None:
    assert (
        run_in(base, ["put", "logs"], stdin='{\n  "id": "pretty",\n  "a": {\n    "b": 1\n  }\n}\n').line["inserted"]
        == 1
    )


@pytest.mark.parametrize(
    "args",
    [["put", "settings", '{"key": "held", "value": 1}'], ["find", "worded", "fox", "-m"]],
    ids=lambda args: " ".join(args[:2]),
)  # fmt: skip
def test_xd_01_with_an_argument_stdin_is_never_read(base: Path, args: list[str]) -> None:
    """Neither an open stdin that says nothing nor one full of other records changes the answer."""
    reading, writing = os.pipe()
    try:
        open_stdin = subprocess.run(
            [sys.executable, "-m", "duckkb", *args],
            cwd=base,
            stdin=reading,
            capture_output=True,
            timeout=HANG_S,
            check=True,
        )
        os.write(writing, b'{"key": "stray"}\n')
        assert os.read(reading, 100) == b'{"key": "stray"}\n', "nobody took it"
    finally:
        os.close(reading)
        os.close(writing)
    given = run_in(base, args, stdin='{"key": "stray"}\n')
    assert given.code == 0
    if args[0] == "find":
        assert open_stdin.stdout.decode() == given.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ('put settings \'{"key": "closed"}\' <&-', 0, ""),
        ("put settings <&-", 2, "stdin is empty"),
        ("put settings --batch - </dev/null", 2, "stdin is empty"),
        ("find notes -s <&-", 2, "needs a query text"),
        ("find features --vector - </dev/null", 2, "the input is empty"),
    ],
)
def test_xd_01_a_closed_or_empty_stdin_is_said_and_nothing_hangs(
    base: Path, command: str, code: int, said: str
) -> None:
    line = f"{sys.executable} -m duckkb {command}"
    done = subprocess.run(["sh", "-c", line], cwd=base, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr


BATCH = [
    b'{"id": "b1", "level": "info"}',
    b"",
    b'{"id": "b2"',
    b'{"id": "b3", "level": "\xff"}',
    b'{"id": "b1", "level": "warn"}',
    b'{"id": 7}',
    b"   \r",
    b'["id"]',
    b'{"id": "b4", "id": "b5"}',
    b'{"id": "l0", "level": "info", "http": {"status": 500}}',
    b'{"id": "l1", "level": "other"}',
    '{"id": "b6", "名": "内存"}'.encode(),
    b'{"_hidden": 1}',
    b'{"level": "no id"}\r',
    b'{"id": "b7"} {"id": "b8"}',
    b"null",
]


def test_xd_02_a_batch_keeps_the_good_lines_and_its_receipt_adds_up(base: Path) -> None:
    ran = run_in(base, ["put", "logs", "--batch"], stdin=b"\n".join(BATCH))
    assert ran.code == 1 and list(ran.line) == ["inserted", "updated", "unchanged", "errors"]
    bad = {3: "JSON", 4: "JSON", 6: "record", 8: "JSON", 9: "JSON", 13: "record", 15: "JSON", 16: "JSON"}
    heads = [line.partition(":")[0] for line in ran.err.splitlines()]
    assert [head for head in heads if head.startswith("Invalid")] == [
        f"Invalid {what} at line {number}" for number, what in bad.items()
    ]
    assert "Invalid record at line 6: /id must be of type string" in ran.err
    assert sum(ran.line.values()) == sum(1 for line in BATCH if line.strip())
    # b1, b6 and one without an id are new; b1 has a later version, and l1 differs from what is stored; l0 does not.
    assert ran.line == {"inserted": 3, "updated": 2, "unchanged": 1, "errors": len(bad)}
    names = [line["id"] for line in ask(base, "logs", "-w", "id IN ('b1','b2','b3','b4','b5','b6','b7','b8')")]
    assert names == ["b1", "b6"]
    assert run_in(base, ["get", "logs", "b1"]).line["level"] == "warn", "the later line of one identity wins"
    again = run_in(base, ["put", "logs", "--batch"], stdin=BATCH[0] + b"\n" + BATCH[4])
    assert again.code == 0 and sum(again.line.values()) == 2


def test_xd_02_a_batch_of_bad_lines_alone_writes_nothing(base: Path) -> None:
    before = tree_bytes(base)
    ran = run_in(base, ["put", "logs", "--batch"], stdin="nothing\n{}{}\n")
    assert (ran.code, ran.line) == (1, {"inserted": 0, "updated": 0, "unchanged": 0, "errors": 2})
    assert tree_bytes(base) == before


def test_xd_02_lines_that_only_a_look_at_what_is_stored_refuses_keep_no_others_out(base: Path) -> None:
    lines = [
        '{"key": "fresh", "value": 1}',
        '{"key": "app.theme", "value": "late", "_etag": "0000000000000000"}',
        '{"key": "db", "value": "earlier"}',
        "{",
        '{"key": "db", "value": "wrong id", "__id": 5}',
        '{"key": "fresh too", "value": 1}',
    ]
    ran = run_in(base, ["put", "settings", "--batch"], stdin="\n".join(lines))
    assert (ran.code, ran.line) == (1, {"inserted": 2, "updated": 1, "unchanged": 0, "errors": 3})
    told = [line for line in ran.err.splitlines() if line.startswith("Invalid")]
    assert [line.partition(":")[0] for line in told] == [
        "Invalid record at line 2",
        "Invalid JSON at line 4",
        "Invalid record at line 5",
    ]
    assert "not at 0000000000000000" in told[0] and "__id of db is" in told[2]
    stored = {line["key"]: line.get("value") for line in run_in(base, ["list", "settings"]).lines}
    assert {key: stored[key] for key in ("app.theme", "db", "fresh", "fresh too")} == {
        "app.theme": "dark",
        "db": "earlier",
        "fresh": 1,
        "fresh too": 1,
    }


def test_xd_02_without_batch_one_bad_line_keeps_all_others_out(base: Path) -> None:
    before = tree_bytes(base)
    ran = run_in(base, ["put", "logs", "--json"], stdin='{"id": "good"}\n{"id": 5}\n')
    refused(ran, 1, "E_INVALID", "duckkb schema logs")
    assert ran.error["details"]["findings"][0]["line"] == 2 and tree_bytes(base) == before


# find


def test_xd_03_every_flag_has_a_long_and_a_short_name_and_ten_are_found_without_a_limit(base: Path) -> None:
    assert (
        len(ask(base, "notes", "storage", "-m")) == len(ask(base, "notes", "storage", "--match", "--limit", "10")) == 10
    )
    assert ask(base, "near", "-s", "-l", "2", stdin="the fox\n") == ask(base, "near", "the fox", "--similar", "-l", "2")
    assert len(ask(base, "features", "--where", "kind = 'odd'", "-l", "3")) == 3


REFUSED = [
    (["notes"], "E_USAGE", "duckkb list notes"),
    (["settings"], "E_USAGE", "duckkb list settings"),
    (["notes", "fox", "-l", "0"], "E_USAGE", "duckkb find notes fox --json"),
    (["notes", "fox", "-l", "ten"], "E_USAGE", "duckkb find notes fox --json"),
    (["settings", "-s"], "E_INTENT", "`duckkb get` one, or filter with -w"),
    (["settings", "theme"], "E_INTENT", "`duckkb get` one, or filter with -w"),
    (["logs", "timeout", "-H"], "E_INTENT", "-w \"level = 'error' AND message LIKE '%timeout%'\""),
    (["features", "a text", "-H"], "E_INTENT", "give a vector with --vector FILE"),
    (["strict", "fox", "-H"], "E_INTENT", "-m alone"),
]


@pytest.mark.parametrize(("args", "code", "suggestion"), REFUSED, ids=[" ".join(args) for args, _, _ in REFUSED])
def test_xd_03_what_a_policy_cannot_serve_is_exit_2_with_what_to_use_instead(
    base: Path, args: list[str], code: str, suggestion: str
) -> None:
    refused(run_in(base, ["find", *args, "--json"]), 2, code, suggestion)


def rrf(lanes: Sequence[Sequence[dict[str, Any]]], k: int = 60) -> list[tuple[str, float]]:
    """Reciprocal rank fusion, written from its definition; ties in the order of identities."""
    scores: dict[str, float] = {}
    for lane in lanes:
        for place, line in enumerate(lane):
            scores[line["id"]] = scores.get(line["id"], 0.0) + 1.0 / (k + place + 1)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def test_xd_04_a_hybrid_line_of_a_collection_has_the_account_of_its_score(base: Path) -> None:
    for line in ask(base, "notes", "quick fox", "-H"):
        assert line["_scores"]["final"] == line["_score"]
        assert {"vector", "fts", "sources", "rank"} <= line["_scores"].keys()
    assert not any("_scores" in line for line in ask(base, "notes", "quick fox", "-m"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "limit", "where"),
    [("数据库 journal", 20, []), ("fox storage", 15, ["-w", "metadata.author = '张三' OR size > 90"])],
    ids=["100 deep", "filtered"],
)  # fmt: skip
def test_xd_04_hybrid_scores_are_those_of_an_independent_rrf(
    base: Path, query: str, limit: int, where: list[str]
) -> None:
    depth = str(max(50, 5 * limit))
    lanes = [ask(base, "notes", query, flag, "-l", depth, *where) for flag in ("-s", "-m")]
    found = ask(base, "notes", query, "-H", "-l", str(limit), *where, "--fields", "+_scores")
    expected = rrf(lanes)[:limit]
    assert [line["id"] for line in found] == [name for name, _ in expected]
    ranks = [{line["id"]: (place, line["_score"]) for place, line in enumerate(lane, 1)} for lane in lanes]
    for line, (name, score) in zip(found, expected, strict=True):
        assert abs(line["_score"] - score) <= 1e-9 and line["_score"] == line["_scores"]["final"]
        (vector_rank, vector), (fts_rank, fts) = (lane.get(name, (None, None)) for lane in ranks)
        assert line["_scores"] == {
            "vector": vector,
            "fts": fts,
            "final": line["_score"],
            "sources": [lane for lane, rank in (("vector", vector_rank), ("fts", fts_rank)) if rank is not None],
            "rank": {"vector": vector_rank, "fts": fts_rank},
        }


def test_xd_04_a_line_is_the_record_with_its_score_and_engine_best_first(base: Path) -> None:
    for flag, engine in (("-s", "vector"), ("-m", "fts"), ("-H", "hybrid")):
        found = ask(base, "near" if flag == "-s" else "notes", "quick fox", flag, "--fields", "+_scores")
        scores = [line["_score"] for line in found]
        assert scores == sorted(scores, reverse=True) and {line["_engine"] for line in found} == {engine}
        assert all(("_scores" in line) is (flag == "-H") for line in found)
    line = found[0]
    stored = note(int(line["id"][1:]))
    assert {name: line[name] for name in stored} == stored


def test_xd_05_a_hybrid_policy_without_a_flag_is_hybrid(base: Path) -> None:
    plain, hybrid = (run_in(base, ["find", "notes", "quick 数据库", *flag]) for flag in ([], ["-H"]))
    assert plain == hybrid and plain.lines[0]["_engine"] == "hybrid"


@pytest.mark.parametrize(("name", "flag", "engine"), [("near", "-s", "vector"), ("worded", "-m", "fts")])
def test_xd_05_a_policy_with_one_lane_turns_hybrid_into_it_and_says_so(
    base: Path, name: str, flag: str, engine: str
) -> None:
    narrowed, single = (run_in(base, ["find", name, "quick fox", one]) for one in ("-H", flag))
    assert narrowed.code == 0 and narrowed.out == single.out
    assert narrowed.lines[0]["_engine"] == engine and "_scores" not in narrowed.lines[0]
    assert narrowed.err.startswith("W_MODE") and flag in narrowed.err and single.err == ""


@pytest.mark.parametrize(
    ("name", "where", "expected"),
    [
        ("notes", "metadata.author = '张三' AND size < 10", ["n000", "n004", "n008"]),
        ("logs", "http.status >= 507 AND level IS NOT NULL", ["l7", "l8"]),
        ("features", "kind = 'odd' AND id <> 'v1' AND len(tensor) = 3", ["v3", "v5", "v7"]),
        ("settings", "key LIKE 'app.%' AND value = '中文'", ["app.语言"]),
        ("answers", "value BETWEEN 1 AND 2 AND embedding_text LIKE '%journal'", [TEXTS[2]]),
    ],
)
def test_xd_06_a_filter_works_on_every_policy(base: Path, name: str, where: str, expected: list[str]) -> None:
    key = {"settings": "key", "answers": "embedding_text"}.get(name, "id")
    found = ask(base, name, "-w", where)
    assert [line[key] for line in found] == expected and {line["_engine"] for line in found} == {"relational"}


def test_xd_06_a_filter_comes_before_the_ranking(base: Path, tmp_path: Path) -> None:
    """Three of 120 satisfy it; what ranks before them would fill the limit many times."""
    for flag in ("-s", "-H"):
        found = ask(base, "notes", "number storage", flag, "-w", "size IN (7, 58, 119)", "-l", "3")
        assert sorted(line["size"] for line in found) == [7, 58, 119], flag
    (tmp_path / "vector").write_text("[1, 0, 0]")
    found = ask(base, "features", "--vector", str(tmp_path / "vector"), "-w", "kind = 'odd'", "-l", "2")
    assert [line["id"] for line in found] == ["v1", "v3"]


@pytest.mark.parametrize(
    "where",
    ["1=1; DROP TABLE notes", "ATTACH 'x.db'", "content = read_text('config.yaml')"],
)  # fmt: skip
def test_xd_06_what_is_no_filter_is_exit_2_and_changes_nothing(base: Path, where: str) -> None:
    before = files(base)
    ran = run_in(base, ["find", "notes", "fox", "-m", "-w", where, "--json"])
    refused(ran, 2, "E_FILTER", "")
    assert files(base) == before
