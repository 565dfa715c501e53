"""Names of formats: each has a writer of its own, and one document has one name, or two that say the same."""

from importlib import import_module
from pathlib import Path

import click
import pytest

from duckkb.cli import record_formats
from duckkb.cli.main import VERBS
from duckkb.cli.options import Format
from duckkb.review.report_formats import DIFF
from tests.conftest import NOTES, commit, make_base, run_in


def _names(verb: str) -> tuple[str, ...]:
    (module,) = [one.module for one in VERBS if one.name == verb]
    command: click.Command = getattr(import_module(f"duckkb.cli.{module}"), f"{verb}_command")
    (form,) = [one.type for one in command.params if isinstance(one.type, Format)]
    return tuple(form.choices)


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a finding, a judged question and an edit that is not committed."""
    root = make_base(tmp_path_factory.mktemp("names") / "kb", NOTES)
    (root / "ontology").mkdir()
    questions = "questions: [{question: storm, type: Note, expected: {n1: 1}}]\n"
    (root / "ontology/questions.yaml").write_text(questions, "utf-8")
    assert run_in(root, ["put", "Note", '{"id":"n1","title":"storm"}']).code == 0
    commit(root)
    assert run_in(root, ["put", "Note", '{"id":"n1","title":"rain\u200b"}']).code == 0
    return root


@pytest.mark.long
@pytest.mark.parametrize("verb", ["diff", "check", "impact", "list"])
def test_each_name_has_a_document_of_its_own(edited: Path, verb: str) -> None:
    args = [verb, "Note"] if verb == "list" else [verb]
    told = {name: run_in(edited, [*args, "--format", name]).out for name in _names(verb)}
    assert all(told.values()) and len(set(told.values())) == len(told), sorted(told)


def test_md_and_markdown_are_one_document_in_every_verb(edited: Path) -> None:
    for args in (["diff"], ["impact"], ["list", "Note"]):
        outs = {run_in(edited, [*args, "--format", name]).out for name in ("md", "markdown")}
        outs.add(run_in(edited, ["--format", "md", *args]).out)
        assert len(outs) == 1 and outs.pop(), args
    wrong = run_in(edited, ["list", "Note", "--format", "tsv"])
    assert wrong.code == 2 and "csv" in wrong.err


def test_names_are_those_of_the_writers() -> None:
    assert set(record_formats.FORMATS) == {"jsonl", "json", *record_formats.ROWS}
    assert len({one.write for one in record_formats.ROWS.values()}) == len(record_formats.ROWS)
    assert len(set(DIFF.values())) == len(DIFF)
    assert set(_names("diff")) == {*DIFF, "csv", "table"}
