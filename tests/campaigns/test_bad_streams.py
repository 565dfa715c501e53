"""Bad streams: closed, full or torn ones, a terminal that must not be steered, lines of any length, and data that is odd
but data. Real processes wherever a stream is the point."""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.types.errors import DuckkbError
from tests.conftest import NOTES, Ran, make_base
from tests.harness import oracle
from tests.harness.bad_inputs.ground import SECONDS, Bad, answered, complaints, everything, invoke, unmended
from tests.harness.campaign import Campaign

HOSTILE = "\x1b]0;gone\x07\x1b[2J \x9b31m \x85 \u202edc\u2066 \x7f <b>"
ESCAPED = json.dumps(HOSTILE)  # ASCII alone


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "here" / "kb", NOTES)
    lines = f'{{"id":"a","title":"git","text":{ESCAPED}}}\n{{"id":"b"}}\n'
    assert invoke(root, ["put", "Note"], lines.encode()).code == 0
    return root


def run(root: Path, *args: str, stdin: int | bytes = b"", closed: tuple[int, ...] = (), **streams: Any) -> Ran:
    """A real process, some of whose first three streams are closed before it starts."""
    command = [sys.executable, "-m", "duckkb", *args]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given = {"stdout": out, "stderr": err} | streams
        given |= {"stdin": stdin} if isinstance(stdin, int) else {"input": stdin}
        done = subprocess.run(
            command, cwd=root, check=False, timeout=SECONDS, preexec_fn=lambda: [os.close(fd) for fd in closed], **given
        )
        out.seek(0), err.seek(0)
        return Ran(done.returncode, out.read().decode(), err.read().decode())


CLOSED = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_closed_streams_end_in_an_exit_code_and_never_in_a_file(
    campaign: Campaign, base: Path, closed: tuple[int, ...]
) -> None:
    verbs: list[tuple[list[str], int]] = [
        (["put", "Note", '{"id":"c"}'], 0), (["put", "Note"], 2), (["list", "Note"], 0), (["get", "Note", "ghost"], 1),
        (["find", "Note", "-s"], 2), (["sql"], 2), (["nonsense"], 2), (["--help"], 0), (["import", "Note", "-"], 0),
    ]  # fmt: skip
    chosen = verbs if campaign.full else [verbs[0], campaign.random(str(closed)).choice(verbs[1:])]
    for args, code in chosen:
        ran = run(base, *args, closed=closed)
        assert ran.code == code, (args, ran)
        wrong = complaints(ran, as_json=False, reports=True)
        assert not wrong, (args, wrong, ran.err)
        assert 2 not in closed or not ran.err
    assert [record["id"] for record in oracle.records(base).values()] == ["a", "b", "c"]
    assert oracle.leftovers(base) == []
    campaign.count("bad inputs tried: streams", len(chosen))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_behind_a_stream_is_said_and_takes_no_write_back(
    campaign: Campaign, base: Path, stream: str
) -> None:
    for args in (["put", "Note", '{"id":"c"}'], ["list", "Note"], ["get", "Note", "ghost"], ["nonsense"]):
        with Path("/dev/full").open("wb") as full:
            ran = run(base, *args, **{stream: full})
        expected = {"get": 1, "nonsense": 2}.get(args[0], 1 if stream == "stdout" else 0)
        assert (ran.code, complaints(ran, as_json=False, reports=True)) == (expected, []), ran
        assert stream == "stderr" or "duckkb: " in ran.err
    assert "c" in {record["id"] for record in oracle.records(base).values()}
    campaign.count("bad inputs tried: streams", 4)


def test_a_reader_that_has_enough_is_success(campaign: Campaign, base: Path) -> None:
    lines = "".join(f'{{"id":"n{number}","text":"{"x" * 2000}"}}\n' for number in range(300))
    assert invoke(base, ["put", "Note"], lines.encode()).code == 0
    command = f"{sys.executable} -m duckkb export Note | head -c 10; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=base, capture_output=True, timeout=SECONDS, check=False)
    assert (done.stdout.endswith(b"0\n"), done.stderr) == (True, b"")
    campaign.count("bad inputs tried: streams")


