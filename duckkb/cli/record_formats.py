"""Formats of records: jsonl, csv, md, table. Nothing is printed here, and no field of any record is left out.

jsonl streams. The others hold the records until they have seen every field, since a field may occur only in the
last record. In a cell null and a missing field are empty, a nested value is its JSON, and `true` and numbers
look as in JSON, without an exponent. A single result as a table has a row per field, and no JSON: `fields_of`.

Formats of documents: files, md, xml, and csv with the columns present. Nothing is printed here."""

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from duckkb.cli import terminal
from duckkb.cli.terminal import escape_workflow_commands, one_line
from duckkb.review import report_markup

Record = Mapping[str, Any]
_PLAIN = re.compile("_{0,2}[A-Za-z0-9]+(_[A-Za-z0-9]+)*")  # field names that Markdown shows unchanged
_LINE_ENDS = ("\x85", "\u2028", "\u2029")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in _LINE_ENDS}
_GAP = "  "
_NARROWEST = 8  # the least width of a column, even where lines then exceed the terminal
_WIDEST = 200  # the most width of a cell without a terminal
_ELLIPSIS = "…"


class RowLines(Struct, frozen=True):
    """Rows as lines without line ends, and the number of cells that were cut."""

    lines: tuple[str, ...]
    cut: int = 0


Writer = Callable[[Sequence[Record], Sequence[str]], RowLines]
"""A function that formats records in the given columns."""


def dumps(value: Any) -> str:
    r"""Return a value as JSON on one line, with every line separator escaped, not only LF.

    >>> dumps({"a": "\u2028备"})
    '{"a":"\\u2028备"}'
    """
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    line = line.replace("##[", "#\\u0023[")  # a command in the log of a job, wherever it stands
    return line.translate(_ESCAPES) if any(end in line for end in _LINE_ENDS) else line


def cell(value: Any) -> str:
    """Return a value as the text of a cell.

    >>> cell(3e-06), cell(2.5), cell(True)
    ('0.000003', '2.5', 'true')
    """
    if value is None:
        return ""
    if isinstance(value, float) and "e-" in repr(value):
        from decimal import Decimal

        return f"{Decimal(repr(value)):f}"
    return value if isinstance(value, str) else dumps(value)


def fields_of(line: Record, above: str = "") -> tuple[list[Record], dict[str, list[Record]]]:
    """Return a single result with a row per field, and its lists of objects as tables by name.

    Values inside it get dotted names.

    >>> fields_of({"a": {"b": 1}, "tags": ["x", "y"], "types": [{"n": 2}]})
    ([{'field': 'a.b', 'value': 1}, {'field': 'tags', 'value': 'x, y'}], {'types': [{'n': 2}]})
    """
    rows: list[Record] = []
    tables: dict[str, list[Record]] = {}
    for name, value in line.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            inner, below = fields_of(value, f"{path}.")
            rows += inner
            tables |= below
        elif isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            tables[path] = list(value)
        elif isinstance(value, Mapping | list | tuple):
            rows.append({"field": path, "value": ", ".join(map(cell, value))})
        else:
            rows.append({"field": path, "value": value})
    return rows, tables


def fields(records: Iterable[Record], columns: Sequence[str] = ()) -> list[str]:
    """Return `columns`, then every field of the records, each behind the field that it first followed.

    >>> fields([{"id": 1, "_type": "T"}, {"id": 2, "size": 3, "_type": "T"}])
    ['id', 'size', '_type']
    """
    field_names, known_names = list(columns), set(columns)
    for record in records:
        if record.keys() <= known_names:
            continue
        place = 0
        for name in record:
            if name in known_names:
                place = field_names.index(name) + 1
            else:
                field_names.insert(place, name)
                known_names.add(name)
                place += 1
    return field_names


def format_csv(records: Sequence[Record], columns: Sequence[str]) -> RowLines:
    """Format a header and a line per record, quoted as in RFC 4180, with values as they are."""
    import csv

    lines = []
    for values in (columns, *(_make_row(record, columns) for record in records)):
        line = io.StringIO()
        csv.writer(line).writerow(values)  # its own CR LF makes it quote either in a value
        lines.append(line.getvalue().removesuffix("\r\n"))
    return RowLines(tuple(lines))


