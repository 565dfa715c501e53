"""`diff -w FILTER`: of a difference, the records that a filter finds in one of its two versions."""

import json
import shlex
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, git, make_base, run_in

FILTERS = (
    "size > 5",
    "title = 't1'",
    "lower(title) LIKE 't%' AND size <> 3",
    "list_contains(tags, 'red')",
    "text IS NULL",
    "extra.level = 2",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Notes in two versions: some changed, some deleted, some new, many left alone; edges that came and went."""
    root = make_base(tmp_path_factory.mktemp("where") / "kb", NOTES)

    def put(kind: str, *records: object) -> None:
        ran = run_in(root, ["put", kind], stdin="".join(f"{json.dumps(one)}\n" for one in records))
        assert ran.code == 0, ran.err

    def note(number: int, version: int) -> dict[str, object]:
        record = {"id": f"n{number:02}", "title": f"t{number * version % 7}", "size": number * version % 11}
        record |= {"tags": ["red"]} if number % (2 + version) == 0 else {"text": "内存"}
        return record | {"extra": {"level": number * version % 4}}

    put("Note", *(note(number, 1) for number in range(30)))
    put("Person", {"country": "CH", "number": 1, "name": "Ada"})
    put("cites", {"from": "n01", "to": "n02"}, {"from": "n03", "to": "n02"})
    commit(root)
    put("Note", *(note(number, 2) for number in range(0, 30, 2)), *(note(number, 1) for number in range(30, 36)))
    assert run_in(root, ["delete", "Note", "n05", "n07"]).code == 0
    assert run_in(root, ["delete", "cites", '["n03","n02"]']).code == 0
    put("cites", {"from": "n30", "to": "n02"})
    return root


def names(base: Path, *args: str) -> list[str]:
    ran = run_in(base, ["diff", "--format", "jsonl", *args])
    assert ran.code == 0, ran.err
    return [line["identity"] for line in ran.lines if line["entry"] == "change"]


@pytest.mark.long
@pytest.mark.parametrize("where", FILTERS)
def test_the_records_told_are_those_that_find_finds_before_or_after(base: Path, where: str) -> None:
    found = set()
    for at in (["--at", "HEAD"], []):
        found |= {line["id"] for line in run_in(base, ["find", "Note", "-w", where, "-l", "100", *at]).lines}
    wanted = [name for name in names(base, "--", "Note") if name in found]
    assert wanted
    assert names(base, "-w", where, "--", "Note") == wanted
    stat = run_in(base, ["diff", "-w", where, "--stat", "--", "Note"]).out
    assert stat.splitlines()[-1].startswith(f"{len(wanted)} record")


def test_an_edge_is_filtered_by_its_ends_on_both_sides(base: Path) -> None:
    node = run_in(base, ["get", "Note", "n03"]).line["__id"]
    assert names(base, "-w", f"from_id = {node}", "--", "cites") == ['["n03","n02"]']


def test_a_filter_that_a_changed_type_cannot_answer_names_those_that_can(base: Path) -> None:
    ran = run_in(base, ["diff", "-w", "size > 5"])
    assert (ran.code, ran.out) == (2, "") and "-- Note" in ran.err
    ran = run_in(base, ["diff", "-w", "sise > 5", "--", "Note"])
    assert ran.code == 2 and "size" in ran.err


def test_a_field_of_one_version_alone_counts_there(base: Path, tmp_path: Path) -> None:
    other = tmp_path / "kb"
    git(tmp_path, "clone", "-q", str(base), str(other))
    config = (other / "config.yaml").read_text("utf-8")
    (other / "config.yaml").write_text(config.replace("size: {type: integer}", "kind: {type: string}"), "utf-8")
    assert run_in(other, ["put", "Note", '{"id": "new", "kind": "k"}']).code == 0
    assert names(other, "-w", "kind = 'k'", "--", "Note") == ["new"]


@pytest.mark.long
def test_a_filter_over_what_did_not_change_is_refused_where_find_would_refuse_it(base: Path, tmp_path: Path) -> None:
    same = tmp_path / "kb"
    git(tmp_path, "clone", "-q", str(base), str(same))
    found = run_in(same, ["find", "Note", "-w", "sise > 5"])
    for more in ([], ["--stat"], ["--ignore", "size"]):
        ran = run_in(same, ["diff", "-w", "sise > 5", *more, "--", "Note"])
        corrected = shlex.join(["duckkb", "diff", "-w", "size > 5", *more, "--", "Note"])
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.splitlines() == [found.err.splitlines()[0], f"  try: {corrected}"]
    assert run_in(same, ["diff", "-w", "sise > 5"]).code == 2
    assert run_in(same, ["diff", "-w", "size > 5", "--", "Person"]).code == 2
    for answered in (["size > 5"], ["size > 5", "--", "Note", "Person"], ["extra.level = 2", "--", "Note"]):
        assert names(same, "-w", *answered) == []


def test_a_filter_is_refused_by_the_one_version_that_has_the_type(tmp_path: Path) -> None:
    """Before the first commit there is no older version that could know it."""
    root = make_base(tmp_path / "kb", NOTES)
    run_in(root, ["put", "Note", '{"id": "a"}', "--no-embed"])
    ran = run_in(root, ["diff", "-w", "titel = 1"])
    assert (ran.code, ran.out) == (2, "") and "titel" in ran.err
