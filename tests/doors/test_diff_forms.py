"""The forms of a difference: what each says of values inside values."""

import json
from pathlib import Path

import pytest

from tests.conftest import commit, git, make_base, run_in

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
