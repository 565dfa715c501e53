"""The workflows of `init --github` do what they say, step by step, against a bare repository that plays the forge."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import commit, git, run_in
from tests.harness.forge_stage import Ended, Forge

Change = Callable[[Forge], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A base in a folder shows all that differs; the larger sample asks everything of one at the top too."""
    if "made" in metafunc.fixturenames:
        both = metafunc.function is test_a_comment_tells_what_the_pull_request_does
        top = pytest.param(".", marks=() if both else pytest.mark.larger)
        metafunc.parametrize("made", [top, "kb"], indirect=True, scope="module")
    if "guard" in metafunc.fixturenames:
        always = ("the judged questions", "a limit")
        more = (pytest.param(name, marks=pytest.mark.larger) for name in GUARDS if name not in always)
        metafunc.parametrize("guard", [*always, *more])


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forge:
    return Forge.make(tmp_path_factory.mktemp("forge"), request.param)


@pytest.fixture
def forge(made: Forge, tmp_path: Path) -> Forge:
    return made.copy(tmp_path)


def _one_edit(forge: Forge) -> None:
    forge.put({"id": "n1", "text": "edited"})


def _review(forge: Forge, change: Change, *labels: str, **how: Any) -> Ended:
    change(forge)
    return forge.run("review", forge.open(*labels), **how)


def test_a_comment_tells_what_the_pull_request_does(forge: Forge) -> None:
    _one_edit(forge)
    event = forge.open()
    forge.main_moves_on()
    ended = forge.run("review", event)
    assert not ended.failed and ended.verdict == "passed", ended.err
    assert "### Knowledge: 1 changed\n" in ended.comment and "faster" not in ended.comment
    assert "](https://github.com/team/kb/blob/" in ended.comment and "HEAD^1" not in ended.comment
    assert "[this run](https://github.com/team/kb/actions/runs/77)" in ended.comment
    prefix = "" if forge.place == "." else "kb/"
    assert f"`{prefix}data/nodes/note/" in ended.comment and (prefix or "`data/") in ended.comment
    assert (ended.temp / "summary.md").read_text("utf-8") == ended.comment
    assert (ended.temp / "duckkb-review/number").read_text("utf-8") == "1\n"
    assert "<!doctype html>" in (ended.temp / "duckkb-page/knowledge.html").read_text("utf-8")
    assert '"version":"2.1.0"' in (ended.temp / "duckkb-page/duckkb.sarif").read_text("utf-8")


def test_a_pull_request_without_a_file_of_the_base_costs_one_step(forge: Forge) -> None:
    (forge.work / "engine.py").write_text("print('other code of the repository')\n", "utf-8")
    event = forge.open()
    ended = forge.run("review", event)
    assert ended.codes == {"See whether the base differs": 0}, ended.err
    assert ended.verdict == "nothing of the base differs"
    assert forge.run("check", event).codes == {"See whether the base differs": 0}
    _one_edit(forge)
    assert "Compare" in forge.run("review", forge.open()).codes


def test_a_merge_queue_is_reviewed_and_a_push_is_checked(forge: Forge) -> None:
    _one_edit(forge)
    event = forge.open()
    forge.main_moves_on()
    base = git(forge.origin, "rev-parse", "main").strip()
    queued = forge.run("review", {"merge_group": {"base_sha": base}}, name="merge_group")
    assert not queued.failed and "### Knowledge: 1 changed\n" in queued.comment
    assert (queued.temp / "duckkb-review/number").read_text("utf-8") == "\n"
    assert not forge.run("check", event).failed
    before = git(forge.origin, "rev-parse", "main~1").strip()
    assert not forge.run("check", {"before": before}, name="push").failed
    assert not forge.run("check", {"before": "0" * 40}, name="push").failed


def test_a_clone_that_is_too_shallow_is_no_verdict(forge: Forge) -> None:
    ended = _review(forge, _one_edit, depth=1)
    assert ended.failed and ended.verdict == "diff could not run, impact could not run"
    assert (
        "fetch-depth: 0" in ended.comment and "E_REVISION" in ended.comment and "no record differs" not in ended.comment
    )
    assert forge.run("review", forge.open(), depth=2).verdict == "passed"


