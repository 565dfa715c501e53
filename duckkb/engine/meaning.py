"""The fields of a type that are compared by meaning: chosen for a new collection from its first records.

It also makes the notices for a type whose records have text in none of these fields.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine.base import Base
from duckkb.engine.write_draft import Request, Upsert
from duckkb.index.text_chunks import iter_nested_texts, read_value_at
from duckkb.ontology.model import RecordType, SearchField
from duckkb.storage import journal
from duckkb.storage.commit_protocol import FileChange
from duckkb.types.errors import OntologyError
from duckkb.types.queries import Notice

_SEVERAL_WORDS = re.compile(r"\S\s+\S|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2}")
_NO_WORDS = re.compile(r"[\d\s.,:;/+TZ-]+|\S+@\S+|\w+://\S+|[0-9a-fA-F-]{16,}")
_LOOKED_AT = 1_000  # records
_MOST_FIELDS = 8
_FIRST = 32  # records that are looked at before all are counted
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS_OF_YAML = frozenset(["true", "false", "yes", "no", "on", "off", "null", "y", "n"])

Fields = Mapping[str, Any]


class ChosenFields(Struct, frozen=True):
    """The type with the chosen fields, the change of its definition, and notices."""

    kind: RecordType
    change: FileChange
    notice: Notice


def choose_fields(base: Base, request: Request) -> ChosenFields | None:
    """Choose the text fields of a collection from its first records, where its preset's fields have no text in
    them.

    A collection that is created with its first records gets its definition in any case. Returns None where no
    definition is to be written, or not by this base.
    """
    if not isinstance(request, Upsert) or base.is_narrowed or base.wiring.at is not None:
        return None
    from duckkb.ontology.ontology_files import path_of

    kind, path = request.kind, path_of(request.kind.name)
    records = [entry.fields for entry in request.given[:_LOOKED_AT]]
    names = _choose_names(base, kind, records)
    if not names and request.definition is None:
        return None
    stored_file = journal.read_target(base.root, path) if request.definition is None else None
    definition = stored_file[0] if stored_file is not None else request.definition
    data = _apply_choice(kind, definition, names) if definition is not None else None
    changed_kind = _read_again(base, kind, path, data) if data is not None else None
    if data is None or changed_kind is None:
        return None
    change = FileChange(path, journal.digest(stored_file[0]) if stored_file is not None else None, data)
    return ChosenFields(changed_kind, change, _describe_choice(changed_kind, kind, path, is_new=stored_file is None))


def _choose_names(base: Base, kind: RecordType, records: Sequence[Fields]) -> list[str]:
    if not kind.is_collection or base.tree.count(kind) or not _has_fields_of_preset(kind):
        return []
    return [] if has_text(kind.vectors, records) else text_fields(kind, records)


def _apply_choice(kind: RecordType, definition: bytes, names: Sequence[str]) -> bytes | None:
    return with_vectors(definition, [field.name for field in kind.vectors], names) if names else definition


def _read_again(base: Base, kind: RecordType, path: str, data: bytes) -> RecordType | None:
    try:
        return base.wiring.preview({path: data}).find(kind.name)
    except OntologyError:
        return None  # the configuration is being edited


def _describe_choice(kind: RecordType, before: RecordType, path: str, *, is_new: bool) -> Notice:
    names = _join_names(kind, ", ")
    if is_new:
        message = f"{kind.name} is a new collection, by the policy {kind.policy.name if kind.policy else ''}, compared by meaning in {names}"
        return Notice(
            "W_NEW_COLLECTION", message, f"it is defined in {path}; `duckkb col rm {kind.name} --yes` removes it"
        )
    message = f"{kind.name} is compared by meaning in {names}, as its first records have no {_join_names(before)}"
    return Notice("W_FIELDS_CHOSEN", message, f"they are set in {path}, where you can name other fields")


def with_fields(request: Request, chosen: ChosenFields | None) -> Request:
    """Return the request for the type with the chosen fields."""
    return replace(request, kind=chosen.kind) if chosen is not None and isinstance(request, Upsert) else request


def unsearchable(base: Base, kinds: Iterable[RecordType]) -> tuple[Notice, ...]:
    """Return a notice for each type that has fields to compare by meaning, but no stored record with text in them."""
    return tuple(
        Notice(
            "W_NO_MEANING",
            f"nothing of {kind.name} can be compared by meaning: no record has text in {_join_names(kind)}",
            f"name fields that have text in {kind.place}, then `duckkb index build`",
        )
        for kind in kinds
        if _is_unsearchable(base, kind)
    )


def unsearchable_after(base: Base, request: Request) -> tuple[Notice, ...]:
    """Return the notices of `unsearchable` for the type just written, where the written records have no such text."""
    if (
        not isinstance(request, Upsert)
        or request.merge
        or has_text(request.kind.vectors, (entry.fields for entry in request.given))
    ):
        return ()
    return unsearchable(base, [request.kind])


def has_text(fields: Sequence[SearchField], records: Iterable[Fields]) -> bool:
    """Return whether a record has text to compare by meaning in one of these fields."""
    if any(field.reach is not None for field in fields):
        return True
    names = [field.name for field in fields if not field.given]
    return any(bool(_find_text(record, name)) for record in records for name in names)


def _find_text(record: Fields, name: str) -> str | list[Any] | None:
    value = read_value_at(record, name)
    return value if isinstance(value, (str, list)) else None


def text_fields(kind: RecordType, records: Sequence[Fields]) -> list[str]:
    """Return the fields, and dotted paths inside objects, in which at least half of the values are several words.

    They come in the order in which records have them; where there are none, the fields of single words.
    Identity, numbers, dates and addresses never count.
    """
    values: dict[str, list[str]] = {}
    for record in records:
        for name, value in record.items():
            for path, text in [(name, value)] if isinstance(value, str) else iter_nested_texts(name, value):
                if text.strip() and path not in kind.identity_fields:
                    values.setdefault(path, []).append(text.strip())
    texts_by_field = {name: texts for name, texts in values.items() if not all(map(_NO_WORDS.fullmatch, texts))}
    several = [
        name
        for name, texts in texts_by_field.items()
        if 2 * sum(map(bool, map(_SEVERAL_WORDS.search, texts))) >= len(texts)
    ]
    return (several or [*texts_by_field])[:_MOST_FIELDS]


def with_vectors(definition: bytes, old: Sequence[str], new: Sequence[str]) -> bytes | None:
    """Return a definition with other fields under `vectors`, all else unchanged to the byte.

    None where the old fields do not stand there exactly once, one a line.
    """
    text = definition.decode("utf-8", "replace")
    section_pattern = (
        r"(?m)^(?P<indent> *(?:- )?)vectors:\n" + "".join(rf" *- {re.escape(name)}\n" for name in old) + r"(?! *- )"
    )
    places = list(re.finditer(section_pattern, text))
    if len(places) != 1:
        return None
    place = places[0]
    indent = " " * len(place["indent"])
    lines = "".join(f"{indent}- {_to_yaml(name)}\n" for name in new)
    return f"{text[: place.start()]}{place['indent']}vectors:\n{lines}{text[place.end() :]}".encode()


def _to_yaml(name: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(name) and name.casefold() not in _WORDS_OF_YAML
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def _has_fields_of_preset(kind: RecordType) -> bool:
    from duckkb.ontology.presets import presets  # read only at the first write of a collection

    policy = kind.policy
    preset = presets().get(policy.name) if policy is not None and kind.source is None else None
    if policy is None or preset is None or preset.fields is None or policy.fields is None:
        return False
    names = [field.name for field in kind.vectors]
    is_open = all(
        field.reach is None and not field.given and field.name not in kind.properties for field in kind.vectors
    )
    return bool(names) and is_open and policy.fields.vectors == preset.fields.vectors


def _is_unsearchable(base: Base, kind: RecordType) -> bool:
    if not kind.has_text_vectors or kind.source is not None or base.wiring.published or not base.tree.count(kind):
        return False
    has_model = kind.settings(base.settings).embedding.model != "none"
    if not has_model or any(field.reach is not None for field in kind.vectors):
        return False
    has_nested_field = any("." in field.name for field in kind.vectors)
    first = (row.record.fields for row in islice(base.tree.rows(kind), _LOOKED_AT if has_nested_field else _FIRST))
    if has_text(kind.vectors, first):
        return False
    types = base.observe_fields(kind).types()
    return not any({"text", "a list"} & types.get(field.name, {}).keys() for field in kind.vectors if not field.given)


def _join_names(kind: RecordType, between: str = " or ") -> str:
    return between.join(field.name for field in kind.vectors if not field.given)
