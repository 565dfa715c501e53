"""Resources: types as JSON Schema, and records and documents by the URI that cites them; and the greeting.

The greeting is made from the types too.
"""

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import mcp_types as types
from msgspec.structs import replace

from duckkb.caller import Caller
from duckkb.errors import DuckkbError, NotFound, UsageError
from duckkb.review.provenance import citation
from duckkb.serving.front import Answerer
from duckkb.serving.lines import report_unexpected

MISSING = ("E_NOT_FOUND", "E_UNKNOWN_TYPE")
"""Codes of errors for a URI that names nothing."""
_SCHEMA = "duckkb:schema"
_JSON, _TEXT = "application/json", "text/plain"
_MOST_TYPES, _LONGEST, _MOST_COMPLETED = 40, 200, 100
_MOST_REMEMBERED, _LONGEST_KEY = 900, 60
TEMPLATES = (
    types.ResourceTemplate(
        name="record",
        uri_template="duckkb://{type}/{identity}",
        description="The current version of a record. Both parts are percent-encoded; an identity of several parts is a "
        "JSON array.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="record at a commit",
        uri_template="duckkb://{type}/{identity}@{commit}",
        description="A record at a commit, as a citation names it.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="document",
        uri_template="duckkb://{collection}/{+path}",
        description="The text of a document: the `file` of a hit of `query` and `search`.",
        mime_type=_TEXT,
    ),
    types.ResourceTemplate(
        name="schema",
        uri_template=_SCHEMA + "/{type}",
        description="The JSON Schema of the records of a type.",
        mime_type=_JSON,
    ),
)


def offer_resources(served: Answerer, caller: Caller) -> list[types.Resource]:
    """List the types, and the schema of each. Records are named by citations, since there may be millions."""
    every = types.Resource(name="types", uri=_SCHEMA, description="All types and collections.", mime_type=_JSON)
    return [every, *(_describe_schema(record_type["name"]) for record_type in served.run("types", {}, caller)["types"])]


def _describe_schema(name: str) -> types.Resource:
    uri = f"{_SCHEMA}/{quote(name, safe='')}"
    return types.Resource(name=f"schema of {name}", uri=uri, description=f"The fields of {name}.", mime_type=_JSON)


def read(served: Answerer, uri: str, caller: Caller) -> types.TextResourceContents:
    """Read what a URI names. Raises `errors.NotFound`, `errors.UsageError` and what the base raises."""
    if uri == _SCHEMA:
        return _build_contents(uri, served.run("types", {}, caller))
    if uri.startswith(f"{_SCHEMA}/"):
        return _build_contents(uri, served.run("schema", {"type": unquote(uri.removeprefix(f"{_SCHEMA}/"))}, caller))
    reference = _parse_citation(uri)
    if reference is None or reference.commit is None:
        text = _read_document(served, uri, caller)
        if text is not None:
            return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
    reference = reference or citation.parse(uri)
    arguments = {"citation": str(reference)}
    if reference.at is None:
        return _build_contents(uri, served.run("get", arguments, caller))
    with served.open_revision(reference.at, caller) as kb:
        return _build_contents(uri, kb.run("get", arguments, caller))


def read_current_text(served: Answerer, uri: str, caller: Caller) -> str:
    """Read the text that a URI without a commit names.

    Raises as `read` does, and `errors.UsageError` for a URI with a commit.
    """
    reference = _parse_citation(uri)
    if reference is not None and reference.commit is not None:
        raise UsageError("a record at a commit does not change", suggestion=str(replace(reference, commit=None)))
    return read(served, uri, caller).text


def complete_argument(served: Answerer, argument: str, begun: str, caller: Caller) -> types.Completion:
    """Complete an argument of a prompt, or of a URI: names of types and collections; nothing for others."""
    every = served.run("types", {}, caller)["types"] if argument in ("type", "collection") else []
    kinds = ("node",) if argument == "collection" else ("node", "edge")
    names = [record_type["name"] for record_type in every if record_type["kind"] in kinds]
    matches = [name for name in names if name.casefold().startswith(begun.casefold())]
    return types.Completion(
        values=matches[:_MOST_COMPLETED], total=len(matches), has_more=len(matches) > _MOST_COMPLETED
    )


def _parse_citation(uri: str) -> citation.Citation | None:
    with suppress(UsageError):
        return citation.parse(uri)
    return None


def _read_document(answerer: Answerer, uri: str, caller: Caller) -> str | None:
    """Return the text of a document; None where the URI names none that the caller may see."""
    with suppress(NotFound, UsageError):
        text: str = answerer.run("get", {"document": uri}, caller)["text"]
        return text
    return None


def _build_contents(uri: str, value: Any) -> types.TextResourceContents:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)


def instructions(served: Answerer, caller: Caller) -> str:
    """Return one paragraph on the content and how to ask it; where the base does not load, the reason."""
    try:
        name, record_types = served.name, served.run("types", {}, caller)["types"]
        descriptions = [_describe_type(served, record_type, caller) for record_type in record_types[:_MOST_TYPES]]
        memories = _describe_memories(served.run("memory_stats", {}, caller)["scopes"])
    except DuckkbError as problem:
        message = f"The knowledge base does not load now ({problem.code}: {problem.message.splitlines()[0]})"
        return f"{message}; until then calls return the reason." if caller.types is None else _UNAVAILABLE
    except Exception as problem:
        report_unexpected("mcp instructions", problem)
        return _UNAVAILABLE
    more = (
        f" and {len(record_types) - _MOST_TYPES} more (`types` lists them)" if len(record_types) > _MOST_TYPES else ""
    )
    return (
        f"duckkb serves the knowledge base {name}: records as JSON lines in git, of these types: "
        f"{'; '.join(descriptions) or 'none yet'}{more}. Search a type, or `all`, with `find`, document collections "
        "with `query`; read what you rely on with `get`; walk links with `neighbors`; count with `sql`. `schema` "
        "says which fields a type has. Cite what you use as duckkb://TYPE/IDENTITY, or by the `file` of a document. "
        "An answer with `degraded` or `notices` is incomplete: say so. Before a write look with `dry_run`; an "
        f"answer with a `branch` means that the change waits there for review and is not in the base yet.{memories}"
    )


def _describe_memories(scopes: list[dict[str, Any]]) -> str:
    """Describe the number of memories in each scope, with the newest keys; at most about a thousand characters."""
    text = ""
    for scope in scopes:
        keys = ", ".join(" ".join(newest["key"].split())[:_LONGEST_KEY] for newest in scope["newest"])
        line = f" {scope['scope']}: {scope['memories']}{f', the newest {keys}' if keys else ''}."
        if len(text) + len(line) > _MOST_REMEMBERED:
            text += " `memory_stats` lists the others."
            break
        text += line
    return f" Memories (`memory_search`, `memory_put`), by scope:{text}" if text else ""


_UNAVAILABLE = "The knowledge base cannot be asked now; try again in a moment."


def _describe_type(answerer: Answerer, record_type: dict[str, Any], caller: Caller) -> str:
    about = answerer.run("schema", {"type": record_type["name"]}, caller).get("description")
    ends = (
        f" from {'|'.join(record_type['from'])} to {'|'.join(record_type['to'])}"
        if record_type["kind"] == "edge"
        else ""
    )
    description = f" ({' '.join(about.split())[:_LONGEST]})" if isinstance(about, str) and about.strip() else ""
    return f"{record_type['name']}{f' [edge{ends}]' if ends else ''}{description}"