def test_a_broken_configuration_is_annotated_and_said(forge: Forge) -> None:
    def break_it(forge: Forge) -> None:
        forge.edit("config.yaml", "nodes:\n", "nodes: {\n")

    ended = _review(forge, break_it)
    prefix = "" if forge.place == "." else "kb/"
    assert (
        ended.failed
        and ended.verdict.startswith("impact could not run, 1 error")
        and f"`{prefix}config.yaml:" in ended.comment
    )
    checked = forge.run("check", forge.open())
    assert checked.failed and f"::error file={prefix}config.yaml,line=" in checked.out


def test_a_pull_request_that_mends_the_main_branch_turns_green(forge: Forge) -> None:
    good = {path: path.read_bytes() for path in (forge.kb / "config.yaml", *forge.kb.glob("data/nodes/note/*/*.jsonl"))}
    git(forge.work, "switch", "-q", "main")
    for path, data in good.items():
        path.write_bytes(data + b"{broken\n")
    commit(forge.work, "broken")
    git(forge.work, "push", "-q", "origin", "main")
    git(forge.work, "switch", "-q", "-C", "topic")
    for path, data in good.items():
        path.write_bytes(data)
    event = forge.open()
    ended = forge.run("review", event)
    assert not ended.failed and ended.verdict.startswith("passed with 1 warning (1 W_BASE_CONFIG); "), ended.comment
    assert "`W_BASE_CONFIG`" in ended.comment and "W_LENIENT" in ended.comment
    checked = forge.run("check", event)
    assert not checked.failed, checked.out + checked.err


def test_records_that_are_lost_and_broken_are_told_apart(forge: Forge) -> None:
    def lose(forge: Forge) -> None:
        forge.put({"id": "storm", "title": "weather", "text": "nothing"}, {"id": "tide", "title": "sea", "text": "x"})

    ended = _review(forge, lose)
    assert ended.failed and ended.verdict == "limits crossed"

    def break_one(forge: Forge) -> None:
        (part, *_) = sorted(forge.kb.glob("data/nodes/note/*/*.jsonl"))
        part.write_text(part.read_text("utf-8").replace('"title":"weather"', '"title":5'), "utf-8")

    both = _review(forge, break_one)
    assert both.verdict == "limits crossed, 1 error (1 E_SCHEMA)" and "E_SCHEMA" in both.comment


def _remove_questions(forge: Forge) -> None:
    (forge.kb / "ontology/questions.yaml").unlink()
    forge.put({"id": "storm", "title": "weather", "text": "nothing"})


def _attribute(forge: Forge) -> None:
    with (forge.work / ".gitattributes").open("a", encoding="utf-8") as file:
        file.write("**/*.jsonl -diff\n")


GUARDS: dict[str, tuple[Change, str]] = {
    "the judged questions": (_remove_questions, "ontology/questions.yaml"),
    "a milder question": (
        lambda forge: forge.edit("ontology/questions.yaml", "storm: 2", "storm: 1"),
        "questions.yaml",
    ),
    "the review of a field": (lambda forge: forge.edit("config.yaml", ", x-review: required", ""), "config.yaml"),
    "a required field": (lambda forge: forge.edit("config.yaml", "required: [name]", "required: []"), "config.yaml"),
    "a cardinality": (lambda forge: forge.edit("config.yaml", ', cardinality: "N:1"', ""), "config.yaml"),
    "a limit": (
        lambda forge: forge.edit("config.yaml", "nodes:\n", "limits: {shrink_records: 9000}\nnodes:\n"),
        "config.yaml",
    ),
    "the other workflow": (
        lambda forge: (forge.work / ".github/workflows/duckkb-check.yml").unlink(),
        "duckkb-check.yml",
    ),
    "what a workflow runs": (
        lambda forge: _in_workflow(forge, "duckkb check --format github", "duckkb check --format github || true"),
        "duckkb-check.yml",
    ),
    "an attribute of git": (_attribute, ".gitattributes"),
}


def _in_workflow(forge: Forge, old: str, new: str) -> None:
    path = forge.work / ".github/workflows/duckkb-check.yml"
    assert old in path.read_text("utf-8")
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


def test_every_guard_that_a_pull_request_takes_away_is_named(forge: Forge) -> None:
    def all_of_them(forge: Forge) -> None:
        for name, (change, _) in GUARDS.items():
            if name not in ("a milder question", "the other workflow"):
                change(forge)

    change = forge.open()
    assert not forge.run("check", change).failed
    all_of_them(forge)
    ended = forge.run("check", forge.open())
    said = [line for line in ended.out.splitlines() if "title=E_GUARD" in line]
    assert ended.failed and len(said) == 7, ended.out
    assert all(any(path in line for line in said) for _, path in GUARDS.values())


