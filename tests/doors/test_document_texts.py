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
