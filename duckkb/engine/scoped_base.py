"""A base for a caller who may see some of its types, and must not be able to tell that there are others.

Every use case is given a base and knows no other, so none can forget who asks: a caller who sees a part gets a
`NarrowedBase`.
State that belongs to one type (lanes, tables, counts) is the whole base's; everything that follows the ontology
or the tree is made from the visible types.
Folder, notes and preview of the base are refused: they tell of all types, and of the machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from duckkb.engine.base import Base, TreeRows
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.field_statistics import Observed
from duckkb.index.index_entries import EntryBuilder
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Ahead, Lanes, Sql
from duckkb.storage.document_parts import type_at
from duckkb.storage.part import Part
from duckkb.storage.tree import Tree
from duckkb.store.stored_lines import StoredLines
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import (
    Conflict,
    DuckkbError,
    NotFound,
    OntologyError,
    Refused,
    Unavailable,
    Unreadable,
    UsageError,
)
from duckkb.types.queries import Notice

_OF_ALL_TEXTS = ("W_COMPUTED", "W_PENDING", "W_NO_TEAM_CACHE", "W_BEHIND")
"""Notice codes computed over the whole base, or over commits; hidden from callers who see only some types."""
_OF_THE_REQUEST = (UsageError, NotFound, Conflict, Refused, Unreadable)
_CODES_OF_THE_REQUEST = ("E_UNKNOWN_TYPE", "E_LIMIT", "E_TIMEOUT")
_CODES_OF_THE_BASE = ("E_MERGE_IN_PROGRESS", "E_NO_KB", "E_READ_ONLY", "E_SPARSE", "E_UNTRUSTED")


def narrow_base(base: Base, types: frozenset[str] | None, *, tenant: str = "", lenient: bool = False) -> Base:
    """Return the base of a caller who may see the types with these names (None: all).

    A `tenant` also sees its own memories. The result must not reveal that there are other types.
    Raises `errors.Unreadable` where records of these types cannot be read (unless `lenient`), and
    `errors.Refused` (E_FORBIDDEN) for a part of the base of a revision, unless that is to be proposed to.
    """
    if types is None:
        return base
    types = base.whole.ontology.list_visible_types(types, tenant)
    if (part := part_of(base)) is not None:
        types &= part.types
    view = NarrowedBase(base.whole, types, lenient=lenient)
    if not lenient:
        refuse_unreadable(view.tree)
    return view


def part_of(base: Base) -> "NarrowedBase | None":
    """Return the base as a narrowed base; None for a whole one."""
    return base if isinstance(base, NarrowedBase) else None


class NarrowedBase(Base):
    """A base of those types of `whole` that are visible.

    Valid until `whole` is refreshed, or written by another base.
    """

    def __init__(self, whole: Base, types: frozenset[str], *, lenient: bool = False) -> None:
        if whole.wiring.at is not None and whole.wiring.proposal is None:
            raise forbidden("revisions need access to the whole base")
        ontology = whole.ontology.narrow(types)
        self._of, self.types, self._validators, self.turn = whole, types, {}, whole.turn
        self.is_generation = whole.is_generation
        self.wiring = replace(whole.wiring, ontology=ontology, lenient=lenient, preview=_refuse_preview)
        self.cache, self.lines, self.read_only, self.reason = whole.cache, None, False, ""
        self.renew()

    @property
    def whole(self) -> Base:
        return self._of

    def renew(self) -> None:
        self.tree = self._of.tree.narrow(self.ontology)

    @property
    def root(self) -> Path:
        raise forbidden("this needs access to the whole base")

    @property
    def notes(self) -> BaseStore:
        raise forbidden("this needs access to the whole base")

    @property
    def builder(self) -> EntryBuilder:
        return self._of.builder

    @property
    def sql(self) -> Sql:
        return self._of.sql.narrow(self.ontology)

    def observe_fields(self, kind: RecordType) -> Observed:
        return self._of.observe_fields(kind)

    def rows(self, kind: RecordType) -> TreeRows:
        return self._of.rows(kind)

    def lanes(self, kind: RecordType) -> Lanes:
        return self._of.lanes(kind)

    def register(self) -> None:
        self._of.register()

    def on_vectors_available(self, kind: RecordType, keys: Iterable[bytes]) -> None:
        self._of.on_vectors_available(kind, keys)

    def take_in(self, parts: Mapping[str, Part | None]) -> None:
        self._of.take_in(parts)
        self.renew()

    def restart(self, tree: Tree, lines: StoredLines | None) -> None:
        self._of.restart(tree, lines)
        self.renew()

    def concerns(self, path: str) -> bool:
        return type_at(self.ontology, path) is not None

    def filter_notices(self, notices: Iterable[Notice]) -> tuple[Notice, ...]:
        """Return the notices, except codes computed over the whole base and words about the machine."""
        return tuple(_redact_notice(notice) for notice in notices if notice.code not in _OF_ALL_TEXTS)

    @property
    def kept(self) -> tuple[str, ...]:
        """The visible types at which edges of hidden types may end.

        Their records cannot be deleted or renamed from here, since the caller could not see what that breaks.
        The types follow from the ontology and the grant alone: whether a record has such an edge is never
        revealed.
        """
        hidden_edges = [edge for edge in self._of.ontology.edges.values() if edge.name not in self.ontology.edges]
        ends = {name for edge in hidden_edges for name in (*edge.from_types, *edge.to_types)}
        return tuple(name for name in self.ontology.nodes if name in ends)

    def refuse_loss(self, kind: RecordType) -> None:
        if kind.name in self.kept:
            raise forbidden(f"you cannot delete or rename records of {kind.name}, since hidden edges may refer to them")

    def close(self, *, alone: bool = True) -> None:
        """Do nothing: the parts belong to the whole base."""


def forbidden(message: str) -> Refused:
    """Return the error for a request that a caller with some types alone may not make."""
    return Refused(message, code="E_FORBIDDEN", suggestion="ask who runs the knowledge base")


@contextmanager
def load_for_caller(types: frozenset[str] | None) -> Iterator[None]:
    """Wrap the loading of the whole base for a caller who may see these types.

    A caller who sees a part always gets the same error, whatever is wrong; the cause goes to the log.
    """
    try:
        yield
    except DuckkbError as problem:
        if types is None:
            raise
        raise unavailable() from problem


@contextmanager
def narrow_errors(types: frozenset[str] | None, *, asked_again: bool = False) -> Iterator[None]:
    """Wrap a call for a caller who may see these types: errors become readable for that caller.

    With `asked_again`, errors after which the call is repeated pass unchanged.
    """
    try:
        yield
    except DuckkbError as problem:
        if (
            types is None
            or (asked_again and isinstance(problem, Ahead))
            or (public_error := narrow_error(problem)) is problem
        ):
            raise
        raise public_error from problem


def narrow_error(problem: DuckkbError) -> DuckkbError:
    """Return an error as a caller with some types alone may read it.

    A fault of the request stays as it is. A fault of the whole base, of git or of the machine becomes one
    common error, since its text names files, processes and types.
    """
    if problem.code == "E_MODEL":
        return Unavailable("the model does not answer", code="E_MODEL", suggestion="try again later, or ask by words")
    is_own = isinstance(problem, _OF_THE_REQUEST) and not isinstance(problem, OntologyError)
    if problem.code in _CODES_OF_THE_REQUEST or (is_own and problem.code not in _CODES_OF_THE_BASE):
        return problem
    return unavailable()


def unavailable() -> Unavailable:
    """Return the error for a caller with some types alone where the whole base cannot be loaded."""
    return Unavailable("the knowledge base does not answer now", suggestion="try again later")


def _redact_notice(notice: Notice) -> Notice:
    if notice.code == "W_DEGRADED":
        return Notice(notice.code, "answered in part without vectors")
    return replace(notice, remedy="") if notice.code == "W_PARTIAL" else notice


def _refuse_preview(files: Mapping[str, bytes | None]) -> Ontology:
    raise forbidden("changing types needs access to the whole base")
