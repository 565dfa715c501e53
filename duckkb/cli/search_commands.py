"""The verbs find, pack, ask, sql, graph and embed: questions.

The verbs search, vsearch, query and multi-get: documents.

Printing of `ask`: answers for people, the pieces of a stream, and exit codes."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, output, terminal
from duckkb.cli.command import base_verb, end, group, open_named_base, parameters, verb
from duckkb.cli.command_words import is_query
from duckkb.cli.options import choose_format, wants_json
from duckkb.cli.output import list_known_columns, project, project_listed
from duckkb.cli.record_formats import DOCUMENT_FORMATS, dumps
from duckkb.operations.ask import Answered, Declined
from duckkb.operations.context_pack import Entry
from duckkb.operations.record_lines import OF_HITS, OF_STEPS, FieldChoice, hit_lines, result_object, say_cut, sql_object
from duckkb.operations.record_search import describe_last_condition
from duckkb.types.chat_messages import ContentDelta, ReasoningDelta
from duckkb.types.codes import CODES
from duckkb.types.errors import shell_word
from duckkb.types.settings import NO_MODEL

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.operations.document_search import How
    from duckkb.types.queries import Notice


@verb("find", action="find")
@click.argument("type_name", metavar="TYPE|all")
@click.argument("query", required=False)
@options.mode
@parameters("where", "limit")
@click.option(
    "--vector",
    metavar="FILE|-",
    type=options.PathName(),
    help="A question as a vector: a JSON array of numbers, or as `embed` prints it.",
)
@parameters("explain", "provenance", "fields", "full")
@click.option("--no-chunk", is_flag=True, help="Do not print the position within longer texts.")
@parameters("at")
@options.backend
def find_command(
    type_name: str,
    query: str | None,
    *,
    vector: str | None,
    provenance: bool,
    fields: FieldChoice | None,
    full: bool,
    no_chunk: bool,
    at: str | None,
    **how: Any,
) -> None:
    """\b
    duckkb find concept "how are ranked lists joined"
    duckkb find concept "倒数排名融合" -m -l 3
    duckkb find concept -w "topic = 'storage' AND name LIKE 'P%'"

    Without a flag the type's policy decides; if it has both words and vectors, the search is hybrid. --vector
    alone searches by that vector; with a query the search is hybrid, by the query's words and that vector.

    Each line is a record with _type, _etag, _engine and _score, for collections also _scores. _chunk is the best piece of a longer text. Long texts are cut to the lines that fit the question (_partial names these fields); in a document they begin at _line of its file. --full prints whole texts, `duckkb get TYPE IDENTITY` those of one record. --provenance adds the commit and citation of each record, which `duckkb get` resolves later too. `duckkb pack QUESTION` quotes passages with citations.
    --fields +_chunk,_scores,__id,__updated_at prints more, --fields id,_score less; vectors that callers gave are printed only if named.
    """
    if how["mode"] == "similar" and query is None and vector is None:
        query = output.read_text().strip() if not sys.stdin.isatty() else None
    if vector is not None and vector.lstrip().startswith("["):
        ctx = click.get_current_context()
        (param,) = (parameter for parameter in ctx.command.params if parameter.name == "vector")
        raise click.BadParameter("give the vector in a file, or on stdin (-)", ctx, param)
    with open_named_base(first_filter=how["where"], at=at, reads=True) as kb:
        near = kb.vector_input(vector, stdin=sys.stdin.buffer) if vector is not None else None
        result = kb.find(type_name, query, vector=near, **how)
        if not result:
            output.tell(result.notices)
            where = how["where"] if type_name != "all" else None
            message, better = describe_last_condition(
                where or "", lambda before: kb.list(type_name, where=before, limit=1).total
            )
            better = _find_meant_filter(result.notices) or better
            wider = _suggest_wider(type_name, query, how["where"])
            correction = (str(how["where"]), better) if better else None
            output.raise_no_results(result_object(result, []), message, wider, correction)
        origins = kb.provenance.list_origins(result) if provenance else ()
        hit_pairs = hit_lines(result, origins, full=full)
        for _, form in hit_pairs if no_chunk else ():
            form.pop("_chunk", None)
        lines = project(kb, hit_pairs, fields, of=type_name, own=OF_HITS)
        result = say_cut(result, lines, fields, "--full")
        output.tell(result.notices)
        if wants_json():
            output.emit(result_object(result, lines))
        else:
            output.lines(lines, list_known_columns(fields))


@verb("pack", action="pack", formats=("markdown", "plain"))
@click.argument("question", required=False)
@parameters("budget", "types", "limit", "neighbors", "at")
@options.backend
def pack_command(question: str | None, *, at: str | None, **asked: Any) -> None:
    """\b
    duckkb pack "how are ranked lists joined" --budget 2000
    duckkb pack "how do we roll back a release" -t runbooks --json

    `duckkb get URI` resolves a citation even after the record changed. The same base, question and pipeline
    give the same bytes. Omitted results are counted; --json lists the first of them."""
    from duckkb.operations.context_pack import convert_pack_to_object

    text = _read_question(question)
    with open_named_base(at=at, reads=True) as kb:
        pack = kb.pack(text, **asked)
        output.tell(pack.notices)
        match options.choose_format("markdown"):
            case "markdown":
                terminal.result(pack.markdown(), end="")
            case "plain":
                terminal.result(pack.plain(), end="")
            case _:
                answer = convert_pack_to_object(pack, "json")
                output.emit(answer) if wants_json() else output.lines(answer["entries"])
        if not pack.entries and not pack.omitted:
            terminal.note("no results; loosen the question")
            end(1)


def _read_question(argument: str | None) -> str:
    """Return the question of the command line, else that of stdin."""
    if argument in (None, "-") and sys.stdin.isatty():
        raise click.UsageError("give a question, as an argument or on stdin")
    return argument if argument is not None and argument != "-" else output.read_text()


@verb("ask", action="ask", formats=("text",))
@click.argument("question", required=False)
@parameters("model", "types", "budget", "limit")
@click.option(
    "--stream",
    is_flag=True,
    help="Print the answer as it arrives; with --json one event per line, the whole answer last.",
)
@click.option("--strict", is_flag=True, help="Exit 1 if a sentence is marked as unsupported.")
@parameters("at")
@options.backend
def ask_command(question: str | None, *, stream: bool, strict: bool, at: str | None, **how: Any) -> None:
    """\b
    duckkb ask "how do we roll back a release"
    duckkb ask "合并冲突怎么解决" --strict --json
    duckkb ask "which settings stop a mass deletion" -t Setting --stream

    Exits 1 if the base has not enough evidence (E_NO_EVIDENCE). Citations, quotations, code, numbers, names and
    denials are checked against the texts. An incomplete answer is printed, and exits 1 (E_ANSWER_CUT)."""
    from duckkb.operations.ask import convert_answer_to_object

    text, is_text = _read_question(question), options.choose_format("text") == "text"
    listen = (piece if is_text else event) if stream else (lambda _: None)
    with open_named_base(at=at, reads=True) as kb:
        answer = kb.ask(text, listen=listen, **how)
    output.tell(answer.pack.notices)
    if is_text:
        show(answer, was_streamed=stream)
    elif stream:
        output.emit({"event": "answer", **convert_answer_to_object(answer)})
    else:
        output.emit(convert_answer_to_object(answer))
    if code := failure(answer, strict=strict):
        end(code)


@verb("sql", action="sql")
@click.argument("statement", required=False)
@parameters("limit", "timeout")
@options.backend
def sql_command(statement: str | None, limit: int, timeout: float) -> None:
    """Give the statement as an argument or on stdin. Tables: one per node type and edge label, search_index,
    search_cache. `duckkb schema --sql` shows them."""
    if statement is None and sys.stdin.isatty():
        raise click.UsageError("give a statement as an argument or on stdin")
    text = statement if statement not in (None, "-") else output.read_text()
    with open_named_base(first_filter=text, reads=True) as kb:
        result = kb.sql(text or "", limit=limit, timeout=timeout)
        answer = sql_object(result)
        if wants_json():
            output.emit(answer)
        else:
            output.lines(answer["rows"], answer["columns"])
        output.tell(kb.notices)
        if result.truncated:
            terminal.tell_notice(
                "W_TRUNCATED", f"stopped at {len(result.rows)} rows", "raise --limit, or narrow the statement"
            )


@group("graph")
def graph_command() -> None:
    """Records are linked by edges, by citations, and by similar meaning."""


@base_verb("neighbors", group=graph_command, reads=True, tells=False, action="neighbors")
@options.record_type
@click.argument("identity")
@parameters("label", "direction", "depth", "limit", "after", "fields", "full")
@options.backend
def neighbors_command(
    kb: "KnowledgeBase", type_name: str, identity: str, *, fields: FieldChoice | None, full: bool, **walk: Any
) -> None:
    result = kb.neighbors(type_name, identity, **walk)
    output.tell(kb.notices)
    if not result.records:
        whole = {"records": [], "truncated": result.truncated, "next": result.next}
        output.raise_no_results(whole, "no neighbors", _suggest_walk(kb, type_name, identity, walk))
    output.lines(
        _project_steps(kb, result, fields, full), under="records", truncated=result.truncated, next=result.next
    )
    if result.truncated:
        on = f", or continue with --after {shell_word(result.next)}" if result.next else ""
        terminal.tell_notice("W_TRUNCATED", f"stopped at {len(result.records)} records", f"raise --limit{on}")


def _find_meant_filter(notices: "Sequence[Notice]") -> str:
    """Return the filter that a notice takes to be meant; empty without one."""
    option = next((notice.remedy for notice in notices if notice.remedy.startswith("-w ")), "")
    return shlex.split(option)[1] if option else ""


def _suggest_wider(type_name: str, query: str | None, condition: str | None) -> str:
    """Return a wider search: without the filter, else in all types, else the list of records or types."""
    words = [type_name, query] if query and condition else ["all", query] if query and type_name != "all" else []
    if words:
        return f"duckkb find {' '.join(map(shell_word, words))}"
    return f"duckkb list {shell_word(type_name)}" if type_name != "all" else "duckkb schema"


def _suggest_walk(kb: "KnowledgeBase", type_name: str, identity: str, walk: Mapping[str, Any]) -> str:
    """Return a wider walk after one without results: by omitted edges, by meaning, or the list of edge types."""
    place = f"{shell_word(type_name)} {shell_word(identity)}"
    if walk["label"] or walk["direction"] != "both":
        return f"duckkb graph neighbors {place}"
    embeds = kb.configured.embedding.model != NO_MODEL
    has_vectors = any(kind.get("vectors") for kind in kb.types() if type_name in (kind["name"], kind["table"]))
    return f"duckkb graph near {place}" if embeds and has_vectors else "duckkb schema"


@base_verb("near", group=graph_command, reads=True, tells=False, action="near")
@options.record_type
@click.argument("identity")
@parameters("limit", "fields", "full")
def near_command(
    kb: "KnowledgeBase", type_name: str, identity: str, *, fields: FieldChoice | None, full: bool, **how: Any
) -> None:
    """`_score` is the mean, over the record's chunks, of the cosine to the best chunk of the other record."""
    result = kb.near(type_name, identity, **how)
    output.tell([*kb.notices, *result.notices])
    lines = project_listed(kb, result.records, fields, full=full, of=type_name, own_fields=(*OF_STEPS, "_score"))
    output.lines(lines, under="records")


