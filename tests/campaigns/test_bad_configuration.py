"""Bad configuration: refused whole with file and line, before anything is read or made, and never with a secret in it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOTES, make_base
from tests.harness.bad_inputs.ground import KEY, Bad, answered, complaints, everything, invoke, unmended
from tests.harness.bad_inputs.settings import (
    NAMES_OF_DUCKDB,
    ODD_FIELDS,
    ODD_NAMES,
    PATTERNS,
    REFUSED_NAMES,
    TEXTS,
    named,
    note,
)
from tests.harness.campaign import Campaign


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "here" / "kb", NOTES)
    assert invoke(root, ["put", "Note", '{"id":"a","title":"x"}']).code == 0
    return root


def _refused(root: Path, name: str, finding: str) -> list[str]:
    """Whatever is asked, the answer is 2, with a place each, and nothing is touched. The code is that of the findings."""
    before, wrong = everything(root), []
    for verb in (["list", "Note"], ["put", "Note", '{"id":"b"}'], ["config", "show"], ["trust"]):
        ran = invoke(root, [*verb, "--json"])
        wrong += complaints(ran, as_json=True)
        if ran.code != 2:
            wrong.append(f"{verb[0]}: exit code {ran.code}")
        elif not wrong:
            wrong += _placed(json.loads(ran.err.splitlines()[-1]), finding)
    text = invoke(root, ["list", "Note"])
    wrong += complaints(text, as_json=False)
    if KEY[3:] in text.err or len(text.err) > 100_000:
        wrong.append("the text says too much")
    if everything(root) != before or any(root.parent.rglob("ran")):
        wrong.append("something changed")
    return [f"{name}: {one}\n{text.err[:500]}" for one in wrong]


def _placed(error: dict[str, Any], finding: str) -> list[str]:
    findings = error["details"]["findings"]
    found = [] if finding in {one["code"] for one in findings} else [f"no {finding}: {findings[:3]}"]
    if not all(one.get("path") for one in findings):
        found.append("a finding has no file")
    if error["code"] not in ("E_CONFIG", "E_YAML", "E_ONTOLOGY"):
        found.append(f"{error['code']}")
    return found


@pytest.mark.parametrize("turn", range(4))
def test_what_the_configuration_may_not_say_is_refused_with_its_line(campaign: Campaign, base: Path, turn: int) -> None:
    wrong = []
    for name, (text, finding) in list(TEXTS.items())[turn::4]:
        (base / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        wrong += _refused(base, name, finding)
        campaign.count("bad inputs tried: configuration", 5)
    assert not wrong, "\n".join(wrong)


def test_names_that_could_leave_the_base_or_hide_are_refused(campaign: Campaign, base: Path) -> None:
    wrong = []
    for name, text in REFUSED_NAMES.items():
        (base / "config.yaml").write_text(text, "utf-8")
        wrong += _refused(base, name, "E_ONTOLOGY")
        campaign.count("bad inputs tried: configuration", 5)
    assert not wrong, "\n".join(wrong)


def test_names_that_mean_something_elsewhere_are_names_here(campaign: Campaign, tmp_path: Path) -> None:
    """Every verb takes them. Of a table that is called as DuckDB calls one of its own `check` says so, and that alone."""
    wrong = []
    texts = {f"table {name}": (named(table=name), name, "text") for name in ODD_NAMES}
    texts |= {f"type {name}": (named(name=name), "note", "text") for name in ODD_NAMES}
    texts |= {f"field {name[:20]}": (named(field=name), "note", name) for name in ODD_FIELDS}
    for name in campaign.random("names").sample(sorted(texts), campaign.pick(2, len(texts))):
        wrong += _used(make_base(tmp_path / str(len(list(tmp_path.iterdir()))), texts[name][0]), *texts[name])
        campaign.count("bad inputs tried: configuration", 9)
    assert not wrong, "\n".join(wrong)


def _used(root: Path, text: str, table: str, field: str) -> list[str]:
    kind, quoted = next(iter(json.loads(text)["nodes"])), '"' + field.replace('"', '""') + '"'
    wrong = []
    for verb in (["put", kind, json.dumps({"id": "a", field: "hello"})], ["get", kind, "a"], ["find", kind, "hello", "-m"],
                 ["find", kind, "-w", f"{quoted} = 'hello'"], ["sql", f'SELECT {quoted} FROM "{table}"'], ["export", kind],
                 ["check", "--json"], ["schema", "--sql"], ["delete", kind, "a"]):  # fmt: skip
        ran = invoke(root, verb)
        wrong += [
            f"{table} {field}: {verb[:2]}: {one} {ran.err}" for one in complaints(ran, as_json=False, reports=True)
        ]
        is_told = verb[0] == "check" and table in NAMES_OF_DUCKDB
        found = [one["code"] for one in json.loads(ran.out)["findings"]] if verb[0] == "check" else []
        if (ran.code, found) != (int(is_told), ["E_RESERVED"] * is_told):
            wrong.append(f"{table} {field}: {verb[:3]}: {ran.code} {found} {ran.err[:300]}")
    return wrong


def _link_out(path: Path) -> None:
    outside = path.parent.parent / "outside.yaml"
    outside.write_text("nodes: {Hidden: {identity: id}}\n", "utf-8")
    path.symlink_to(outside)


def _holding(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text, "utf-8")


FILES: dict[str, tuple[str, Callable[[Path], object], str, int]] = {
    "config.yaml is gone": ("config.yaml", lambda path: None, "E_NO_KB", 1),
    "config.yaml is a folder": ("config.yaml", Path.mkdir, "E_YAML", 2),
    "config.yaml is a link": ("config.yaml", _link_out, "E_YAML", 2),
    "config.yaml is a link to nowhere": ("config.yaml", lambda path: path.symlink_to("nowhere"), "E_YAML", 2),
    "config.yaml is a link to itself": ("config.yaml", lambda path: path.symlink_to("config.yaml"), "E_YAML", 2),
    "config.yaml is a FIFO": ("config.yaml", os.mkfifo, "E_YAML", 2),
    "config.yaml is binary": ("config.yaml", lambda path: path.write_bytes(b"\xff" + os.urandom(5000)), "E_YAML", 2),
    "ontology is a file": ("ontology", Path.touch, "E_YAML", 2),
    "ontology is a link": ("ontology", _link_out, "E_YAML", 2),
    "ontology is a FIFO": ("ontology", os.mkfifo, "E_YAML", 2),
    "a file of ontology is a link": ("ontology/a.yaml", _link_out, "E_YAML", 2),
    "a folder of ontology is a link": ("ontology/a", lambda path: path.symlink_to(path.parent.parent), "E_YAML", 2),
    "a file of ontology is a FIFO": ("ontology/a.yaml", os.mkfifo, "E_YAML", 2),
    "a file below a folder of that name": ("ontology/a.yaml/b.yaml", _holding("x: 1\n"), "E_ONTOLOGY", 2),
    "a file of ontology ends in yml": ("ontology/a.yml", Path.touch, "E_YAML", 2),
    "a file of ontology is broken": ("ontology/a.yaml", _holding("nodes: {\n"), "E_YAML", 2),
    "a file of ontology has settings": ("ontology/a.yaml", _holding("global: {chunk_size: 900}\n"), "E_ONTOLOGY", 2),
    "a file of ontology has a key": ("ontology/a.yaml", _holding(f"nodes: {{A: {{token: {KEY}}}}}\n"), "E_CONFIG", 2),
    "questions are broken": ("ontology/q.yaml", _holding("questions: [1, {question: x}]\n"), "E_ONTOLOGY", 2),
    "a type stands twice": ("ontology/a.yaml", _holding("nodes: {Note: {identity: id}}\n"), "E_ONTOLOGY", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_of_the_configuration_that_are_none_are_named_and_not_followed(
    campaign: Campaign, base: Path, name: str
) -> None:
    path, make, code, exit_code = FILES[name]
    target = base / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    make(target)
    wrong = []
    for verb in (["list", "Note"], ["put", "Note", '{"id":"b"}'], ["check"]):
        wrong += unmended(base, Bad(f"{name}: {verb[0]}", verb, exit_code, code))
    assert "Hidden" not in invoke(base, ["schema"]).out
    campaign.count("bad inputs tried: configuration", 3)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ["", "# nothing\n", "~\n", "\ufeff", "---\n...\n"])
def test_an_empty_configuration_is_a_base_without_types(campaign: Campaign, base: Path, text: str) -> None:
    (base / "config.yaml").write_text(text, "utf-8")
    before = everything(base)
    assert invoke(base, ["status"]).code == 0
    ran = invoke(base, ["put", "Note", "{}", "--json"])
    assert answered(Bad("", (), 1, "E_UNKNOWN_TYPE"), ran) == [] and everything(base) == before
    campaign.count("bad inputs tried: configuration", 2)


def test_a_newer_format_is_refused_by_every_command(campaign: Campaign, base: Path) -> None:
    wrong = []
    for text in ('{"format":2}', '{"format":"1"}', '{"format":1.0}', '{"format":true}', '{"format":0}', '{"format":-1}', "{}", "", "x",
                 "[1]", "null", '{"format":' + "9" * 5000 + "}", "[" * 200_000, "\ufeff{}"):  # fmt: skip
        (base / "data/FORMAT.json").write_text(text, "utf-8")
        for verb in (["list", "Note"], ["put", "Note", '{"id":"b"}'], ["fmt"]):
            wrong += unmended(base, Bad(f"{text[:30]}: {verb[0]}", verb, 1, "E_FORMAT"))
        campaign.count("bad inputs tried: configuration", 3)
    assert not wrong, "\n".join(wrong)


def test_a_pattern_holds_up_no_write(campaign: Campaign, tmp_path: Path) -> None:
    """Text of 200 KB and a pattern that other engines never finish: a verdict, and words that do not repeat the text."""
    for number, pattern in enumerate(PATTERNS):
        root = make_base(tmp_path / str(number), note(json.dumps({"type": "string", "pattern": pattern})))
        record = json.dumps({"id": "x", "text": "a" * 200_000 + "!"})
        ran = invoke(root, ["put", "Note", "--json"], record.encode())
        assert not complaints(ran, as_json=True) and ran.code in (0, 1), ran.err[:300]
        if ran.code:
            found = json.loads(ran.err)["details"]["findings"][0]
            assert (found["code"], found["field"]) == ("E_SCHEMA", "/text") and "pattern" in found["message"]
            assert len(ran.err) < 2_000
        campaign.count("bad inputs tried: configuration")
