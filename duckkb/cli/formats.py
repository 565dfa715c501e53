r"""Records as lines of text: jsonl, csv, md, table. Nothing is printed here, and no field of any record is left out.

jsonl streams. The others hold the records until they have seen every field: a field may stand in the last record alone.
In a cell null and a missing field are empty, a nested value is its JSON, `true` and numbers look as in JSON.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from duckkb.cli import table
from duckkb.cli.printed import without_commands

Record = Mapping[str, Any]
Writer = Callable[[Sequence[Record], Sequence[str]], Iterator[str]]
"""Lines, without their ends, of records and the columns that they have."""
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


def as_csv(records: Sequence[Record], columns: Sequence[str]) -> Iterator[str]:
    """A header and a line a record, without the line ends; quoted as RFC 4180 has it, values as they are."""
    import csv

    for values in (columns, *(_row(record, columns) for record in records)):
        line = io.StringIO()
        csv.writer(line).writerow(values)  # with its own CR LF: only then it quotes either of them in a value
        yield line.getvalue().removesuffix("\r\n")


def as_markdown(records: Sequence[Record], columns: Sequence[str]) -> Iterator[str]:
    """A table as GitHub reads it: a header, a rule, a line a record. All texts stand in code, where none of them links,
    mentions anybody, or hides."""
    from duckkb.review import markup

    names = (name if not name or _PLAIN.fullmatch(name) else markup.cell(without_commands(name)) for name in columns)
    yield "| " + " | ".join(names) + " |"
    yield "|" + " --- |" * len(columns)
    for record in records:
        yield _markdown_line([record.get(name) for name in columns])


WRITERS: Mapping[str, Writer] = {"csv": as_csv, "md": as_markdown}
"""By name: a format that has no writer here has no name."""
ROWS = (*WRITERS, "table")
FORMATS = ("jsonl", "json", *ROWS)


def as_table(records: Sequence[Record], columns: Sequence[str], width: int) -> table.Drawn:
    """Aligned columns for a terminal of `width` columns (0: for none)."""
    right = [_numbers(record.get(name) for record in records) for name in columns]
    return table.draw(columns, [_row(record, columns) for record in records], right, width)


def _row(record: Record, columns: Sequence[str]) -> list[str]:
    return [cell(record.get(name)) for name in columns]


def _markdown_line(values: Sequence[Any]) -> str:
    from duckkb.review import markup

    def shown(value: Any) -> str:
        is_text = not isinstance(value, bool | int | float) and value not in (None, "")
        return markup.cell(without_commands(cell(value))) if is_text else cell(value)

    return "| " + " | ".join(map(shown, values)) + " |"


def _numbers(values: Iterable[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in present)
