"""Shorten answers for agents: without empty members, what the call itself said, and what each of many entries would repeat.

HTTP, which programs ask, gives answers whole. What is left out here a later call gives: `fields` names what of a record is wanted.

Tools: the actions of the registry as MCP lists them, and their answers as MCP returns them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import mcp_types as types

from duckkb.operations.action import Action
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.response_types import ANY, TEXT, list_of, object_of
from duckkb.types.request_context import Caller

Answer = dict[str, Any]
Arguments = Mapping[str, Any]
_MOST_ETAGS = 20
"""Receipts of more records have no etags; `list` gives those of the records that are to be written again."""
_DIGITS = 4
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT_COMMIT = 16  # as citations have it
_BOOKKEEPING = ("__id", "__created_at", "__updated_at")
_SIGNED = ("commit", "uncommitted", "author", "email", "date", "summary", "shallow", "path", "line", "uri")
_LEFT_OUT = frozenset(
    (
        *("inserted", "updated", "unchanged", "deleted", "pending", "identities", "ids", "etags", "patch"),
        *("columns", "table", "identity", "cardinality", "type", "docid", "_direction", "_depth", "number"),
        *(
            "question",
            "budget",
            "counter",
            "fingerprint",
            "uncommitted",
            "omitted_count",
            "path",
            "line",
            "sha256",
            "prefix",
        ),
    )
)
"""Members that some answers lack, beside those that are false, null or empty."""


_NEVER = frozenset(("__id", "ids", "patch", "sha256", "_direction"))
"""Members that no answer has unless `fields` names them."""


def shorten_answer(name: str, arguments: Arguments, answer: Mapping[str, Any]) -> Answer:
    """Return the answer of an action as an agent that called it with these arguments reads it."""
    is_record = "_type" in answer  # what it has under names that answers have too is its own
    short: Answer = dict(answer) if is_record else _drop_empty(answer, ACTIONS[name].output, keep=_main_member(name))
    return _SHORTENERS[name](short, arguments) if name in _SHORTENERS else short


def shorten_error(answer: Mapping[str, Any]) -> Answer:
    """Return a refusal without what is empty, and its findings without what it says itself or suggests as a call."""
    error = {**answer["error"]}
    details = {**error.pop("details", {})}
    findings = (_shorten_finding(finding, error) for finding in details.get("findings", ()))
    details["findings"] = [finding for finding in findings if finding]
    details = {name: value for name, value in details.items() if not _is_empty(value)}
    return {"error": error | ({"details": details} if details else {})}


def _shorten_finding(finding: Mapping[str, Any], error: Mapping[str, Any]) -> Answer:
    short = {name: value for name, value in finding.items() if name != "remedy"}
    if short.get("code") == error["code"]:
        del short["code"]
    if short.get("message", "") in error["message"]:
        short.pop("message", None)
    return short


def shorten_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what `shorten_answer` returns."""
    if name == "blame":
        return _BLAME
    schema: dict[str, Any] = _loosen(ACTIONS[name].output, keep=_main_member(name))
    if name in _OF_RECORDS:
        schema["properties"] = {**schema["properties"], "type": TEXT}
    return schema


def _main_member(name: str) -> str:
    """Return the member that an action is called for: it stays also when it is empty."""
    first = next(iter(ACTIONS[name].output.get("properties", ())), "")
    return {**dict.fromkeys(_WRITES, ""), **_OF_RECORDS, **_OF_OTHERS}.get(name, first)


