"""The ontology as frozen values: what may exist, and how it is searched."""

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.types.queries import Mode
from duckkb.types.records import FROM, TO
from duckkb.types.settings import DEFAULT_MODEL, NO_MODEL, Settings

Cardinality = Literal["1:1", "1:N", "N:1", "N:N"]
Reach = Literal["auto", "all"]
MARKDOWN_FILES = ("**/*.md",)
MEMORY_IDENTITY = ("scope", "key")
EVERY = "*"
"""The name of a search field that stands for the fields of each record, by its `reach`."""


class SearchField(Struct, frozen=True):
    """A searched field: its weight in the lexical lane, and its own language and chunk size where given.

    The name `EVERY` stands for all fields of each record that are not named otherwise: all texts but the
    identity (`reach` auto), or all values. `given` says that the value is itself the vector, of length
    `dimension` where that is fixed.
    """

    name: str
    weight: float = 1.0
    language: str | None = None
    chunk_size: int | None = None
    reach: Reach | None = None
    given: bool = False
    dimension: int | None = None


EXTRACTED = ("docx", "html", "pdf")
"""Formats whose files are more than text, so that their text is extracted."""


class Extraction(Struct, frozen=True):
    """The options for reading the files of a collection.

    With `strict`, a file that could not be read completely has no record; without it, the record comes with
    warnings. `off` are formats that are not read, `largest` is the largest file (bytes).
    Reading one file may take `seconds` of real time, and `memory` bytes on top of what the reading process has.
    """

    strict: bool = False
    off: tuple[str, ...] = ()
    largest: int = 25 * 1024 * 1024
    seconds: float = 30.0
    memory: int = 1024**3


class DocumentSource(Struct, frozen=True):
    """The folder of files that are the records of a document collection.

    `path` is relative to the base's root (`.` the root itself), or absolute, which only this machine knows.
    `pattern` and `ignore` are lines as in .gitignore.
    `hidden`: names that begin with a dot count too. `gitignore`: files that git ignores there, and repositories
    inside, do not count.
    `included` says whether searches without a type ask it, `update_command` fetches the files, `contexts`
    describes its folders, by path.
    """

    path: str
    pattern: tuple[str, ...] = MARKDOWN_FILES
    ignore: tuple[str, ...] = ()
    hidden: bool = False
    gitignore: bool = True
    included: bool = True
    update_command: str = ""
    contexts: Mapping[str, str] = {}
    extraction: Extraction = Extraction()

    def __hash__(self) -> int:
        return hash((self.path, self.pattern, self.ignore))

    @property
    def is_outside(self) -> bool:
        """Return whether the folder lies outside of the base, so that only this machine knows it."""
        return self.path.startswith("/")


class Generated(Struct, frozen=True):
    """The rule by which a record without an identity gets one.

    It is a random UUID (`uuid4`), or the UUID of the text in the field `of` within a `namespace` (`uuid5`, RFC 9562).
    """

    method: Literal["uuid4", "uuid5"]
    of: str = ""
    namespace: str = ""


class Fields(Struct, frozen=True):
    """The fields that are compared by meaning, searched by words, and columns of filters and SQL."""

    vectors: tuple[SearchField, ...] = ()
    lexical: tuple[SearchField, ...] = ()
    relational: Reach | tuple[str, ...] = "auto"


class Policy(Struct, frozen=True):
    """A policy: how a collection is indexed and queried, never what it contains.

    Without `intents` (None) every intent is allowed; `refuse` says by intent what to use instead. `overrides`
    are settings that replace the base's, by their place in `Settings` (see `settings_of`).
    `params` maps a named parameter to its place (a JSON pointer into the policy). `source` is the mapping that
    declares the policy, `place` its file:line.
    """

    name: str
    intents: tuple[Mode, ...] | None = None
    default_intent: Mode | None = None
    overrides: Mapping[str, Any] = {}
    description: str = ""
    aliases: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    generated: Generated | None = None
    schema: Mapping[str, Any] = {}
    fields: Fields | None = None
    refuse: Mapping[Mode, str] = {}
    params: Mapping[str, str] = {}
    source: Mapping[str, Any] = {}
    place: str = ""


def settings_of(policies: Iterable[Policy | None], base: Settings) -> Settings:
    """Return the base's settings with the overrides of policies; nothing else overrides a setting.

    Of several policies those count that set something, where they agree on it. A model is asked at the base's
    address and with its key, unless a policy names an address: then only the key that the policy names is sent
    there.
    """
    override_sets = [policy.overrides for policy in policies if policy is not None]
    changes: dict[str, Any] = {}
    for place in dict.fromkeys(place for overrides in override_sets for place in overrides):
        value, *other_values = (overrides[place] for overrides in override_sets if place in overrides)
        if any(other_value != value for other_value in other_values):
            continue
        group, _, name = place.rpartition(".")
        if not group:
            changes[name] = value
            continue
        around = changes.get(group, getattr(base, group))
        if place == "embedding.model" and value in (DEFAULT_MODEL, NO_MODEL):
            around = replace(around, base_url=None, api_key_env=None, dimensions=None)
            around = replace(around, concurrency=None, price_per_million_tokens=None)
        if place == "embedding.base_url":
            around = replace(around, api_key_env=None)
        changes[group] = replace(around, **{name: value})
    return replace(base, **changes) if changes else base