def _on_terminal(root: Path, *args: str) -> str:
    """What a process prints that has a terminal for stdout and stderr."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "duckkb", *args], cwd=root, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower
    ) as process:
        os.close(follower)
        printed = b"".join(_until_closed(leader))
        process.wait(SECONDS)
    os.close(leader)
    return printed.decode()


def _until_closed(leader: int) -> Iterator[bytes]:
    try:
        while piece := os.read(leader, 65_536):
            yield piece
    except OSError:  # the other end is gone
        return


def test_what_is_stored_steers_no_terminal_and_is_raw_in_a_pipe(campaign: Campaign, base: Path) -> None:
    hidden = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
    stranger = base / "data/nodes" / "\x1b[31mred\u202e"
    stranger.mkdir(parents=True)
    edit = ["put", "Note", json.dumps({"id": "a", "text": HOSTILE + "!"}), "--dry-run"]
    verbs = [["get", "Note", "a"], ["list", "Note"], ["find", "Note", "git", "-m"], ["export", "Note"], ["check"], edit,
             ["sql", "SELECT text FROM note"], ["get", "Note", "\x1b[31mghost"], ["\x1b[31mverb"], ["check", "--json"]]  # fmt: skip
    for args in campaign.random("terminal").sample(verbs, campaign.pick(4, len(verbs))):
        printed = _on_terminal(base, *args).replace("\r\n", "\n")
        assert printed.strip() and not hidden.search(printed), (args, printed)
    raw = run(base, "get", "Note", "a")
    assert json.loads(raw.out)["text"] == HOSTILE and "\u202e" in raw.out
    assert json.loads(_on_terminal(base, "get", "Note", "a"))["text"] == HOSTILE
    campaign.count("bad inputs tried: streams", len(verbs))


def test_a_writer_that_dies_inside_a_record_leaves_nothing(campaign: Campaign, base: Path) -> None:
    before = oracle.digest(base)
    for torn in (b'{"id":"x"}\n{"id":"y"', b'{"id":"x"}\n{"id":"\xe4', b'{"id":"x"}\n{"id":"y"}x'):
        for args in (["put", "Note"], ["import", "Note", "-"])[: campaign.pick(1, 2)]:
            ran = run(base, *args, "--json", stdin=torn)
            assert ran.code == 1 and not complaints(ran, as_json=True), ran.err
            assert json.loads(ran.err)["details"]["findings"][0]["line"] == 2
    assert oracle.digest(base) == before
    campaign.count("bad inputs tried: streams", 6)


@pytest.mark.parametrize("piece", ['{"id":"%s"}', '{"id":"x","text":"%s"}', "%s", "[%s", '{"%s":1}'])
def test_a_line_of_64_megabytes_is_refused_soon_and_briefly(
    campaign: Campaign, base: Path, tmp_path: Path, piece: str
) -> None:
    before, big = oracle.digest(base), tmp_path / "big.jsonl"
    big.write_text('{"id":"good"}\n' + piece.replace("%s", "x" * campaign.pick(9 << 20, 64 << 20)) + "\n", "utf-8")
    with big.open("rb") as source:
        ran = run(base, "put", "Note", "--json", stdin=source.fileno())
    imported = invoke(base, ["import", "Note", str(big), "--json"])
    for answer in (ran, imported):
        assert answer.code == 1 and not complaints(answer, as_json=True), answer.err[:500]
        finding = json.loads(answer.err)["details"]["findings"][0]
        assert (finding["code"], finding["line"]) == ("E_TOO_LARGE", 2) and len(answer.err) < 1_000
    assert oracle.digest(base) == before
    campaign.count("bad inputs tried: streams", 2)


# Odd, but data: stored, found again by its name, and never a path.
DATA = ["../../etc/passwd", "/etc/passwd", "-rf", "--help", "con", "NUL", ".git", ".", "..", " ", "a b", "a/b\\c", "a\u200bb", "a\u200db",
        "\ufeffa", "A", "ａ", "İ", "ß", "ss", "SS", "é", "中" * 341, "x" * 1024, "👩‍👩‍👧", "שלום", "*", "'; DROP TABLE note; --",
        "$(touch ran)", "`touch ran`", "%s%n", "{}", "null", "007", "2024-02-30", "1e999", "__proto__", "constructor", "<script>", "\"", "\\"]  # fmt: skip


def test_identities_that_look_dangerous_are_data(campaign: Campaign, base: Path) -> None:
    lines = "".join(json.dumps({"id": name, "title": f"of {number}"}) + "\n" for number, name in enumerate(DATA))
    before = everything(base)
    receipt = json.loads(invoke(base, ["put", "Note"], lines.encode()).out)
    assert receipt["inserted"] == len(DATA), "not one of them is another in disguise"
    for number, name in enumerate(DATA):
        ran = invoke(base, ["get", "Note", "--", name])
        assert (ran.code, json.loads(ran.out)["title"]) == (0, f"of {number}"), (name, ran)
    assert not any(base.parent.rglob("ran"))
    assert everything(base) | {"data": ""} == before | {"data": "", "own": sorted({*before["own"], "data"})}
    assert all(oracle.PART.fullmatch(path) or path == "data/FORMAT.json" for path in oracle.tree(base))
    stored = {record["id"] for record in oracle.records(base).values()}
    assert stored == {"a", "b", *DATA}
    assert invoke(base, ["check"]).code == 0
    assert invoke(base, ["delete", "Note", "--allow-shrink", "--", *DATA]).code == 0
    campaign.count("bad inputs tried: streams", len(DATA))


QUERIES = ["!!! ??? ...", "\"", '" * ( ) : NEAR', "*", "-", "--", "-git", "git AND", "(git", "git)", "title:git", "git~2", "git^", "[a TO z]",
           "👩‍👩‍👧 🐙", "שלום עולם", "\u202eabc", "中" * 10_000, "内 存 数据库", "git " * 5_000, "a*", "\\", "\0", "\x1b[31m", "\udcff", "x" * 1_000_000,
           "-" * 10_000, '"' * 10_001, "(" * 10_000, "NOT NOT NOT", "   ", "", "İıß", "＊", "%s%n"]  # fmt: skip


def test_any_question_has_an_answer_or_one_clear_line(campaign: Campaign, base: Path) -> None:
    before, wrong = everything(base), []
    for query in campaign.random("queries").sample(QUERIES, campaign.pick(10, len(QUERIES))):
        for args in (["Note", query, "-m"], ["all", query], ["Note", query, "-m", "--explain", "-l", "1000000000"]):
            options = [one for one in args[1:] if one != query]
            ran = invoke(base, ["--json", "find", *options, "--", args[0], query])
            wrong += [f"{query[:30]!r}: {one} {ran.err[:300]}" for one in complaints(ran, as_json=True)]
            if len(ran.err) > 8_000:
                wrong.append(f"{query[:30]!r}: {len(ran.err)} characters on stderr")
            if not query.strip() and ran.code != 2:
                wrong.append(f"an empty question ends in {ran.code}")
        campaign.count("bad inputs tried: streams", 3)
    assert everything(base) == before
    assert not wrong, "\n".join(wrong)


def test_what_does_not_fit_the_schema_is_told_with_pointer_and_rule(campaign: Campaign, base: Path) -> None:
    told = {
        '{"id":"x","size":"5"}': ("/size", "type"), '{"id":"x","status":"done"}': ("/status", "enum"), '{"id":"x","tags":["a",2]}': ("/tags/1", "type"),
        '{"id":"x","tags":{}}': ("/tags", "type"), '{"id":"x","size":1.5}': ("/size", "type"), '{"id":"x","size":true}': ("/size", "type"),
    }  # fmt: skip
    for text, (field, rule) in told.items():
        case = Bad(text, ["put", "Note", text], 2, "E_SCHEMA", finding="E_SCHEMA")
        assert unmended(base, case) == []
        finding = json.loads(invoke(base, [*case.args, "--json"]).err)["details"]["findings"][0]
        assert finding["field"] == field and f"(rule: {rule})" in finding["message"]
        merged = invoke(base, ["put", "Note", text.replace('"x"', '"a"'), "--merge", "--json"])
        assert answered(Bad("", (), 1, "E_SCHEMA"), merged) == []
    campaign.count("bad inputs tried: streams", 2 * len(told))


def _endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["x"] = value
    return value


VALUES: list[Any] = [float("nan"), float("inf"), {1}, b"x", {1: 2}, 10**400, 2**63, _endless(), 1j, object(), "\ud800", {"\ud800": 1},
                     {(1, 2): 3}, [[[float("nan")]]], type, ...]  # fmt: skip


def test_values_that_json_has_not_are_refused_by_the_library_too(campaign: Campaign, base: Path) -> None:
    before = everything(base)
    with duckkb.open(base) as kb:
        for value in VALUES:
            calls: list[Callable[[Any], object]] = [
                lambda value: kb.put("Note", {"id": "x", "v": value}),
                lambda value: kb.put("Note", [{"id": "x"}, value]),
                lambda value: kb.put("Note", {"id": value}),
                lambda value: kb.put("Note", {"id": "a", "v": value}, merge=True),
            ]
            # An integer is the text of it where identities are text, as on the command line.
            calls += [] if isinstance(value, int) else [lambda value: kb.rename("Note", "a", value)]
            for call in calls:
                with pytest.raises(DuckkbError) as caught:
                    call(value)
                assert caught.value.code.startswith("E_") and caught.value.code != "E_INTERNAL"
            campaign.count("bad inputs tried: streams", len(calls))
    assert everything(base) == before
