"""The vector store: values behind texts, found by the nearness of a question to the text; records of a collection.

Vector store actions as JSON objects: a table of arguments, which checks calls and gives their JSON Schema."""

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from duckkb.engine import boot, text_vectors
from duckkb.engine.base import Base
from duckkb.engine.text_vectors import compute_missing_vectors
from duckkb.ontology.model import NodeType, RecordType
from duckkb.ontology.names import suggest_known_names
from duckkb.ontology.ontology_files import collection_of, define, path_of
from duckkb.operations import record_writes
from duckkb.operations.collections import BaseNow, create, resolve_policy, validate_collection_name
from duckkb.operations.embedding_models import decode_input, flaw
from duckkb.operations.lifecycle import make
from duckkb.operations.name_resolution import build_key, check_records, confine_path, grant_path, positive, regular_file
from duckkb.storage import clone_state, path_guard, strict_lines
from duckkb.storage.line import Limits, LineError, parse_json
from duckkb.storage.part import StoredRow
from duckkb.types.errors import Conflict, NotFound, Refused, StateError, UsageError
from duckkb.types.queries import Notice, SequenceMeta
from duckkb.types.records import identity_text

if TYPE_CHECKING:
    import numpy as np

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


COLLECTION, POLICY = "vectors", "vector-store"
TEXT, VALUE = "embedding_text", "value"
_SHORTEST_PREFIX, _MOST_NAMED = 4, 10


class VectorRows(Struct, Sequence[dict[str, Any]], frozen=True, metaclass=SequenceMeta):
    """Records of a vector store, each as a dict, with notices."""

    rows: tuple[dict[str, Any], ...]
    notices: tuple[Notice, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]


