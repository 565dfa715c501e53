"""A collection's definition: the chosen policy, resolved with its parameters, as a file of its own."""

import copy
import uuid
from collections.abc import Mapping
from typing import Any

import yaml

from duckkb.errors import Finding, UsageError
from duckkb.ontology.load import load
from duckkb.ontology.model import NodeType, Policy
from duckkb.ontology.names import collection_table, suggest_known_names
from duckkb.ontology.policies import POLICY_KEYS
from duckkb.ontology.rules import show_value
from duckkb.ontology.source import THIS_MACHINE, read_yaml

FOLDER = "ontology/collections"
_HEAD = "# The collection {name}, with its policy at the time of its creation.\n"
_OWN_TO_PRESETS = ("params", "aliases")


def path_of(name: str) -> str:
    """Return the file that defines a collection, relative to the base."""
    return f"{FOLDER}/{name}.yaml"


def define(name: str, chosen: Policy, params: Mapping[str, Any], source: Mapping[str, Any] | None = None) -> bytes:
    """Return the definition of a new collection as YAML; for documents with the `source` of its files.

    Raises `errors.UsageError` (E_PARAMS) with everything that is wrong with the name or the parameters.
    """
    definition = {"name": chosen.name, **copy.deepcopy(dict(chosen.source))}
    problems = [problem for key, value in params.items() if (problem := _set(definition, chosen, key, value))]
    open_ones = [key for key, at in chosen.params.items() if _is_open(definition, at.split("/")[1:])]
    problems += [f"""needs a {key}, such as --params '{{"{key}": "ann"}}'""" for key in open_ones]
    for key in _OWN_TO_PRESETS:
        definition.pop(key, None)
    _fix_namespace(definition, name)
    folder = {"source": dict(source)} if source else {}
    text = _dump(name, {"table": collection_table(name), **folder, "policy": definition})
    problems += [finding.message for finding in _read(text, _place(source))[1]] if not problems else []
    if problems:
        raise UsageError(
            f"{name}: {problems[0]}" if len(problems) == 1 else f"{len(problems)} problems with the collection {name}",
            code="E_PARAMS",
            suggestion=f"duckkb policy show {chosen.name}",
            findings=() if len(problems) == 1 else tuple(Finding("E_PARAMS", problem) for problem in problems),
        )
    return text


def rename_definition(data: bytes, name: str) -> bytes:
    """Return a definition under another name, with the table of that name. Its records keep their identities."""
    ((_, values),) = dict(read_yaml(data, "definition").value)["collections"].items()
    return _dump(name, {**values, "table": collection_table(name)})


def with_source(data: bytes, name: str, source: Mapping[str, Any]) -> bytes:
    """Return a definition of documents with another `source`; settings equal to their defaults are left out."""
    values = dict(read_yaml(data, _place(source)).value)["collections"][name]
    return _dump(
        name, {**values, "source": {key: value for key, value in source.items() if value not in (None, "", [], {})}}
    )


def values_of(data: bytes, name: str) -> dict[str, Any]:
    """Return a definition as plain values."""
    return dict(dict(read_yaml(data, THIS_MACHINE).value)["collections"][name])


def dump_definition(name: str, values: Mapping[str, Any]) -> bytes:
    """Return plain values as a definition."""
    return _dump(name, values)


def _place(source: Mapping[str, Any] | None) -> str:
    return THIS_MACHINE if source and str(source.get("path", "")).startswith("/") else "definition"


def collection_of(data: bytes, path: str) -> tuple[NodeType | None, list[Finding]]:
    """Return the one collection that a definition must declare alone, and the findings."""
    collections, findings = _read(data, path)
    if not findings and (len(collections) != 1 or read_yaml(data, path).value.keys() != {"collections"}):
        findings = [Finding("E_ONTOLOGY", "does not declare exactly one collection, and nothing else", path)]
    return (next(iter(collections.values())) if not findings else None), findings


def _read(data: bytes, path: str = "definition") -> tuple[Mapping[str, NodeType], list[Finding]]:
    ontology, findings = load([read_yaml(data, path)])
    return {name: kind for name, kind in ontology.nodes.items() if kind.is_collection}, findings


def _dump(name: str, values: Mapping[str, Any]) -> bytes:
    body = yaml.safe_dump(
        {"collections": {name: dict(values)}}, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False
    )
    return (_HEAD.format(name=name) + body).encode()


def _fix_namespace(definition: dict[str, Any], name: str) -> None:
    """Fix the namespace of generated identities, so that they survive renaming and copying the collection."""
    identity = definition.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("generate"), dict):
        namespace = str(uuid.uuid5(uuid.NAMESPACE_URL, f"duckkb:collection:{name}"))
        definition["identity"] = {**identity, "namespace": identity.get("namespace") or namespace}


def _set(definition: dict[str, Any], policy: Policy, key: str, value: Any) -> str:
    """Set one parameter; return what is wrong with it, empty where nothing is."""
    known_keys = [
        *policy.params,
        *(policy_key for policy_key in POLICY_KEYS if policy_key not in (*_OWN_TO_PRESETS, "description")),
    ]
    if key in policy.params:
        return _set_at(definition, policy.params[key].split("/")[1:], value, key)
    if key not in known_keys:
        return f"unknown parameter {show_value(key)}; {suggest_known_names(key, known_keys)}"
    present = definition.get(key)
    definition[key] = {**present, **value} if isinstance(present, dict) and isinstance(value, dict) else value
    return ""


def _set_at(definition: dict[str, Any], steps: list[str], value: Any, name: str) -> str:
    place: Any = definition
    *before, last = steps
    try:
        for step in before:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        if isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value
    except (AttributeError, IndexError, TypeError, ValueError):
        return f"the parameter {show_value(name)} has no place in this policy"
    return ""


def _is_open(place: Any, steps: list[str]) -> bool:
    """Return whether null stands at the place of a parameter, so that it has to be given."""
    for step in steps:
        if not isinstance(place, dict) or step not in place:
            return False
        place = place[step]
    return place is None
