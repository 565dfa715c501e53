"""Reads policies and collections: how records are indexed and queried, as data.

Every problem becomes a finding.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from msgspec.structs import replace

from duckkb.ontology.json_schema import check_schema
from duckkb.ontology.model import EVERY, Fields, Generated, Policy, Reach, SearchField
from duckkb.ontology.names import (
    CHUNK_SIZE,
    EXPANSION,
    FUSION,
    LANGUAGE,
    MODES,
    WEIGHT,
    Choice,
    Flag,
    Rule,
    Text,
    Url,
    VariableName,
    Whole,
    is_policy_name,
    show_value,
)
from duckkb.ontology.yaml_source import Section
from duckkb.types.queries import Mode
from duckkb.types.settings import DEFAULT_MODEL, NO_MODEL, Expansion, Fusion

OVERRIDES: Mapping[str, tuple[str, Rule]] = {
    "chunk_size": ("chunk_size", CHUNK_SIZE),
    "ann": ("vectors.ann", Choice(("auto", "exact", "hnsw"))),
}
"""The setting that each key of a policy overrides (a place in `Settings`), and its rule."""
_GROUPS = ("fusion", "expansion", "embedding")
POLICY_KEYS = (
    "description", "aliases", "identity", "schema", "fields", *OVERRIDES, "intents", *_GROUPS, "refuse", "params",
)  # fmt: skip
LANES = ("vectors", "lexical")
FIELD_RULES: Mapping[str, Rule] = {"weight": WEIGHT, "language": LANGUAGE, "chunk_size": CHUNK_SIZE}
GIVEN_RULES: Mapping[str, Rule] = {"given": Flag(), "dimension": Whole(1, 16_384)}
EMBEDDING: Mapping[str, Rule] = {
    "model": Text(),
    "base_url": Url(),
    "api_key_env": VariableName(),
    "symmetric": Flag(),
    "dimensions": Whole(1, 16_384),
}
_REACHES: tuple[Reach, ...] = get_args(Reach)
_POINTER = re.compile(r"(/[A-Za-z0-9_]+)+")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def policy(name: str, section: Section, extra: Sequence[str] = ()) -> Policy:
    """Read a policy from its mapping; `extra` names keys that only a collection's snapshot has."""
    section.refuse_unknown((*POLICY_KEYS, *extra))
    if not is_policy_name(name):
        message = f"{show_value(name)} cannot name a policy: use letters, digits, _ and -, a letter first, at most 64"
        section.problem(message, remedy="rename it")
    identity, generator = _read_identity(section)
    allowed_intents, default = _read_intents(section.sub("intents"))
    if "schema" in section:
        check_schema(section.sub("schema"))
    return Policy(
        name,
        allowed_intents,
        default,
        _read_overrides(section),
        description=section.get("description", Text(500), ""),
        aliases=tuple(alias for alias, _ in section.names("aliases")) if "aliases" in section else (),
        identity=identity,
        generated=generator,
        schema=dict(section.sub("schema").value),
        fields=_read_fields(section.sub("fields")) if "fields" in section else None,
        refuse=_refuse(section.sub("refuse"), allowed_intents),
        params=_read_params(section.sub("params")),
        source=section.value,
        place=section.place(),
    )


def _read_overrides(section: Section) -> dict[str, Any]:
    """Read the settings that the policy overrides, by their place in `Settings`."""
    values = {place: section.get(key, rule, None) for key, (place, rule) in OVERRIDES.items()}
    for key, standard, rules in (("fusion", Fusion(), FUSION), ("expansion", Expansion(), EXPANSION)):
        if key in section:
            inner = section.sub(key)
            values[key] = replace(
                standard, **{name: value for name, value in inner.read(rules).items() if value is not None}
            )
    if "embedding" in section:
        values |= {f"embedding.{name}": value for name, value in _read_model(section.sub("embedding")).items()}
    return {place: value for place, value in values.items() if value is not None}


def _read_model(section: Section) -> dict[str, Any]:
    """Read the model of a policy; an address or a key variable needs the name of a model that is asked there."""
    model_settings = section.read(EMBEDDING)
    if model_settings["model"] in (None, DEFAULT_MODEL, NO_MODEL):
        for name in ("base_url", "api_key_env"):
            if model_settings[name] is not None:
                section.problem("needs a `model` beside it that is asked at an endpoint", name, remedy="model: NAME")
    return model_settings


def _read_intents(section: Section) -> tuple[tuple[Mode, ...] | None, Mode | None]:
    section.refuse_unknown(("allowed", "default"))
    words = [word for word, _ in section.names("allowed")] if "allowed" in section else list(MODES)
    for index, word in enumerate(words):
        if problem := Choice(MODES).problem(word):
            section.problem(problem, "allowed", index)
    default = section.get("default", Choice(MODES), None)
    if default and default not in words:
        section.problem(f"{show_value(default)} is not among the allowed intents", "default")
    return tuple(mode for mode in MODES if mode in words) if "allowed" in section else None, default