@base_verb("citing", group=graph_command, reads=True, tells=False, action="citing")
@options.record_type
@click.argument("identity")
@parameters("limit", "fields", "full")
def citing_command(
    kb: "KnowledgeBase", type_name: str, identity: str, *, fields: FieldChoice | None, full: bool, **how: Any
) -> None:
    result = kb.citing(type_name, identity, **how)
    output.tell(kb.notices)
    output.lines(_project_steps(kb, result, fields, full), under="records", truncated=result.truncated)
    if not result.records:
        terminal.note("no results")
    if result.truncated:
        terminal.tell_notice("W_TRUNCATED", f"stopped at {len(result.records)} records", "raise --limit")


@base_verb("path", group=graph_command, reads=True, tells=False, action="path")
@click.argument("from_type", metavar="TYPE", cls=options.RecordTypeArgument)
@click.argument("from_identity", metavar="IDENTITY")
@click.argument("to_type", metavar="TYPE")
@click.argument("to_identity", metavar="IDENTITY")
@parameters("label", "direction", "depth", "fields", "full")
@options.backend
def path_command(
    kb: "KnowledgeBase",
    from_type: str,
    from_identity: str,
    to_type: str,
    to_identity: str,
    *,
    fields: FieldChoice | None,
    full: bool,
    **walk: Any,
) -> None:
    steps = kb.path((from_type, from_identity), (to_type, to_identity), **walk)
    output.tell(kb.notices)
    if not steps:
        more = "--direction both" if walk["direction"] != "both" else f"--depth {min(2 * walk['depth'], 1000)}"
        ends = " ".join(map(shell_word, (from_type, from_identity, to_type, to_identity)))
        again = f"duckkb graph path {ends} {more}"
        output.raise_no_results({"path": []}, f"no path of at most {walk['depth']} edges", again)
    output.lines(_project_steps(kb, steps, fields, full), under="path")


