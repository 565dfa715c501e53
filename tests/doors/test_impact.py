"""impact: a change that buries a judged record is caught, a harmless one is not."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from duckkb.review.impact_report import ndcg, recall
from tests.conftest import NOTES, Ran, commit, git, make_base, run_in

QUESTIONS = """\
questions:
  - question: storm warning
    type: Note
    expected: {storm: 2, wind: 1}
  - question: 潮汐
    type: Note
    mode: match
    expected: [tide]
  - question: bread
    type: Note
    where: "status = 'final'"
    expected: {bread: 1}
"""
RECORDS = [
    {"id": "storm", "title": "storm warning", "text": "A storm warning is given a day before the storm."},
    {"id": "wind", "title": "wind", "text": "A warning of wind."},
    {"id": "tide", "title": "潮汐", "text": "潮汐由月亮引起。"},
    {"id": "bread", "title": "bread", "text": "Bread needs flour.", "status": "final"},
    {"id": "flour", "title": "flour", "text": "Bread again.", "status": "draft"},
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five notes and three judged questions, committed."""
    root = make_base(tmp_path_factory.mktemp("impact") / "kb", NOTES)
    (root / "ontology").mkdir()
    (root / "ontology/questions.yaml").write_text(QUESTIONS, "utf-8")
    assert run_in(root, ["put", "Note"], stdin="\n".join(json.dumps(one) for one in RECORDS)).code == 0
    commit(root)
    return root


@pytest.fixture
def kb(judged: Path, tmp_path: Path) -> Path:
    shutil.copytree(judged, tmp_path / "kb")
    return tmp_path / "kb"


def _put(root: Path, **fields: str) -> None:
    assert run_in(root, ["put", "Note", json.dumps(fields), "--merge"]).code == 0


def _impact(root: Path, *args: str) -> Ran:
    return run_in(root, ["impact", *args])


def test_the_measures_are_those_of_the_textbook() -> None:
    assert ndcg(["x", "a", "b"], {"a": 3, "b": 2, "c": 0}, 10) == pytest.approx(
        (3 / math.log2(3) + 2 / math.log2(4)) / (3 + 2 / math.log2(3))
    )
    assert ndcg(["a", "b"], {"a": 1, "b": 1}, 1) == 1.0
    assert recall(["x", "a"], {"a": 1, "b": 2, "c": 0}, 2) == 0.5


def test_a_change_that_buries_a_judged_record_is_caught(kb: Path) -> None:
    _put(kb, id="storm", title="weather", text="Nothing of interest.")
    ran = _impact(kb, "--fail-on", "ndcg=0.05", "--fail-on", "lost=1", "--json")
    assert ran.code == 1 and "limit crossed" in ran.err
    found = json.loads(ran.out)
    (row,) = [one for one in found["results"] if one["question"] == "storm warning"]
    assert row["moves"] == [
        {"identity": "storm", "grade": 2, "before": 1, "after": None},
        {"identity": "wind", "grade": 1, "before": 2, "after": 1},
    ]
    assert (row["lost"], row["left"], row["entered"]) == (["storm"], ["storm"], [])
    assert row["ndcg"] == {"before": 1.0, "after": pytest.approx(1 / (2 + 1 / math.log2(3)), abs=1e-6)}
    assert row["recall"] == {"before": 1.0, "after": 0.5}
    assert (found["lost"], found["compared"], len(found["crossed"])) == (1, 3, 2)
    assert found["ndcg"]["after"] == pytest.approx((row["ndcg"]["after"] + 2) / 3, abs=1e-6)
    assert _impact(kb, "--fail-on", "ndcg=0.5", "--fail-on", "recall=0.2").code == 0


def test_a_harmless_change_is_not(kb: Path) -> None:
    _put(kb, id="bread", text="Bread needs flour and water.")
    ran = _impact(kb, "--fail-on", "ndcg=0", "--fail-on", "recall=0", "--fail-on", "lost=0")
    assert ran.code == 0 and "mean ndcg@10: 1.0000 -> 1.0000 (+0.0000)" in ran.out


