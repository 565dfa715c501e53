"""Bodies of requests, and POST /query: searches, each for its lane, as the question of the action `query`.

It also limits the collections to those that the caller may see.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec.structs import replace

from duckkb.actions.registry.offered import ACTIONS
from duckkb.actions.registry.parameters import SEARCH
from duckkb.caller import Caller
from duckkb.errors import Finding, Refused, UsageError
from duckkb.ontology.arguments import Parameters
from duckkb.ontology.kinds import kind_of
from duckkb.ontology.reasons import MOST
from duckkb.search.typed import MOST_QUESTIONS, to_lines
from duckkb.serving.http.entrance import MOST_BYTES
from duckkb.truth.files.line import Limits, parse_json

_LIMITS = Limits(MOST_BYTES)
_OTHER_NAMES = {"minScore": "min_score"}


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a body."""
    input_schema = ACTIONS["query"].input
    properties = {name: rule for name, rule in input_schema["properties"].items() if name != "question"}
    properties["searches"] = {**properties["searches"], "description": "Answered together, fused.", "minItems": 1}
    aliases = {name: properties[target] for name, target in _OTHER_NAMES.items()}
    return {**input_schema, "properties": {**properties, **aliases}, "required": ["searches"]}


def body(raw: bytes) -> dict[str, Any]:
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


def read(raw: bytes) -> dict[str, Any]:
    """Return the `arguments` of a body. Raises as `body` and `arguments` do."""
    return arguments(body(raw))


def arguments(body: object) -> dict[str, Any]:
    """Return the arguments of the action `query`.

    Raises `errors.UsageError` (E_ARGUMENT) with all faults of the body.
    """
    parameters = Parameters(schema())
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