def test_a_pull_request_cannot_switch_its_own_gate_off(forge: Forge, guard: str) -> None:
    change, path = GUARDS[guard]
    ended = _review(forge, change)
    assert ended.failed and "1 error" in ended.verdict, ended.err
    (said,) = [line for line in ended.comment.splitlines() if "**error** `E_GUARD`" in line]
    assert path in said and "kb/../" not in said
    if guard == "the judged questions":
        assert ended.verdict == "limits crossed, 1 error (1 E_GUARD)" and "rank 1 → beyond 10" in ended.comment
        assert ended.comment.count("E_GUARD") == 2, "in the headline, and among the findings"
    if guard == "a limit":
        lifted = forge.run("review", forge.open("duckkb: weaker rules"))
        assert lifted.verdict == "passed with 1 warning (1 W_GUARD)" and "`W_GUARD`" in lifted.comment


def test_a_pull_request_that_deletes_many_records_turns_red_until_a_label_says_that_it_is_meant(forge: Forge) -> None:
    names = [f"m{number}" for number in range(40)]
    git(forge.work, "switch", "-q", "main")
    forge.put(*({"id": name, "title": name} for name in names))
    commit(forge.work, "many")
    git(forge.work, "push", "-q", "origin", "main")
    git(forge.work, "switch", "-q", "-C", "topic")

    def delete_many(forge: Forge) -> None:
        # The change raises the limit that it breaks, too: that of the base counts.
        forge.edit("config.yaml", "nodes:\n", "limits: {shrink_records: 99}\nnodes:\n")
        assert run_in(forge.kb, ["delete", "Note", *names[:30]]).code == 0

    ended = _review(forge, delete_many, "duckkb: weaker rules")
    assert ended.failed and "`E_SHRINK`" in ended.comment, ended.err
    meant = forge.open("duckkb: weaker rules", "duckkb: many deletions")
    assert "`W_MASS_DELETE`" in forge.run("review", meant).comment
    assert [forge.run("check", forge.open("duckkb: weaker rules")).failed, forge.run("check", meant).failed] == [
        True,
        False,
    ]


def test_a_workflow_that_is_pinned_anew_or_deleted_is_seen_by_the_other_one(forge: Forge) -> None:
    def pin(forge: Forge) -> None:
        path = forge.work / ".github/workflows/duckkb-check.yml"
        path.write_text(re.sub("@[0-9a-f]{40} # v4.2.2", f"@{'b' * 40} # v5", path.read_text("utf-8")), "utf-8")

    assert _review(forge, pin).verdict == "passed; no record differs"
    (forge.work / ".github/workflows/duckkb-review.yml").unlink()
    ended = forge.run("check", forge.open())
    assert ended.failed and "::error file=.github/workflows/duckkb-review.yml,line=1,title=E_GUARD::" in ended.out


def test_a_base_that_is_taken_away_is_no_verdict(forge: Forge) -> None:
    if forge.place != ".":
        git(forge.work, "rm", "-r", "-q", forge.place)
    else:
        git(forge.work, "rm", "-q", "config.yaml")
    event = forge.open()
    ended = forge.run("review", event)
    assert ended.failed and "could not run" in ended.verdict and "This is no verdict" in ended.comment
    assert (ended.temp / "duckkb-review/number").read_text("utf-8") == "1\n"
    assert forge.run("check", event).failed


def test_chinese_text_that_fills_the_comment_leaves_the_verdict_and_the_impact_in_it(forge: Forge) -> None:
    def fill(forge: Forge) -> None:
        texts = ("".join(chr(0x4E00 + (number * 7 + at) % 20_000) for at in range(900)) for number in range(80))
        forge.put(*({"id": f"c{number}", "title": "备注", "text": text} for number, text in enumerate(texts)))
        event = forge.open()
        git(forge.work, "push", "-q", "origin", f"{event['pull_request']['head']['sha']}:refs/heads/main")
        git(forge.work, "branch", "-f", "main", "HEAD")
        forge.put(*({"id": f"c{number}", "text": "完全不同" * 300} for number in range(80)))
        forge.put({"id": "tide", "title": "海", "text": "海"})

    ended = _review(forge, fill)
    assert len(ended.comment.encode()) <= 65_000
    assert ended.comment.index("### Knowledge: ") < ended.comment.index("Retrieval impact")
    assert "without room here" in ended.verdict
    assert "`潮汐`" in ended.comment and "limits crossed" in ended.verdict
