"""From files to a tree: through the snapshot where the base is of a size that makes one pay, else all at once.

The caller holds the base's lock. What the snapshot lacks is read and written down in it, part by part; a type that is new
to it, or of which most has changed, is read as a stream.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from duckkb.errors import Unavailable
from duckkb.ontology.model import Ontology, RecordType
from duckkb.settings import Settings
from duckkb.truth.files import read
from duckkb.truth.files.line import Limits
from duckkb.truth.files.lines import collector_paused
from duckkb.truth.files.survey import Survey, survey
from duckkb.truth.files.tree import Part, Tree
from duckkb.truth.snapshot.snapshot import Snapshot, Unusable
from duckkb.values import dataclass

_FEW = 8  # parts of a type that are taken in singly, however few there are


@dataclass(frozen=True, slots=True)
class Opened:
    """A tree, and the snapshot that holds it; None where it is in memory alone."""

    tree: Tree
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Ground:
    """What a load needs to know: the base's folder, its types and settings, and how many seconds a lock is waited for."""

    root: Path
    ontology: Ontology
    settings: Settings
    timeout: float = 60.0

    @property
    def limits(self) -> Limits:
        return Limits(self.settings.max_record_bytes, self.settings.max_depth)


def load(ground: Ground) -> Opened:
    """The base as its files are now; raises as `read.load` does."""
    found = survey(ground.root, ground.ontology)
    if sum(status.st_size for status in found.files.values()) < ground.settings.snapshot_bytes:
        return Opened(read.load(ground.root, ground.ontology, ground.limits, found))
    snapshot = Snapshot.open(ground.root, ground.ontology, ground.limits)
    tree = snapshot.tree()
    is_current = not read.changed(tree, ground.root, found) and snapshot.knows_stamps(tree)
    if is_current and snapshot.is_confirmed:
        return Opened(tree, snapshot)
    try:
        return _caught_up(ground, snapshot, tree)
    except (OSError, Unavailable):  # it cannot be written, or others write it: this process does without
        if is_current:
            return Opened(tree)
        return Opened(read.load(ground.root, ground.ontology, ground.limits))


def _caught_up(ground: Ground, snapshot: Snapshot, tree: Tree) -> Opened:
    """The snapshot and the tree as the files are now. Raises OSError, `errors.Unavailable`."""
    with snapshot.writing(ground.timeout) as is_current, collector_paused():
        if not is_current:
            snapshot.reopen()
            tree = snapshot.tree()
        found = survey(ground.root, ground.ontology)
        changed = read.changed(tree, ground.root, found)
        anew = [kind for kind in ground.ontology if _is_anew(kind, changed, snapshot, found)]
        if anew:
            for kind in anew:
                _build(ground, snapshot, kind, found)
            tree = snapshot.tree()
            changed = read.changed(tree, ground.root, found)
        parts = read.reload(tree, ground.root, changed, found)
        snapshot.save(tree, tree.replace(parts), changed)
        snapshot.relieve(tree)
        return Opened(tree, snapshot)


def _is_anew(kind: RecordType, changed: Iterable[str], snapshot: Snapshot, found: Survey) -> bool:
    """Whether reading a type as a stream is the shorter way."""
    own = {path for path, known in found.kinds.items() if known is kind}
    if kind.name not in snapshot.holds:
        return bool(own)
    return len(own.intersection(changed)) > max(_FEW, len(own) // 2)


def _build(ground: Ground, snapshot: Snapshot, kind: RecordType, found: Survey) -> None:
    paths = [path for path, known in found.kinds.items() if known is kind]
    try:
        snapshot.build(kind, _sound(ground.root, paths, kind, ground.limits))
    except Unusable:
        return  # records stand twice: all of them are read into memory


def _sound(root: Path, paths: Iterable[str], kind: RecordType, limits: Limits) -> Iterator[Part]:
    """The parts all of whose lines can be read, one after the other."""
    for path in paths:
        try:
            part = read.read_part(root, path, kind, limits, passing=True)
        except FileNotFoundError:
            continue
        if not part.findings:
            yield part
