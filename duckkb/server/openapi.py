"""The routes over HTTP as OpenAPI 3.1, generated from the registry, so that they are always up to date.

Bodies of requests, and POST /query: searches, each for its lane, as the question of the action `query`.

It also limits the collections to those that the caller may see."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from msgspec.structs import replace

from duckkb.engine.typed_questions import MOST_QUESTIONS, to_lines
from duckkb.ontology.schema_kinds import kind_of
from duckkb.ontology.validation import MOST, Parameters
from duckkb.operations import response_types
from duckkb.operations.action import SEARCH, Action
from duckkb.operations.catalog import ACTIONS
from duckkb.server.http_middleware import MOST_BYTES
from duckkb.storage.line import Limits, parse_json
from duckkb.types.errors import Finding, Refused, UsageError
from duckkb.types.request_context import Caller

_LIMITS = Limits(MOST_BYTES)
_OTHER_NAMES = {"minScore": "min_score"}


@cache
def query_schema() -> dict[str, Any]:
    """Return the JSON Schema of a body."""
    input_schema = ACTIONS["query"].input
    properties = {name: rule for name, rule in input_schema["properties"].items() if name != "question"}
    properties["searches"] = {**properties["searches"], "description": "Answered together, fused.", "minItems": 1}
    aliases = {name: properties[target] for name, target in _OTHER_NAMES.items()}
    return {**input_schema, "properties": {**properties, **aliases}, "required": ["searches"]}


def parse_body(raw: bytes) -> dict[str, Any]:
    """Return the object of a body, or an empty one.

    Raises `errors.UsageError` (E_ARGUMENT) with all its faults.
    """
    try:
        value = parse_json(raw or b"{}", _LIMITS)
        if not isinstance(value, dict):
            raise UsageError("no object", findings=[Finding("E_ARGUMENT", f"must be one object, not {kind_of(value)}")])
    except UsageError as problem:
        raise refusal("the body", [*problem.findings]) from None
    return value


def read_questions(raw: bytes) -> dict[str, Any]:
    """Return the `arguments` of a body. Raises as `body` and `arguments` do."""
    return arguments(parse_body(raw))


def arguments(body: object) -> dict[str, Any]:
    """Return the arguments of the action `query`.

    Raises `errors.UsageError` (E_ARGUMENT) with all faults of the body.
    """
    parameters = Parameters(query_schema())
    findings = parameters.findings(body)
    if isinstance(body, Mapping):
        searches = body.get("searches")
        for at, search in enumerate(searches[:MOST_QUESTIONS] if isinstance(searches, list) else ()):
            findings += [
                replace(finding, field=f"/searches/{at}{finding.field}")
                for finding in Parameters(SEARCH).findings(search)
            ]
        twice = [name for name, target in _OTHER_NAMES.items() if name in body and target in body]
        findings += [Finding("E_ARGUMENT", "was given under two names", field=f"/{name}") for name in twice]
    if findings or not isinstance(body, Mapping):
        raise refusal("query", [*dict.fromkeys(findings)][:MOST])
    values = parameters.whole_numbers(body)
    question = to_lines(values.pop("searches"), values.pop("intent", ""))
    return {"question": question, **{_OTHER_NAMES.get(name, name): value for name, value in values.items()}}


def narrow_arguments(given: Mapping[str, Any], caller: Caller) -> tuple[dict[str, Any], int]:
    """Return the arguments with granted collections alone, and the number of others.

    Collections that do not exist count like those that are not granted. Raises `errors.Refused` (E_FORBIDDEN)
    where none is left.
    """
    names = given.get("collections") or ()
    if caller.types is None or not names:
        return dict(given), 0
    known_names = {name.casefold() for name in caller.types}
    allowed_names = [name for name in names if name.removeprefix("duckkb://").strip("/").casefold() in known_names]
    if not allowed_names:
        raise Refused("you have no grant for any of the named collections", "E_FORBIDDEN")
    return {**given, "collections": allowed_names}, len(names) - len(allowed_names)


def refusal(name: str, findings: list[Finding]) -> UsageError:
    """Return the error for faults of a request's arguments, in the words of `registry.run.run`."""
    first, more = findings[0], f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    at = f"{first.field.removeprefix('/')}: " if first.field else ""
    message = f"{name}: {at}{first.message}{more}"
    return UsageError(message, "E_ARGUMENT", first.remedy, findings=findings)