def _read_identity(section: Section) -> tuple[tuple[str, ...], Generated | None]:
    """Read `identity`: a field, a list of fields, or `{fields, generate}`."""
    value = section.value.get("identity")
    if not isinstance(value, dict):
        return (tuple(name for name, _ in section.names("identity")) if "identity" in section else ()), None
    inner = section.sub("identity")
    inner.refuse_unknown(("fields", "generate", "namespace"))
    fields = tuple(name for name, _ in inner.names("fields"))
    generator = _read_generator(inner) if "generate" in inner else None
    if generator and len(fields) != 1:
        inner.problem("only an identity of one field can be generated", "generate")
    return fields, generator


def _read_generator(section: Section) -> Generated | None:
    value = section.value["generate"]
    if value == "uuid4":
        return Generated("uuid4")
    namespace = section.value.get("namespace", "")
    if namespace and not (isinstance(namespace, str) and _UUID.fullmatch(namespace)):
        section.problem(f"must be a UUID in lower case, is {show_value(namespace)}", "namespace")
        namespace = ""
    if isinstance(value, dict) and set(value) == {"uuid5"} and isinstance(value["uuid5"], str) and value["uuid5"]:
        return Generated("uuid5", value["uuid5"], namespace)
    section.problem(f"must be uuid4 or {{uuid5: FIELD}}, is {show_value(value)}", "generate")
    return None


def _read_fields(section: Section) -> Fields:
    section.refuse_unknown((*LANES, "relational"))
    vectors, lexical = (_read_lane(section, key) for key in LANES)
    relational = section.value.get("relational", "auto")
    if not isinstance(relational, str):
        relational = tuple(name for name, _ in section.names("relational"))
    elif problem := Choice(("auto", "all")).problem(relational):
        section.problem(f"{problem}, or a list of fields", "relational")
        relational = "auto"
    return Fields(vectors, lexical, relational)


def _read_lane(section: Section, key: str) -> tuple[SearchField, ...]:
    """Read the fields of a lane: `none`, `auto` (every text), `all` (every value), or a list of fields."""
    value = section.value.get(key, "none")
    if isinstance(value, str):
        if value in _REACHES:
            return (SearchField(EVERY, reach=value),)
        if problem := Choice(("none", *_REACHES)).problem(value):
            section.problem(f"{problem}, or a list of fields", key)
        return ()
    search_fields: dict[str, SearchField] = {}
    for index, item in section.items(key):
        entry = section.entry(key, index, item if isinstance(item, dict) else {"field": item})
        field = _read_field(entry, GIVEN_RULES if key == "vectors" else {})
        if field and field.name in search_fields:
            entry.problem(f"names {show_value(field.name)} twice")
        elif field:
            search_fields[field.name] = field
    return tuple(search_fields.values())


def _read_field(entry: Section, more: Mapping[str, Rule]) -> SearchField | None:
    options = entry.read({**FIELD_RULES, **more}, ("field",))
    name = entry.value.get("field")
    if not isinstance(name, str) or not name or name.startswith("_") or name == EVERY:
        entry.problem(f"must be a field's name, or a mapping with `field`, is {show_value(name)}")
        return None
    if options.get("dimension") and not options["given"]:
        entry.problem("only a vector that is `given` has a dimension here", "dimension")
    return SearchField(
        name,
        options["weight"] or 1.0,
        options["language"],
        options["chunk_size"],
        given=bool(options.get("given")),
        dimension=options.get("dimension"),
    )


def _refuse(section: Section, allowed_intents: tuple[Mode, ...] | None) -> dict[Mode, str]:
    """Read what to do instead, by intent that is not allowed."""
    section.refuse_unknown(MODES)
    remedies: dict[Mode, str] = {}
    for mode in MODES:
        if mode in section:
            if allowed_intents is None or mode in allowed_intents:
                section.problem(
                    f"{mode} is allowed, so nothing refuses it", mode, remedy="leave it out of intents.allowed"
                )
            remedies[mode] = section.get(mode, Text(500), "")
    return remedies


def _read_params(section: Section) -> dict[str, str]:
    """Read the place of each named parameter: a JSON pointer into the policy."""
    pointers: dict[str, str] = {}
    for name, at in section.value.items():
        if isinstance(at, str) and _POINTER.fullmatch(at) and at.split("/")[1] in POLICY_KEYS:
            pointers[name] = at
        else:
            section.problem(f"must be a pointer into the policy, such as /fields/vectors/0, is {show_value(at)}", name)
    return pointers
