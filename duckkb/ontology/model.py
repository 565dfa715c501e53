"""The ontology as frozen values: what may exist, and how it is searched."""

from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.queries import Mode
from duckkb.records import FROM, TO
from duckkb.settings import DEFAULT_MODEL, NO_MODEL, Settings

Cardinality = Literal["1:1", "1:N", "N:1", "N:N"]
Reach = Literal["auto", "all"]
MARKDOWN_FILES = ("**/*.md",)
MEMORY_IDENTITY = ("scope", "key")
EVERY = "*"
"""The name of a search field that stands for the fields which each record has, by its `reach`."""


class SearchField(Struct, frozen=True):
    """One searched field: its weight in the lexical lane, and its own language and chunk size where given.

    With the name `EVERY` it stands for those fields of each record that no other names: all texts but the identity
    (`reach` auto), or all values. `given` says that the value is itself the vector, of length `dimension` where that is
    fixed.
    """

    name: str
    weight: float = 1.0
    language: str | None = None
    chunk_size: int | None = None
    reach: Reach | None = None
    given: bool = False
    dimension: int | None = None


EXTRACTED = ("docx", "html", "pdf")
"""Formats whose text is taken out of files that are more than text."""


class Extraction(Struct, frozen=True):
    """How the files of a collection are read. `strict` has no record of a file that could not be read whole; without it
    there is one, with warnings. `off` are formats that are not read, `largest` is the largest file (bytes); one may take so many
    `seconds` by the clock, and so many bytes of `memory` on top of what the process that reads it has."""

    strict: bool = False
    off: tuple[str, ...] = ()
    largest: int = 25 * 1024 * 1024
    seconds: float = 30.0
    memory: int = 1024**3


class DocumentSource(Struct, frozen=True):
    """The folder of files that are the records of a document collection: `path` from the base's root (`.` the root itself), or
    an absolute one, which only this machine knows. `pattern` and `ignore` are lines as in .gitignore. `hidden`: names that begin
    with a dot count too; `gitignore`: what git ignores there, and repositories in it, do not. `included` says whether
    searches that name no type ask it, `update_command` what fetches it, `contexts` what its folders are about, by path in it."""

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
        """Whether the folder lies outside of the base, so that only this machine knows it."""
        return self.path.startswith("/")


class Generated(Struct, frozen=True):
    """How a record without an identity gets one: a random UUID (`uuid4`), or the UUID of the text in the field `of`
    within a `namespace` (`uuid5`, RFC 9562)."""

    method: Literal["uuid4", "uuid5"]
    of: str = ""
    namespace: str = ""


class Fields(Struct, frozen=True):
    """Which fields are compared by meaning, which are searched by words, and which are columns of filters and SQL."""

    vectors: tuple[SearchField, ...] = ()
    lexical: tuple[SearchField, ...] = ()
    relational: Reach | tuple[str, ...] = "auto"


class Policy(Struct, frozen=True):
    """How a collection is indexed and queried, never what it contains. No `intents` means that every one is served.
    `overrides` are settings in place of the base's, by their place in `Settings` (see `settings_of`). `refuse` says by
    intent what to use instead; `params` where a named parameter goes (a JSON pointer into the policy); `source` is the
    mapping that declares the policy, `place` its file:line."""

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
    """The base's settings with what policies set in their place: nothing else overrides one. Of several policies those count
    that set something, where they set it alike. A model is asked at the base's address and with its key, unless a policy
    names an address: there no other key is sent than the one that a policy names."""
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
    """What node and edge types share. `place` is the file:line that declares the type; `review` says that what agents write
    of it has to be proposed, `display` by which fields people know a record, its title first (none: `ontology.display` finds some). Where there is a `source`, its files are the records, or what they link to: nothing is stored."""

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
        """Whether a question in words can be compared with what the records hold."""
        return any(not item.given for item in self.vectors)

    @cached_property
    def given_vectors(self) -> Mapping[str, SearchField]:
        """The fields whose values are vectors, by name."""
        return {item.name: item for item in self.vectors if item.given}

    def settings(self, base: Settings) -> Settings:
        """What holds for this type: the base's settings, and what its policy sets in their place."""
        return settings_of([self.policy], base)

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.schema.get("properties", {})
        return found

    @cached_property
    def merge_rules(self) -> Mapping[str, str]:
        """`x-merge` by field, one of `schema.MERGE_RULES`."""
        return self._collect_annotations("x-merge")

    @cached_property
    def reviewed_fields(self) -> frozenset[str]:
        """The fields whose changes by agents have to be proposed (`x-review`)."""
        return frozenset(self._collect_annotations("x-review"))

    def _collect_annotations(self, keyword: str) -> dict[str, Any]:
        """What fields say of themselves by a keyword, by name; a schema that is true or false says nothing."""
        rules = self.properties.items()
        return {name: rule[keyword] for name, rule in rules if isinstance(rule, Mapping) and keyword in rule}