def format_markdown(records: Sequence[Record], columns: Sequence[str]) -> RowLines:
    """Format a table of GitHub's Markdown: a header, a rule, a line per record.

    All texts are in code spans, where they cannot link, mention anybody or hide.
    """
    names = (
        name if not name or _PLAIN.fullmatch(name) else report_markup.cell(escape_workflow_commands(name))
        for name in columns
    )
    head = ("| " + " | ".join(names) + " |", "|" + " --- |" * len(columns))
    return RowLines((*head, *(_format_markdown_line([record.get(name) for name in columns]) for record in records)))


def format_table(records: Sequence[Record], columns: Sequence[str], width: int | None = None) -> RowLines:
    """Format aligned columns, cut to `width` (0: not cut; None: to the terminal, if any)."""
    from shutil import get_terminal_size

    width = get_terminal_size((0, 0)).columns if width is None else width
    right = [_has_only_numbers(record.get(name) for record in records) for name in columns]
    return _draw_table(columns, [_make_row(record, columns) for record in records], right, width)


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int) -> RowLines:
    """Draw a header, a rule and a line per row, cut to `width` columns as far as possible (0: no limit).

    `right` tells which columns are aligned to the right.
    """
    most = width or _WIDEST
    short_rows = [[_cut(text, most)[0] for text in row] for row in (columns, *rows)]
    widths = [max(report_markup.places(text) for text in column) for column in zip(*short_rows, strict=True)]
    if width:
        widths = _fit_widths(columns, widths, width - len(_GAP) * (len(widths) - 1))
    lines, cut = [], 0
    for row in (columns, *rows):
        cells = [_cut(text, limit) for text, limit in zip(row, widths, strict=True)]
        cut += sum(missing for _, missing in cells)
        lines.append(_format_line([text for text, _ in cells], widths, right))
    return RowLines((lines[0], _GAP.join("-" * column_width for column_width in widths), *lines[1:]), cut)


def _cut(text: str, limit: int) -> tuple[str, bool]:
    """Cut a text to one line of at most `limit` display columns; return it and whether anything is missing."""
    start = text[: 2 * limit + 8]  # a text may be megabytes; combining marks at the cut may be lost
    line = one_line(start)
    if len(start) == len(text) and (len(line) * 2 <= limit or report_markup.places(line) <= limit):
        return line, False
    characters, room = [], limit - 1
    for character in line:
        room -= report_markup.place(character)
        if room < 0:
            break
        characters.append(character)
    return "".join(characters) + _ELLIPSIS, True


def _fit_widths(columns: Sequence[str], widths: Sequence[int], room: int) -> list[int]:
    """Shrink column widths to fit `room`: duckkb's own fields (`_etag`) first, then the widest others."""
    limits = list(widths)
    for which in ([name.startswith("_") for name in columns], [True] * len(columns)):
        level = max(limits, default=0)
        while sum(limits) > room and level > _NARROWEST:
            level -= 1
            limits = [min(limit, level) if yields else limit for limit, yields in zip(limits, which, strict=True)]
    return limits


def _format_line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    columns = []
    for text, width, to_right in zip(cells, widths, right, strict=True):
        spaces = " " * (width - report_markup.places(text))
        columns.append(spaces + text if to_right else text + spaces)
    return _GAP.join(columns).rstrip(" ")


def _make_row(record: Record, columns: Sequence[str]) -> list[str]:
    return [cell(record.get(name)) for name in columns]


def _format_markdown_line(values: Sequence[Any]) -> str:
    def format_value(value: Any) -> str:
        is_text = not isinstance(value, bool | int | float) and value not in (None, "")
        return report_markup.cell(escape_workflow_commands(cell(value))) if is_text else cell(value)

    return "| " + " | ".join(map(format_value, values)) + " |"


