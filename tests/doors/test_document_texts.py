"""What files say as records, through the real process: front matter and links as people write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import make_base, run_in


def _base(tmp_path: Path, files: Mapping[str, str | bytes]) -> Path:
    root = make_base(tmp_path / "kb", "global: {embedding_model: none}\n")
    for path, text in files.items():
        (root / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "docs" / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    added = run_in(root, ["collection", "add", "docs"])
    assert added.code == 0, added.err
    return root


def _findings(root: Path) -> list[tuple[str, str, int]]:
    """Code, file and line of what `check` finds."""
    found = run_in(root, ["check", "--json"]).line["findings"]
    return [(one["code"], one["path"], one["line"]) for one in found]


FRONT = """\
---
isbn: 97801234567890123456
name: 书
parts: [1, 97801234567890123456, {deep: 99999999999999999999}]
name: second
title: {{ template }}
born: 2024-01-02
rate: .nan
mode: 017
size: 9223372036854775807
__id: 5
_type: other
---
Text of the book.
"""


def test_front_matter_keeps_what_stands_there_and_check_names_the_line_of_what_readers_disagree_about(
    tmp_path: Path,
) -> None:
    root = _base(tmp_path, {"book.md": FRONT, "empty.md": "", "broken.md": "---\na: 1\nb: [\n---\nText.\n"})
    record: dict[str, Any] = run_in(root, ["get", "docs", "book.md"]).line
    assert record["isbn"] == "97801234567890123456"
    assert record["parts"] == [1, "97801234567890123456", {"deep": "99999999999999999999"}]
    assert (record["name"], record["front_title"], record["born"]) == ("书", "{{ template }}", "2024-01-02")
    assert (record["rate"], record["mode"], record["size"]) == (".nan", "017", len(FRONT.encode()))
    assert (record["front_size"], record["front___id"], record["front__type"]) == (2**63 - 1, 5, "other")
    assert record["__id"] != 5 and record["_type"] == "docs"
    found = run_in(root, ["find", "docs", "-w", "isbn = 0"])
    assert found.code == 1, "two long numbers are not one"
    assert _findings(root) == [
        *[("W_FRONT_MATTER", "docs/book.md", line) for line in (2, 4, 4, 5, 6, 8, 9)],
        ("W_FRONT_MATTER", "docs/broken.md", 4),
        ("W_DOCUMENT", "docs/empty.md", 1),
    ]
    assert "read with warnings" in run_in(root, ["update"]).err


VAULT = {
    "index.md": "---\nup: '[[Deep note]]'\nrelated: [[[Second]], \"[[folder/Third|3]]\"]\n# see: [[Nowhere in YAML]]\n---\n# Index\n",
    "folder/Third.md": "Beside: [[fourth]], from the top: [[other/Second]], by its [[node.js]] name, and [[nicknamed]].\n",
    "folder/Fourth.md": "---\naliases: [Nicknamed, 别名]\n---\n| a | b |\n|---|---|\n| [[Deep note\\|the deep one]] | [[../index]] |\n",
    "other/Second.md": "\\[[Escaped]] `[[Code]]` <!-- [[Comment]] and [x](gone.md) --> %% [[Hidden]] %% ![[Embedded]] [[别名#Part|it]]\n",
    "other/deep/Deep note.md": "[[map.png]] [[node.js.md]]\n",
    "other/node.js.md": "# Node\n",
    "a/Twin.md": "",
    "b/Twin.md": "See [[Twin]].\n",
    "c/one.md": "[[Twin]] and [[Lost]] and [lost](lost.md)\n",
    "c/two.md": "[[Twin]]\n",
}
LINKS = {
    ("index.md", "other/deep/Deep note.md"),
    ("index.md", "other/Second.md"),
    ("index.md", "folder/Third.md"),
    ("folder/Third.md", "folder/Fourth.md"),
    ("folder/Third.md", "other/Second.md"),
    ("folder/Third.md", "other/node.js.md"),
    ("folder/Fourth.md", "other/deep/Deep note.md"),
    ("folder/Fourth.md", "index.md"),
    ("other/Second.md", "folder/Fourth.md"),
    ("other/deep/Deep note.md", "other/node.js.md"),
}


def _links(root: Path) -> set[tuple[str, str]]:
    """The links that lead to a document, as SQL has them."""
    statement = 'SELECT a.path AS a, b.path AS b FROM docs_links l JOIN docs a ON a."__id" = l.from_id JOIN docs b ON b."__id" = l.to_id'
    return {(line["a"], line["b"]) for line in run_in(root, ["sql", statement]).lines}


def test_wiki_links_lead_where_their_names_lead_in_the_whole_collection(tmp_path: Path) -> None:
    root = _base(tmp_path, VAULT)
    assert _links(root) == LINKS
    neighbours = run_in(root, ["graph", "neighbors", "docs", "folder/Fourth.md"]).lines
    assert {(line["path"], line["_edge"]["_direction"]) for line in neighbours} == {
        ("folder/Third.md", "in"),
        ("other/Second.md", "in"),
        ("other/deep/Deep note.md", "out"),
        ("index.md", "out"),
    }
    checked = run_in(root, ["check", "--json"])
    assert checked.code == 0, "an ordinary vault has no errors"
    links = [(one["path"], one["message"]) for one in checked.line["findings"] if one["code"] == "W_LINK"]
    assert [path for path, _ in links] == ["docs/c/one.md"] * 3
    assert sum("a/Twin.md or b/Twin.md" in message for _, message in links) == 1, "said once, with the candidates"
    assert not any("Nowhere" in message or "Hidden" in message for _, message in links)


def test_a_wiki_link_follows_documents_that_come_and_go(tmp_path: Path) -> None:
    root = _base(tmp_path, {"a.md": "[[Note]]\n", "x/Note.md": "# One\n"})
    assert _links(root) == {("a.md", "x/Note.md")}
    (root / "docs/y").mkdir()
    (root / "docs/x/Note.md").rename(root / "docs/y/note.md")
    assert _links(root) == {("a.md", "y/note.md")}
    (root / "docs/Note.md").write_text("# Beside\n", "utf-8")
    assert _links(root) == {("a.md", "Note.md")}