class VectorStore:
    """The actions `kb.vectors`: values behind texts, in this base or in the one set by `set_database`.

    The first store makes a collection with the policy vector-store; a missing collection counts as empty. Every
    method raises `errors.UsageError` for wrong arguments, and for a collection of another kind (E_INTENT).
    """

    def __init__(self, home: BaseNow, elsewhere: Callable[[Path], BaseNow]) -> None:
        self._home, self._elsewhere = home, elsewhere

    def store(self, embedding_text: str, value: Any, *, collection: str = COLLECTION) -> str:
        """Store a value (any JSON but null) behind a text; return its key.

        The same text again keeps the key and takes the new value. Raises `errors.Unavailable` without a usable
        model; then nothing is stored.
        """
        with self._base() as base:
            _prepare(base, collection, embedding_text, value)
        with self._base() as base:
            kind, _ = _find_collection(base, collection)
            key = _make_key(base, kind, embedding_text)
            record = {kind.identity[0]: key, TEXT: embedding_text, VALUE: value}
            record_writes.put(base, kind.name, record, merge=True)  # other fields of the record stay
            return key

    def retrieve(self, key: str, *, collection: str = COLLECTION) -> Any:
        """Return the value behind a key, or behind a unique prefix of 4 or more characters.

        Raises `errors.NotFound`, or `errors.Refused` (E_AMBIGUOUS_KEY) that lists the candidates.
        """
        with self._base() as base:
            kind, _ = _find_collection(base, collection)
            return _find_row(base, kind, key).record.fields.get(VALUE)

    def delete(self, key: str, *, collection: str = COLLECTION) -> str:
        """Delete the record of a key, named as in `retrieve`; return the whole key."""
        with self._base() as base:
            kind, _ = _find_collection(base, collection)
            row = _find_row(base, kind, key)
            record_writes.delete(base, kind.name, identity_text(row.record.identity))
            return _read_key(row)

    def list(self, *, limit: int = 50, offset: int = 0, collection: str = COLLECTION) -> VectorRows:
        """Return records in the order of their keys: key, embedding_text, value, embedding.

        The embedding has unit length; for a text longer than a chunk it is the mean of its chunks. It is None
        without a model to compute it.
        """
        with self._base() as base:
            limit = positive(limit)
            if type(offset) is not int or offset < 0:
                raise UsageError(
                    f"offset must be a whole number of at least 0, not {offset!r}", suggestion="leave it out"
                )
            kind, is_there = _find_collection(base, collection)
            count = base.tree.count(kind)
            if not is_there or offset >= count:
                return VectorRows((), () if is_there else (_make_missing_notice(collection),))
            return _embed_rows(
                base, kind, [*islice(base.tree.iter_by_identity(kind), offset, min(count, offset + limit))]
            )

    def search(self, query: str, *, top_k: int = 5, collection: str = COLLECTION) -> VectorRows:
        """Return the nearest records, the nearest first: key, embedding_text, value, score.

        The score is the cosine distance, 0 to 2, of the best chunk. Raises `errors.Unavailable` without a
        usable model.
        """
        with self._base() as base:
            top_k, text = positive(top_k, "top_k"), _check_text(query, "query")
            kind, is_there = _find_collection(base, collection)
            chunks = text_vectors.question(base, kind, TEXT, text)
            if not base.tree.count(kind):
                return VectorRows((), () if is_there else (_make_missing_notice(collection),))
            return _find_nearest_rows(base, kind, chunks, text, top_k)

    def import_file(self, path: str | Path, *, collection: str = COLLECTION) -> str:
        """Store the path of a text file, as given, behind its contents; return the key."""
        return self._import_file(path, collection=collection, typed=True)

    def set_database(self, path: str | Path) -> str:
        """Switch these actions to another knowledge base from now on, in this clone only; return its folder.

        A missing base is made. This base's own path ends it. Raises `errors.UsageError` (E_PATH),
        `errors.Unavailable`.
        """
        return self._set_database(path, typed=True)

    def run(self, action: Mapping[str, Any] | bytes) -> Any:
        """Run an action given as JSON, `{"action": NAME, ...}`, and return its result.

        Paths are relative to this base and must not leave it.
        """
        name, arguments = parse(action)
        if name in ("import_file", "set_database"):
            return getattr(self, f"_{name}")(**arguments, typed=False)
        return getattr(self, name)(**arguments)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """The notices of the base that the actions work on, as `kb.notices`."""
        with self._base() as base:
            return tuple(boot.notices(base))

    def _import_file(self, path: str | Path, *, collection: str = COLLECTION, typed: bool) -> str:
        with self._home() as home:
            text = _read(home, path, typed=typed)
        return self.store(text, str(path), collection=collection)

    def _set_database(self, path: str | Path, *, typed: bool) -> str:
        with self._home() as home:
            root = home.root
            target = _resolve_folder(home, path, typed=typed)
        if target == root.resolve():
            path_guard.write_vector_base(root, None)
            return str(target)
        try:
            if not (target / "config.yaml").exists():
                make(target)
            clone_state.refuse_unwritable(target)
        except OSError as error:
            raise clone_state.refusal(f"{path} cannot be made a knowledge base", error) from error
        with self._elsewhere(target)():  # check that it loads
            path_guard.write_vector_base(root, target)
        return str(target)

    @contextmanager
    def _base(self) -> Iterator[Base]:
        with self._home() as home:
            target = _find_database(home)
        with (self._home if target is None else self._elsewhere(target))() as base:
            yield base


def _prepare(base: Base, name: str, text: Any, value: Any) -> None:
    """Check what is to be stored, compute the vectors of its text, then make a missing collection.

    Runs before `store`, which needs the base as its files are. Nothing is made where any step fails. Raises
    `errors.UsageError`, `errors.InvalidRecord`, and `errors.Unavailable` without a usable model.
    """
    kind, is_there = _find_collection(base, name)
    record = {kind.identity[0]: str(uuid.UUID(int=0)), TEXT: _check_text(text, TEXT), VALUE: value}
    if value is None:
        raise UsageError("value is null; a value is any other JSON value", suggestion='leave the key out, or give ""')
    check_records(base, kind, [("", record_writes.plain(base, record))], single=True, partial=True)
    text_vectors.embed_before(base, kind, TEXT, text)
    if not is_there:
        with suppress(Conflict):  # another process made it meanwhile; `store` checks its kind
            create(base, name, _build_definition(base, name))


