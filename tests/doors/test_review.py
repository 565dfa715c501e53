"""`duckkb review`: every report of a change has the same findings, under a headline that says what was judged and what was not."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from duckkb.review.report_formats import CHECK, DIFF, REVIEW
from tests.conftest import NOTES, commit, git, make_base, run_in

LIMITED = NOTES.replace("title: {type: string}", "title: {type: string, maxLength: 40}")
QUESTIONS = "questions: [{question: storm, type: Note, expected: {storm: 1}}]\n"
NEAR = "A storm warning is given a day before, by those who look at the sea and at the sky above it."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Main and topic, which was merged by lines: a rule is weaker, a record came back, one nearly says what another says."""
    root = make_base(tmp_path_factory.mktemp("review") / "kb", LIMITED)
    (root / "ontology").mkdir()
    (root / "ontology/questions.yaml").write_text(QUESTIONS, "utf-8")
    (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
    put(root, id="storm", title="storm", text=NEAR)
    commit(root)
    git(root, "tag", "before")
    git(root, "checkout", "-q", "-b", "topic")
    (root / "config.yaml").write_text(LIMITED.replace("maxLength: 40", "maxLength: 400"), "utf-8")
    put(root, id="near", title="storm again", text=f"{NEAR} 备注")
    put(root, id="bad\u200bname", title="x")
    commit(root)
    git(root, "checkout", "-q", "main")
    put(root, id="other", title="other")
    commit(root)
    git(root, "merge", "-q", "--no-commit", "topic")
    (part, *_) = [path for path in root.glob("data/nodes/note/*/*.jsonl") if b'"other"' in path.read_bytes()]
    part.write_bytes(part.read_bytes().replace(b'"title":"other"', b'"title":"another"'))
    commit(root, "a merge, as somebody left it")
    return root


def put(root: Path, **fields: str) -> None:
    """By a named writer: of a thousand random ones, one adds on both branches to one part, and then git's merge conflicts."""
    ran = run_in(root, ["put", "Note", json.dumps(fields), "--no-embed"], env={"DUCKKB_WRITER": "review"})
    assert ran.code == 0, ran.err


RANGE = "before...HEAD"


def codes(text: str) -> Counter[str]:
    """The findings of a report by their codes, however it writes them; a headline and remedies that name codes are left out."""
    lines = [line for line in text.splitlines() if not line.startswith("**")]
    if text.startswith("<!doctype"):
        data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
        return Counter(one["code"] for one in data["summary"]["findings"])
    if text.startswith("{"):
        return _in_json([json.loads(line) for line in lines])
    found = (re.search(r"(?:^|[ `=,|])([EW]_[A-Z_]+)\b", line) for line in lines if not line.startswith("%0A"))
    return Counter(one[1] for one in found if one)


def _in_json(lines: list[dict[str, object]]) -> Counter[str]:
    def walk(value: object) -> list[str]:
        if isinstance(value, dict):
            if isinstance(found := value.get("ruleId", value.get("code")), str):
                return [found]
            return [code for name, inner in value.items() if name not in ("groups", "impact") for code in walk(inner)]
        return [code for inner in value for code in walk(inner)] if isinstance(value, list) else []

    return Counter(code for line in lines for code in walk(line))


def reports() -> list[tuple[str, ...]]:
    """Every command and format that shows what is wrong with a change, out of the tables of formats."""
    judged = [("diff", RANGE, "--format", name) for name, form in DIFF.items() if form.is_judged]
    asked = [("diff", RANGE, "--fail-on", "error", "--format", name) for name in DIFF if name != "patch"]
    checked = [("check", "--since", RANGE, "--format", name) for name in {*CHECK, "json", "jsonl", "md", "csv"}]
    return [*judged, *asked, *sorted(checked), *(("review", RANGE, "--format", name) for name in REVIEW)]


@pytest.mark.long
def test_every_report_of_a_change_has_the_same_findings(base: Path) -> None:
    listed = run_in(base, ["check", "--since", RANGE, "--format", "jsonl"])
    wanted = Counter(one["code"] for one in listed.lines)
    assert {"E_GUARD", "W_MERGED", "W_INVISIBLE", "W_NEAR_DUPLICATE"} <= wanted.keys() and max(wanted.values()) < 4
    found = {command: run_in(base, list(command)) for command in reports()}
    assert {command: codes(ran.out) for command, ran in found.items()} == dict.fromkeys(found, wanted)
    gate = {ran.code for command, ran in found.items() if command[0] != "diff" or "--fail-on" in command}
    assert gate == {1} == {listed.code}


@pytest.mark.long
def test_a_headline_says_what_passed_with_warnings_and_what_nobody_judged(base: Path, tmp_path: Path) -> None:
    def headline(*args: str) -> tuple[int, str]:
        ran = run_in(base, ["review", *args])
        return ran.code, ran.out.splitlines()[0].strip("*")

    code, said = headline(RANGE)
    assert code == 1 and said.startswith("1 error, ") and "1 E_GUARD" in said and "W_MERGED" in said
    code, said = headline(RANGE, "--allow-weaker")
    assert code == 0 and said.startswith("passed with ") and "1 W_GUARD" in said and "W_MERGED" in said
    without = "no limit was set on what this does to search (--fail-on, as the workflows have it)"
    assert without in said and without not in headline(RANGE, "--allow-weaker", "--fail-on", "lost=3")[1]
    assert headline("HEAD..HEAD") == (0, "passed; no record differs")
    root = make_base(tmp_path / "kb", NOTES)
    commit(root)
    put(root, id="a", title="a")
    unjudged = "passed; no question judges what this does to search"
    assert run_in(root, ["review"]).out.startswith(f"**{unjudged}**\n")
    lines = "\n".join(json.dumps({"id": f"n{number}", "text": f"{number} " * 200}) for number in range(90))
    assert run_in(root, ["put", "Note", "--no-embed"], stdin=lines).code == 0
    said = run_in(root, ["review", "--budget", "4000"]).out
    assert re.match(rf"\*\*{unjudged}; \d+ records without room here\*\*\n", said) and len(said.encode()) <= 4_001


def test_what_could_not_run_is_said_and_the_rest_is_told(base: Path, tmp_path: Path) -> None:
    root = tmp_path / "kb"
    git(tmp_path, "clone", "-q", str(base), str(root))
    (root / "config.yaml").write_text("nodes: {\n", "utf-8")
    ran = run_in(root, ["review"])
    assert ran.code == 1 and ran.out.startswith("**impact could not run, 1 error")
    assert (
        "### Could not run" in ran.out
        and json.loads(run_in(root, ["review", "--json"]).out)["outcome"] == "could_not_run"
    )
    assert run_in(root, ["review", "a..b..c"]).code == 2


def test_page_and_log_are_written_beside_the_comment_and_the_page_says_what_the_comment_does(
    base: Path, tmp_path: Path
) -> None:
    page, log = tmp_path / "knowledge.html", tmp_path / "duckkb.sarif"
    ran = run_in(base, ["review", RANGE, "--page", str(page), "--sarif", str(log)])
    data = json.loads(page.read_text("utf-8").partition('id="data">')[2].partition("</script>")[0])
    assert f"**{data['summary']['headline']}**" == ran.out.splitlines()[0]
    assert any("judged question" in line for line in data["summary"]["impact"])
    assert {one["id"]: one["shown"][0] for one in data["changes"]}["near"] == "storm again"
    assert codes(log.read_text("utf-8")) == codes(ran.out)


def test_findings_and_records_stand_before_what_nobody_judges(base: Path) -> None:
    text = run_in(base, ["review", RANGE]).out
    places = [text.index(word) for word in ("#### Findings", "added</summary>", "### Retrieval impact")]
    assert places == sorted(places)


CONTEXT = """\
nodes:
  Rule:
    identity: id
    display: [heading, owner, status]
    schema:
      type: object
      properties:
        id: {type: string}
        heading: {type: string}
        owner: {type: string}
        status: {type: string}
        body: {type: string}
        n: {type: integer}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    root = make_base(tmp_path / "kb", CONTEXT)
    rule = {"id": "7f3a-11d0", "heading": "潮汐表", "owner": "ann", "status": "draft", "n": 1}
    assert run_in(root, ["put", "Rule", json.dumps(rule)]).code == 0
    commit(root)
    return root


def test_a_comment_says_which_record_it_is_and_has_its_text(rules: Path) -> None:
    assert run_in(rules, ["put", "Rule", "--merge", '{"id": "7f3a-11d0", "n": 2}']).code == 0
    text = "word " * 300
    assert run_in(rules, ["put", "Rule", json.dumps({"id": "new", "heading": "New", "body": text})]).code == 0
    said = run_in(rules, ["diff", "--format", "markdown"]).out
    assert "##### `Rule` `7f3a-11d0` · `潮汐表`" in said and '`owner` `"ann"` · `status` `"draft"`' in said
    assert "##### `Rule` `new` · `New`" in said and said.count("word ") == 300
    (change,) = [one for one in run_in(rules, ["diff", "--json"]).line["changes"] if one["op"] == "update"]
    assert list(change["display"].items()) == [("heading", "潮汐表"), ("owner", "ann"), ("status", "draft")]


def test_a_comment_leads_to_lines_and_commits_where_a_forge_has_them(rules: Path) -> None:
    assert run_in(rules, ["put", "Rule", "--merge", '{"id": "7f3a-11d0", "n": 2}']).code == 0
    commit(rules)
    old, new = (git(rules, "rev-parse", name).strip() for name in ("HEAD^1", "HEAD"))

    def said(**env: str) -> str:
        return run_in(rules, ["diff", "HEAD^1..HEAD", "--format", "markdown"], env=env).out

    assert f"From `{old[:12]}` to `{new[:12]}`" in said()
    page = "https://github.com/team/kb"
    linked = said(GITHUB_SERVER_URL="https://github.com", GITHUB_REPOSITORY="team/kb")
    assert f"]({page}/commit/{old})" in linked and re.search(rf"jsonl:1`\]\({page}/blob/{new}/data/\S+#L1\)", linked)
    assert "](" not in said(GITHUB_SERVER_URL="javascript:alert(1)//", GITHUB_REPOSITORY="team/kb")
    git(rules, "remote", "add", "origin", "git@gitlab.com:team/kb.git")
    assert "](" not in said(), "nothing was pushed"
    git(rules, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert f"](https://gitlab.com/team/kb/-/commit/{new})" in said()


def test_a_display_that_no_schema_declares_is_refused(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", CONTEXT.replace("[heading, owner, status]", "[heading, ownr]"))
    ran = run_in(root, ["schema"])
    assert ran.code == 2 and "config.yaml:4" in ran.err and "ownr" in ran.err and "owner" in ran.err


def test_a_weaker_rule_is_found_at_its_line(rules: Path) -> None:
    text = CONTEXT.replace("n: {type: integer}", "n: {type: integer, maximum: 9}")
    (rules / "config.yaml").write_text(text, "utf-8")
    commit(rules)
    (rules / "config.yaml").write_text(text.replace("maximum: 9", "maximum: 90"), "utf-8")
    (one,) = run_in(rules, ["check", "--since", "HEAD", "--json"]).line["findings"]
    assert (one["code"], one["path"], one["line"]) == ("E_GUARD", "config.yaml", 13)
