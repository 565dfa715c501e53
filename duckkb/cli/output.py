"""The output of verbs: one result (`emit`) or records (`lines`) on stdout in the chosen format; notices on stderr.

Also the input that verbs read from stdin.

The fields of a record that are printed: the default form, or those that --fields names."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from duckkb.cli import record_formats, terminal
from duckkb.cli.options import Format, choose_format, read_front_options, wants_json
from duckkb.cli.record_formats import dumps
from duckkb.operations.record_lines import OF_RECORDS, FieldChoice, Line, Projection, format_lines

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.types.queries import Notice, Receipt


def emit(line: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a single result: a line of JSON, a row of csv or md, or a table with a row per field.

    Each list of objects in it becomes a table of its own. An array is printed only as JSON.
    """
    form = choose_format()
    line = _add_commit(line) if isinstance(line, Mapping) else line
    if form not in record_formats.ROWS:
        terminal.result(dumps(line))
    elif not isinstance(line, Mapping):
        only_json("an array")
    elif record_formats.ROWS[form].by_field:
        rows, tables = record_formats.fields_of(line)
        lines({**row, "value": record_formats.cell(row["value"])} for row in rows)
        for name, records in tables.items():
            record_formats.ROWS[form].show(f"\n{name}")
            lines(records)
    else:
        lines([line])


def lines(
    records: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, under: str = "results", **more: Any
) -> None:
    """Print records, a line each.

    `columns` are those of csv, md and table, where they are known without a record; the header is then printed
    even without records. With --format json, prints one object that has the records `under` that name, and
    `more`.
    """
    form = choose_format()
    records = map(_add_commit, records)
    if form == "json":
        terminal.result(dumps({under: list(records), **_add_commit(more)}))
    elif form in record_formats.FORMATS and form not in record_formats.ROWS:
        for record in records:
            terminal.result(dumps(record))
    else:
        record_list = list(records)
        names = record_formats.fields(record_list, columns)
        if names:
            _print_rows(record_formats.ROWS[form], record_list, names)


def raise_no_results(
    whole: Mapping[str, Any], message: str, suggestion: str, correction: tuple[str, str] | None = None
) -> NoReturn:
    """Raise `errors.NotFound` (E_NO_RESULTS); with --format json, print the empty `whole` answer first.

    `correction` is a word of the line, and what it should be, as `errors.DuckkbError` has it.
    """
    from duckkb.types.errors import NotFound

    if wants_json():
        emit(whole)
    error = NotFound(message, code="E_NO_RESULTS", suggestion=suggestion)
    error.correction = correction
    raise error


def _add_commit(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the commit to a line of a published base."""
    commit = read_front_options().get("commit")
    return {**line, "_commit": commit} if commit and "_commit" not in line else line


def only_json(what: str) -> None:
    """Raise `click.UsageError` where the command line asks for rows of what has no rows."""
    form = choose_format()
    if form in record_formats.ROWS:
        command = click.get_current_context().command
        kind = next((param.type for param in command.params if isinstance(param.type, Format)), Format())
        alternatives = ", ".join(name for name in kind.choices if name not in record_formats.ROWS)
        raise click.UsageError(f"{what} cannot be printed as {form}; use {alternatives}")


def patch(receipt: "Receipt", *, lines: int | None = None) -> None:
    """Print the patch of a dry run as git would show it, at most its first `lines`; it has no rows."""
    only_json("a patch")
    if lines is None or receipt.patch.count("\n") <= lines:
        terminal.result(receipt.patch, end="")
        return
    for line in receipt.patch.split("\n", lines)[:lines]:
        terminal.result(terminal.brief(line))
    terminal.note(f"{receipt.patch.count(chr(10)) - lines:,} more lines of the patch; `> FILE` saves all")


def files(receipt: "Receipt", **more: Any) -> None:
    """Print the written files, a `file` a line; with --format json one object that has `more`."""
    if wants_json():
        emit({"files": list(receipt.files), **more})
    else:
        lines({"file": path} for path in receipt.files)


def _print_rows(form: record_formats.RowFormat, records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    output = form.write(records, columns)
    if form.is_verbatim:
        _refuse_commands(output.lines)
    for line in output.lines:
        form.show(line)
    if output.cut:
        terminal.note(f"cells shortened to fit: {output.cut}; another --format prints them in full")


def _refuse_commands(lines: Sequence[str]) -> None:
    """Refuse to print CSV with commands that a job's log would obey, since CSV has no escapes.

    In a file it is written as it is.
    """
    from duckkb.types.errors import StateError

    if terminal.into_log():
        for number, line in enumerate(lines):
            if terminal.has_command(line):
                raise StateError(
                    f"The forge would run row {number} as a command in this job's log; nothing was printed.",
                    suggestion="write to a file (> FILE), or use --format jsonl",
                )


def tell(notices: "Iterable[Notice]") -> None:
    """Print notices for people on stderr, each once."""
    for notice in dict.fromkeys(notices):
        terminal.tell_notice(notice.code, notice.message, notice.remedy)


def read_argument_or_stdin(argument: str | None, missing: str) -> bytes:
    """Return the bytes of an argument as typed, or of stdin without one or for `-`.

    Raises `click.UsageError` with the text `missing` where stdin is a terminal.
    """
    if argument is not None and argument != "-":
        try:
            return argument.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return argument.encode("utf-8", "surrogatepass")
    if argument is None and sys.stdin.isatty():
        raise click.UsageError(missing)
    return sys.stdin.buffer.read()


def read_text() -> str:
    """Read stdin as UTF-8 text in any locale; other bytes are an error."""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin is not UTF-8 text (byte {error.start + 1})") from error


def list_known_columns(asked: FieldChoice | None) -> tuple[str, ...]:
    """Return the columns that are known without a record."""
    return asked.paths if asked and not asked.are_more else ()


def project(
    kb: "KnowledgeBase",
    lines: Sequence[tuple[Line, Line]],
    asked: FieldChoice | None,
    *,
    of: str = "",
    own: Sequence[str] = OF_RECORDS,
) -> list[dict[str, Any]]:
    """Return records as they are printed, from pairs (whole, default form) `of` a type, or of `all`.

    A notice names given vectors that the default form left out, where the type is named. Raises `errors.UsageError`.
    """
    from duckkb.operations.record_lines import project as projected

    vector_names = kb.given_vectors(of) if of else {}
    identity = kb.identity_fields(of or lines[0][0]["_type"]) if asked and lines else {}
    projection = Projection(asked, own, vector_names, choose_format() in record_formats.ROWS, identity)
    records, notices = projected(lines, projection, kb.field_names)
    tell(notices)
    return records


def project_listed(
    kb: "KnowledgeBase",
    records: Sequence[Line],
    choice: FieldChoice | None,
    *,
    full: bool,
    of: str,
    own_fields: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the records of a page or walk as they are printed. Raises `errors.UsageError`."""
    return project(kb, format_lines(records, kb.document_types(of), full=full), choice, of=of, own=own_fields)