def test_a_filter_and_the_words_of_a_question_count(kb: Path) -> None:
    _put(kb, id="bread", status="draft")
    _put(kb, id="tide", title="tide", text="water")
    lost = [one["lost"] for one in json.loads(_impact(kb, "--json").out)["results"]]
    assert lost == [[], ["tide"], ["bread"]]


def test_commits_are_compared_without_a_checkout(kb: Path) -> None:
    git(kb, "switch", "-q", "-c", "topic")
    _put(kb, id="wind", title="breeze", text="air")
    commit(kb, "topic")
    git(kb, "switch", "-q", "main")
    _put(kb, id="storm", title="weather", text="none")
    commit(kb, "main goes on")
    three = json.loads(_impact(kb, "main...topic", "--json").out)["results"][0]
    assert [move["identity"] for move in three["moves"]] == ["wind"]
    two = json.loads(_impact(kb, "main..topic", "--json").out)["results"][0]
    assert {move["identity"]: (move["before"], move["after"]) for move in two["moves"]} == {
        "storm": (None, 1),
        "wind": (1, None),
    }
    assert git(kb, "status", "--porcelain") == ""


def test_questions_that_went_or_judge_lower_count_as_they_were_and_are_findings(kb: Path) -> None:
    text = QUESTIONS.replace("question: 潮汐", "question: 月亮").replace("storm: 2", "storm: 1")
    (kb / "ontology/questions.yaml").write_text(text, "utf-8")
    _put(kb, id="tide", title="tide", text="water")
    ran = _impact(kb, "--json", "--fail-on", "lost=3")
    found = json.loads(ran.out)
    assert (ran.code, found["outcome"], found["lost"]) == (1, "findings", 2)
    assert [one["question"] for one in found["removed"]] == ["storm warning", "潮汐"]
    assert found["compared"] == 5  # both sides are asked what either asks, as each judges it
    assert [(one["code"], one["path"]) for one in found["findings"]] == [("E_GUARD", "ontology/questions.yaml")] * 2
    lifted = _impact(kb, "--json", "--fail-on", "lost=3", "--allow-weaker")
    found = json.loads(lifted.out)
    assert (lifted.code, found["outcome"], found["lost"], found["compared"]) == (0, "passed", 1, 3)
    assert {one["code"] for one in found["findings"]} == {"W_GUARD"}


def test_a_side_without_the_type_or_without_a_base_is_no_drop(kb: Path) -> None:
    git(kb, "switch", "-q", "--orphan", "nothing")
    git(kb, "commit", "-q", "--allow-empty", "-m", "empty")
    git(kb, "switch", "-q", "main")
    found = json.loads(_impact(kb, "nothing..main", "--json", "--fail-on", "ndcg=0").out)
    assert (found["compared"], found["ndcg"]["before"], len(found["results"])) == (0, None, 3)
    assert "new:" in _impact(kb, "nothing..main").out


def test_without_questions_there_is_nothing_to_fail(kb: Path) -> None:
    (kb / "ontology/questions.yaml").unlink()
    ran = _impact(kb, "--fail-on", "ndcg=0")
    assert ran.code == 1 and "E_GUARD ontology/questions.yaml: no longer asked" in ran.out
    commit(kb)
    ran = _impact(kb, "--fail-on", "ndcg=0")
    assert ran.code == 0 and "No judged questions" in ran.out


def test_data_in_markdown_stands_in_code_spans(kb: Path) -> None:
    hostile = "`` @octocat </details> ![x](http://x) #1 storm"
    text = QUESTIONS + f"  - question: {json.dumps(hostile)}\n    type: Note\n    mode: match\n    expected: [storm]\n"
    (kb / "ontology/questions.yaml").write_text(text, "utf-8")
    _put(kb, id="storm", title="weather", text="Nothing of interest.")
    out = _impact(kb, "--format", "markdown").out
    (line,) = [line for line in out.splitlines() if "@octocat" in line]
    assert line == "- `Note` ``` `` @octocat </details> ![x](http://x) #1 storm ```"


