"""The ontology as frozen values: what may exist, and how it is searched."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from duckkb.queries import Mode
from duckkb.records import FROM, TO
from duckkb.settings import Expansion, Fusion

Cardinality = Literal["1:1", "1:N", "N:1", "N:N"]


@dataclass(frozen=True, slots=True)
class SearchField:
    """One searched field: its weight in the lexical lane, and its own language and chunk size where given."""

    name: str
    weight: float = 1.0
    language: str | None = None
    chunk_size: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How a collection is queried, never what it contains. None means: the base's setting, or every intent served."""

    name: str
    intents: tuple[Mode, ...] | None = None
    default_intent: Mode | None = None
    fusion: Fusion | None = None
    expansion: Expansion | None = None


@dataclass(frozen=True)
class _RecordType:
    """What node and edge types share. `place` is the file:line that declares the type."""

    name: str
    table: str
    identity: tuple[str, ...]
    schema: Mapping[str, Any]
    full_text: tuple[SearchField, ...] = ()
    vectors: tuple[SearchField, ...] = ()
    policy: Policy | None = None
    granularity: Literal["field", "record"] | None = None
    place: str = ""

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.schema.get("properties", {})
        return found

    @cached_property
    def merge_rules(self) -> Mapping[str, str]:
        """`x-merge` by field: `set` or `text`."""
        return {name: rule["x-merge"] for name, rule in self.properties.items() if "x-merge" in rule}


@dataclass(frozen=True)
class NodeType(_RecordType):
    """The shape of one kind of node; `identity` names its identity fields in order."""

    kind: ClassVar[Literal["node"]] = "node"

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return self.identity


@dataclass(frozen=True)
class EdgeType(_RecordType):
    """The shape of one kind of edge. Its identity is (from, to) and the fields in `identity`; `table` is its label."""

    from_types: tuple[str, ...] = ()
    to_types: tuple[str, ...] = ()
    cardinality: Cardinality = "N:N"
    kind: ClassVar[Literal["edge"]] = "edge"

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return (FROM, TO, *self.identity)


RecordType = NodeType | EdgeType


@dataclass(frozen=True)
class Ontology:
    """All types and policies, by name. Iterating gives node types, then edge types, in the order they were declared."""

    nodes: Mapping[str, NodeType] = field(default_factory=dict)
    edges: Mapping[str, EdgeType] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def __iter__(self) -> Iterator[RecordType]:
        yield from self.nodes.values()
        yield from self.edges.values()

    @cached_property
    def _by_name(self) -> Mapping[str, RecordType]:
        return {kind.table: kind for kind in self} | {kind.name: kind for kind in self}

    @cached_property
    def _by_folded_name(self) -> Mapping[str, RecordType]:
        return {name.casefold(): kind for name, kind in self._by_name.items()}

    def find(self, name: str) -> RecordType | None:
        """The type with this name, table or label; case matters only where two differ by it alone."""
        return self._by_name.get(name) or self._by_folded_name.get(name.casefold())

    def by_table(self, kind: str, table: str) -> RecordType | None:
        """The type of kind `node` or `edge` that is stored under this table or label."""
        found = self._tables.get((kind, table))
        return found

    @cached_property
    def _tables(self) -> Mapping[tuple[str, str], RecordType]:
        return {(kind.kind, kind.table): kind for kind in self}
