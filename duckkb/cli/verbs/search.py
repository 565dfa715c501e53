"""The verbs search, vsearch, query and multi-get: documents."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.document_formats import FORMATS
from duckkb.cli.formats import dumps
from duckkb.cli.line_words import is_query
from duckkb.cli.options import choose_format
from duckkb.cli.verb import end, open_named_base, verb
from duckkb.errors import shell_word

if TYPE_CHECKING:
    from duckkb.actions.documents.searching import How

_FEW, _MANY = 5, 20
_OWN = ("jsonl", "files", "md", "xml")


def _make_format_flag(name: str) -> Any:
    """Make a flag that selects a format."""

    def choose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            before = ctx.ensure_object(dict).get("format") or ("json" if ctx.obj.get("json") else None)
            if before not in (None, name):
                raise click.UsageError(f"--{name} and --format {before} contradict each other; give one of them", ctx)
            ctx.obj["format"] = name

    return click.option(
        f"--{name}", f"as{name}", is_flag=True, expose_value=False, callback=choose, help=f"--format {name}."
    )


_formats = options.several(*map(_make_format_flag, ("files", "csv", "md", "xml")))
_how = options.several(
    click.argument("question", required=False),
    parameters("limit", action="search", default=None, help=f"At most this many results: {_FEW}, or {_MANY} with --files or --json."),
    click.option("--all", "everything", is_flag=True, help="Return all results."),
    parameters("min_score", "collections", "full", action="search"),
    click.option("--line-numbers", is_flag=True, help="Print the line numbers of the files."),
    parameters("explain", "at", action="search"),
    _formats,
)  # fmt: skip


@verb("search", formats=_OWN, action="search")
@_how
def search_command(question: str | None, **how: Any) -> None:
    """Supports "a phrase", -not and prefix*.

    \b
    duckkb search "connection pool"
    duckkb search 'retry -"exponential backoff"' -c runbooks --files
    """
    _search("search", question, **how)


@verb("vsearch", formats=_OWN)
@_how
def vsearch_command(question: str | None, **how: Any) -> None:
    """\b
    duckkb vsearch "what happens when a node disappears"
    """
    _search("vsearch", question, **how)


@verb("query", formats=_OWN, action="query")
@_how
@parameters("candidates", "rerank_timeout_ms", "arch_hints")
def query_command(question: str | None, **how: Any) -> None:
    """Give several lines to ask each lane separately: `lex:` words that must all occur, `vec:` a question, `hyde:`
    a possible answer, `intent:` the purpose of the question.

    \b
    duckkb query "how do we roll back a release" --md
    """
    _search("query", question, **how)


def _search(
    how: "How", question: str | None, *, limit: int | None, everything: bool, at: str | None, **given: Any
) -> None:
    from duckkb.actions.documents.searching import SearchOptions
    from duckkb.actions.registry.record_lines import describe_documents

    text = question if question not in (None, "-") else _read_question()
    if everything and limit is not None:
        raise click.UsageError("--limit and --all contradict each other; give one of them")
    most = None if everything else limit or (_MANY if choose_format() in ("files", "json") else _FEW)
    line_numbers = given.pop("line_numbers")
    search_options = SearchOptions(limit=most, **given)
    with open_named_base(at=at, reads=True) as kb:
        documents = kb.search_documents(text, how, search_options)
        out.tell(documents.notices)
        hits = [_add_line_numbers(hit) if line_numbers else hit for hit in documents]
        print_documents(hits, describe_documents(documents, hits))
        for hint in documents.hints if choose_format() != "json" else ():
            _tell_hint(hint)
        if not documents:
            command, name = ("sql", "tables") if is_query(text) else ("find all", "records too")
            printed.note(f"no documents; `duckkb {command} {shell_word(text)}` searches the {name}")
            end(1)  # stdout has its empty payload


def _tell_hint(hint: Mapping[str, Any]) -> None:
    if printed.says_json():
        printed.data({"hint": hint})
        return
    of, near = hint["of"], f"{hint['label']} ({hint['file']})" if hint["file"] else hint["label"]
    ends = (of, near) if hint["direction"] == "out" else (near, of)
    sure = "" if hint["confidence"] is None else f" [{hint['confidence']:g}]"
    printed.note(f"hint: {ends[0]} {hint['relation']} {ends[1]}{sure}")


def _read_question() -> str:
    if sys.stdin.isatty():
        raise click.UsageError("give a question, as an argument or on stdin")
    return out.read_text().strip()


def print_documents(lines: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> None:
    """Print documents in the chosen format, as JSON the `whole` answer.

    A format with a container is printed even without documents.
    """
    form = choose_format()
    if form == "json":
        out.emit(whole)
    elif form == "table":
        out.lines(lines)
    elif form in FORMATS:
        for text in FORMATS[form](lines):
            printed.result(text)
    else:
        for line in lines:
            printed.result(dumps(line))


def _add_line_numbers(line: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix each line of the text with its number in the file."""
    first = line.get("line", 1)
    text_field = next((name for name in ("snippet", "body", "text") if name in line), None)
    if text_field is None:
        return dict(line)
    rows: list[str] = line[text_field].split("\n")
    width = len(str(first + len(rows) - 1))
    new_rows = [f"{first + at:>{width}}: {row}" for at, row in enumerate(rows) if row or at < len(rows) - 1]
    return {**line, text_field: "\n".join(new_rows)}


@verb("multi-get", formats=_OWN, action="multi_get")
@click.argument("pattern")
@parameters("lines", "most")
@click.option("--line-numbers", is_flag=True, help="Print the line numbers of the files.")
@_formats
@parameters("at")
def multi_get_command(pattern: str, lines: int | None, most: int, line_numbers: bool, at: str | None) -> None:
    """\b
    duckkb multi-get "runbooks/**/*.md" --md
    duckkb multi-get "#3fa9c1, guide/install.md" --json
    """
    with open_named_base(at=at, reads=True) as kb:
        matches, lacking = kb.multi_get(pattern, lines=lines, most=most)
        documents = [_add_line_numbers(document) if line_numbers else document for document in matches]
        print_documents(documents, {"documents": documents, "lacking": lacking})
        for message in lacking:
            printed.note(message)
        out.tell(kb.notices)
        if lacking:
            end(1)


def print_document(document: Mapping[str, Any], numbered: bool) -> None:
    """Print a document; its text alone where no format is asked for."""
    line = _add_line_numbers(document) if numbered else document
    if choose_format("") == "":
        printed.result(line["text"], end="" if line["text"].endswith("\n") else "\n")
        if "warnings" in line:
            printed.notice("W_DOCUMENT", f"the file was read with warnings: {', '.join(line['warnings'])}")
    elif choose_format() == "json":
        printed.result(dumps(line))
    else:
        print_documents([line], line)


Command = Callable[..., Any]
