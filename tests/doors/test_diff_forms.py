"""The forms of a difference: what each says of values inside values."""

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from duckkb.app import diff
from duckkb.operations import version_diff
from duckkb.storage.part import Lines
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

_T = TypeVar("_T")

COUNTRIES = """\
global: {embedding_model: none}
nodes:
  Country:
    table: country
    identity: id
    schema: {type: object, properties: {id: {type: string}}}
"""
NAMES = {code: f"Name of it in {code}" for code in ("ara", "ces", "deu", "est", "fra", "zho")}


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with a map of names and a list of objects, in two versions: `one` and `two`."""
    root = make_base(tmp_path_factory.mktemp("nested") / "kb", COUNTRIES)
    cities = [{"name": "Bern", "size": 1}, {"name": "Basel", "size": 2}]
    for tag, record in (
        ("one", {"id": "CH", "names": NAMES, "cities": cities}),
        (
            "two",
            {
                "id": "CH",
                "names": {**NAMES, "bre": {"a/b": 3}, "deu": "Schweiz"},
                "cities": [cities[0], {"name": "Basel", "size": 9}],
            },
        ),
    ):
        assert run_in(root, ["put", "Country", json.dumps(record)]).code == 0
        commit(root, tag)
        git(root, "tag", tag)
    return root


def test_values_inside_values_have_their_paths_in_every_form(nested: Path) -> None:
    def shown(form: str) -> str:
        return run_in(nested, ["diff", "one..two", "--format", form], env={"COLUMNS": "400"}).out

    assert '  + names/bre: {"a/b":3}\n' in shown("text")
    assert "    cities/1/size: [-2-]{+9+}\n" in shown("text")
    assert '- `names/bre`: _none_ → `{"a/b":3}`\n' in shown("markdown")
    assert "- `cities/1/size`: `2` → `9`\n" in shown("markdown")
    (change,) = json.loads(shown("json"))["changes"]
    assert [one for field in change["fields"] for one in field["inside"]] == [
        {"path": "/cities/1/size", "before": 2, "after": 9},
        {"path": "/names/bre", "after": {"a/b": 3}},
        {"path": "/names/deu", "before": NAMES["deu"], "after": "Schweiz"},
    ]
    assert json.loads(shown("jsonl"))["fields"] == change["fields"]
    assert '["names/bre",2,[[2,"{\\"a/b\\":3}"]]]' in shown("html")
    for form in ("csv", "table"):
        assert "cities/1/size, names/bre, names/deu" in shown(form)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three thousand notes in two versions, `few` and `many`: most have another text, some came, went or got another name."""
    root = make_base(tmp_path_factory.mktemp("many") / "kb", NOTES)
    text = "several words, so that the text is worth comparing " * 4
    _put(root, [{"id": f"n{n}", "text": f"{text}{n}"} for n in range(3_000)])
    commit(root)
    git(root, "tag", "few")
    _put(
        root, [{"id": f"n{n}", "text": f"{n} {text}"} for n in range(20, 3_000)] + [{"id": f"new{n}"} for n in range(7)]
    )
    for n in range(3):
        assert run_in(root, ["delete", "Note", f"n{n}"]).code == 0
    assert run_in(root, ["rename", "Note", "n3", "renamed"]).code == 0
    commit(root)
    git(root, "tag", "many")
    return root


def _put(root: Path, records: list[dict[str, str]]) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in records)
    assert run_in(root, ["import", "Note", "-", "--no-embed"], stdin=lines).code == 0