@boot.retry_if_stale
def _embed_rows(base: Base, kind: RecordType, rows: Sequence[StoredRow]) -> VectorRows:
    notices = compute_missing_vectors(base, [kind])
    pairs = zip(rows, text_vectors.embeddings(base, kind, TEXT, rows), strict=True)
    return VectorRows(tuple({**_describe_row(row), "embedding": embedding} for row, embedding in pairs), notices)


@boot.retry_if_stale
def _find_nearest_rows(base: Base, kind: RecordType, chunks: "np.ndarray", text: str, top_k: int) -> VectorRows:
    notices = compute_missing_vectors(base, [kind])
    rows_by_id = {row.record.id: (row, distance) for row, distance in text_vectors.nearest(base, kind, chunks, top_k)}
    same = frozenset(row.record.id for row in _find_holders(base, kind, text))
    if same - rows_by_id.keys():  # other texts may be at distance 0, too; they must not displace this one
        rows_by_id |= {
            row.record.id: (row, distance) for row, distance in text_vectors.nearest(base, kind, chunks, top_k, same)
        }
    entries = sorted(
        rows_by_id.values(), key=lambda entry: (entry[1], entry[0].record.id not in same, _read_key(entry[0]))
    )
    return VectorRows(tuple({**_describe_row(row), "score": distance} for row, distance in entries[:top_k]), notices)


def _read(base: Base, path: str | Path, *, typed: bool) -> str:
    """Return the text of a file; its path was `typed` by a person, or is inside the base.

    Raises `errors.UsageError`: E_PATH, or for a file that is empty, too large or not text.
    """
    place, most = grant_path(base, path) if typed else confine_path(base, path), base.limits.max_record_bytes
    if place.is_dir():
        raise UsageError(f"{path} is a folder", code="E_PATH", suggestion="import its files one by one")
    with regular_file(base, place, "a text file").open("rb") as file:
        text = decode_input(file.read(most + 1), str(path), most, exit_code=1)
    return _check_text(text, str(path), exit_code=1)


def _check_text(text: Any, name: str, exit_code: int = 2) -> str:
    """Return a text that can be embedded; raises `errors.UsageError` that calls it `name`."""
    message, code = flaw(text)
    if message:
        raise UsageError(f"{name} {message}", code, "give a text", exit_code=exit_code)
    assert isinstance(text, str), "flaw has checked it"
    return text


def _find_database(base: Base) -> Path | None:
    """Return the folder of the other base that the actions work on; None for this base.

    Raises `errors.StateError` (E_NO_KB) where it has vanished, `errors.Refused` where a sandbox forbids it.
    """
    if not path_guard.exists(base.root):
        return None
    boot.refuse_tracked_state(base.root)
    target = path_guard.read_vector_base(base.root)
    if base.wiring.env.sandbox and not target.is_relative_to(base.root.resolve()):
        message = f"the vector actions work on {target}, outside of the knowledge base, and DUCKKB_SANDBOX is set"
        raise Refused(message, suggestion=path_guard.MENDED_BY)
    if not (target / "config.yaml").is_file():
        message = f"the vector actions work on {target}, which is no longer a knowledge base"
        raise StateError(message, code="E_NO_KB", suggestion=path_guard.MENDED_BY)
    return target


def _resolve_folder(base: Base, path: str | Path, *, typed: bool) -> Path:
    """Resolve the folder that the actions are to work on: `typed` by a person, or inside the base."""
    target = (grant_path(base, path) if typed else confine_path(base, path)).resolve()
    path_guard.refuse_protected_path(path if typed else target, base.wiring.env, base.root)
    there = next(place for place in (target, *target.parents) if os.path.lexists(place))
    if not there.is_dir():
        message = f"{path} is not a folder" if there == target else f"{path} cannot be: {there} is not a folder"
        raise UsageError(message, code="E_PATH", suggestion="give the path of a folder")
    return target