def _project_steps(
    kb: "KnowledgeBase", records: Sequence[Mapping[str, Any]], fields: FieldChoice | None, full: bool
) -> Sequence[Mapping[str, Any]]:
    """Return the records of a path as they are printed."""
    return project_listed(kb, records, fields, full=full, of="all", own_fields=OF_STEPS)


@verb("embed")
@click.argument("text", required=False)
@click.option("--batch", is_flag=True, help="Read a JSON array of strings; print one line for each.")
@click.option("--passage", is_flag=True, help="Embed as stored text, not as a question.")
@click.option("--input-file", metavar="FILE", type=options.PathName(), help="Take the text from a file.")
def embed_command(text: str | None, *, batch: bool, passage: bool, input_file: str | None) -> None:
    """It is a JSON array of float32 values, each 8 hex digits, big-endian (1.0 is "3f800000").

    \b
    duckkb embed "how are ranked lists joined"
    duckkb embed --batch '["one text", "another"]' --passage
    duckkb embed --input-file page.txt --json

    The text comes from the argument, a file, or stdin. Longer texts are cut to the model's limit (512 tokens
    for the offline model, with prefix and marks), and stderr reports their number of tokens. An endpoint
    reports no limit, so it gets whole texts. With --json one object: embedding (embeddings), model, usage."""
    if text is not None and input_file is not None:
        raise click.UsageError("give a text or --input-file, not both")
    output.only_json("a vector")
    if text is None and input_file is None and sys.stdin.isatty():
        raise click.UsageError("give a text as an argument, with --input-file FILE, or on stdin")
    with open_named_base() as kb:
        texts = kb.embed_input(text, input_file, batch=batch, stdin=sys.stdin.buffer)
        answer = kb.embed(texts, passage=passage)
        output.tell(answer.notices)
        if not wants_json():
            for vector in answer.vectors:
                output.emit(vector)
            return
        payload = {"embedding": answer.vectors[0]} if not batch else {"embeddings": list(answer.vectors)}
        usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens, "tokens": answer.tokens}
        output.emit({**payload, "model": answer.model, "usage": usage})


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
    from duckkb.operations.document_search import SearchOptions
    from duckkb.operations.record_lines import describe_documents

    text = question if question not in (None, "-") else _read_document_question()
    if everything and limit is not None:
        raise click.UsageError("--limit and --all contradict each other; give one of them")
    most = None if everything else limit or (_MANY if choose_format() in ("files", "json") else _FEW)
    line_numbers = given.pop("line_numbers")
    search_options = SearchOptions(limit=most, **given)
    with open_named_base(at=at, reads=True) as kb:
        documents = kb.search_documents(text, how, search_options)
        output.tell(documents.notices)
        hits = [_add_line_numbers(hit) if line_numbers else hit for hit in documents]
        print_documents(hits, describe_documents(documents, hits))
        for hint in documents.hints if choose_format() != "json" else ():
            _tell_hint(hint)
        if not documents:
            command, name = ("sql", "tables") if is_query(text) else ("find all", "records too")
            terminal.note(f"no documents; `duckkb {command} {shell_word(text)}` searches the {name}")
            end(1)  # stdout has its empty payload


