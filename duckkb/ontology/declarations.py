"""Reads one declaration of a node type, an edge type or a collection; every problem becomes a finding."""

from collections.abc import Iterator, Mapping
from typing import Any

from duckkb.ontology.json_schema import MERGE_BY_SIDE, check_schema
from duckkb.ontology.model import (
    EVERY,
    EXTRACTED,
    MARKDOWN_FILES,
    DocumentSource,
    EdgeType,
    Extraction,
    Fields,
    NodeType,
    Policy,
    SearchField,
)
from duckkb.ontology.names import (
    CARDINALITIES,
    GRANULARITIES,
    REVIEWS,
    Choice,
    Flag,
    Number,
    Text,
    Whole,
    collection_table,
    is_folder,
    is_policy_name,
    is_table_name,
    is_type_name,
    show_value,
    suggest_known_names,
)
from duckkb.ontology.policies import FIELD_RULES, policy
from duckkb.ontology.schema_kinds import identity_kind, is_searchable
from duckkb.ontology.yaml_source import THIS_MACHINE, Section
from duckkb.types.records import FROM, TO

_SHARED_KEYS = ("policy", "merge", "review", "display")
NODE_KEYS = ("table", "identity", "schema", "search", *_SHARED_KEYS)
EDGE_KEYS = ("label", "from", "to", "cardinality", "identity", "schema", "search", *_SHARED_KEYS)
COLLECTION_KEYS = ("table", "source", *_SHARED_KEYS)
SOURCE_KEYS = (
    "path",
    "pattern",
    "ignore",
    "hidden",
    "gitignore",
    "included",
    "update_command",
    "contexts",
    "extraction",
)
EXTRACTION_KEYS = ("policy", "disabled", "max_bytes", "max_seconds", "max_memory")
SEARCH_KEYS = ("full_text", "vectors")

PATH = "path"
"""The identity of a document."""

_ENDS = (FROM, TO)
LONGEST_CONTEXT = 2_000
_END_COLUMNS = (*_ENDS, "from_id", "to_id")


def node_type(name: str, section: Section, policies: Mapping[str, Policy]) -> NodeType:
    """Read a node type from its mapping. Where the section has findings, the type is for further checks only."""
    section.refuse_unknown(NODE_KEYS)
    _check_name(name, section)
    table = _read_table(name.lower(), "table", section)
    schema = _read_schema(section)
    if "identity" not in section:
        section.problem("needs `identity`, the field or fields that name a record")
    identity = _identity(section, schema)
    return NodeType(
        name, table, identity, _with_identity(schema, identity), **_read_shared_keys(section, schema, policies)
    )


def edge_type(name: str, section: Section, policies: Mapping[str, Policy]) -> EdgeType:
    """Read an edge type from its mapping. Its ends are checked by `check`, once all node types are known."""
    section.refuse_unknown(EDGE_KEYS)
    _check_name(name, section)
    label = _read_table(name.lower(), "label", section)
    schema = _read_schema(section)
    _refuse_ends(section, schema)
    identity = _identity(section, schema)
    for end in _ENDS:
        if end not in section:
            section.problem(f"needs `{end}`, a node type or a list of them")
    return EdgeType(
        name,
        label,
        identity,
        _with_identity(schema, identity),
        **_read_shared_keys(section, schema, policies),
        from_types=_end_types(section, FROM),
        to_types=_end_types(section, TO),
        cardinality=section.get("cardinality", Choice(CARDINALITIES), "N:N"),
    )


def collection(name: str, section: Section) -> NodeType:
    """Read a collection: a node type that carries its own policy, which alone shapes its records."""
    section.refuse_unknown(COLLECTION_KEYS)
    if not is_policy_name(name):
        message = (
            f"{show_value(name)} cannot name a collection: use letters, digits, _ and -, a letter first, at most 64"
        )
        section.problem(message, remedy="rename it")
    inner = section.sub("policy")
    if not inner.value:
        section.problem(
            "needs `policy`, the mapping that defines its index", remedy="duckkb col init NAME --policy POLICY"
        )
    collection_policy = policy(inner.get("name", Text(), name), inner, ("name",))
    source = _read_source(section.sub("source")) if "source" in section else None
    identity = collection_policy.identity or ((PATH,) if source else ("id",))
    if source and identity != (PATH,):
        inner.problem(f"documents are named by their path: the identity must be `{PATH}`", "identity")
    fields = collection_policy.fields or Fields(lexical=(SearchField(EVERY, reach="auto"),))
    return NodeType(
        name,
        _read_table(collection_table(name), "table", section),
        identity,
        _with_identity(_open_schema(collection_policy, identity, inner), identity),
        fields.lexical,
        fields.vectors,
        collection_policy,
        _read_granularity(section),
        section.place(),
        fields.relational,
        _review(section),
        display=_display(section, None),
        source=source,
        generated=collection_policy.generated,
        is_collection=True,
    )