@pytest.mark.parametrize(
    "args",
    [
        ["--fail-on", "ndcg"],
        ["--fail-on", "ndcg=x"],
        ["--fail-on", "speed=1"],
        ["-k", "0"],
        ["--fail-on", "lost=0.5"],
        ["--fail-on", "ndcg=nan"],
        ["--fail-on", "ndcg=5"],
    ],
)
def test_limits_that_make_no_sense_are_usage_errors(kb: Path, args: list[str]) -> None:
    assert _impact(kb, *args).code == 2


def test_an_unknown_revision_is_named(kb: Path) -> None:
    ran = _impact(kb, "nowhere", "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_REVISION")


@pytest.mark.long
def test_lines_that_cannot_be_read_stop_the_newer_side_and_are_said_of_the_older_one(kb: Path) -> None:
    (part,) = (kb / "data").rglob("part_*.jsonl")
    good = part.read_bytes()
    part.write_bytes(good + b"{torn\n")
    commit(kb, "torn")
    part.write_bytes(good)
    mended = _impact(kb, "--json", "--fail-on", "ndcg=0")
    found = json.loads(mended.out)
    assert (mended.code, found["outcome"], found["compared"]) == (0, "passed", 3), mended.err
    assert [one["code"] for one in found["findings"]] == ["W_LENIENT"] and "data/" in found["findings"][0]["message"]
    commit(kb, "mended")
    torn = _impact(kb, "HEAD..HEAD~1", "--json")
    assert (torn.code, torn.error["code"], torn.out) == (1, "E_UNREADABLE", "")
    assert torn.error["error"].endswith(f"at {git(kb, 'rev-parse', 'HEAD~1').strip()}")
    assert "--lenient" in torn.error["suggestion"]
    assert '"W_LENIENT"' in _impact(kb, "HEAD..HEAD~1", "--json", "--lenient").out
    assert run_in(kb, ["get", "Note", "storm", "--at", "HEAD~1", "--lenient"]).code == 0


@pytest.mark.long
def test_a_change_that_mends_the_configuration_is_judged_by_its_own(kb: Path) -> None:
    config = kb / "config.yaml"
    good = config.read_text("utf-8")
    config.write_text(good.replace("nodes:", "nodes: {", 1), "utf-8")
    commit(kb, "broken")
    config.write_text(good, "utf-8")
    for args in ([], ["HEAD~1..HEAD"]):
        if args:
            commit(kb, "mended")
        ran = _impact(kb, *args, "--json", "--fail-on", "ndcg=0")
        found = json.loads(ran.out)
        assert (ran.code, found["outcome"], found["compared"]) == (0, "passed", 3), ran.err
        assert [one["code"] for one in found["findings"]] == ["W_BASE_CONFIG"]
    assert "could not run" not in ran.err
    assert _impact(kb, "HEAD..HEAD~1", "--json").error["outcome"] == "could_not_run"
    _put(kb, id="storm", title="weather", text="Nothing of interest.")
    assert _impact(kb, "HEAD~1", "--json", "--fail-on", "lost=1").code == 1


@pytest.mark.long
@pytest.mark.model
def test_with_the_model_a_buried_record_is_caught_and_a_small_edit_is_not(own_base: Path, tmp_path: Path) -> None:
    root = tmp_path / "own"
    shutil.copytree(own_base, root)
    record = run_in(root, ["get", "Concept", "shrink-guard"]).line
    assert run_in(root, ["put", "Concept", json.dumps({"id": "chunk", "tags": ["text", "small"]}), "--merge"]).code == 0
    limits = ["--fail-on", "ndcg=0.02", "--fail-on", "lost=1"]
    assert _impact(root, *limits).code == 0
    buried = dict.fromkeys(("name", "name_zh", "summary", "summary_zh", "body", "body_zh"), "rivers")
    edit = {"id": record["id"], "aliases": ["rivers"], "tags": ["rivers"], **buried}
    assert run_in(root, ["put", "Concept", json.dumps(edit), "--merge"]).code == 0
    ran = _impact(root, *limits, "--json")
    assert ran.code == 1 and json.loads(ran.out)["degraded"] == []
    assert any("shrink-guard" in one["lost"] for one in json.loads(ran.out)["results"])