class NodeType(_RecordType, frozen=True):
    """The shape of one kind of node; `identity` names its identity fields in order. A collection is one that carries its
    own policy."""

    generated: Generated | None = None
    is_collection: bool = False
    kind: ClassVar[Literal["node"]] = "node"

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return self.identity

    @property
    def scope(self) -> str | None:
        """Of a collection of memories whose they are, as its schema fixes it: a tenant, or what lies below one (`ann/work`)."""
        rule = self.properties.get("scope") if self.is_collection and self.identity == MEMORY_IDENTITY else None
        constant = rule.get("const") if isinstance(rule, Mapping) else None
        return constant if isinstance(constant, str) else None


class EdgeType(_RecordType, frozen=True):
    """The shape of one kind of edge. Its identity is (from, to) and the fields in `identity`; `table` is its label."""

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
    """All types and policies, by name, and what all documents are about. Iterating gives node types, then edge types, in the
    order they were declared."""

    nodes: Mapping[str, NodeType] = {}
    edges: Mapping[str, EdgeType] = {}
    policies: Mapping[str, Policy] = {}
    context: str = ""

    def __iter__(self) -> Iterator[RecordType]:
        yield from self.nodes.values()
        yield from self.edges.values()

    def narrowed(self, names: Container[str]) -> "Ontology":
        """What somebody knows of it who may see the types with these names: of the edge types those whose ends he may all see
        (links between documents come with their collection), of the policies those that a type of his has."""
        nodes = {name: kind for name, kind in self.nodes.items() if name in names}
        edges = {
            name: kind
            for name, kind in self.edges.items()
            if (name in names or kind.source is not None) and nodes.keys() >= {*kind.from_types, *kind.to_types}
        }
        policy_names = {kind.policy.name for kind in (*nodes.values(), *edges.values()) if kind.policy is not None}
        policies = {name: policy for name, policy in self.policies.items() if name in policy_names}
        return Ontology(nodes, edges, policies, self.context)

    def seen_by(self, types: frozenset[str], tenant: str) -> frozenset[str]:
        """What a tenant sees to whom these types are granted: with them the memories of its scopes, granted or not; never those
        of another.

        >>> Ontology().seen_by(frozenset({"Note"}), "ann")
        frozenset({'Note'})
        """
        scopes = {name: scope for name, kind in self.nodes.items() if (scope := kind.scope) is not None}
        tenant_names = {name for name, scope in scopes.items() if tenant and f"{scope}/".startswith(f"{tenant}/")}
        return frozenset(types - scopes.keys() | tenant_names)

    @property
    def update_commands(self) -> dict[str, str]:
        """By collection the commands that fetch its files, which run once they are trusted."""
        sources = ((kind.name, kind.source) for kind in self.nodes.values())
        return {name: source.update_command for name, source in sources if source is not None and source.update_command}

    @cached_property
    def _by_name(self) -> Mapping[str, RecordType]:
        return {kind.table: kind for kind in self} | {kind.name: kind for kind in self}

    @cached_property
    def _by_folded_name(self) -> Mapping[str, RecordType]:
        return {name.casefold(): kind for name, kind in self._by_name.items()}

    def find(self, name: str) -> RecordType | None:
        """The type with this name, table or label; case matters only where two differ by it alone."""
        return self._by_name.get(name) or self._by_folded_name.get(name.casefold())

    def find_by_table(self, kind: str, table: str) -> RecordType | None:
        """The type of kind `node` or `edge` that is stored under this table or label."""
        return self._tables.get((kind, table))

    @cached_property
    def _tables(self) -> Mapping[tuple[str, str], RecordType]:
        return {(kind.kind, kind.table): kind for kind in self}