def links_of(kind: NodeType) -> EdgeType:
    """Return the edge type of the links between the documents of a collection."""
    name = f"{kind.name.replace('-', '_')}_links"
    return EdgeType(
        name,
        collection_table(name),
        (),
        {"type": "object"},
        place=kind.place,
        source=kind.source,
        from_types=(kind.name,),
        to_types=(kind.name,),
    )


def _read_source(section: Section) -> DocumentSource:
    """Read the place of the files of a document collection."""
    section.refuse_unknown(SOURCE_KEYS)
    if "path" not in section:
        section.problem("needs `path`, the folder of the files")
    path = section.get("path", Text(), "") or "."
    if section.document.path == THIS_MACHINE:
        if not path.startswith("/"):
            section.problem("must be an absolute path", "path")
    elif path != "." and (path.startswith("/") or not is_folder(path)):
        section.problem(
            f"must be a folder of the base, written with `/` and without `.` or `..`, is {show_value(path)}",
            "path",
            remedy="`duckkb collection add FOLDER` has this machine know a folder outside of the base",
        )
    lines = {key: tuple(line for line, _ in section.names(key)) for key in ("pattern", "ignore") if key in section}
    context_section = section.sub("contexts")
    contexts = {place: context_section.get(place, Text(LONGEST_CONTEXT), "") for place in context_section.value}
    return DocumentSource(
        path,
        lines.get("pattern", MARKDOWN_FILES),
        lines.get("ignore", ()),
        section.get("hidden", Flag(), False),
        section.get("gitignore", Flag(), True),
        section.get("included", Flag(), True),
        section.get("update_command", Text(LONGEST_CONTEXT), ""),
        {place.strip("/"): text for place, text in contexts.items() if text},
        _read_extraction(section.sub("extraction")),
    )


def _read_extraction(section: Section) -> Extraction:
    """Read the options for reading the files of a collection."""
    section.refuse_unknown(EXTRACTION_KEYS)
    usual, gib = Extraction(), 1024**3
    off = dict(section.names("disabled")) if "disabled" in section else {}
    for form in [form for form in off if form not in EXTRACTED]:
        section.problem(f"{show_value(form)} cannot be switched off; {', '.join(EXTRACTED)} can", "disabled")
    return Extraction(
        section.get("policy", Choice(("fallback", "strict")), "fallback") == "strict",
        tuple(sorted(off)),
        section.get("max_bytes", Whole(1, gib), usual.largest),
        section.get("max_seconds", Number(0.1, 3_600), usual.seconds),
        section.get("max_memory", Whole(64 * 1024**2, 64 * gib), usual.memory),
    )


def _open_schema(collection_policy: Policy, identity: tuple[str, ...], section: Section) -> dict[str, Any]:
    """Return the policy's schema, which may be empty, with the identity declared: a text by default."""
    schema = {"type": "object"} | dict(collection_policy.schema)
    properties = schema.get("properties")
    property_rules = dict(properties) if isinstance(properties, dict) else {}
    schema["properties"] = {name: property_rules.pop(name, {"type": "string"}) for name in identity} | property_rules
    for name in identity:
        if problem := _unfit(schema, name):
            section.problem(problem[0], "schema", "properties", name, remedy=problem[1])
    return schema


def _check_name(name: str, section: Section) -> None:
    if not is_type_name(name):
        message = (
            f"{show_value(name)} cannot name a type: use letters, digits and _, a letter first, at most 64, not `all`"
        )
        section.problem(message, remedy="rename it")


def _read_table(default: str, key: str, section: Section) -> str:
    """Read the table or label; empty where it is unsafe, so that no further check reports it."""
    table = section.get(key, Text(), default)
    if is_table_name(table):
        return str(table)
    rule = "lower-case letters, digits and _, a letter first, at most 63, and no name that the system reserves"
    if key in section:
        section.problem(f"{show_value(table)} is not a safe {key}: use {rule}", key)
    else:
        section.problem(f"its name makes no safe {key}", remedy=f"give it a `{key}`: {rule}")
    return ""


def _read_schema(section: Section) -> dict[str, Any]:
    part = section.sub("schema")
    check_schema(part)
    schema = {"type": "object"} | dict(part.value)
    if not isinstance(schema.get("properties"), dict):
        schema["properties"] = {}
    return schema


def _refuse_ends(section: Section, schema: Mapping[str, Any]) -> None:
    for name in schema["properties"]:
        if name.casefold() in _END_COLUMNS:
            message = f"{show_value(name)} is duckkb's own name for an edge's end"
            section.problem(message, "schema", "properties", name, remedy="leave it out, or rename it")
    required_names = schema.get("required")
    for index, name in enumerate(required_names if isinstance(required_names, list) else ()):
        if name in _ENDS:
            message = f"{show_value(name)} is always required, and no part of the schema"
            section.problem(message, "schema", "required", index, remedy="leave it out")