def _has_only_numbers(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


class RowFormat(Struct, frozen=True):
    """A format of rows: its function, and what it `prints`, for the documentation.

    `show` prints a line. A format that `is_verbatim` has no escapes, so its text must not reach a job's log.
    `by_field`: a single result is shown with a row per field.
    """

    write: Writer
    prints: str
    show: Callable[[str], None] = terminal.result
    is_verbatim: bool = False
    by_field: bool = False


ROWS: Mapping[str, RowFormat] = {
    "csv": RowFormat(format_csv, "a header, then one record per row", is_verbatim=True),
    "md": RowFormat(format_markdown, "a GitHub table"),
    "table": RowFormat(format_table, "aligned columns for a terminal", show=terminal.print_drawing, by_field=True),
}
"""The formats of rows by name. Choices, help and documentation follow from this table."""
FORMATS = ("jsonl", "json", *ROWS)


DocumentLine = Mapping[str, Any]
CSV = ("docid", "score", "file", "title", "context", "line", "snippet")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = {"\r": "&#13;"}
_TEXTS = ("snippet", "body", "text")


def format_as_files(lines: Sequence[DocumentLine]) -> list[str]:
    """Format documents as `#docid,score,uri` lines, with the context in quotes if any; omissions are marked."""
    return [_format_file(line) for line in lines]


def _format_file(line: DocumentLine) -> str:
    parts = [line["docid"], *([str(line["score"])] if "score" in line else []), line["file"]]
    if "context" in line:
        parts.append('"' + cell(line["context"]).replace('"', '""').replace("\n", " ") + '"')
    return ",".join(parts) + "".join(
        (f" [SKIPPED: {line['skipped']}]" if "skipped" in line else "", " [FILLED]" if "_filled" in line else "")
    )


def format_as_markdown(lines: Sequence[DocumentLine]) -> list[str]:
    """Format each document as a block: a heading, its properties, and its text in a fence that it cannot close."""
    blocks = []
    for line in lines:
        blocks.append(f"## {report_markup.span(line.get('title') or line['file'])}")
        properties = [
            (name, line[name])
            for name in ("file", "docid", "score", "where", "line", "context", "skipped", "_filled")
            if name in line
        ]
        blocks += ["", *(f"- {name}: {report_markup.span(str(value))}" for name, value in properties), ""]
        text = next((line[name] for name in _TEXTS if name in line), None)
        if text is not None:
            blocks += [report_markup.block(escape_workflow_commands(text).rstrip("\n").split("\n")), ""]
    return blocks


def format_as_xml(lines: Sequence[DocumentLine]) -> list[str]:
    """Format documents as an XML root with an element each; characters not allowed in XML 1.0 are left out."""
    from xml.sax.saxutils import escape, quoteattr  # imports urllib, too

    xml_lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<documents>"]
    for line in lines:
        properties = (
            (name, value)
            for name, value in line.items()
            if name not in (*_TEXTS, "context", "title", "explain", "warnings")
        )
        attributes = "".join(f" {name}={quoteattr(_clean_xml_text(str(value)))}" for name, value in properties)
        xml_lines.append(f"  <document{attributes}>")
        inner = [(name, _clean_xml_text(str(line[name]))) for name in ("title", "context", *_TEXTS) if name in line]
        xml_lines += [f"    <{name}>{escape(text, _BREAKS)}</{name}>" for name, text in inner]
        xml_lines.append("  </document>")
    return [*xml_lines, "</documents>"]


def _clean_xml_text(text: str) -> str:
    return _NOT_IN_XML.sub("", text)


def format_as_csv(lines: Sequence[DocumentLine]) -> list[str]:
    """Format a header and a row per document, as in RFC 4180; without documents only the header."""
    columns = CSV if not lines or "snippet" in lines[0] else _choose_columns(lines[0])
    columns += ("_filled",) if any("_filled" in line for line in lines) else ()
    return list(format_csv(lines, columns).lines)


def _choose_columns(line: DocumentLine) -> tuple[str, ...]:
    """Return the columns, including that of the text which these documents have."""
    text_column = next((name for name in _TEXTS if name in line), "text")
    return (
        *(name for name in CSV if name != "snippet" and (name != "score" or "score" in line)),
        text_column,
        *(("skipped",) if text_column == "text" else ()),
    )


DOCUMENT_FORMATS: Mapping[str, Callable[[Sequence[DocumentLine]], list[str]]] = {
    "files": format_as_files,
    "md": format_as_markdown,
    "xml": format_as_xml,
    "csv": format_as_csv,
}
"""The formats of documents by name, besides json and jsonl."""
