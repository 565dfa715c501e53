"""Bad truth of sound lines: records that clash, ends that lead nowhere, files that vanish or cannot be read, many lines.

And the negative controls of the campaigns with bad inputs: what they must notice.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import duckkb
from duckkb.types.errors import Unreadable
from tests.conftest import NOTES, Ran, commit, git, make_base
from tests.fakes import FrozenClock
from tests.harness import oracle
from tests.harness.bad_inputs.ground import KEY, SECONDS, Bad, complaints, everything, invoke, unmended
from tests.harness.campaign import Campaign

TIME = "2026-01-02T00:00:00.000000Z"
PART = "data/nodes/note/20260102/part_001.jsonl"
EDGES = "data/edges/cites/20260102/part_001.jsonl"


def line(record_id: int, fields: str, updated: str = TIME) -> str:
    return f'{{"__id":{record_id},{fields},"__created_at":"{TIME}","__updated_at":"{updated}"}}\n'


A, B = line(1, '"id":"a","title":"x"'), line(2, '"id":"b"')


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "here" / "kb", NOTES)
    write(root, PART, A + B)
    write(root, "data/FORMAT.json", '{"format":1}\n')
    commit(root)
    return root


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, "utf-8")


def found(root: Path) -> set[str]:
    """The rules of what `check` reports."""
    ran = invoke(root, ["check", "--json"])
    assert not complaints(ran, as_json=True, reports=True), ran.err
    rules = {one["code"] for one in json.loads(ran.out)["findings"]}
    assert ran.code == int(any(rule.startswith("E_") for rule in rules))
    return rules


CLASHES: dict[str, tuple[str, str, str]] = {
    "one identity in two files": (PART.replace("001", "002"), line(1, '"id":"a","title":"y"'), "E_DUP_IDENTITY"),
    "one identity in two days": ("data/nodes/note/20260103/part_001.jsonl", line(1, '"id":"a"'), "E_DUP_IDENTITY"),
    "one identity twice in a file": (PART, A + line(1, '"id":"a","title":"y"') + B, "E_DUP_IDENTITY"),
    "one identity under two ids": (PART.replace("001", "002"), line(77, '"id":"a"'), "E_DUP_IDENTITY"),
    "one id for two": (PART.replace("001", "002"), line(1, '"id":"c"'), "E_DUP_ID"),
    "an edge to nothing": (EDGES, line(5, '"from":"a","to":"ghost"'), "E_DANGLING_EDGE"),
    "an edge from nothing": (EDGES, line(5, '"from":"ghost","to":"a"'), "E_DANGLING_EDGE"),
    "an edge between nothings": (EDGES, line(5, '"from":"x","to":"y"'), "E_DANGLING_EDGE"),
    "a day that is another": ("data/nodes/note/20260105/part_001.jsonl", line(3, '"id":"c"'), "E_MISPLACED"),
    "a field that does not fit": (PART.replace("001", "002"), line(3, '"id":"c","size":"many"'), "E_SCHEMA"),
    "a part in capitals": ("data/nodes/note/20260102/PART_001.jsonl", A, "E_UNEXPECTED_FILE"),
    "a table in capitals": ("data/nodes/NOTE/20260102/part_001.jsonl", A, "E_UNEXPECTED_FILE"),
    "a day that is none": ("data/nodes/note/20260230/part_001.jsonl", A, "E_UNEXPECTED_FILE"),
    "a part with a long number": (PART.replace("001", "0001"), A, "E_UNEXPECTED_FILE"),
    "a file beside": ("data/nodes/note/readme.txt", "x", "E_UNEXPECTED_FILE"),
    "an editor's copy": (PART + "~", "not json", "E_UNEXPECTED_FILE"),
    "a hidden file": (PART.replace("part_001", ".part_001"), "not json", "E_UNEXPECTED_FILE"),
    "a folder of a stranger": ("data/strangers/x.jsonl", "not json", "E_UNEXPECTED_FILE"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_what_clashes_is_read_reported_and_never_made_worse(campaign: Campaign, base: Path, name: str) -> None:
    """The other records can be read and written all the while; what clashes stays where it is until it is mended."""
    path, text, code = CLASHES[name]
    write(base, path, text)
    before = everything(base)
    shown = invoke(base, ["list", "Note"])
    assert (shown.code, {json.loads(one)["id"] for one in shown.out.split("\n")[:-1]} >= {"a", "b"}) == (0, True)
    assert code in found(base)
    if code == "E_DUP_IDENTITY":
        assert unmended(base, Bad(name, ["put", "Note", '{"id":"a","title":"z"}'], 1, "E_DUP_IDENTITY")) == []
        assert "W_DUPLICATE" in shown.err
    if code == "E_DANGLING_EDGE":
        assert unmended(base, Bad(name, ["put", "cites", '{"from":"a","to":"phantom"}'], 1, "E_DANGLING_EDGE")) == []
        assert invoke(base, ["graph", "neighbors", "Note", "a"]).code == 1
    assert everything(base) == before
    stranger = (base / path).read_bytes()
    assert invoke(base, ["put", "Note", '{"id":"new"}']).code == 0
    assert invoke(base, ["delete", "Note", "b"]).code == 0
    if code == "E_UNEXPECTED_FILE":
        assert (base / path).read_bytes() == stranger
    if code in ("E_DUP_IDENTITY", "E_DUP_ID"):
        assert invoke(base, ["dedupe", "--reassign"]).code == 0
        assert code not in found(base)
        ids = [(key[0], record["id"]) for key, record in oracle.records(base).items()]
        assert len(ids) == len(set(ids))
    campaign.count("bad inputs tried: stored truth", 6)


def test_a_clock_that_goes_backwards_moves_no_time_back(campaign: Campaign, base: Path) -> None:
    future = "2031-05-05T05:05:05.999999Z"
    write(base, PART, line(1, '"id":"a"', future) + B)
    with duckkb.open(base, clock=FrozenClock("1999-12-31T23:59:59.000000Z")) as kb:
        for number in range(3):
            kb.put("Note", {"id": "a", "size": number})
        kb.put("Note", {"id": "old"})
        kb.rename("Note", "b", "renamed")
    records = {record["id"]: record for record in oracle.records(base).values()}
    assert records["a"]["__updated_at"] == "2031-05-05T05:05:06.000002Z" and records["a"]["__created_at"] == TIME
    assert records["renamed"]["__updated_at"] > TIME
    assert records["old"]["__created_at"] == "1999-12-31T23:59:59.000000Z"
    assert invoke(base, ["check"]).code == 0
    campaign.count("bad inputs tried: stored truth", 5)


def test_an_open_base_that_met_a_broken_line_goes_on_refusing(campaign: Campaign, base: Path) -> None:
    with duckkb.open(base) as kb:
        assert kb.get("Note", "a")["id"] == "a"
        write(base, PART, A + "torn")
        for _ in range(3):
            with pytest.raises(Unreadable):
                kb.get("Note", "a")
            with pytest.raises(Unreadable):
                kb.put("Note", {"id": "c"})
        (base / PART).unlink()
        (base / PART).symlink_to("nowhere")
        write(base, PART.replace("001", "002"), B)
        for _ in range(2):
            with pytest.raises(Unreadable):
                kb.list("Note")
        (base / PART).unlink()
        write(base, PART, A)
        assert len(kb.list("Note")) == 2
    campaign.count("bad inputs tried: stored truth", 8)


# Runs a command in a process where a file is taken away at the moment at which it is about to be opened.
VANISHING = """\
import os, sys
target, left = sys.argv[1], [int(sys.argv[2])]
def hook(event, args):
    if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)) and os.fspath(args[0]).endswith(target):
        left[0] -= 1
        if left[0] == 0:
            os.rename(args[0], str(args[0]) + ".gone")
