"""The ontology on either side of a difference: config.yaml and ontology/ as they were there."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from duckkb.codes import CODES
from duckkb.errors import Finding, OntologyError
from duckkb.ontology.model import Ontology
from duckkb.ontology.source import Document
from duckkb.review.diff.model import Label, Versions
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
