"""The forms of a difference: what each says of values inside values."""

import json
import time
from pathlib import Path

import pytest

from duckkb.app.diffing import diff, numbers
from tests.conftest import NOTES, commit, git, make_base, run_in

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
        return run_in(nested, ["diff", "one..two", "--format", form]).out

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


def test_numbers_alone_are_those_of_the_difference_for_a_fraction_of_the_time(many: Path) -> None:
    start = time.process_time()
    found = numbers(many, "few..many")
    between = time.process_time()
    whole = diff(many, "few..many")
    end = time.process_time()
    assert found.counts == whole.counts == {"Note": {"insert": 7, "update": 2980, "rename": 1, "delete": 3}}
    assert (found.parts, found.moved, found.respelled) == (whole.parts, len(whole.moves), whole.respelled)
    assert between - start < (end - between) / 2


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
    other = part.with_name("part_999.jsonl")
    if form == "moved":
        other.write_bytes(first)
    try:
        told, whole = numbers(many), diff(many)
    finally:
        part.write_bytes(kept)
        other.unlink(missing_ok=True)
    assert (told.counts, told.moved, told.respelled) == (whole.counts, len(whole.moves), whole.respelled)
    assert bool(told.findings) == any(one.code not in ("E_MISPLACED", "W_MASS_CHANGE") for one in whole.findings)
