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
    """Header and rows of a GitHub table."""
    lines = text.removesuffix("\n").split("\n")
    assert re.fullmatch(r"\|( --- \|)+", lines[1]), lines[1]
    rows = [_markdown_cells(line) for line in (lines[0], *lines[2:])]
    assert {len(row) for row in rows} == {lines[1].count("---")}, rows
    return rows


def _markdown_cells(line: str) -> list[str]:
    """The cells of a row: plain, or code between ticks, in which a backslash keeps a bar and what nobody sees is an escape."""
    assert line.startswith("| ") and line.endswith(" |"), line
    return [_plain(cell.replace("\\|", "|")) for cell in re.split(r" (?<!\\)\| ", f" {line} ")[1:-1]]


def _plain(cell: str) -> str:
    ticks = re.match("`+", cell)
    if ticks is None:
        assert re.fullmatch(r"[\w.+-]*", cell), cell
        return cell
    code = cell.removeprefix(ticks[0]).removesuffix(ticks[0])
    assert len(code) + 2 * len(ticks[0]) == len(cell) and ticks[0] not in re.findall("`+", code), cell
    if code[0] == code[-1] == " " and code.strip(" "):
        code = code[1:-1]
    return re.sub(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})", lambda found: chr(int(found[1] or found[2], 16)), code)


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
    return bool(json.loads(text, strict=False) == value)
