"""Loads the tree from files: through the store where the size of the base makes it pay, else all at once.

The caller holds the base's lock. What the store lacks is read and stored part by part. A type that is new to
the store, or of which most has changed, is read as a stream.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from duckkb.errors import Unavailable, Unreadable
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Ahead
from duckkb.settings import Settings
from duckkb.store.lines import StoredLines
from duckkb.store.place import Place, Unusable
from duckkb.truth.files import read
from duckkb.truth.files.line import Limits
from duckkb.truth.files.part import pause_collector
from duckkb.truth.files.read import Survey, survey
from duckkb.truth.files.tree import Tree

_FEW = 8  # up to this many changed parts are taken in singly


class Opened(Struct, frozen=True):
    """A tree and the store of its lines; None where it is only in memory, with a `reason` where it should be
    stored.
    """

    tree: Tree
    lines: StoredLines | None = None
    reason: str = ""


class Ground(Struct, frozen=True):
    """The context of a load: the base's folder, its types and settings, the `place` of derived state, and the
    seconds to wait.
    """

    root: Path
    ontology: Ontology
    settings: Settings
    place: Place
    lock_timeout: float

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_record_bytes, self.settings.max_depth)


def unreadable(tree: Tree, when: str, suggestion: str) -> Unreadable:
    """Return the error that names every line and file that cannot be read."""
    count = "1 place" if len(tree.unreadable) == 1 else f"{len(tree.unreadable)} places"
    return Unreadable(f"{count} in data/ cannot be read{when}", suggestion=suggestion, findings=tuple(tree.unreadable))


def load(ground: Ground) -> Opened:
    """Load the base from its present files; raises as `read.load` does."""
    file_survey = survey(ground.root, ground.ontology)
    if sum(status.st_size for status in file_survey.files.values()) < ground.settings.snapshot_bytes:
        return Opened(read.load(ground.root, ground.ontology, ground.limits, file_survey))
    lines = StoredLines.open(ground.place, ground.ontology, ground.limits)
    tree = lines.tree()
    is_current = not read.list_changed_parts(tree, ground.root, file_survey)
    if is_current and lines.is_mirror_of(tree) and not lines.reason:
        return Opened(tree, lines)
    try:
        return _update_store(ground, lines, tree, file_survey)
    except (
        OSError,
        Unavailable,
        Unusable,
        Ahead,
    ) as problem:  # the store cannot be written, or is locked: work in memory
        reason = lines.reason or str(problem)
        lines.close()
        return Opened(read.load(ground.root, ground.ontology, ground.limits), reason=reason)


def _update_store(ground: Ground, lines: StoredLines, tree: Tree, file_survey: Survey) -> Opened:
    """Bring the store and the tree to the state of `file_survey`.

    Raises OSError, `Unusable`, `errors.Unavailable`.
    """
    with lines.begin_write(ground.lock_timeout) as is_current, pause_collector():
        if not is_current:
            lines.reopen()
            tree, file_survey = lines.tree(), survey(ground.root, ground.ontology)
        changed_paths = read.list_changed_parts(tree, ground.root, file_survey)
        anew = [kind for kind in ground.ontology if _is_anew(kind, changed_paths, lines, file_survey)]
        if anew:
            kinds_by_path = {path: kind for path, kind in file_survey.kinds.items() if kind in anew}
            # A part with unreadable lines is not stored, so that it is read again until it is repaired.
            lines.build(
                anew, (part for part in read.read_parts(ground.root, kinds_by_path, ground.limits) if not part.findings)
            )
            tree = lines.tree()
            changed_paths = read.list_changed_parts(tree, ground.root, file_survey)
        parts = read.reload(tree, ground.root, changed_paths, file_survey)
        tree.replace(parts)
        lines.save(tree, changed_paths)
    lines.lean(tree)
    return Opened(tree, lines)


def _is_anew(kind: RecordType, changed_paths: Iterable[str], lines: StoredLines, file_survey: Survey) -> bool:
    """Return whether reading a type as a stream is shorter than taking in its changed parts."""
    type_paths = {path for path, record_type in file_survey.kinds.items() if record_type is kind}
    if kind.name not in lines.holds:
        return bool(type_paths)
    return len(type_paths.intersection(changed_paths)) > max(_FEW, len(type_paths) // 2)
