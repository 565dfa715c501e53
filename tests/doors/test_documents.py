"""Files in folders as records, through the real process: collections, contexts, listing, searching, reading, and that every verb
for records works on them."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Ran, commit, git, make_base, run_in
from tests.fake_endpoint import FakeEndpoint

FILES = {
    "docs/guide/install.md": "---\nowner: mei\ntags: [setup, linux]\n---\n# Install\n\nRun the installer, then `start`.\n\n"
    "## Linux\n\nThe package lies in the archive. See [upgrade](upgrade.md) and [[Backup]].\n",
    "docs/guide/upgrade.md": "# Upgrade\n\nStop the server, install, start it again. Back to [install](install.md#linux).\n",
    "docs/guide/backup.md": "# Backup\n\nThe archive is copied each night at 03:00.\n\n```\n# no heading\n```\n",
    "docs/说明/安装.md": "# 安装说明\n\n先停止服务器，再运行安装程序。\n",
    "docs/drafts/idea.md": "# Idea\n\nAn archive of ideas about the server.\n",
    "docs/node_modules/x/README.md": "# Vendored\n\nThe archive of somebody else.\n",
    "docs/notes.txt": "The archive as plain text.\n",
}


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    with FakeEndpoint() as endpoint:
        place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
        root = make_base(tmp_path / "kb", f"global: {{embedding_model: far, embedding: {place}}}\n")
        for path, text in FILES.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, "utf-8")
        assert run_in(root, ["trust"]).code == 0
        assert run_in(root, ["collection", "add", "docs"]).code == 0
        commit(root)
        yield root


def _lines(ran: Ran) -> list[dict[str, object]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def _ids(ran: Ran) -> list[object]:
    return [line["path"] for line in _lines(ran)]


def test_kx_01_a_collection_is_added_listed_renamed_and_removed_and_no_file_is_touched(base: Path) -> None:
    before = {path: (base / path).read_bytes() for path in FILES}
    (line,) = _lines(run_in(base, ["collection", "list"]))
    assert (line["name"], line["folder"], line["documents"], line["outside"]) == ("docs", "docs", 5, False)
    again = run_in(base, ["collection", "add", "docs/guide"])
    assert again.code == 2 and "overlap" in again.err, "a file is a document of one collection"
    assert run_in(base, ["collection", "add", "docs"]).code != 0
    assert run_in(base, ["collection", "show", "nothing"]).code == 1
    assert _lines(run_in(base, ["collection", "rename", "docs", "handbook"]))[0]["name"] == "handbook"
    assert [line["name"] for line in _lines(run_in(base, ["collection", "list"]))] == ["handbook"]
    assert run_in(base, ["ls", "docs"]).code == 1
    assert run_in(base, ["collection", "remove", "handbook"]).code == 0
    assert run_in(base, ["collection", "list"]).out == ""
    assert {path: (base / path).read_bytes() for path in FILES} == before


def test_kx_01_excluded_collections_are_found_where_they_are_named(base: Path) -> None:
    assert run_in(base, ["collection", "exclude", "docs"]).code == 0
    assert run_in(base, ["search", "archive"]).code == 2, "there is nothing else to search"
    assert _lines(run_in(base, ["search", "archive", "-c", "docs"]))
    assert run_in(base, ["collection", "include", "docs"]).code == 0
    assert _lines(run_in(base, ["search", "archive"]))


@pytest.mark.parametrize("question", ["yearly chores", "chores", "key_rotation", "key_rotation.md", "轮换"])
def test_tags_description_and_path_find_a_document_whose_text_is_cited(base: Path, question: str) -> None:
    front = "---\ntags: [yearly chores, 7]\ndescription: What to do by hand, 轮换.\n---\n"
    (base / "docs" / "guide" / "key_rotation.md").write_text(f"{front}# Secrets\n\nNew ones.\n\nOld ones.\n", "utf-8")
    for verb in ("search", "query"):
        hits = {hit["file"]: hit for hit in json.loads(run_in(base, [verb, question, "--json"]).out)["results"]}
        hit = hits["duckkb://docs/guide/key_rotation.md"]
        assert (hit["line"], hit["snippet"][:9]) == (5, "# Secrets")
        assert verb == "query" or next(iter(hits)) == hit["file"], "the model of this test knows no meaning"
    assert _ids(run_in(base, ["find", "docs", question, "-m"]))[0] == "guide/key_rotation.md"
    hit = json.loads(run_in(base, ["search", f"{question} old", "--json"]).out)["results"][0]
    assert (hit["line"], hit["snippet"]) == (9, "Old ones.")


def test_kx_01_contexts_are_inherited_from_general_to_specific(base: Path) -> None:
    for place, text in (("/", "The product"), ("docs", "Handbook"), ("docs/guide", "For operators")):
        assert run_in(base, ["context", "add", place, text]).code == 0
    told = [line["context"] for line in _lines(run_in(base, ["context", "list"]))]
    assert told == ["The product", "Handbook", "For operators"]
    found = _lines(run_in(base, ["search", "installer"]))
    assert found[0]["context"] == "The product\nHandbook\nFor operators"
    assert run_in(base, ["context", "rm", "docs/drafts"]).code == 1
    assert run_in(base, ["context", "rm", "docs/guide"]).code == 0
    assert _lines(run_in(base, ["search", "installer"]))[0]["context"] == "The product\nHandbook"


def test_kx_01_a_folder_outside_is_known_to_this_machine_alone(base: Path, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "note.md").write_text("# A note\n\nabout zebras\n", "utf-8")
    assert run_in(base, ["collection", "add", str(outside), "--name", "far"]).code == 0
    assert git(base, "status", "--short") == "", "nothing of it is for other clones"
    assert _lines(run_in(base, ["collection", "show", "far"]))[0]["outside"] is True
    (hit,) = _lines(run_in(base, ["search", "zebras"]))
    assert hit["file"] == "duckkb://far/note.md" and str(tmp_path) not in json.dumps(hit)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(base), str(clone))
    assert [line["name"] for line in _lines(run_in(clone, ["collection", "list"]))] == ["docs"]
    assert run_in(base, ["collection", "remove", "far"]).code == 0


def test_kx_01_update_tells_what_changed_and_runs_commands_only_once_they_are_trusted(base: Path) -> None:
    (first,) = _lines(run_in(base, ["update"]))
    assert (first["documents"], first["added"], first["unchanged"]) == (5, 5, 0)
    (base / "docs/guide/upgrade.md").write_text("# Upgrade\n\nAll at once.\n", "utf-8")
    (base / "docs/drafts/idea.md").unlink()
    assert run_in(base, ["collection", "update-cmd", "docs", "echo '# New' > fetched.md"]).code == 0
    untrusted = run_in(base, ["update"])
    (line,) = _lines(untrusted)
    assert (line["added"], line["changed"], line["removed"]) == (0, 1, 1) and "trust" in untrusted.err
    assert not (base / "docs/fetched.md").exists()
    assert run_in(base, ["trust"]).code == 0
    (line,) = _lines(run_in(base, ["update"]))
    assert line["added"] == 1 and (base / "docs/fetched.md").exists()
    (line,) = _lines(run_in(base, ["update"]))
    assert (line["added"], line["changed"], line["removed"]) == (0, 0, 0)


def test_a_job_accepts_by_their_hash_the_commands_that_were_reviewed_and_no_others(base: Path) -> None:
    def set_command(name: str) -> str:
        assert run_in(base, ["collection", "update-cmd", "docs", f"echo '# {name}' > {name}.md"]).code == 0
        return str(run_in(base, ["trust", "--show"]).line["hash"])

    other, reviewed = set_command("other"), set_command("reviewed")
    assert other != reviewed
    for named, is_run in ((other, False), (reviewed, True)):
        ran = run_in(base, ["update"], env={"DUCKKB_TRUST": named})
        assert ("trust" not in ran.err, (base / "docs/reviewed.md").exists()) == (is_run, is_run), ran.err
    assert run_in(base, ["trust", "--show"], env={"DUCKKB_TRUST": reviewed}).line["trusted"] is True


def test_kx_08_patterns_and_ignored_files(base: Path) -> None:
    assert {str(line["path"]) for line in _lines(run_in(base, ["ls", "docs"]))} == {
        "docs/guide/install.md", "docs/guide/upgrade.md", "docs/guide/backup.md", "docs/说明/安装.md", "docs/drafts/idea.md",
    }  # fmt: skip
    definition = base / "ontology/collections/docs.yaml"
    text = definition.read_text("utf-8")
    definition.write_text(
        text.replace("path: docs\n", 'path: docs\n      ignore: [drafts/]\n      pattern: ["**/*.md", "*.txt"]\n'),
        "utf-8",
    )
    found = {str(line["path"]) for line in _lines(run_in(base, ["ls", "docs"]))}
    assert "docs/drafts/idea.md" not in found and "docs/notes.txt" in found
    assert not any("drafts" in str(hit["file"]) for hit in _lines(run_in(base, ["search", "archive"])))


def test_kx_03_formats_without_a_hit_are_still_well_formed(base: Path) -> None:
    for form, expected in (
        ("--json", '{"results":[],"notices":[]}\n'),
        ("--csv", "docid,score,file,title,context,line,snippet\n"),
        ("--files", ""),
    ):
        ran = run_in(base, ["search", "zzzzzz", form])
        assert (ran.code, ran.out.replace("\r\n", "\n")) == (1, expected), form
    ran = run_in(base, ["search", "zzzzzz", "--xml"])
    assert ran.code == 1 and list(ElementTree.fromstring(ran.out)) == []


def test_kx_03_every_format_has_the_same_hits(base: Path) -> None:
    (base / "docs/odd.md").write_text('# A "quoted", <b>&</b> title\n\narchive ```` with fences\n~~~\n\x01\n', "utf-8")
    hits = run_in(base, ["search", "archive", "--json"]).line["results"]
    assert len(hits) == 4 and all("context" not in hit for hit in hits)
    rows = list(csv.DictReader(io.StringIO(run_in(base, ["search", "archive", "--csv", "-n", "20"]).out)))
    assert [row["docid"] for row in rows] == [hit["docid"] for hit in hits]
    files = run_in(base, ["search", "archive", "--files"]).out.splitlines()
    assert [line.split(",")[0] for line in files] == [hit["docid"] for hit in hits]
    tree = ElementTree.fromstring(run_in(base, ["search", "archive", "--xml", "-n", "20"]).out)
    assert [one.get("docid") for one in tree] == [hit["docid"] for hit in hits]
    blocks = run_in(base, ["search", "archive", "--md", "-n", "20"]).out
    assert blocks.count("\n- file: ") == 4
    assert all(0 < hit["score"] < 1 for hit in hits)


def test_kx_02_limits_scores_and_whole_texts(base: Path) -> None:
    assert len(_lines(run_in(base, ["search", "archive", "-n", "2"]))) == 2
    scores = [float(str(hit["score"])) for hit in _lines(run_in(base, ["search", "archive", "--all"]))]
    assert scores == sorted(scores, reverse=True)
    least = str(scores[1])
    assert len(_lines(run_in(base, ["search", "archive", "--min-score", least]))) == 2
    whole = _lines(run_in(base, ["search", "installer", "--full"]))[0]
    assert str(whole["body"]).startswith("# Install") and "snippet" not in whole
    (numbered,) = _lines(run_in(base, ["search", "package", "--line-numbers"]))
    assert "11: The package lies" in str(numbered["snippet"]), "lines are those of the file, front matter and all"
    assert run_in(base, ["search", "archive", "-c", "nothing"]).code == 1


def test_kx_04_documents_are_read_by_path_line_and_docid(base: Path) -> None:
    text = FILES["docs/guide/backup.md"]
    for name in (
        "docs/guide/backup.md",
        "guide/backup.md",
        "backup.md",
        "duckkb://docs/guide/backup.md",
        "//docs/guide/backup.md",
    ):
        assert run_in(base, ["get", name]).out == text, name
    assert run_in(base, ["get", "backup.md:3", "-l", "1"]).out == text.splitlines()[2] + "\n"
    docid = json.loads(run_in(base, ["get", "backup.md", "--json"]).out)["docid"]
    for name in (docid, docid[1:], docid.upper(), f'"{docid}"'):
        assert run_in(base, ["get", name]).out == text, name
    near = run_in(base, ["get", "bakcup.md"])
    assert near.code == 1 and near.out == "" and "docs/guide/backup.md" in near.err
    assert run_in(base, ["get", docid[:6]]).code == 1, "five digits are no docid"
    assert run_in(base, ["get", "ckup.md"]).code == 1, "the end of a name is no name"
    (base / "docs/copy").mkdir()
    (base / "docs/copy/backup.md").write_text(text, "utf-8")
    both = run_in(base, ["get", docid])
    assert (
        both.code == 1 and both.out == "" and "docs/copy/backup.md" in both.err and "docs/guide/backup.md" in both.err
    )


def test_kx_04_multi_get_takes_globs_lists_and_docids_and_says_what_it_skips(base: Path) -> None:
    (base / "docs/large.md").write_text("# Large\n\n" + "word " * 4_000, "utf-8")
    (base / "docs/a,b.md").write_text("# Comma\n", "utf-8")
    found = {str(one["file"]): one for one in _lines(run_in(base, ["multi-get", "**/*.md"]))}
    assert (
        len(found) == 7
        and "skipped" in found["duckkb://docs/large.md"]
        and "text" not in found["duckkb://docs/large.md"]
    )
    assert "SKIPPED" in run_in(base, ["multi-get", "large.md", "--files"]).out
    assert len(_lines(run_in(base, ["multi-get", "guide/{install,backup}.md"]))) == 2
    assert len(_lines(run_in(base, ["multi-get", "说明/*.md"]))) == 1
    assert [one["title"] for one in _lines(run_in(base, ["multi-get", "docs/a,b.md"]))] == ["Comma"]
    some = run_in(base, ["multi-get", "install.md, , nothing.md"])
    assert some.code == 1 and len(some.out.splitlines()) == 1 and "nothing.md" in some.err


def test_kx_15_chinese_is_found_read_and_listed(base: Path) -> None:
    assert _lines(run_in(base, ["search", "服务器"]))[0]["file"] == "duckkb://docs/说明/安装.md"
    assert _lines(run_in(base, ["query", "安装程序"]))[0]["title"] == "安装说明"
    assert run_in(base, ["get", "安装.md"]).out == FILES["docs/说明/安装.md"]


def test_documents_are_records_to_every_verb_and_are_not_written(base: Path) -> None:
    assert _ids(run_in(base, ["find", "docs", "-w", "owner = 'mei' AND tags = ['setup', 'linux']"])) == [
        "guide/install.md"
    ]
    rows = _lines(run_in(base, ["sql", "SELECT count(*) AS n, max(size) AS s FROM docs"]))
    assert rows[0]["n"] == 5
    near = _lines(run_in(base, ["graph", "neighbors", "docs", "guide/upgrade.md"]))
    assert {line["path"] for line in near} == {"guide/install.md"}
    near = _lines(run_in(base, ["graph", "neighbors", "docs", "guide/backup.md"]))
    assert {line["path"] for line in near} == {"guide/install.md"}, "[[Backup]] is the name of backup.md"
    assert run_in(base, ["check"]).code == 0
    before = git(base, "rev-parse", "HEAD").strip()
    (base / "docs/guide/upgrade.md").write_text(FILES["docs/guide/upgrade.md"].replace("Stop", "Halt"), "utf-8")
    git(base, "add", "-A")
    git(base, "commit", "-q", "-m", "halt")
    told = run_in(base, ["diff", f"{before}..HEAD", "--format", "json"])
    assert "guide/upgrade.md" in told.out and "Halt" in told.out
    assert "Stop" in run_in(base, ["get", "docs", "guide/upgrade.md", "--at", before]).out
    assert len(_lines(run_in(base, ["log", "docs", "guide/upgrade.md"]))) == 2
    for args in (
        ["put", "docs", '{"path": "x.md", "text": "t"}'],
        ["delete", "docs", "guide/upgrade.md"],
        ["rename", "docs", "guide/upgrade.md", "y.md"],
    ):
        ran = run_in(base, args)
        assert ran.code == 1 and "E_DOCUMENT" in run_in(base, [*args, "--json"]).err, args
    assert git(base, "status", "--short") == ""


def test_kx_01_a_file_with_another_name_is_the_same_document(base: Path) -> None:
    before = git(base, "rev-parse", "HEAD").strip()
    git(base, "mv", "docs/guide/backup.md", "docs/guide/copies.md")
    git(base, "mv", "docs/guide/install.md", "docs/setup.md")
    text = (base / "docs/setup.md").read_text("utf-8")
    (base / "docs/setup.md").write_text(text.replace("archive", "store"), "utf-8")
    (base / "docs/说明/安装.md").rename(base / "docs/说明/copy of backup.md")
    (base / "docs/说明/copy of backup.md").write_text("# Another\n\nWith nothing in common.\n", "utf-8")

    def changes(*named: str) -> set[tuple[str, str, str | None]]:
        (told,) = run_in(base, ["diff", *named, "--format", "json", "--full"]).lines
        return {(one["op"], one["identity"], one.get("was")) for one in told["changes"] if one["type"] == "docs"}

    expected = {
        ("rename", "guide/copies.md", "guide/backup.md"),
        ("rename", "setup.md", "guide/install.md"),
        ("delete", "说明/安装.md", None),
        ("insert", "说明/copy of backup.md", None),
    }
    assert changes() == expected, "whatever git's index knows"
    git(base, "add", "-A")
    assert changes("--staged") == expected
    git(base, "commit", "-q", "-m", "moved")
    assert changes(f"{before}..HEAD") == expected
    stat = run_in(base, ["diff", f"{before}..HEAD", "--stat"]).out
    assert "docs" in stat, stat
    ran = run_in(base, ["check", "--since", before])
    assert "W_RENAMED" in ran.out + ran.err, ran
    assert [line["op"] for line in run_in(base, ["log", "docs", "setup.md"]).lines] == ["rename", "insert"]
    found = {line["field"]: line["commit"] for line in run_in(base, ["blame", "docs", "setup.md"]).lines}
    assert found["owner"] == before != found["text"] == found["path"], "a value is from the commit that gave it"


def test_a_line_above_a_link_changes_no_link_and_a_finding_names_its_line(base: Path) -> None:
    before = git(base, "rev-parse", "HEAD").strip()
    pages = ("docs/guide/install.md", "docs/guide/upgrade.md")
    for page in pages:
        text = (base / page).read_text("utf-8")
        (base / page).write_text(text.replace("# ", "New.\n\n# ", 1), "utf-8")
    links = run_in(base, ["sql", "SELECT * FROM docs_links"]).lines
    assert links and all("lines" not in one for one in links)
    for named in ((), ("HEAD",)):
        (told,) = run_in(base, ["diff", *named, "--format", "json"]).lines
        assert {(one["type"], one["op"]) for one in told["changes"]} == {("docs", "update")}
    assert "docs_links" not in run_in(base, ["diff", "--stat"]).out

    with (base / pages[1]).open("a", encoding="utf-8") as file:
        file.write("\n[a](setup.md) and [b](安装.md)\n\n[again](setup.md)\n")
    line = (base / pages[1]).read_text("utf-8").splitlines().index("[a](setup.md) and [b](安装.md)") + 1
    git(base, "add", "-A")
    git(base, "commit", "-q", "-m", "links")
    (told,) = run_in(base, ["diff", before, "--format", "json"]).lines
    came = [one for one in told["changes"] if one["type"] == "docs_links"]
    assert [(one["op"], one["after"]["path"], one["after"]["line"]) for one in came] == [("insert", pages[1], line)] * 2
    for args in (["check", "--format", "jsonl"], ["check", "--since", before, "--format", "jsonl"]):
        found = [one for one in run_in(base, args).lines if one["code"] == "W_LINK" and one["line"] == line]
        assert len(found) == 2, args
    name = json.dumps(["guide/upgrade.md", "guide/setup.md"])
    (event,) = run_in(base, ["log", "docs_links", name]).lines
    assert (event["op"], event["line"]) == ("insert", line)