sys.addaudithook(hook)
sys.argv = ["duckkb", *sys.argv[3:]]
from duckkb.__main__ import main
main()
"""


@pytest.mark.parametrize("path", [PART, "data/FORMAT.json", "config.yaml", ".git/HEAD", ".git/index", ".duckkb/lock"])
def test_a_file_that_vanishes_while_it_is_read_is_a_file_that_is_gone(
    campaign: Campaign, base: Path, path: str
) -> None:
    assert invoke(base, ["list", "Note"]).code == 0
    for turn in range(1, campaign.pick(2, 4)):
        for args in (["list", "Note"], ["put", "Note", '{"id":"a","title":"z"}']):
            copy = base.parent / f"{turn}{args[0]}" / "kb"
            shutil.copytree(base, copy, symlinks=True)
            command = [sys.executable, "-c", VANISHING, path, str(turn), *args]
            done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS, check=False)
            ran = Ran(done.returncode, done.stdout, done.stderr)
            assert not complaints(ran, as_json=False, reports=True), ran
            records = oracle.records(copy)  # nothing half-written, whatever was decided
            assert {record["id"] for record in records.values()} in ({"a", "b"}, {"a"}, set()), (ran, records)
            campaign.count("bad inputs tried: stored truth")


def _unprivileged() -> list[str]:
    """What stands before a command so that permissions count for it too."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip(
            "root reads everything, and there is no setpriv to put that right aside; test_errnos.py refuses the same calls with EACCES"
        )
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]


