"""Formats of documents: files, md, xml, and csv with the columns present. Nothing is printed here."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duckkb.cli import formats
from duckkb.cli.printed import escape_workflow_commands
from duckkb.review.reports import markup

Line = Mapping[str, Any]
CSV = ("docid", "score", "file", "title", "context", "line", "snippet")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAKS = {"\r": "&#13;"}
_TEXTS = ("snippet", "body", "text")


def format_as_files(lines: Sequence[Line]) -> list[str]:
    """Format documents as `#docid,score,uri` lines, with the context in quotes if any; omissions are marked."""
    return [_format_file(line) for line in lines]


def _format_file(line: Line) -> str:
    parts = [line["docid"], *([str(line["score"])] if "score" in line else []), line["file"]]
    if "context" in line:
        parts.append('"' + formats.cell(line["context"]).replace('"', '""').replace("\n", " ") + '"')
    return ",".join(parts) + "".join(
        (f" [SKIPPED: {line['skipped']}]" if "skipped" in line else "", " [FILLED]" if "_filled" in line else "")
    )


def format_as_markdown(lines: Sequence[Line]) -> list[str]:
    """Format each document as a block: a heading, its properties, and its text in a fence that it cannot close."""
    blocks = []
    for line in lines:
        blocks.append(f"## {markup.span(line.get('title') or line['file'])}")
        properties = [
            (name, line[name])
            for name in ("file", "docid", "score", "where", "line", "context", "skipped", "_filled")
            if name in line
        ]
        blocks += ["", *(f"- {name}: {markup.span(str(value))}" for name, value in properties), ""]
        text = next((line[name] for name in _TEXTS if name in line), None)
        if text is not None:
            blocks += [markup.block(escape_workflow_commands(text).rstrip("\n").split("\n")), ""]
    return blocks


def format_as_xml(lines: Sequence[Line]) -> list[str]:
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


def format_as_csv(lines: Sequence[Line]) -> list[str]:
    """Format a header and a row per document, as in RFC 4180; without documents only the header."""
    columns = CSV if not lines or "snippet" in lines[0] else _choose_columns(lines[0])
    columns += ("_filled",) if any("_filled" in line for line in lines) else ()
    return list(formats.format_csv(lines, columns).lines)


def _choose_columns(line: Line) -> tuple[str, ...]:
    """Return the columns, including that of the text which these documents have."""
    text_column = next((name for name in _TEXTS if name in line), "text")
    return (
        *(name for name in CSV if name != "snippet" and (name != "score" or "score" in line)),
        text_column,
        *(("skipped",) if text_column == "text" else ()),
    )


FORMATS: Mapping[str, Callable[[Sequence[Line]], list[str]]] = {
    "files": format_as_files,
    "md": format_as_markdown,
    "xml": format_as_xml,
    "csv": format_as_csv,
}
"""The formats of documents by name, besides json and jsonl."""