def test_a_judged_record_that_keeps_its_place_without_the_words_of_its_question_is_told(kb: Path) -> None:
    text = QUESTIONS + "  - question: the harbour lamp\n    type: Note\n    mode: match\n    expected: {lamp: 1}\n"
    (kb / "ontology/questions.yaml").write_text(text, "utf-8")
    _put(kb, id="lamp", title="the harbour lamp", text="The harbour has a lamp.")
    commit(kb)
    _put(kb, id="lamp", title="the thing", text="The words are gone.")
    ran = _impact(kb, "--json", "--fail-on", "faded=1")
    found = json.loads(ran.out)
    (row,) = [one for one in found["results"] if one["question"] == "the harbour lamp"]
    assert (row["moves"], row["lost"], found["ndcg"]["after"]) == ([], [], found["ndcg"]["before"])
    (faded,) = row["faded"]
    assert (faded["identity"], set(faded["words"]), found["faded"]) == ("lamp", {"harbour", "lamp"}, 1)
    assert faded["score"]["after"] < faded["score"]["before"] / 2
    _put(kb, id="lamp", title="harbour lamp", text="A harbour has a lamp.")
    found = json.loads(_impact(kb, "--json").out)
    ((faded,),) = [one["faded"] for one in found["results"] if one["faded"]]
    assert faded["score"]["after"] > faded["score"]["before"] / 2 and found["faded"] == 0
    assert ran.code == 1 and "lost half of their words' score: 1" in ran.err
    assert "`lamp` (grade 1): no longer has `" in _impact(kb, "--format", "markdown").out


def test_the_comment_keeps_to_its_bytes_and_counts_what_has_no_room(kb: Path) -> None:
    asked = "".join(
        f"  - question: 风暴警报第{n}号{'很长的问题' * 8}\n    type: Note\n    mode: match\n    expected: {{storm: 1}}\n"
        for n in range(80)
    )
    _put(kb, id="storm", title="风暴警报很长的问题", text="风暴")
    (kb / "ontology/questions.yaml").write_text(QUESTIONS + asked, "utf-8")
    commit(kb)
    _put(kb, id="storm", title="weather", text="Nothing of interest.")
    out = _impact(kb, "--format", "markdown", "--budget", "5000").out
    assert 3_500 < len(out.encode()) <= 5_001
    shown, (left,) = out.count("- `Note` `"), re.findall(r"_([0-9]+) more \(", out)
    assert shown + int(left) == 80


def test_questions_that_came_to_the_named_base_since_judge_the_branch_too(kb: Path) -> None:
    git(kb, "branch", "-M", "main")
    (kb / "ontology/questions.yaml").rename(kb / "questions")
    commit(kb)
    git(kb, "switch", "-qc", "topic")
    _put(kb, id="bread", text="30")
    commit(kb)
    git(kb, "switch", "-q", "main")
    (kb / "questions").rename(kb / "ontology/questions.yaml")
    commit(kb)
    ran = _impact(kb, "main...topic")
    assert ran.code == 0 and ran.out.startswith("merge base of main and topic (") and "3 judged questions" in ran.out
    assert "no question judges" not in run_in(kb, ["review", "main...topic"]).out


def test_a_single_name_that_shows_its_commits_undone_says_so(kb: Path) -> None:
    git(kb, "branch", "-M", "main")
    git(kb, "switch", "-qc", "topic")
    _put(kb, id="bread", text="30")
    commit(kb)
    git(kb, "switch", "-q", "main")
    for verb in ("diff", "impact", "review"):
        ran = run_in(kb, [verb, "topic"])
        assert "topic is compared with the current files (main), and has a commit that HEAD lacks" in ran.err
        assert f"appear as undone; to see its changes: duckkb {verb} HEAD...topic\n" in ran.err
        assert all("appear as undone" not in run_in(kb, [verb, name]).err for name in ("main", "HEAD", "HEAD...topic"))
