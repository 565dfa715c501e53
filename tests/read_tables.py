"""Readers of what `--format` prints, written from the formats' own rules and without duckkb."""

import csv
import io
import json
import re
import unicodedata
from typing import Any

Rows = list[list[str]]


def read_csv(text: str) -> Rows:
    """Header and rows, by Python's reader, which is told to refuse what is not well formed."""
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def read_markdown(text: str) -> Rows:
    """Header and rows of a GitHub table: a backslash takes the meaning of the next character, `<br>` is a line break."""
    lines = text.removesuffix("\n").split("\n")
    assert re.fullmatch(r"\|( --- \|)+", lines[1]), lines[1]
    rows = [_markdown_cells(line) for line in (lines[0], *lines[2:])]
    assert {len(row) for row in rows} == {lines[1].count("---")}, rows
    return rows


def _markdown_cells(line: str) -> list[str]:
    pieces = re.findall(r"\\.|<br>|\||[^\\|<]+", line, re.DOTALL)
    assert "".join(pieces) == line and "`" not in re.sub(r"\\.", "", line), line
    cells: list[str] = []
    for piece in pieces:
        if piece == "|":
            cells.append("")
        else:
            cells[-1] += "\n" if piece == "<br>" else piece[1:] if piece[0] == "\\" else piece
    assert cells.pop() == "" and all(cell[0] == cell[-1] == " " for cell in cells), line
    return [cell[1:-1] for cell in cells]


def read_table(text: str) -> Rows:
    """Header and rows of aligned columns: the rule under the header says where each column begins and ends."""
    header, rule, *rows = (_spread(line) for line in text.removesuffix("\n").split("\n"))
    spans = [found.span() for found in re.finditer("-+", rule)]
    return [[line[start:end].replace("\0", "").strip() for start, end in spans] for line in (header, *rows)]


def _spread(line: str) -> str:
    """A line with one character for each place of a terminal."""
    wide = "WF"
    kept = [one for one in line if not unicodedata.combining(one)]
    return "".join(one + "\0" if unicodedata.east_asian_width(one) in wide else one for one in kept)


def spread(line: str) -> int:
    """How many places of a terminal a line takes."""
    return len(_spread(line))


def same(cells: list[str], header: list[str], record: dict[str, Any]) -> bool:
    """Whether a row says what a record holds: all of it, and nothing else."""
    said = dict(zip(header, cells, strict=True))
    return record.keys() <= said.keys() and all(_says(text, record.get(name)) for name, text in said.items())


def _says(text: str, value: Any) -> bool:
    if value is None or isinstance(value, str):
        return text == (value or "")
    return bool(json.loads(text) == value)
