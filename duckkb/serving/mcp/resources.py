"""Resources: types as JSON Schema, and records and documents by the URI that cites them; and the greeting, which is made of the
types too."""

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
from duckkb.serving.lines import unexpected

MISSING = ("E_NOT_FOUND", "E_UNKNOWN_TYPE")
"""The codes of errors by which there is nothing that a URI names."""
_SCHEMA = "duckkb:schema"
_JSON, _TEXT = "application/json", "text/plain"
_MOST_TYPES, _LONGEST, _MOST_COMPLETED = 40, 200, 100
_MOST_REMEMBERED, _LONGEST_KEY = 900, 60
TEMPLATES = (
    types.ResourceTemplate(
        name="record",
        uri_template="duckkb://{type}/{identity}",
        description="A record as it is now. Both parts are percent-encoded; an identity of several parts is a JSON array.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="record at a commit",
        uri_template="duckkb://{type}/{identity}@{commit}",
        description="A record as it was at a commit: what a citation names.",
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


def listed(served: Answerer, caller: Caller) -> list[types.Resource]:
    """The types, and the schema of each. Records are named by citations; there may be millions."""
    every = types.Resource(name="types", uri=_SCHEMA, description="All types and collections.", mime_type=_JSON)
    return [every, *(_schema_of(one["name"]) for one in served.run("types", {}, caller)["types"])]


def _schema_of(name: str) -> types.Resource:
    uri = f"{_SCHEMA}/{quote(name, safe='')}"
    return types.Resource(name=f"schema of {name}", uri=uri, description=f"The fields of {name}.", mime_type=_JSON)


def read(served: Answerer, uri: str, caller: Caller) -> types.TextResourceContents:
    """What a URI names. Raises `errors.NotFound`, `errors.UsageError` and what the base raises."""
    if uri == _SCHEMA:
        return _contents(uri, served.run("types", {}, caller))
    if uri.startswith(f"{_SCHEMA}/"):
        return _contents(uri, served.run("schema", {"type": unquote(uri.removeprefix(f"{_SCHEMA}/"))}, caller))
    cited = _citation(uri)
    if cited is None or cited.commit is None:
        text = _document(served, uri, caller)
        if text is not None:
            return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
    cited = cited or citation.parse(uri)
    given = {"citation": str(cited)}
    if cited.at is None:
        return _contents(uri, served.run("get", given, caller))
    with served.at(cited.at, caller) as kb:
        return _contents(uri, kb.run("get", given, caller))


def of_now(served: Answerer, uri: str, caller: Caller) -> str:
    """The text that a URI without a commit names. Raises as `read`, and `errors.UsageError` for one with a commit."""
    cited = _citation(uri)
    if cited is not None and cited.commit is not None:
        raise UsageError("a record as it was at a commit does not change", suggestion=str(replace(cited, commit=None)))
    return read(served, uri, caller).text


def completed(served: Answerer, argument: str, begun: str, caller: Caller) -> types.Completion:
    """What an argument of a prompt, or of a URI, that begins so may be: names of types and collections; of others nothing."""
    every = served.run("types", {}, caller)["types"] if argument in ("type", "collection") else []
    kinds = ("node",) if argument == "collection" else ("node", "edge")
    names = [one["name"] for one in every if one["kind"] in kinds]
    found = [name for name in names if name.casefold().startswith(begun.casefold())]
    return types.Completion(values=found[:_MOST_COMPLETED], total=len(found), has_more=len(found) > _MOST_COMPLETED)


def _citation(uri: str) -> citation.Citation | None:
    with suppress(UsageError):
        return citation.parse(uri)
    return None


def _document(served: Answerer, uri: str, caller: Caller) -> str | None:
    """The text of a document; None where the URI names none that the caller may see."""
    with suppress(NotFound, UsageError):
        text: str = served.run("get", {"document": uri}, caller)["text"]
        return text
    return None


def _contents(uri: str, value: Any) -> types.TextResourceContents:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)


def instructions(served: Answerer, caller: Caller) -> str:
    """One paragraph on what there is and how it is asked; where the base does not load, why."""
    try:
        name, found = served.name, served.run("types", {}, caller)["types"]
        described = [_described(served, one, caller) for one in found[:_MOST_TYPES]]
        remembered = _remembered(served.run("memory_stats", {}, caller)["scopes"])
    except DuckkbError as problem:
        told = f"The knowledge base does not load now ({problem.code}: {problem.message.splitlines()[0]})"
        return f"{told}; calls answer with the reason until it does." if caller.types is None else _UNAVAILABLE
    except Exception as problem:
        unexpected("mcp instructions", problem)
        return _UNAVAILABLE
    more = f" and {len(found) - _MOST_TYPES} more (`types` lists them)" if len(found) > _MOST_TYPES else ""
    return (
        f"duckkb serves the knowledge base {name}: records as JSON lines in git, of these types: "
        f"{'; '.join(described) or 'none yet'}{more}. Search a type, or `all`, with `find`, document collections with "
        "`query`; read what you rely on with `get`; walk links with `neighbors`; count with `sql`. `schema` says "
        "which fields a type has. Cite what you use as duckkb://TYPE/IDENTITY, or by the `file` of a document. An answer with "
        "`degraded` or `notices` is not whole: say so. Before a write look with `dry_run`; an answer with a `branch` means that "
        f"the change waits there for review and is not in the base yet.{remembered}"
    )


def _remembered(scopes: list[dict[str, Any]]) -> str:
    """How many memories each scope has, with the keys of the newest; at most about a thousand characters."""
    told = ""
    for one in scopes:
        keys = ", ".join(" ".join(newest["key"].split())[:_LONGEST_KEY] for newest in one["newest"])
        line = f" {one['scope']}: {one['memories']}{f', the newest {keys}' if keys else ''}."
        if len(told) + len(line) > _MOST_REMEMBERED:
            told += " `memory_stats` tells of the others."
            break
        told += line
    return f" Memories (`memory_search`, `memory_put`), by scope:{told}" if told else ""


_UNAVAILABLE = "The knowledge base cannot be asked now; try again in a moment."


def _described(served: Answerer, one: dict[str, Any], caller: Caller) -> str:
    about = served.run("schema", {"type": one["name"]}, caller).get("description")
    ends = f" from {'|'.join(one['from'])} to {'|'.join(one['to'])}" if one["kind"] == "edge" else ""
    said = f" ({' '.join(about.split())[:_LONGEST]})" if isinstance(about, str) and about.strip() else ""
    return f"{one['name']}{f' [edge{ends}]' if ends else ''}{said}"