class _RecordType(Struct, frozen=True, dict=True):
    """The common part of node and edge types.

    `place` is the file:line that declares the type. `review` says that writes by agents have to be proposed.
    `display` names the fields that represent a record, its title first (if empty, `ontology.identity` chooses
    some).
    Where there is a `source`, its files are the records, or what they link to: nothing is stored.
    """

    name: str
    table: str
    identity: tuple[str, ...]
    schema: Mapping[str, Any]
    full_text: tuple[SearchField, ...] = ()
    vectors: tuple[SearchField, ...] = ()
    policy: Policy | None = None
    granularity: Literal["field", "record"] | None = None
    place: str = ""
    relational: Reach | tuple[str, ...] = ()
    review: bool = False
    display: tuple[str, ...] = ()
    source: DocumentSource | None = None

    @property
    def has_text_vectors(self) -> bool:
        """Return whether a question in words can be compared with vectors of the records."""
        return any(not item.given for item in self.vectors)

    @cached_property
    def given_vectors(self) -> Mapping[str, SearchField]:
        """The fields whose values are vectors, by name."""
        return {item.name: item for item in self.vectors if item.given}

    def settings(self, base: Settings) -> Settings:
        """Return the settings for this type: the base's, with the overrides of its policy."""
        return settings_of([self.policy], base)

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.schema.get("properties", {})
        return found

    @cached_property
    def merge_rules(self) -> Mapping[str, str]:
        """The `x-merge` rule of each field, one of `schema.MERGE_RULES`."""
        return self._collect_annotations("x-merge")

    @cached_property
    def reviewed_fields(self) -> frozenset[str]:
        """The fields whose changes by agents have to be proposed (`x-review`)."""
        return frozenset(self._collect_annotations("x-review"))

    def _collect_annotations(self, keyword: str) -> dict[str, Any]:
        """Return the value of a keyword in each field's schema, by field name; a boolean schema has none."""
        rules = self.properties.items()
        return {name: rule[keyword] for name, rule in rules if isinstance(rule, Mapping) and keyword in rule}


class NodeType(_RecordType, frozen=True):
    """The shape of one kind of node; `identity` names its identity fields in order.

    A collection is a node type that carries its own policy.
    """

    generated: Generated | None = None
    is_collection: bool = False
    kind: ClassVar[Literal["node"]] = "node"

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return self.identity

    @property
    def scope(self) -> str | None:
        """The scope of a collection of memories, as its schema fixes it: a tenant, or a scope below one
        (`ann/work`).
        """
        rule = self.properties.get("scope") if self.is_collection and self.identity == MEMORY_IDENTITY else None
        constant = rule.get("const") if isinstance(rule, Mapping) else None
        return constant if isinstance(constant, str) else None


class EdgeType(_RecordType, frozen=True):
    """The shape of one kind of edge.

    Its identity is (from, to) and the fields in `identity`; `table` is its label.
    """

    from_types: tuple[str, ...] = ()
    to_types: tuple[str, ...] = ()
    cardinality: Cardinality = "N:N"
    kind: ClassVar[Literal["edge"]] = "edge"
    generated: ClassVar[None] = None
    is_collection: ClassVar[bool] = False

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return (FROM, TO, *self.identity)


RecordType = NodeType | EdgeType


class Ontology(Struct, frozen=True, dict=True):
    """All types and policies, by name, and the description of all documents.

    Iterating gives node types, then edge types, in the order of their declaration.
    """

    nodes: Mapping[str, NodeType] = {}
    edges: Mapping[str, EdgeType] = {}
    policies: Mapping[str, Policy] = {}
    context: str = ""

    def __iter__(self) -> Iterator[RecordType]:
        yield from self.nodes.values()
        yield from self.edges.values()

    def narrow(self, names: Container[str]) -> "Ontology":
        """Return the ontology of a caller who may see the types with these names.

        An edge type is visible where both its ends are (links between documents come with their collection),
        and a policy where a visible type has it.
        """
        nodes = {name: kind for name, kind in self.nodes.items() if name in names}
        edges = {
            name: kind
            for name, kind in self.edges.items()
            if (name in names or kind.source is not None) and nodes.keys() >= {*kind.from_types, *kind.to_types}
        }
        policy_names = {kind.policy.name for kind in (*nodes.values(), *edges.values()) if kind.policy is not None}
        policies = {name: policy for name, policy in self.policies.items() if name in policy_names}
        return Ontology(nodes, edges, policies, self.context)

    def list_visible_types(self, types: frozenset[str], tenant: str) -> frozenset[str]:
        """Return the types that a tenant sees: those granted, and the memories of its own scopes.

        Memories of another tenant are never seen, granted or not.

        >>> Ontology().list_visible_types(frozenset({"Note"}), "ann")
        frozenset({'Note'})
        """
        scopes = {name: scope for name, kind in self.nodes.items() if (scope := kind.scope) is not None}
        tenant_names = {name for name, scope in scopes.items() if tenant and f"{scope}/".startswith(f"{tenant}/")}
        return frozenset(types - scopes.keys() | tenant_names)

    @property
    def update_commands(self) -> dict[str, str]:
        """The commands that fetch the files of collections, by collection; they run once they are trusted."""
        sources = ((kind.name, kind.source) for kind in self.nodes.values())
        return {name: source.update_command for name, source in sources if source is not None and source.update_command}

    @cached_property
    def _by_name(self) -> Mapping[str, RecordType]:
        return {kind.table: kind for kind in self} | {kind.name: kind for kind in self}

    @cached_property
    def _by_folded_name(self) -> Mapping[str, RecordType]:
        return {name.casefold(): kind for name, kind in self._by_name.items()}

    def find(self, name: str) -> RecordType | None:
        """Return the type with this name, table or label; case matters only where two differ by it alone."""
        return self._by_name.get(name) or self._by_folded_name.get(name.casefold())

    def find_by_table(self, kind: str, table: str) -> RecordType | None:
        """Return the type of kind `node` or `edge` that is stored under this table or label."""
        return self._tables.get((kind, table))

    @cached_property
    def _tables(self) -> Mapping[tuple[str, str], RecordType]:
        return {(kind.kind, kind.table): kind for kind in self}
