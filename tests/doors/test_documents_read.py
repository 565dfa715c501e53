"""Files in folders, through the real process: PDF, DOCX and HTML are found by what they say, and their texts are kept once."""

import json
from pathlib import Path

import pytest

from tests.conftest import make_base, run_in
from tests.harness.files import docx
from tests.harness.files.pdf import Pdf, lines

OWN = """\
global: {embedding_model: none}
collections:
  papers:
    source: {path: docs, pattern: "**/*"}
    policy:
      description: Files found by their words.
      identity: {fields: path}
      fields: {vectors: none, lexical: [{field: title, weight: 2.0}, headings, text], relational: auto}
      intents: {allowed: [match, where], default: match}
"""
FILES = {
    "orders.pdf": Pdf(
        [lines("Orders are shipped by boat"), lines("Returns travel by train")], title="Shipping"
    ).write(),
    "guide/库.docx": docx.document(
        docx.paragraph(docx.run("Storage"), style="Heading1") + docx.plain("知识库的记录保存在文本文件里")
    ),
    "guide/page.html": b"<h1>Fees</h1><p>Customs are <b>paid</b> by you, see <a href='../orders.pdf'>orders</a></p>",
    "locked.pdf": Pdf([], password="x").write(),
    "scan.pdf": Pdf([[]], picture=True).write(),
    "half.docx": docx.document(docx.plain("lost"))[:400],
}


@pytest.mark.long
def test_kx_18_files_are_found_by_what_they_say_and_read_once_for_all_bases(tmp_path: Path) -> None:
    env = {"DUCKKB_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    kept = tmp_path / "cache" / "shared" / "documents"
    before: dict[Path, int] = {}
    for name in ("one", "two"):
        root = make_base(tmp_path / name, OWN)
        for path, raw in FILES.items():
            (root / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "docs" / path).write_bytes(raw)

        def found(words: str, root: Path = root) -> list[str]:
            done = run_in(root, ["find", "papers", words, "-m"], env=env)
            return [json.loads(line)["path"] for line in done.out.splitlines()]

        assert (
            found("train") == ["orders.pdf"]
            and found("记录") == ["guide/库.docx"]
            and found("customs") == ["guide/page.html"]
        )
        said = run_in(
            root, ["sql", "SELECT path, warnings FROM papers WHERE warnings IS NOT NULL ORDER BY path"], env=env
        )
        assert [json.loads(line) for line in said.out.splitlines()] == [
            {"path": "half.docx", "warnings": ["failed"]},
            {"path": "locked.pdf", "warnings": ["encrypted"]},
            {"path": "scan.pdf", "warnings": ["no_text"]},
        ]
        record = json.loads(run_in(root, ["get", "papers", "orders.pdf"], env=env).out)
        assert record["title"] == "Shipping" and record["text"][record["pages"][1] :].startswith("Returns")
        links = run_in(root, ["sql", 'SELECT "from", "to" FROM papers_links'], env=env).out
        assert json.loads(links) == {"from": "guide/page.html", "to": "orders.pdf"}
        after = {file: file.stat().st_ino for file in kept.iterdir()}
        assert len(after) == len(FILES) and before in ({}, after), "the second base found every text there"
        before = after


def test_kx_18_texts_that_were_not_used_for_longest_are_cleaned_away(tmp_path: Path) -> None:
    env = {"DUCKKB_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    root = make_base(tmp_path / "kb", OWN)
    (root / "docs").mkdir()
    for number in range(8):
        (root / "docs" / f"{number}.html").write_text(f"<p>page{number} {'words ' * 9_000}</p>", "utf-8")
    assert run_in(root, ["find", "papers", "page3", "-m"], env=env).code == 0
    kept = tmp_path / "cache" / "shared" / "documents"
    assert len([*kept.iterdir()]) == 8
    (tmp_path / "state" / "duckkb").mkdir(parents=True, exist_ok=True)
    (tmp_path / "state" / "duckkb" / "settings.json").write_text('{"cache_limit": "1 MB"}', "utf-8")
    told = json.loads(run_in(root, ["cleanup", "--dry-run", "--json"], env=env).out)
    assert [one["what"] for one in told["removed"] if one["path"] == str(kept)] == [
        "the texts of 4 files that were not used for longest"
    ]
    assert len([*kept.iterdir()]) == 8
    assert run_in(root, ["cleanup"], env=env).code == 0
    assert len([*kept.iterdir()]) == 4
    assert run_in(root, ["find", "papers", "page3", "-m"], env=env).code == 0


@pytest.mark.long
def test_kx_18_strict_has_no_record_of_a_file_that_could_not_be_read_whole(tmp_path: Path) -> None:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    (root / "docs").mkdir()
    for path in ("orders.pdf", "locked.pdf", "half.docx", "guide/page.html"):
        (root / "docs" / path.rpartition("/")[2]).write_bytes(FILES[path])
    assert run_in(root, ["collection", "add", "docs", "--mask", "**/*"]).code == 0
    definition = root / "ontology/collections/docs.yaml"
    sound = definition.read_text("utf-8")
    begins = sound.index("    source:\n") + len("    source:\n")

    def read_as(extraction: str) -> None:
        definition.write_text(f"{sound[:begins]}      extraction: {extraction}\n{sound[begins:]}", "utf-8")

    def listed() -> dict[str, object]:
        return {line["path"]: line["warnings"] for line in run_in(root, ["ls", "docs", "--long"]).lines}

    read_as("{policy: strict}")
    done = run_in(root, ["update", "--json"])
    assert done.code == 1 and done.error["code"] == "E_EXTRACT" and done.line["collections"][0]["documents"] == 2
    assert [one["path"] for one in done.error["details"]["findings"]] == ["docs/half.docx", "docs/locked.pdf"]
    records = run_in(root, ["sql", "SELECT path FROM docs ORDER BY path"])
    assert [one["path"] for one in records.lines] == ["orders.pdf", "page.html"]
    assert [one["path"] for one in run_in(root, ["ls", "docs"]).lines] == ["docs/orders.pdf", "docs/page.html"]
    assert listed() == {
        "docs/orders.pdf": [],
        "docs/page.html": [],
        "docs/half.docx": ["failed"],
        "docs/locked.pdf": ["encrypted"],
    }
    checked = run_in(root, ["check"])
    assert checked.code == 1 and "docs/half.docx E_EXTRACT" in checked.out + checked.err
    assert run_in(root, ["search", "train"]).code == 0, "what can be read is searched"

    read_as("{policy: fallback, disabled: [pdf]}")
    assert run_in(root, ["update"]).code == 0
    assert listed() == {
        "docs/half.docx": ["failed"],
        "docs/locked.pdf": ["disabled"],
        "docs/orders.pdf": ["disabled"],
        "docs/page.html": [],
    }
    read_as("{policy: strict, disabled: [pdf], max_bytes: 10}")
    assert set(map(str, listed().values())) == {"['too_large']"}

    line = sound[:begins].count("\n") + 1
    for wrong in ("{policy: never}", "{disabled: [md]}", "{max_bytes: 0}", "{max_seconds: x}", "{limit: 3}", "[]"):
        read_as(wrong)
        refused = run_in(root, ["ls", "docs"])
        assert refused.code == 2 and f"ontology/collections/docs.yaml:{line}" in refused.err, (wrong, refused.err)