@pytest.mark.parametrize("path", [PART, "data/nodes/note/20260102", "data/nodes/note", "data/nodes", "data", "config.yaml", "data/FORMAT.json"])  # fmt: skip
def test_what_may_not_be_read_stops_reading_and_writing_by_name(campaign: Campaign, base: Path, path: str) -> None:
    target, before = base / path, everything(base)
    mode, verbs = target.stat().st_mode, (["list", "Note"], ["put", "Note", '{"id":"c"}'], ["check"])
    for args in campaign.random(path).sample(verbs, campaign.pick(1, 3)):
        target.chmod(0)
        try:
            command = [*_unprivileged(), sys.executable, "-m", "duckkb", *args, "--json"]
            done = subprocess.run(command, cwd=base, capture_output=True, text=True, timeout=SECONDS, check=False)
        finally:
            target.chmod(mode)
        ran = Ran(done.returncode, done.stdout, done.stderr)
        assert not complaints(ran, as_json=True, reports=args == ["check"]), ran
        assert ran.code == (2 if path == "config.yaml" else 1), ran
        assert path.split("/")[-1] in ran.err + ran.out and "ermission denied" in ran.err + ran.out, ran
        campaign.count("bad inputs tried: stored truth")
    assert everything(base) == before


def test_a_part_of_many_lines_opens_and_takes_a_write(campaign: Campaign, base: Path) -> None:
    """Far more lines than duckkb puts into one file, written by another hand; no step may cost their square."""
    count = campaign.pick(20_000, 1_000_000)
    with (base / PART).open("w", encoding="utf-8") as part:
        part.writelines(line(number + 1, f'"id":"n{number:07}","title":"t"') for number in range(count))
    done = subprocess.run(
        [sys.executable, "-m", "duckkb", "put", "Note", '{"id":"n0000000","title":"new"}'],
        cwd=base, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = invoke(base, ["get", "Note", f"n{count - 1:07}"])
    assert shown.code == 0
    with (base / PART).open("rb") as part:
        assert sum(1 for _ in part) == count
    campaign.count("bad inputs tried: stored truth", 2)
    campaign.count("lines in the largest part", count)


def test_control_the_judges_notice_what_they_are_there_for(base: Path) -> None:
    good = Ran(1, "", '{"error":"no","code":"E_NOT_FOUND","suggestion":""}\n')
    assert complaints(good, as_json=True) == []
    assert complaints(Ran(1, "", "duckkb: no Note x\n"), as_json=False) == []
    for bad in (
        Ran(1, "", "Traceback (most recent call last):\n"), Ran(1, "", '{"error":"a","code":"E_INTERNAL","suggestion":""}\n'),
        Ran(1, "", ""), Ran(1, "", "no JSON\n"), Ran(1, "", '{"error":"a"}\n'), Ran(139, "", good.err), Ran(1, "{}\n", good.err),
        Ran(1, "", good.err.replace("no", f"no {KEY}")), Ran(0, KEY, ""), Ran(1, "", "\x1b[31m" + good.err), Ran(-9, "", good.err),
    ):  # fmt: skip
        assert complaints(bad, as_json=True), bad
    assert complaints(Ran(2, "", "thread 'x' panicked at y\n"), as_json=False)


@pytest.mark.parametrize("harm", ["a byte", "a file more", "a file less", "beside", "a mode to a link", "settings"])
def test_control_a_refusal_that_changed_something_is_noticed(base: Path, harm: str) -> None:
    before = everything(base)
    assert everything(base) == before
    match harm:
        case "a byte":
            (base / PART).write_bytes((base / PART).read_bytes().replace(b'"x"', b'"y"'))
        case "a file more":
            write(base, "data/new", "")
        case "a file less":
            (base / PART).unlink()
        case "beside":
            write(base.parent, "stolen", "x")
        case "a mode to a link":
            (base / PART).rename(base.parent / "moved")
            (base / PART).symlink_to(base.parent / "moved")
        case "settings":
            write(base, "config.yaml", NOTES + "# changed\n")
    assert everything(base) != before


def test_control_a_command_that_writes_fails_the_judge_of_refusals(base: Path) -> None:
    wrong = unmended(base, Bad("a write", ["put", "Note", '{"id":"new"}'], 1, "E_INVALID"))
    assert any("files changed" in one for one in wrong) and any("exit code 0" in one for one in wrong)
    wrong = unmended(base, Bad("another code", ["get", "Note", "ghost"], 1, "E_STALE"))
    assert any("E_NOT_FOUND, not E_STALE" in one for one in wrong)
    assert git(base, "status", "--porcelain")
