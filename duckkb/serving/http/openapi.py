"""The routes over HTTP as OpenAPI 3.1, generated from the registry, so that they are always up to date."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from duckkb.actions.registry import shapes
from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS
from duckkb.serving.http import questions

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
            "schemas": {"Error": dict(shapes.ERROR)},
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
    body = _describe_body(questions.schema())
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