def _identity(section: Section, schema: Mapping[str, Any]) -> tuple[str, ...]:
    if "identity" not in section:
        return ()
    names = section.names("identity")
    fields = [(name, at) for name, at in names if _is_field(section, name, at, schema)]
    for name, at in fields:
        if problem := _unfit(schema, name):
            section.found.append(section.document.finding(section.code, at, *problem))
    return tuple(name for name, _ in fields)


def _unfit(schema: Mapping[str, Any], name: str) -> tuple[str, str] | None:
    """Return why a field cannot be an identity, and what repairs it; None where it can."""
    rule = schema["properties"][name]
    if identity_kind(schema, rule) is None:
        message = f"the identity field {show_value(name)} must be a string or an integer, and nothing else"
        return message, "set its `type` in the schema"
    if isinstance(rule, dict) and rule.get("x-merge") in MERGE_BY_SIDE:
        message = (
            f"the identity field {show_value(name)} names a record: of two renames a merge cannot take one by a rule"
        )
        return message, "leave `x-merge` out"
    return None


def _is_field(section: Section, name: str, at: str, schema: Mapping[str, Any]) -> bool:
    """Return whether the schema declares a field; note a finding where it does not."""
    if name in schema["properties"]:
        return True
    message, remedy = f"{show_value(name)} is not in the schema", suggest_known_names(name, schema["properties"])
    if name in _ENDS and section.at.startswith("/edges/"):
        message, remedy = f"{show_value(name)} is always part of an edge's identity", "leave it out"
    section.found.append(section.document.finding(section.code, at, message, remedy))
    return False


def _with_identity(schema: dict[str, Any], identity: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema with the identity fields required, which they are even where it does not say so."""
    required_names = schema.get("required")
    stated_names = list(required_names) if isinstance(required_names, list) else []
    missing = [name for name in identity if name not in stated_names]
    return schema | {"required": [*stated_names, *missing]} if missing else schema


def _read_shared_keys(section: Section, schema: Mapping[str, Any], policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Read the keys that node and edge types share; search settings come from the policy where the type has none."""
    search = section.sub("search")
    search.refuse_unknown(SEARCH_KEYS)
    full_text, vectors = (tuple(_search_fields(search, key, schema)) for key in SEARCH_KEYS)
    _check_chunk_sizes(search, full_text, vectors)
    chosen_policy = policies.get(section.get("policy", Text(), ""))
    fields = chosen_policy.fields if chosen_policy and chosen_policy.fields and "search" not in section else None
    return {
        "full_text": fields.lexical if fields else full_text,
        "vectors": fields.vectors if fields else vectors,
        "policy": chosen_policy,
        "granularity": _read_granularity(section),
        "place": section.place(),
        "relational": fields.relational if fields else (),
        "review": _review(section),
        "display": _display(section, schema),
    }


def _read_granularity(section: Section) -> Any:
    return section.sub("merge").read({"granularity": Choice(GRANULARITIES)})["granularity"]


def _review(section: Section) -> bool:
    """Read `review: required`: what agents write of the type has to be proposed."""
    return section.get("review", Choice(REVIEWS), None) is not None


def _display(section: Section, schema: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Read `display`: the fields that represent a record, its title first; with a `schema` only fields that it
    declares.
    """
    names = section.names("display") if "display" in section else []
    return tuple(name for name, at in names if schema is None or _is_field(section, name, at, schema))


def _search_fields(search: Section, key: str, schema: Mapping[str, Any]) -> Iterator[SearchField]:
    seen_names: set[str] = set()
    for index, item in search.items(key):
        entry = search.entry(key, index, item if isinstance(item, dict) else {"field": item})
        options = entry.read(FIELD_RULES, ("field",))
        name = entry.value.get("field")
        at = entry.inside("field") if isinstance(item, dict) else entry.at
        if not isinstance(name, str):
            entry.problem(f"must be a field's name, or a mapping with `field`, is {show_value(item)}")
        elif name in seen_names:
            entry.problem(f"names {show_value(name)} twice")
        elif _is_field(search, name, at, schema):
            seen_names.add(name)
            if not is_searchable(schema, schema["properties"][name]):
                message = f"the search field {show_value(name)} must be a string or an array of strings"
                entry.problem(message, remedy="set its `type` in the schema, or search another field")
            yield SearchField(name, options["weight"] or 1.0, options["language"], options["chunk_size"])


def _check_chunk_sizes(search: Section, full_text: tuple[SearchField, ...], vectors: tuple[SearchField, ...]) -> None:
    """Check that both lanes chunk a field alike, since they share its chunks."""
    sizes = {item.name: item.chunk_size for item in full_text if item.chunk_size}
    for index, item in enumerate(vectors):
        if item.chunk_size and sizes.get(item.name, item.chunk_size) != item.chunk_size:
            search.problem(f"{show_value(item.name)} has another chunk_size under full_text", "vectors", index)


def _end_types(section: Section, key: str) -> tuple[str, ...]:
    return tuple(name for name, _ in section.names(key)) if key in section else ()
