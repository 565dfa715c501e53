"""Fuzzing of config.yaml: every text is refused with places or means what PyYAML says, and what loads also works."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from duckkb.ontology.names import looks_secret
from duckkb.ontology.ontology_files import load
from duckkb.ontology.yaml_source import Document, read_yaml
from tests.harness.campaign import Campaign
from tests.harness.fuzz.loop import Run, hold, limited
from tests.harness.fuzz.ontology import OntologyTarget
from tests.harness.fuzz.schema import SchemaTarget

SCALAR = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = SCALAR | st.text(max_size=12)
VALUE = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def test_configurations_that_grow_from_valid_ones_are_refused_with_places_or_work(
    campaign: Campaign, tmp_path: Path
) -> None:
    target = OntologyTarget(tmp_path)
    hold(campaign, target, campaign.pick(400, 15_000))
    campaign.count("fuzzed configurations that loaded and were used", target.accepted)
    assert target.accepted


def test_a_changed_ontology_never_makes_a_base_fall_over_its_records(campaign: Campaign, tmp_path: Path) -> None:
    target = SchemaTarget(tmp_path)
    hold(campaign, target, campaign.pick(12, 800))
    campaign.count("fuzzed ontologies under which stored records were read", target.used)
    assert target.used


def test_any_value_written_as_yaml_is_read_back_or_refused(campaign: Campaign) -> None:
    number = campaign.pick(100, 3_000)

    @seed(campaign.seed)
    @settings(max_examples=number, database=None, derandomize=False, deadline=None)
    @given(st.dictionaries(st.text(max_size=6), VALUE, max_size=4), st.booleans())
    def law(value: dict[str, Any], as_json: bool) -> None:
        text = json.dumps(value, ensure_ascii=False) if as_json else yaml.safe_dump(value, allow_unicode=True)
        document = read_yaml(text.encode("utf-8", "surrogatepass"), "config.yaml")
        assert document.findings or repr(document.value) == repr(yaml.safe_load(text))

    law()
    campaign.count("fuzz inputs: ontology", number)


def _believing(data: bytes, path: str) -> Document:
    """A reader that takes what PyYAML takes."""
    try:
        value = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError):
        return read_yaml(data, path)
    return Document(path, value if isinstance(value, dict) else {})


def _stumbling(data: bytes, path: str) -> Document:
    document = read_yaml(data, path)
    return document if "policies" not in document.value else document.value["absent"]


@pytest.mark.parametrize("reader", [_believing, _stumbling], ids=["believes too much", "stumbles"])
def test_control_a_weak_reader_of_yaml_is_found_out(campaign: Campaign, tmp_path: Path, reader: Any) -> None:
    assert Run[bytes](enough=1).fuzz(OntologyTarget(tmp_path, reader), campaign.random("control"), 400).finds


def test_a_finding_never_stands_behind_the_end_of_the_file() -> None:
    for data in (b"a: {", b"{\n", b"a: [1,\n2", b"x: 'y", b"- a\n b: c\n  - ["):
        lines = [finding.line for finding in read_yaml(data, "config.yaml").findings]
        assert lines and max(lines) <= data.count(b"\n") + 1


def _type_with(definitions: str, field: str = "{$ref: '#/$defs/d0'}") -> bytes:
    head = f"nodes:\n  A:\n    identity: id\n    search: {{full_text: [id]}}\n    schema:\n      properties: {{id: {field}}}\n"
    return f"{head}      $defs:\n{definitions}".encode()


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_unfold_to_billions_are_refused_at_once(keyword: str) -> None:
    double = "{{{0}: [{{$ref: '#/$defs/d{1}'}}, {{$ref: '#/$defs/d{1}'}}]}}"
    definitions = "".join(f"        d{step}: {double.format(keyword, step + 1)}\n" for step in range(60))
    with limited(20):
        found = load([read_yaml(_type_with(definitions + "        d60: {type: string}\n"), "config.yaml")])[1]
    assert found


def test_references_in_a_circle_are_refused_at_once() -> None:
    circle = "        d0: {anyOf: [{$ref: '#/$defs/d1'}, {$ref: '#/$defs/d0'}]}\n        d1: {allOf: [{$ref: '#/$defs/d0'}]}\n"
    with limited(20):
        assert load([read_yaml(_type_with(circle), "config.yaml")])[1]


@pytest.mark.parametrize("piece", ["eyJ-", "sk-", "eyJabcdefgh.", "Bearer ", "-----BEGIN ", "gho_", "api_key_"])
def test_a_secret_is_looked_for_in_a_time_that_grows_with_the_text_alone(piece: str) -> None:
    with limited(20):
        looks_secret(piece * 200_000)


WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2ln"


@pytest.mark.parametrize(
    "text", [WEB_TOKEN, f"x-{WEB_TOKEN}", f"token={WEB_TOKEN}", f"abcdefghijkl.{WEB_TOKEN}", "sk-proj-abc123def456ghi"]
)
def test_keys_are_still_known_by_their_form(text: str) -> None:
    assert looks_secret(text)