def _tell_hint(hint: Mapping[str, Any]) -> None:
    if terminal.says_json():
        terminal.data({"hint": hint})
        return
    of, near = hint["of"], f"{hint['label']} ({hint['file']})" if hint["file"] else hint["label"]
    ends = (of, near) if hint["direction"] == "out" else (near, of)
    sure = "" if hint["confidence"] is None else f" [{hint['confidence']:g}]"
    terminal.note(f"hint: {ends[0]} {hint['relation']} {ends[1]}{sure}")


def _read_document_question() -> str:
    if sys.stdin.isatty():
        raise click.UsageError("give a question, as an argument or on stdin")
    return output.read_text().strip()


def print_documents(lines: Sequence[Mapping[str, Any]], whole: Mapping[str, Any]) -> None:
    """Print documents in the chosen format, as JSON the `whole` answer.

    A format with a container is printed even without documents.
    """
    form = choose_format()
    if form == "json":
        output.emit(whole)
    elif form == "table":
        output.lines(lines)
    elif form in DOCUMENT_FORMATS:
        for text in DOCUMENT_FORMATS[form](lines):
            terminal.result(text)
    else:
        for line in lines:
            terminal.result(dumps(line))


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
            terminal.note(message)
        output.tell(kb.notices)
        if lacking:
            end(1)


