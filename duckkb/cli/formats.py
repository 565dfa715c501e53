r"""Records as lines of text: jsonl, csv, md, table. Nothing is printed here, and no field of any record is left out.

jsonl streams. The others hold the records until they have seen every field: a field may stand in the last record alone.
In a cell null and a missing field are empty, a nested value is its JSON, `true` and numbers look as in JSON.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from duckkb.cli import printed, table
from duckkb.cli.printed import without_commands
from duckkb.values import dataclass

Record = Mapping[str, Any]
Writer = Callable[[Sequence[Record], Sequence[str]], table.RowLines]
"""What records are in the columns that they have."""
_PLAIN = re.compile("_{0,2}[A-Za-z0-9]+(_[A-Za-z0-9]+)*")  # names of fields that Markdown reads as they are
_LINE_ENDS = ("\x85", "\u2028", "\u2029")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in _LINE_ENDS}


def dumps(value: Any) -> str:
    r"""A value as JSON on one line, also for readers to which more than LF ends a line.

    >>> dumps({"a": "\u2028备"})
    '{"a":"\\u2028备"}'
    """
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    line = line.replace("##[", "#\\u0023[")  # a command in the log of a job, wherever it stands
    return line.translate(_ESCAPES) if any(end in line for end in _LINE_ENDS) else line


def cell(value: Any) -> str:
    """A value as text in a cell."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value)


def fields(records: Iterable[Record], columns: Sequence[str] = ()) -> list[str]:
    """`columns`, and every field of the records: each behind the field that it first stood behind.

    >>> fields([{"id": 1, "_type": "T"}, {"id": 2, "size": 3, "_type": "T"}])
    ['id', 'size', '_type']
    """
    found, known = list(columns), set(columns)
    for record in records:
        if record.keys() <= known:
            continue
        place = 0
        for name in record:
            if name in known:
                place = found.index(name) + 1
            else:
                found.insert(place, name)
                known.add(name)
                place += 1
    return found


def as_csv(records: Sequence[Record], columns: Sequence[str]) -> table.RowLines:
    """A header and a line a record; quoted as RFC 4180 has it, values as they are."""
    import csv

    lines = []
    for values in (columns, *(_row(record, columns) for record in records)):
        line = io.StringIO()
        csv.writer(line).writerow(values)  # with its own CR LF: only then it quotes either of them in a value
        lines.append(line.getvalue().removesuffix("\r\n"))
    return table.RowLines(tuple(lines))


def as_markdown(records: Sequence[Record], columns: Sequence[str]) -> table.RowLines:
    """A table as GitHub reads it: a header, a rule, a line a record. All texts stand in code, where none of them links,
    mentions anybody, or hides."""
    from duckkb.review.reports import markup

    names = (name if not name or _PLAIN.fullmatch(name) else markup.cell(without_commands(name)) for name in columns)
    head = ("| " + " | ".join(names) + " |", "|" + " --- |" * len(columns))
    return table.RowLines((*head, *(_markdown_line([record.get(name) for name in columns]) for record in records)))


def as_table(records: Sequence[Record], columns: Sequence[str], width: int | None = None) -> table.RowLines:
    """Aligned columns, cut to `width` (0: not at all), or to fit the terminal where there is one."""
    from shutil import get_terminal_size

    width = get_terminal_size((0, 0)).columns if width is None else width
    right = [_numbers(record.get(name) for record in records) for name in columns]
    return table.draw(columns, [_row(record, columns) for record in records], right, width)


def _row(record: Record, columns: Sequence[str]) -> list[str]:
    return [cell(record.get(name)) for name in columns]


def _markdown_line(values: Sequence[Any]) -> str:
    from duckkb.review.reports import markup

    def shown(value: Any) -> str:
        is_text = not isinstance(value, bool | int | float) and value not in (None, "")
        return markup.cell(without_commands(cell(value))) if is_text else cell(value)

    return "| " + " | ".join(map(shown, values)) + " |"


def _numbers(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A format of rows: what writes it, and what it `prints`, for its documentation. `show` prints a line. In one that has
    no escapes (`is_verbatim`) a text stands as it is stored, which the log of a job must not see. `by_field`: one result is
    shown with a row a field."""

    write: Writer
    prints: str
    show: Callable[[str], None] = printed.result
    is_verbatim: bool = False
    by_field: bool = False


ROWS: Mapping[str, RowFormat] = {
    "csv": RowFormat(as_csv, "a header, then a record a row", is_verbatim=True),
    "md": RowFormat(as_markdown, "a table for GitHub"),
    "table": RowFormat(as_table, "aligned columns for a terminal", show=printed.drawn, by_field=True),
}
"""By name: the one place where a format of rows is added. Choices, help and documentation follow."""
FORMATS = ("jsonl", "json", *ROWS)