def _rows_made(run: Callable[[], _T]) -> tuple[int, _T]:
    """How many records are made of lines while `run` runs, and what it gives."""
    count = 0

    def watch(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is Lines._build_row.__code__

    sys.setprofile(watch)
    try:
        found = run()
    finally:
        sys.setprofile(None)
    return count, found


def test_numbers_alone_are_those_of_the_difference_without_a_record_being_decoded(many: Path) -> None:
    none, found = _rows_made(lambda: version_diff.numbers(many, "few..many"))
    all_of_them, whole = _rows_made(lambda: diff(many, "few..many"))
    assert found.counts == whole.counts == {"Note": {"insert": 7, "update": 2980, "rename": 1, "delete": 3}}
    assert (found.parts, found.moved, found.respelled) == (whole.parts, len(whole.moves), whole.respelled)
    assert (none, all_of_them) == (0, 2 * 2_980 + 7 + 2 * 1 + 3)


@pytest.mark.parametrize("form", ["spelled otherwise", "moved", "no record", "two of one", "another number"])
def test_numbers_of_lines_that_are_no_plain_edit_are_those_of_the_difference(many: Path, form: str) -> None:
    part = sorted((many / "data/nodes/note").rglob("*.jsonl"))[0]
    kept = part.read_bytes()
    first, second, *rest = kept.splitlines(keepends=True)
    part.write_bytes(
        {
            "spelled otherwise": first.replace(b":", b": ", 1) + second,
            "moved": second,
            "no record": first[:-9] + b"\n" + second,
            "two of one": first + first.replace(b"several", b"some") + second,
            "another number": first.replace(b'"__id":', b'"__id":1', 1) + second,
        }[form]
        + b"".join(rest)
    )
    numbered = (part.with_name(f"part_{number}.jsonl") for number in range(999, 0, -1))
    other = next(path for path in numbered if not path.exists())  # the clone's own may be any
    if form == "moved":
        other.write_bytes(first)
    try:
        told, whole = version_diff.numbers(many), diff(many)
    finally:
        part.write_bytes(kept)
        other.unlink(missing_ok=True)
    assert (told.counts, told.moved, told.respelled) == (whole.counts, len(whole.moves), whole.respelled)
    assert bool(told.findings) == any(one.code not in ("E_MISPLACED", "W_MASS_CHANGE") for one in whole.findings)


def _pages(root: Path, *args: str) -> Iterator[Ran]:
    """The output of `diff`, page by page: each names the command of the next."""
    line = ["diff", *args]
    while line:
        ran = run_in(root, line)
        assert ran.code == 0, ran.err
        yield ran
        more = re.search(r"duckkb (diff .*?--after [0-9a-f-]+)", ran.out + ran.err)
        line = shlex.split(more[1]) if more else []


@pytest.mark.long
def test_every_form_keeps_its_budget_and_goes_on_where_it_ended_until_all_is_told(many: Path) -> None:
    whole = run_in(many, ["diff", "few..many", "--format", "json", "--full"]).line
    assert (whole["truncated"], whole["next"]) == (False, None)
    wanted = [(one["type"], one["identity"]) for one in whole["changes"]]
    budget = 300_000

    found = {
        form: list(_pages(many, "few..many", "--budget", str(budget), "--format", form))
        for form in ("json", "jsonl", "text", "csv")
    }
    for form, pages in found.items():
        assert 1 < len(pages) < 40, form
        assert all(len(page.out.encode()) <= budget for page in pages), form
    told = [one for page in found["json"] for one in page.line["changes"]]
    assert told == whole["changes"]
    assert [one for page in found["json"] for one in page.line["findings"]] == whole["findings"]
    lines = [one for page in found["jsonl"] for one in page.lines]
    assert [one["identity"] for one in lines if one["entry"] == "change"] == [name for _, name in wanted]
    heads = re.compile(r"^(?:changed|added|removed|renamed) (\w+) (\S+)", re.MULTILINE)
    assert [one for page in found["text"] for one in heads.findall(page.out)] == wanted
    rows = [line.split(",")[2] for page in found["csv"] for line in page.out.splitlines()[1:]]
    assert rows == [name for _, name in wanted]


@pytest.mark.long
def test_a_page_of_another_difference_does_not_go_on(many: Path) -> None:
    first = run_in(many, ["diff", "few..many", "--json", "--budget", "50000"]).line
    cursor = first["next"]["after"]
    assert first["truncated"] and first["next"]["left"] + len(first["changes"]) + len(first["findings"]) == 2_993
    other = run_in(many, ["diff", "many..few", "--json", "--after", cursor])
    assert (other.code, other.error["code"]) == (1, "E_STALE")
    wrong = run_in(many, ["diff", "few..many", "--json", "--after", "7"])
    assert (wrong.code, wrong.error["code"]) == (2, "E_USAGE")
    whole = run_in(many, ["diff", "few..many", "--format", "patch", "--budget", "5000"])
    assert whole.code == 2 and "always complete" in whole.err


@pytest.mark.long
def test_a_comment_counts_bytes_and_its_last_line_goes_on(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    for tag, word in (("one", "知识库的记录"), ("two", "数据的文件")):
        _put(root, [{"id": f"笔记{n}", "text": word * 30 + str(n)} for n in range(300)])
        commit(root)
        git(root, "tag", tag)
    pages = list(_pages(root, "one..two", "--format", "markdown", "--budget", "20000"))
    assert all(len(page.out.encode()) <= 20_001 for page in pages)
    assert "#### Findings" in pages[0].out and "#### Findings" not in pages[1].out
    told = [name for page in pages for name in re.findall(r"^##### `Note` `(.*)`$", page.out, re.MULTILINE)]
    assert sorted(told) == sorted(f"笔记{n}" for n in range(300))
    long = run_in(root, ["diff", "one..two", "--format", "markdown"]).out
    assert 40_000 < len(long.encode()) <= 60_001
    assert "--after" not in run_in(root, ["diff", "one..two", "--format", "markdown", "--full"]).out


def test_values_in_a_map_and_in_a_list_come_from_the_commits_that_gave_them(nested: Path) -> None:
    def blame(*field: str) -> dict[str, str]:
        return {one["field"]: one["summary"] for one in run_in(nested, ["blame", "Country", "CH", *field]).lines}

    assert blame()["names"] == "two"
    assert blame("names") == {**{f"names.{code}": "one" for code in NAMES}, "names.deu": "two", "names.bre.a/b": "two"}
    assert blame("names.fra") == {"names.fra": "one"}
    assert blame("cities[1]") == {"cities[1].name": "one", "cities[1].size": "two"}
    assert run_in(nested, ["blame", "Country", "CH", "names.xx"]).code == 1


def test_elements_of_a_set_are_told_by_what_they_are(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", NOTES)
    for tags in (["red", "sea"], ["blue", "red", "sea"]):
        assert run_in(root, ["put", "Note", json.dumps({"id": "a", "tags": tags})]).code == 0
        commit(root, f"{len(tags)} tags")
    told = {one["field"]: one["summary"] for one in run_in(root, ["blame", "Note", "a", "tags"]).lines}
    assert told == {'tags["blue"]': "3 tags", 'tags["red"]': "2 tags", 'tags["sea"]': "2 tags"}