_ERRORS: Mapping[int, str] = {
    400: "The request or its arguments are not valid; `details.findings` lists every problem.",
    401: "The bearer token is missing.",
    403: "The token is not valid, or the caller may not do this.",
    404: "The type, record or document does not exist.",
    408: "The body did not arrive in time.",
    409: "The current state of the base does not allow this; nothing was changed.",
    413: "The body is larger than 4 MiB.",
    421: "The server does not accept this host name.",
    422: "The answer takes too much time or memory.",
    429: "Too many calls; retry after the seconds in Retry-After.",
    500: "Files of the base cannot be read, or duckkb has a bug.",
    503: "A required service does not answer at the moment.",
    504: "The answer took too long; `details.begun` shows whether the operation continues.",
}
_HEADERS = {
    "x-request-id": "The request's name in logs and in the answer; one is made where none is given.",
    "x-timeout-ms": "Time limit of the answer in milliseconds; the server may set a lower one.",
}
WARNINGS: Mapping[str, Any] = {
    "type": "array",
    "description": "The part of the request that was not done.",
    "items": {
        "type": "object",
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["code", "message", "count"],
    },
}
_STATE = {"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]}
_EXAMPLE = {
    "searches": [{"type": "lex", "query": "backup"}, {"type": "vec", "query": "how are files saved"}],
    "limit": 5,
}


@cache
def document(metrics_open: bool, root_path: str = "") -> dict[str, Any]:
    """Return the document of a server; with `metrics_open`, /metrics needs no token."""
    paths = {f"/actions/{name}": {"post": _describe_action(action)} for name, action in ACTIONS.items()}
    paths |= {f"/{name}": {"post": _query(name)} for name in ("query", "search")}
    paths |= {
        "/mcp": {"post": _describe_mcp()},
        "/health": {
            "get": _build_operation(
                "health", "Whether the server is alive.", {"200": _describe_json("It is.", _STATE)}, open=True
            )
        },
        "/ready": {"get": _build_operation("ready", "Whether the base is ready.", _describe_readiness(), open=True)},
        "/metrics": {
            "get": _build_operation("metrics", "Measures in Prometheus' form.", _describe_text(), open=metrics_open)
        },
        "/openapi.json": {
            "get": _build_operation(
                "openapi", "This document.", {"200": _describe_json("It.", {"type": "object"})}, open=True
            )
        },
    }
    parameters = {
        name: {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}
        for name, description in _HEADERS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "duckkb",
            "version": version("duckkb"),
            "description": "A knowledge base in git, served.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": {"Error": dict(response_types.ERROR)},
            "parameters": parameters,
            "responses": {f"E{status}": _describe_error(description) for status, description in _ERRORS.items()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}],
    }


def _describe_action(action: Action) -> dict[str, Any]:
    answers = {"200": _describe_json("The answer.", action.output)}
    description = f"{action.description} For callers with the role {action.role}."
    return {
        **_build_operation(action.name, action.summary, answers),
        "description": description,
        "requestBody": _describe_body(action.input),
    }


def _query(name: str) -> dict[str, Any]:
    output = dict(ACTIONS["query"].output)
    output["properties"] = {**output["properties"], "warnings": WARNINGS}
    output["required"] = [*output["required"], "warnings"]
    answers = {"200": _describe_json("The answer.", output)}
    body = _describe_body(query_schema())
    body["content"]["application/json"]["example"] = _EXAMPLE
    summary = "Search documents: each search for its lane, fused."
    id = "query_documents" if name == "query" else "search_documents"
    return {**_build_operation(id, summary, answers), "requestBody": body}


def _describe_mcp() -> dict[str, Any]:
    answers = {
        "200": _describe_json("The answer.", {"type": "object"}),
        "202": {"description": "A notification was taken."},
    }
    return {
        **_build_operation("mcp", "The Model Context Protocol, streamable HTTP.", answers),
        "requestBody": _describe_body({"type": "object"}),
    }


def _build_operation(id: str, summary: str, answers: Mapping[str, Any], *, open: bool = False) -> dict[str, Any]:
    """Return an operation; an `open` one needs no token and has no limits."""
    errors = {str(status): {"$ref": f"#/components/responses/E{status}"} for status in ((421,) if open else _ERRORS)}
    operation: dict[str, Any] = {"operationId": id, "summary": summary, "responses": {**errors, **answers}}
    if open:
        return operation | {"security": []}
    return operation | {"parameters": [{"$ref": f"#/components/parameters/{name}"} for name in _HEADERS]}


def _describe_body(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": dict(schema)}}}


def _describe_json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": dict(schema)}}}


def _describe_error(description: str) -> dict[str, Any]:
    return _describe_json(description, {"$ref": "#/components/schemas/Error"})


def _describe_readiness() -> dict[str, Any]:
    return {"200": _describe_json("It can.", _STATE), "503": {"$ref": "#/components/responses/E503"}}


def _describe_text() -> dict[str, Any]:
    return {"200": {"description": "The measures.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
