"""The verbs find, pack, ask, sql, graph and embed: questions."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from duckkb.actions.last_condition import describe_last_condition
from duckkb.actions.registry.projecting import say_cut
from duckkb.actions.registry.record_lines import (
    OF_HITS,
    OF_STEPS,
    FieldChoice,
    hit_lines,
    result_object,
    sql_object,
)
from duckkb.cli import options, out, printed
from duckkb.cli.commands import parameters
from duckkb.cli.lines import list_known_columns, project, project_listed
from duckkb.cli.options import wants_json
from duckkb.cli.verb import base_verb, end, group, open_named_base, verb
from duckkb.errors import shell_word
from duckkb.settings import NO_MODEL

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.queries import Notice


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
        query = out.read_text().strip() if not sys.stdin.isatty() else None
    if vector is not None and vector.lstrip().startswith("["):
        ctx = click.get_current_context()
        (param,) = (parameter for parameter in ctx.command.params if parameter.name == "vector")
        raise click.BadParameter("give the vector in a file, or on stdin (-)", ctx, param)
    with open_named_base(first_filter=how["where"], at=at, reads=True) as kb:
        near = kb.vector_input(vector, stdin=sys.stdin.buffer) if vector is not None else None
        result = kb.find(type_name, query, vector=near, **how)
        if not result:
            out.tell(result.notices)
            where = how["where"] if type_name != "all" else None
            message, better = describe_last_condition(
                where or "", lambda before: kb.list(type_name, where=before, limit=1).total
            )
            better = _find_meant_filter(result.notices) or better
            wider = _suggest_wider(type_name, query, how["where"])
            correction = (str(how["where"]), better) if better else None
            out.raise_no_results(result_object(result, []), message, wider, correction)
        origins = kb.provenance.list_origins(result) if provenance else ()
        hit_pairs = hit_lines(result, origins, full=full)
        for _, form in hit_pairs if no_chunk else ():
            form.pop("_chunk", None)
        lines = project(kb, hit_pairs, fields, of=type_name, own=OF_HITS)
        result = say_cut(result, lines, fields, "--full")
        out.tell(result.notices)
        if wants_json():
            out.emit(result_object(result, lines))
        else:
            out.lines(lines, list_known_columns(fields))


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
    from duckkb.actions.answering.context_pack import convert_pack_to_object

    text = _read_question(question)
    with open_named_base(at=at, reads=True) as kb:
        pack = kb.pack(text, **asked)
        out.tell(pack.notices)
        match options.choose_format("markdown"):
            case "markdown":
                printed.result(pack.markdown(), end="")
            case "plain":
                printed.result(pack.plain(), end="")
            case _:
                answer = convert_pack_to_object(pack, "json")
                out.emit(answer) if wants_json() else out.lines(answer["entries"])
        if not pack.entries and not pack.omitted:
            printed.note("no results; loosen the question")
            end(1)


def _read_question(argument: str | None) -> str:
    """Return the question of the command line, else that of stdin."""
    if argument in (None, "-") and sys.stdin.isatty():
        raise click.UsageError("give a question, as an argument or on stdin")
    return argument if argument is not None and argument != "-" else out.read_text()


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
    from duckkb.actions.answering.ask import convert_answer_to_object
    from duckkb.cli import answers

    text, is_text = _read_question(question), options.choose_format("text") == "text"
    listen = (answers.piece if is_text else answers.event) if stream else (lambda _: None)
    with open_named_base(at=at, reads=True) as kb:
        answer = kb.ask(text, listen=listen, **how)
    out.tell(answer.pack.notices)
    if is_text:
        answers.show(answer, was_streamed=stream)
    elif stream:
        out.emit({"event": "answer", **convert_answer_to_object(answer)})
    else:
        out.emit(convert_answer_to_object(answer))
    if code := answers.failure(answer, strict=strict):
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
    text = statement if statement not in (None, "-") else out.read_text()
    with open_named_base(first_filter=text, reads=True) as kb:
        result = kb.sql(text or "", limit=limit, timeout=timeout)
        answer = sql_object(result)
        if wants_json():
            out.emit(answer)
        else:
            out.lines(answer["rows"], answer["columns"])
        out.tell(kb.notices)
        if result.truncated:
            printed.notice(
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
    out.tell(kb.notices)
    if not result.records:
        whole = {"records": [], "truncated": result.truncated, "next": result.next}
        out.raise_no_results(whole, "no neighbors", _suggest_walk(kb, type_name, identity, walk))
    out.lines(_project_steps(kb, result, fields, full), under="records", truncated=result.truncated, next=result.next)
    if result.truncated:
        on = f", or continue with --after {shell_word(result.next)}" if result.next else ""
        printed.notice("W_TRUNCATED", f"stopped at {len(result.records)} records", f"raise --limit{on}")


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
    out.tell([*kb.notices, *result.notices])
    lines = project_listed(kb, result.records, fields, full=full, of=type_name, own_fields=(*OF_STEPS, "_score"))
    out.lines(lines, under="records")


@base_verb("citing", group=graph_command, reads=True, tells=False, action="citing")
@options.record_type
@click.argument("identity")
@parameters("limit", "fields", "full")
def citing_command(
    kb: "KnowledgeBase", type_name: str, identity: str, *, fields: FieldChoice | None, full: bool, **how: Any
) -> None:
    result = kb.citing(type_name, identity, **how)
    out.tell(kb.notices)
    out.lines(_project_steps(kb, result, fields, full), under="records", truncated=result.truncated)
    if not result.records:
        printed.note("no results")
    if result.truncated:
        printed.notice("W_TRUNCATED", f"stopped at {len(result.records)} records", "raise --limit")


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
    out.tell(kb.notices)
    if not steps:
        more = "--direction both" if walk["direction"] != "both" else f"--depth {min(2 * walk['depth'], 1000)}"
        ends = " ".join(map(shell_word, (from_type, from_identity, to_type, to_identity)))
        again = f"duckkb graph path {ends} {more}"
        out.raise_no_results({"path": []}, f"no path of at most {walk['depth']} edges", again)
    out.lines(_project_steps(kb, steps, fields, full), under="path")


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
    out.only_json("a vector")
    if text is None and input_file is None and sys.stdin.isatty():
        raise click.UsageError("give a text as an argument, with --input-file FILE, or on stdin")
    with open_named_base() as kb:
        texts = kb.embed_input(text, input_file, batch=batch, stdin=sys.stdin.buffer)
        answer = kb.embed(texts, passage=passage)
        out.tell(answer.notices)
        if not wants_json():
            for vector in answer.vectors:
                out.emit(vector)
            return
        payload = {"embedding": answer.vectors[0]} if not batch else {"embeddings": list(answer.vectors)}
        usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens, "tokens": answer.tokens}
        out.emit({**payload, "model": answer.model, "usage": usage})
