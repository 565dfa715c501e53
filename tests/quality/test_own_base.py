"""The repository's own knowledge base: its judged questions, and its facts held against the code."""

import json
import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import pytest
import yaml

import duckkb
from duckkb.cli.main import duckkb as duckkb_command
from duckkb.config.setting_keys import KEYS
from duckkb.operations import github_setup
from duckkb.types.codes import CODES
from tests.conftest import ROOT

QUESTIONS = yaml.safe_load((ROOT / "ontology/questions.yaml").read_text("utf-8"))["questions"]


def _records(table: str) -> list[dict[str, object]]:
    parts = sorted((ROOT / "data").glob(f"*/{table}/*/part_*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]


def _ndcg(ranked: Sequence[str], gains: Mapping[str, float]) -> float:
    got = sum(gains.get(name, 0) / math.log2(place + 2) for place, name in enumerate(ranked[:10]))
    return got / sum(gain / math.log2(place + 2) for place, gain in enumerate(sorted(gains.values(), reverse=True)))


@pytest.mark.long
@pytest.mark.model
def test_hybrid_is_at_least_as_good_as_the_better_lane(own_base: Path) -> None:
    assert len(QUESTIONS) >= 20
    with duckkb.open(own_base) as kb:
        means = {}
        for mode in ("match", "similar", "hybrid"):
            answers = [kb.find(one["type"], one["question"], mode=mode, limit=10) for one in QUESTIONS]
            assert not any(answer.degraded for answer in answers)
            scores = [
                _ndcg([hit.identity for hit in answer], one["expected"])
                for one, answer in zip(QUESTIONS, answers, strict=True)
            ]
            means[mode] = sum(scores) / len(scores)
    assert means["hybrid"] >= max(means["match"], means["similar"]), means
    assert means["hybrid"] > 0.7, means


def test_the_questions_name_records_that_exist_and_come_in_both_languages() -> None:
    known = {
        record["id"]
        for table in ("concept", "decision", "command", "error_code", "setting")
        for record in _records(table)
    }
    assert {identity for one in QUESTIONS for identity in one["expected"]} <= known
    chinese = [one for one in QUESTIONS if any("\u4e00" <= letter <= "\u9fff" for letter in one["question"])]
    assert 8 <= len(chinese) <= len(QUESTIONS) - 8


def test_the_error_codes_in_the_base_are_those_of_the_code() -> None:
    stored = {
        record["id"]: (record["meaning"], record["remedy"], record["exit_code"]) for record in _records("error_code")
    }
    assert stored == {code.name: (code.meaning, code.remedy, code.exit_code) for code in CODES.values()}


def test_every_page_of_decisions_has_one_in_the_base() -> None:
    pages = {int(path.name[:4]) for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    stored = {record["adr"] for record in _records("decision") if "adr" in record}
    assert stored == pages and len(pages) > 50


def test_the_workflows_of_this_repository_are_those_that_init_writes(tmp_path: Path) -> None:
    """As `duckkb init --github --install .` writes them where there are none."""
    copy = tmp_path / "duckkb"
    for path in ("pyproject.toml", "config.yaml", "ontology", "duckkb/__main__.py"):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copyfile)(ROOT / path, copy / path)
    subprocess.run(["git", "init", "-q", "-b", "main", copy], check=True)
    written = github_setup.github(copy, ".").files
    assert (
        len(written) == 5
        and [path for path in written if (ROOT / path).read_bytes() != (copy / path).read_bytes()] == []
    )


def test_the_verbs_in_the_base_are_those_of_the_command_line() -> None:
    stored = {str(record["name"]) for record in _records("command") if record["kind"] == "verb"}
    assert stored == set(_leaves(duckkb_command, ("duckkb",)))


def _leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    """The words of every verb that does something: `duckkb put`, `duckkb col init`."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    if command.invoke_without_command and len(path) > 1:
        yield " ".join(path)
    context = click.Context(command)
    for name in command.list_commands(context):
        if inner := command.get_command(context, name):
            yield from _leaves(inner, (*path, name))


def test_the_settings_in_the_base_are_those_of_the_code() -> None:
    stored = {str(record["id"]) for record in _records("setting")}
    assert {key.name for key in KEYS} <= stored


def test_the_base_is_as_large_as_promised() -> None:
    nodes = [
        record
        for table in ("concept", "decision", "command", "error_code", "setting", "source")
        for record in _records(table)
    ]
    edges = [line for part in (ROOT / "data/edges").rglob("*.jsonl") for line in part.read_bytes().splitlines()]
    assert len(nodes) >= 150 and len(edges) >= 250
    assert sum(len(str(record.get("body", ""))) > 3000 for record in nodes) >= 5