def _alternatives(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    yield from schema.get("anyOf", ())


def _may_be_empty(rule: Mapping[str, Any]) -> bool:
    kinds = {kind for each in _alternatives(rule) for kind in _list_kinds(each)}
    return bool(kinds & {"null", "boolean", "array", "object"})


def _list_kinds(rule: Mapping[str, Any]) -> Sequence[str]:
    kinds = rule.get("type", ())
    return [kinds] if isinstance(kinds, str) else kinds


def _drop_empty(value: Any, schema: Mapping[str, Any], *, keep: str = "") -> Any:
    """Drop members that are null, false or empty, where the schema declares them: others are fields of a record."""
    if isinstance(value, list):
        items = schema.get("items", ANY)
        return [_drop_empty(item, items) for item in value]
    if not isinstance(value, Mapping):
        return value
    rules = {name: rule for each in _alternatives(schema) for name, rule in each.get("properties", {}).items()}
    short: Answer = {}
    for name, member in value.items():
        rule = rules.get(name)
        if rule is None:
            short[name] = member
        elif name == keep or name.startswith("_") or not _is_empty(member) or not _may_be_empty(rule):
            is_commit = name == "commit" and isinstance(member, str) and _COMMIT.fullmatch(member)
            short[name] = member[:_SHORT_COMMIT] if is_commit else _drop_empty(member, rule)
    return short


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value == [] or value == {}


def _loosen(schema: Any, *, keep: str = "") -> Any:
    """Return a JSON Schema that does not require what `_drop_empty` and `_SHORTENERS` leave out."""
    if isinstance(schema, list | tuple):
        return [_loosen(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    loose = {name: _loosen(rule) for name, rule in schema.items() if name != "properties"}
    if (rules := schema.get("properties")) is not None:
        loose["properties"] = {name: _loosen(rule) for name, rule in rules.items() if name not in _NEVER}
        loose["required"] = [
            name
            for name in schema.get("required", ())
            if name == keep or not (name in _LEFT_OUT or _may_be_empty(rules[name]))
        ]
    return loose


def _shorten_records(member: str) -> Callable[[Answer, Arguments], Answer]:
    """Return what shortens the records of a member, and names their type once where all have one."""

    def shorten(answer: Answer, arguments: Arguments) -> Answer:
        lines = [_shorten_record(line, answer, arguments) for line in answer[member]]
        types = {line.get("_type") for line in lines}
        if len(types) == 1 and None not in types and "_type" not in _list_fields(arguments):
            answer = {"type": types.pop(), **answer}
            lines = [{name: value for name, value in line.items() if name != "_type"} for line in lines]
        return {**answer, member: lines}

    return shorten


def _shorten_record(line: Answer, answer: Answer, arguments: Arguments) -> Answer:
    field_names, short = _list_fields(arguments), dict(line)
    if "_engine" not in field_names and short.get("_engine") == answer.get("engine"):
        short.pop("_engine", None)
    if "_scores" not in field_names and not arguments.get("explain"):
        short.pop("_scores", None)
    if "_line" in short and "_etag" not in field_names:  # a document, which no call writes
        short.pop("_etag", None)
    if "_depth" not in field_names and ("start" in arguments or arguments.get("depth", 1) == 1):
        short.pop("_depth", None)
    if isinstance(short.get("_score"), float):
        short["_score"] = round(short["_score"], _DIGITS)
    if isinstance(short.get("_provenance"), Mapping):
        source = _shorten_entry(short["_provenance"])
        short["_provenance"] = {name: value for name, value in source.items() if name != "commit"}  # its uri has it
    if isinstance(short.get("_edge"), Mapping):
        short["_edge"] = _shorten_edge(short["_edge"])
    return short


def _list_fields(arguments: Arguments) -> set[str]:
    return {name.removeprefix("+") for name in arguments.get("fields", ())}


def _shorten_edge(edge: Mapping[str, Any]) -> Answer:
    """Keep the other end alone: the edge leads `from` it to this record, or from this record `to` it."""
    own_end = "from" if edge.get("_direction") == "in" else "to"
    return {name: value for name, value in edge.items() if name not in (own_end, "_direction")}


def _shorten_got(answer: Answer, arguments: Arguments) -> Answer:
    """Drop bookkeeping that `fields` does not name, and the text of a chunk that is all of its field."""
    field_names = _list_fields(arguments)
    short = {name: value for name, value in answer.items() if name not in _BOOKKEEPING or name in field_names}
    chunk = short.get("_chunk")
    if isinstance(chunk, Mapping) and chunk.get("text") == short.get(chunk.get("field", "")):
        short["_chunk"] = {name: value for name, value in chunk.items() if name != "text"}
    return short


def _shorten_types(answer: Answer, arguments: Arguments) -> Answer:
    """Drop the table of a type where it has the same name, and of an edge type what most of them have."""
    plain = {"cardinality": "N:N", "identity": ["from", "to"]}
    return answer | {
        "types": [
            {
                name: value
                for name, value in line.items()
                if value != plain.get(name, line["name"] if name == "table" else None)
            }
            for line in answer["types"]
        ]
    }


def _shorten_receipt(answer: Answer, arguments: Arguments) -> Answer:
    """Drop the identities that the call sent, counts of 0, and the patch of a dry run, whose changes stay."""
    short = {name: value for name, value in answer.items() if value not in (0, None) and name not in ("ids", "patch")}
    if _names_records(short.get("identities", ()), arguments):
        del short["identities"]
    if "deleted" in short or "dry_run" in short or len(short.get("etags", ())) > _MOST_ETAGS:
        short.pop("etags", None)
    if isinstance(base := short.get("base"), str):
        short["base"] = base[:_SHORT_COMMIT]
    if isinstance(commit := short.get("commit"), str):
        short["commit"] = commit[:_SHORT_COMMIT]
    return short


def _names_records(identities: Sequence[Any], arguments: Arguments) -> bool:
    """Whether the call named these records itself, each part of each identity, in this order."""
    if "records" not in arguments:
        return bool(identities) and ("identities" in arguments or "new" in arguments or "scope" in arguments)
    records = arguments["records"] if isinstance(arguments["records"], list) else [arguments["records"]]
    if not identities or len(records) != len(identities):
        return False
    pairs = zip(identities, records, strict=True)
    return all(
        all(part in record.values() for part in (identity if isinstance(identity, list) else [identity]))
        for identity, record in pairs
        if isinstance(record, Mapping)
    )


def _shorten_blame(answer: Answer, arguments: Arguments) -> Answer:
    """List each commit once, with the fields that it gave their values."""
    commits: dict[str, Answer] = {}
    for line in answer["fields"]:
        by = {name: line[name] for name in _SIGNED if name in line}
        commits.setdefault(json.dumps(by), {**by, "fields": {}})["fields"][line["field"]] = line["value"]
    notices = {name: value for name, value in answer.items() if name != "fields"}
    return {"commits": list(commits.values()), **notices}


def _shorten_log(answer: Answer, arguments: Arguments) -> Answer:
    """Name the record only where it was renamed, and its file once where it stayed in one."""
    changes, paths = answer["changes"], {change["path"] for change in answer["changes"]}
    left_out = {"type", *(["path"] if len(paths) == 1 else [])}
    lines = [
        {name: change[name] for name in change if name not in left_out and (name != "identity" or "was" in change)}
        for change in changes
    ]
    return {**answer, "changes": lines, **({"path": paths.pop()} if len(paths) == 1 else {})}


def _shorten_rows(answer: Answer, arguments: Arguments) -> Answer:
    """Drop the columns where there are rows, whose keys they are."""
    return {name: value for name, value in answer.items() if name != "columns" or not answer["rows"]}


def _shorten_documents(answer: Answer, arguments: Arguments) -> Answer:
    return answer | {"results": list(map(_shorten_document, answer["results"]))}


def _shorten_document(line: Answer) -> Answer:
    """Name the title once: not among the headings above the snippet, nor as its first line."""
    short = {name: value for name, value in line.items() if name != "docid"}
    title = line.get("title", "")
    place = line.get("where", "")
    headings = place.partition("§ ")[2].split(" > ")
    if title and headings[0] == title:
        before, below = place.partition("§ ")[0], " > ".join(headings[1:])
        short["where"] = f"{before}§ {below}" if below else before.rstrip(", ")
        if not short["where"]:
            del short["where"]
    snippet, heading = line.get("snippet", ""), f"# {title}\n"
    if title and snippet.startswith(heading):
        text = snippet.removeprefix(heading)
        body = text.lstrip("\n")
        short |= {"snippet": body, "line": line["line"] + 1 + len(text) - len(body)}
    return short


def _shorten_pack(answer: Answer, arguments: Arguments) -> Answer:
    """Drop the question, digests and how tokens were counted; texts and citations stay."""
    left_out = {"question", "budget", "counter", "fingerprint", "prompt"}
    short = {name: value for name, value in answer.items() if name not in left_out and not _is_zero(name, value)}
    if short.get("omitted_count") == len(short.get("omitted", ())):
        short.pop("omitted_count", None)
    for holder in (short, short.get("refusal", {})):
        for name in ("entries", "nearest"):
            if isinstance(holder.get(name), list):
                holder[name] = list(map(_shorten_entry, holder[name]))
    if "pack" in short:
        short["pack"] = {name: value for name, value in short["pack"].items() if name not in left_out}
    return short


def _is_zero(name: str, value: Any) -> bool:
    return name in ("uncommitted", "omitted_count", "unsupported") and value == 0


def _shorten_entry(entry: Mapping[str, Any]) -> Answer:
    """Drop the digest, and of a record the place of its line: its citation resolves."""
    is_record = str(entry.get("path", "")).endswith(".jsonl")
    left_out = {"sha256", *(("path", "line") if is_record else ())}
    return {name: value for name, value in entry.items() if name not in left_out}


def _shorten_diff(answer: Answer, arguments: Arguments) -> Answer:
    """Drop counts of 0 and what names a record a second time; keep one place of each."""
    summary = {name: count for name, count in answer.get("summary", {}).items() if count}
    types = {
        name: {op: count for op, count in counts.items() if count} for name, counts in answer.get("types", {}).items()
    }
    short = answer | {
        "summary": summary,
        "types": types,
        "changes": list(map(_shorten_change, answer.get("changes", ()))),
    }
    return {name: value for name, value in short.items() if value not in ("", [], {}) or name == "changes"}


def _shorten_change(change: Answer) -> Answer:
    left_out = ("kind", "table", "id", "before", "after")
    place = change.get("after") or change.get("before") or {}
    short = {name: value for name, value in change.items() if name not in left_out}
    return short | {name: value for name, value in place.items() if name != "etag"}


_BLAME = object_of(
    {
        "commits": list_of(
            object_of({**dict.fromkeys(_SIGNED, ANY), "fields": {"type": "object"}}, *_SIGNED),
            "Each commit with the fields that it gave the values that they have.",
        )
    }
)
_WRITES = ("put", "delete", "rename", "memory_put")
"""Actions that give receipts."""
_OF_RECORDS = {
    "find": "results",
    "memory_search": "results",
    "list": "records",
    "neighbors": "records",
    "near": "records",
    "citing": "records",
    "path": "path",
}
"""Actions that give records, by the member that these stand in."""
_OF_OTHERS = {
    "branches": "branches",
    "check": "findings",
    "conflicts": "conflicts",
    "diff": "changes",
    "memory_history": "versions",
    "pack": "entries",
    "resolve": "conflicts",
    "sql": "rows",
}
"""Actions whose first member is not what they are called for."""
_SHORTENERS: Mapping[str, Callable[[Answer, Arguments], Answer]] = {
    **{name: _shorten_records(member) for name, member in _OF_RECORDS.items()},
    **dict.fromkeys(_WRITES, _shorten_receipt),
    **dict.fromkeys(("query", "search"), _shorten_documents),
    **dict.fromkeys(("pack", "ask"), _shorten_pack),
    "get": _shorten_got,
    "types": _shorten_types,
    "blame": _shorten_blame,
    "log": _shorten_log,
    "sql": _shorten_rows,
    "diff": _shorten_diff,
}


COMMON = frozenset(
    (
        "types",
        "schema",
        "find",
        "query",
        "get",
        "list",
        "sql",
        "neighbors",
        "put",
        "delete",
        "memory_search",
        "memory_put",
    )
)
"""Names of the tools that most agents need. Each definition costs a model about 500 tokens in every conversation."""


def offer_tools(caller: Caller, *, all_tools: bool = True) -> list[types.Tool]:
    """List the tools that a caller may use: all of them, or the common ones."""
    return [
        _build_tool(name) for name, action in ACTIONS.items() if action.is_for(caller) and (all_tools or name in COMMON)
    ]


def input_schema(name: str) -> dict[str, Any] | None:
    """Return the JSON Schema of a tool's arguments; None where there is no such tool."""
    return _build_tool(name).input_schema if name in ACTIONS else None


def make_result(answer: dict[str, Any], *, failed: bool = False) -> types.CallToolResult:
    """Return an answer, or an error, as structured content and as the same text."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    sound = text.encode("utf-8", "replace").decode()  # half a surrogate has no form on the wire
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=sound)]
    return types.CallToolResult(content=content, structured_content=json.loads(sound), is_error=failed)


@cache
def _build_tool(name: str) -> types.Tool:
    action = ACTIONS[name]
    hints = types.ToolAnnotations(
        read_only_hint=not action.writes,
        destructive_hint=action.writes and action.repeats,  # also a put: it replaces the record that is there
        idempotent_hint=action.repeats,  # a write that changes nothing writes nothing; what counts does each time
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        title=action.summary.removesuffix("."),
        description=action.description,
        input_schema=dict(action.input),
        output_schema=_build_output_schema(action),
        annotations=hints,
    )


def _build_output_schema(action: Action) -> dict[str, Any]:
    """Return the schema of an answer, without descriptions, which `docs/actions.md` has.

    Clients validate the structured content of errors against it too.
    """
    schema = _strip_descriptions(shorten_schema(action.name))
    definitions: dict[str, Any] = {key: schema.pop(key) for key in ("$schema", "$defs") if key in schema}
    return {**definitions, "type": "object", "anyOf": [schema, {"required": ["error"]}]}


def _strip_descriptions(schema: Any, *, of_names: bool = False) -> Any:
    """Return a JSON Schema without its descriptions.

    An object that is `of_names` maps names, of which one may be `description`.
    """
    if isinstance(schema, Mapping):
        return {
            key: _strip_descriptions(value, of_names=key in ("properties", "$defs") and not of_names)
            for key, value in schema.items()
            if of_names or key != "description"
        }
    return [_strip_descriptions(each) for each in schema] if isinstance(schema, list | tuple) else schema