def print_document(document: Mapping[str, Any], numbered: bool) -> None:
    """Print a document; its text alone where no format is asked for."""
    line = _add_line_numbers(document) if numbered else document
    if choose_format("") == "":
        terminal.result(line["text"], end="" if line["text"].endswith("\n") else "\n")
        if "warnings" in line:
            terminal.tell_notice("W_DOCUMENT", f"the file was read with warnings: {', '.join(line['warnings'])}")
    elif choose_format() == "json":
        terminal.result(dumps(line))
    else:
        print_documents([line], line)


Command = Callable[..., Any]


def piece(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece of an answer as it comes; a model's reasoning is not printed."""
    if isinstance(event, ContentDelta):
        terminal.result(event.text, end="")


def event(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece as a JSON object on a line."""
    name = "content" if isinstance(event, ContentDelta) else "reasoning"
    output.emit({"event": name, "text": event.text})


def show(found: Answered | Declined, *, was_streamed: bool) -> None:
    """Print the answer with its sources and marks, or the nearest records where there is no answer."""
    if isinstance(found, Declined):
        lines = ["Nearest:", *map(_format_source, found.nearest)] if found.nearest else []
    else:
        lines = [] if was_streamed else [found.text.strip()]
        if found.cited:
            lines += ["", "Sources:", *map(_format_source, found.cited)]
        if found.unsupported:
            lines += ["", "Unsupported:"]
        for claim in found.unsupported:
            lines += [f"- {' '.join(claim.sentence.text.split())}", f"  {'; '.join(map(str, claim.marks))}"]
    if was_streamed and found.model:
        terminal.result("")
    for line in lines:
        terminal.result(line)


def failure(found: Answered | Declined, *, strict: bool) -> int:
    """Print on stderr why the command fails, and return its exit code; 0 where it does not fail."""
    match found:
        case Declined():
            return _print_error(found.reason, "E_NO_EVIDENCE")
        case Answered() if found.cut:
            return _print_error(f"the answer is incomplete: {found.cut}", "E_ANSWER_CUT")
        case Answered() if strict and found.unsupported:
            count = len(found.unsupported)
            return _print_error(f"{count} of {len(found.sentences)} sentences are unsupported", "E_UNSUPPORTED")
    return 0


def _print_error(message: str, code: str) -> int:
    return terminal.error(message, code, CODES[code].remedy, CODES[code].exit_code)


def _format_source(entry: Entry) -> str:
    place = f"{entry.path}:{entry.line}" if entry.line else entry.path
    return f"[{entry.number}] {entry.uri} {place}"