def _find_collection(base: Base, name: str) -> tuple[NodeType, bool]:
    """Return the collection, and whether it exists; a missing one as it would be made.

    Raises `errors.UsageError` (E_INTENT) for a collection whose records do not pair a text with a value.
    """
    kind: RecordType | None = base.ontology.find(validate_collection_name(name))
    is_there = kind is not None
    if kind is None:
        kind, _ = collection_of(_build_definition(base, name), path_of(name))
    if isinstance(kind, NodeType) and _is_vector_store(kind):
        return kind, is_there
    reason = f"{name} follows the policy {kind.policy.name}" if kind and kind.policy else f"{name} is not a collection"
    raise UsageError(
        f"{reason}; vector actions need one that embeds {TEXT} and makes the keys of its records",
        code="E_INTENT",
        suggestion=f"give another --collection, or search it: duckkb find {name} QUERY",
    )


def _is_vector_store(kind: NodeType) -> bool:
    embeds = any(item.name == TEXT and not item.given for item in kind.vectors)
    return kind.is_collection and embeds and kind.generated is not None


def _build_definition(base: Base, name: str) -> bytes:
    return define(name, resolve_policy(base, POLICY), {})


def _make_key(base: Base, kind: NodeType, text: str) -> str:
    """Return the key of the record that has the text, else the key that the policy makes of it.

    Where a record with another text holds that key, returns a key made of both.
    """
    field = kind.identity[0]
    holders = [_read_key(row) for row in _find_holders(base, kind, text)]
    key = strict_lines.with_key({TEXT: text}, kind.identity, kind.generated).get(field)
    if holders:
        return key if key in holders else min(holders)
    if key is None:
        return str(uuid.uuid4())
    return str(build_key(base, kind, {field: key, TEXT: text})[field])


def _find_holders(base: Base, kind: RecordType, text: str) -> list[StoredRow]:
    """Return the records with this text."""
    if kind.generated is not None and kind.generated.of == TEXT:
        return base.holders(kind, text)
    return [row for row in base.tree.rows(kind) if row.record.fields.get(TEXT) == text]


def _find_row(base: Base, kind: RecordType, key: Any) -> StoredRow:
    """Return the record of a key, or of a unique prefix.

    Raises `errors.NotFound`, `errors.Refused` with candidates.
    """
    if not isinstance(key, str) or not key:
        raise UsageError("key must be a non-empty text", suggestion="give a key that `vector store` printed")
    row = base.tree.get(kind, (key,))
    if row is not None:
        return row
    message = f"{kind.name}: no record with the key {key!r}"
    if len(key) < _SHORTEST_PREFIX:
        raise NotFound(message, suggestion=f"give the key, or its first {_SHORTEST_PREFIX} or more characters")
    behind = base.tree.iter_by_identity(kind, behind=(key,))  # keys with this prefix follow each other there
    rows_by_key = {_read_key(row): row for row in takewhile(lambda row: _read_key(row).startswith(key), behind)}
    if len(rows_by_key) == 1:
        return next(iter(rows_by_key.values()))
    if not rows_by_key:
        raise NotFound(message, suggestion="duckkb vector list")
    candidates = sorted(rows_by_key)
    more = f" and {len(candidates) - _MOST_NAMED} more" if len(candidates) > _MOST_NAMED else ""
    raise Refused(
        f"{len(candidates)} keys begin with {key!r}: {', '.join(candidates[:_MOST_NAMED])}{more}",
        code="E_AMBIGUOUS_KEY",
        suggestion="give more characters of the key",
        details={"candidates": candidates[:_MOST_NAMED]},
    )


def _read_key(row: StoredRow) -> str:
    return identity_text(row.record.identity)


def _describe_row(row: StoredRow) -> dict[str, Any]:
    return {"key": _read_key(row), TEXT: row.record.fields.get(TEXT), VALUE: row.record.fields.get(VALUE)}


def _make_missing_notice(name: str) -> Notice:
    return Notice(
        "W_NO_COLLECTION", f"the collection {name} does not exist yet; it was treated as empty", "duckkb col list"
    )
