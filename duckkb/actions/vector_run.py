"""Vector store actions as JSON objects: a table of arguments, which checks calls and gives their JSON Schema."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from duckkb.errors import UsageError
from duckkb.ontology.names import suggest_known_names
from duckkb.truth.files.line import Limits, LineError, parse_json

_HINT = "duckkb vector schema"
_CAPITAL = re.compile("(?<=[a-z])[A-Z]")
_TEXT = {"type": "string", "minLength": 1}
_COUNT = {"type": "integer", "minimum": 1}
_KEY = _TEXT | {"description": "The key that `store` gave, or at least 4 characters of its beginning."}
_PATH = "relative to the knowledge base, and inside it"
_PATHS = ("filepath", "file_path", "filename", "file_name")  # names in other tools
_COLLECTION = _TEXT | {"default": "vectors", "description": "The collection; created by the first store."}


class VectorAction(Struct, frozen=True):
    """An action on the vector store and its arguments: JSON Schema by name, in camelCase."""

    description: str
    arguments: Mapping[str, Mapping[str, Any]] = {}
    required: tuple[str, ...] = ()


ACTIONS: Mapping[str, VectorAction] = {
    "import_file": VectorAction(
        "Store the path of a text file under its contents. Returns the key, a UUID.",
        {"path": _TEXT | {"description": f"A file, {_PATH}."}, "collection": _COLLECTION},
        ("path",),
    ),
    "store": VectorAction(
        "Store a value under a text. Returns the key, a UUID. The same text keeps its key and gets the new value.",
        {
            "embeddingText": _TEXT | {"description": "The text that questions are compared with."},
            "value": {
                "description": "Any JSON value but null.",
                "type": ["string", "number", "boolean", "object", "array"],
            },
            "collection": _COLLECTION,
        },
        ("embeddingText", "value"),
    ),
    "retrieve": VectorAction("Returns the value of a key.", {"key": _KEY, "collection": _COLLECTION}, ("key",)),
    "delete": VectorAction("Delete the value of a key. Returns the whole key.", {"key": _KEY, "collection": _COLLECTION}, ("key",)),
    "list": VectorAction(
        "Gives an array of records in the order of their keys: key, embedding_text, value, embedding.",
        {
            "limit": _COUNT | {"default": 50},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
            "collection": _COLLECTION,
        },
    ),
    "search": VectorAction(
        "Gives an array of the records nearest to a question, the nearest first: key, embedding_text, value, and score, the "
        "cosine distance (0 the same text, lower is nearer).",
        {"query": _TEXT, "topK": _COUNT | {"default": 5}, "collection": _COLLECTION},
        ("query",),
    ),
    "set_database": VectorAction(
        "Make all later actions use another knowledge base, created if missing. Returns its path.",
        {"path": _TEXT | {"description": f"A folder, {_PATH}; `.` is the knowledge base itself."}},
        ("path",),
    ),
}  # fmt: skip


def schema(name: str | None = None) -> dict[str, Any]:
    """Return the JSON Schema of an action, or of all as alternatives. Raises `errors.UsageError`."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    if name is not None:
        return head | _build_schema(name, _find_action(name))
    many = [_build_schema(action_name, action) for action_name, action in ACTIONS.items()]
    return head | {"title": "duckkb vector run", "description": "One action of the vector store.", "oneOf": many}


def parse(given: Mapping[str, Any] | bytes) -> tuple[str, dict[str, Any]]:
    """Parse an action: return its name, and its arguments in snake_case, without those left out.

    Raises `errors.UsageError` that names an unknown, missing or wrong action or argument.
    """
    values = _parse_object(given)
    name = values.get("action")
    if name is None:
        raise UsageError("the argument action is missing", suggestion=f"one of {', '.join(ACTIONS)}")
    action = _find_action(name)
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key != "action":
            argument = _find_argument(name, action, key)
            if argument in arguments:
                raise UsageError(f"{name}: the argument {argument} is given twice", suggestion=_HINT)
            _check(name, key, action.arguments[argument], value)
            arguments[argument] = value
    missing = [_format_spellings(argument) for argument in action.required if argument not in arguments]
    if missing:
        subject = f"the argument {missing[0]} is" if len(missing) == 1 else f"the arguments {', '.join(missing)} are"
        raise UsageError(f"{name}: {subject} missing", suggestion=f"duckkb vector schema {name}")
    return str(name), {_to_snake_case(argument): value for argument, value in arguments.items()}


def _parse_object(value: Mapping[str, Any] | bytes) -> Mapping[str, Any]:
    if isinstance(value, bytes):
        if not value.strip():
            raise UsageError("no action given: the input is empty", suggestion=_HINT)
        try:
            value = parse_json(value, Limits())
        except LineError as error:
            first = error.findings[0]
            raise UsageError(f"the action cannot be read: {first.message}", first.code, _HINT) from error
    if not isinstance(value, Mapping):
        raise UsageError("an action is one JSON object", suggestion=_HINT)
    return value


def _find_action(name: Any) -> VectorAction:
    if not isinstance(name, str) or name not in ACTIONS:
        raise UsageError(f"unknown action {name!r}", suggestion=suggest_known_names(str(name), list(ACTIONS)))
    return ACTIONS[name]


def _find_argument(name: str, action: VectorAction, key: str) -> str:
    """Return the documented name of an argument from either spelling; paths have other usual names too."""
    for argument in action.arguments:
        if key in _list_spellings(argument) or (argument == "path" and _to_snake_case(key) in _PATHS):
            return argument
    message = f"{name}: unknown argument {key!r}"
    raise UsageError(message, suggestion=suggest_known_names(key, list(action.arguments)))


def _check(name: str, argument: str, rule: Mapping[str, Any], value: Any) -> None:
    expectation = ""
    if rule["type"] == "string" and not (isinstance(value, str) and value):
        expectation = "text, and not empty"
    elif rule["type"] == "integer" and not (type(value) is int and value >= rule["minimum"]):
        expectation = f"a whole number from {rule['minimum']} on"
    elif isinstance(rule["type"], list) and value is None:
        expectation = "a JSON value other than null"
    if expectation:
        raise UsageError(f"{name}: {argument} must be {expectation}", suggestion=f"duckkb vector schema {name}")


def _build_schema(name: str, action: VectorAction) -> dict[str, Any]:
    properties = {"action": {"const": name}}
    properties |= {key: dict(rule) for argument, rule in action.arguments.items() for key in _list_spellings(argument)}
    several = [names for argument in action.required if len(names := _list_spellings(argument)) > 1]
    certain = [argument for argument in action.required if len(_list_spellings(argument)) == 1]
    spelling_rules = [{"anyOf": [{"required": [key]} for key in names]} for names in several]
    return {
        "title": name,
        "description": action.description,
        "type": "object",
        "properties": properties,
        "required": ["action", *certain],
        **({"allOf": spelling_rules} if spelling_rules else {}),
        "additionalProperties": False,
    }


def _list_spellings(argument: str) -> list[str]:
    """Return the spellings of an argument that the schema lists."""
    return list(dict.fromkeys((argument, _to_snake_case(argument), *(_PATHS if argument == "path" else ()))))


def _format_spellings(argument: str) -> str:
    return argument if argument == _to_snake_case(argument) else f"{argument} (or {_to_snake_case(argument)})"


def _to_snake_case(argument: str) -> str:
    """Convert a name to snake_case.

    >>> _to_snake_case("embeddingText"), _to_snake_case("path")
    ('embedding_text', 'path')
    """
    return _CAPITAL.sub(lambda match: f"_{match[0].lower()}", argument)
