"""The ontology on either side of a difference: config.yaml and ontology/ as they were there; and what the two say otherwise:
types with their fields, search and identity, policies, and settings.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from duckkb.codes import CODES
from duckkb.errors import Finding, OntologyError
from duckkb.ontology.model import Ontology
from duckkb.ontology.source import Document, pointer
from duckkb.review.diff.model import Label, OntologyChange, Versions
from duckkb.review.diff.sides import Range
from duckkb.settings import Shrink
from duckkb.truth.files.line import Limits
from duckkb.truth.git import revisions
from duckkb.truth.git.revisions import Revision
from duckkb.values import dataclass, field

CONFIG, FOLDER = "config.yaml", "ontology"


@dataclass(frozen=True)
class Described:
    """What the configuration of one side says; `documents` are the files it came from."""

    ontology: Ontology
    limits: Limits
    documents: tuple[Document, ...] = ()
    shrink: Shrink = field(default_factory=Shrink)


@dataclass(frozen=True)
class Configurations:
    """Those of both sides. One that does not load is replaced by the other's, and `findings` say so."""

    old: Described
    new: Described
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Files:
    """How a configuration is read: `paths` are its files as they stand now, relative to the base, and `load` reads them
    with the bytes of some replaced (None: gone). It raises `errors.OntologyError`."""

    paths: Callable[[], Sequence[str]]
    load: Callable[[Mapping[str, bytes | None]], Described]


def is_configuration(path: str) -> bool:
    """Whether a file shapes what records may be."""
    inside = path.startswith(f"{FOLDER}/") and path.endswith(".yaml")
    return path == CONFIG or (inside and not any(name.startswith(".") for name in path.split("/")))


def configurations(root: Path, wanted: Range, versions: Versions, files: Files) -> Configurations:
    """The configurations of both sides; raises `errors.OntologyError` where none that could stand in for them loads."""
    touched = {path: versions.old.get(path) for path in versions.paths if is_configuration(path)}
    at_head = {} if wanted.against == "worktree" else _at_head(root, wanted, versions.head, files.paths())
    at_base = {**at_head, **touched}
    new, wrong = _loaded(files, at_head)
    old, wrong_before = (new, None) if at_base == at_head else _loaded(files, at_base)
    if new is None and old is None:
        # The files as they stand are the last that may know the types.
        new = files.load({})
    standing = new or old
    assert standing is not None, "one of them has loaded"
    findings = [*(wrong.findings if wrong else ())]
    if wrong_before is not None:
        said = f"the configuration of {versions.base.shown} does not load: {wrong_before.message}"
        findings.append(Finding("W_BASE_CONFIG", said, remedy=CODES["W_BASE_CONFIG"].remedy))
    return Configurations(old or standing, new or standing, tuple(findings))


def _loaded(files: Files, instead: Mapping[str, bytes | None]) -> tuple[Described | None, OntologyError | None]:
    if CONFIG in instead and instead[CONFIG] is None:
        return Described(Ontology(), Limits()), None  # there was no base yet
    try:
        return files.load(instead), None
    except OntologyError as problem:
        return None, problem


def _at_head(root: Path, wanted: Range, head: Label, standing: Sequence[str]) -> dict[str, bytes | None]:
    """The head's files instead of those that stand in the working tree."""
    if wanted.against == "index":
        found = revisions.index_entries(root, (CONFIG, FOLDER))
    else:
        at = Revision(head.name, head.commit, head.commit)  # git takes a commit for its tree
        found = revisions.entries(root, at, (CONFIG, FOLDER))
    wanted_paths = (path for path in found if is_configuration(path) and found[path].mode in revisions.REGULAR)
    blobs = {path: found[path].blob for path in wanted_paths}
    content = revisions.blobs(root, blobs.values())
    gone: dict[str, bytes | None] = dict.fromkeys(standing)
    return gone | {path: content[blob] for path, blob in blobs.items()}


_KINDS = {"nodes": "node", "edges": "edge", "collections": "collection", "policies": "policy"}
_APART = ("search", "schema", "fields", "intents", "embedding", "fusion")
"""What of a type or policy is told key by key."""

Said = tuple[str, str]
"""What a part of the configuration says, as JSON, and the file in which it stands."""


def ontology_changes(old: Sequence[Document], new: Sequence[Document]) -> tuple[OntologyChange, ...]:
    """The changes from one configuration to another, by what they concern: settings first, then types and policies.

    A type that came or went is one change, with its whole declaration. Questions are left out: they shape no record.
    """
    if old == new:
        return ()
    before, after = dict(_parts(old)), dict(_parts(new))
    before, after = _whole(before, after), _whole(after, before)
    names = sorted({**before, **after}, key=lambda name: (not name.startswith("setting "), name))
    pairs = [(name, _text(before.get(name)), _text(after.get(name))) for name in names]
    return tuple(
        OntologyChange(name, old_text, new_text, (after.get(name) or before[name])[1])
        for name, old_text, new_text in pairs
        if old_text != new_text
    )


def _text(said: Said | None) -> str | None:
    return said[0] if said is not None else None


def _whole(side: Mapping[str, Said], other: Mapping[str, Said]) -> dict[str, Said]:
    """Without the pieces of types that the other side does not have at all, and without the whole of those it has."""
    found = {}
    for name, said in side.items():
        kind, owner, *rest = name.split(" ", 2)
        is_shared = kind == "setting" or f"{kind} {owner}" in other
        if kind == "setting" or is_shared == bool(rest):
            found[name] = said
    return found


def _parts(documents: Sequence[Document]) -> Iterator[tuple[str, Said]]:
    for document in documents:
        for key, value in document.value.items():
            if key in _KINDS and isinstance(value, Mapping):
                for name, declared in value.items():
                    yield f"{_KINDS[key]} {name}", (_json(declared), document.path)
                    for what, said in _declared(declared):
                        yield f"{_KINDS[key]} {name} {what}", (_json(said), document.path)
            elif key != "questions":
                for what, said in _settings(key, value):
                    yield f"setting {what}", (_json(said), document.path)


def _declared(declared: Any) -> Iterator[tuple[str, Any]]:
    """The pieces of a type or policy: `field /title`, `search full_text`, `identity`."""
    for key, value in declared.items() if isinstance(declared, Mapping) else ():
        if key not in _APART or not isinstance(value, Mapping):
            yield key, value
            continue
        for name, said in value.items():
            if key == "schema" and name == "properties" and isinstance(said, Mapping):
                yield from ((f"field {pointer(field)}", rule) for field, rule in said.items())
            else:
                yield f"{key} {name}", said


def _settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _settings(f"{name}.{key}", inside)
    else:
        yield name, value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
