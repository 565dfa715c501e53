"""The whole configuration in one normal form, each value with its origin."""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from duckkb.config.keys import DEFAULT, KEYS
from duckkb.config.load import Loaded
from duckkb.ontology.model import EdgeType, Policy, RecordType, SearchField
from duckkb.ontology.policies import POLICY_KEYS
from duckkb.ontology.source import Document, pointer
from duckkb.settings import ChatModelSettings, Settings


def normalize_config(loaded: Loaded) -> dict[str, Any]:
    """Return the configuration in the shape of config.yaml, each value as `{"value", "origin"}`.

    The origin is `default`, `path:line`, or the environment variable that gave the value.
    """
    configuration: dict[str, Any] = {}
    for key in KEYS:
        place = configuration
        for step in key.section:
            place = place.setdefault(step, {})
        place[key.leaf] = _make_leaf(key.get_value(loaded.settings), loaded.settings.origins.get(key.name, DEFAULT))
    if rows := loaded.settings.models:
        configuration["global"]["models"] = {name: _describe_model(row, loaded.settings) for name, row in rows.items()}
    origin = _Origin(loaded.documents)
    nodes = loaded.ontology.nodes.values()
    configuration["nodes"] = {kind.name: _type(kind, "nodes", origin) for kind in nodes if not kind.is_collection}
    configuration["collections"] = {kind.name: _describe_collection(kind) for kind in nodes if kind.is_collection}
    configuration["edges"] = {kind.name: _type(kind, "edges", origin) for kind in loaded.ontology.edges.values()}
    configuration["policies"] = {
        name: _describe_policy(policy, origin) for name, policy in loaded.ontology.policies.items()
    }
    configuration["questions"] = [
        _make_leaf(dict(item), document.place(pointer("questions", index)))
        for document in loaded.documents
        for index, item in enumerate(document.value.get("questions") or ())
    ]
    configuration["environment"] = {
        "kb": _describe_variable(loaded.env.kb, "DUCKKB_KB"),
        "writer": _describe_variable(loaded.env.writer, "DUCKKB_WRITER"),
        "sandbox": _describe_variable(loaded.env.sandbox, "DUCKKB_SANDBOX"),
        "agent": _describe_variable(loaded.env.agent, "DUCKKB_AGENT"),
    }
    return configuration


class _Origin:
    """The origin of a value: the place of its pointer in the first document that has it."""

    def __init__(self, documents: tuple[Document, ...]) -> None:
        self._documents = documents

    def __call__(self, *keys: str) -> str:
        at = pointer(*keys)
        return next((document.place(at) for document in self._documents if at in document.lines), DEFAULT)


def _make_leaf(value: Any, origin: str) -> dict[str, Any]:
    return {"value": value, "origin": origin}


def _describe_variable(value: Any, name: str) -> dict[str, Any]:
    return _make_leaf(value, name if value else DEFAULT)


def _type(kind: RecordType, group: str, origin: _Origin) -> dict[str, Any]:
    description: dict[str, Any] = {}
    if isinstance(kind, EdgeType):
        values: Mapping[str, Any] = {
            "label": kind.table,
            "from": list(kind.from_types),
            "to": list(kind.to_types),
            "cardinality": kind.cardinality,
        }
    else:
        values = {"table": kind.table}
    values = {**values, "identity": list(kind.identity), "schema": dict(kind.schema)}
    values["policy"] = kind.policy.name if kind.policy else None
    for key, value in values.items():
        description[key] = _make_leaf(value, origin(group, kind.name, key))
    description["search"] = {
        key: _make_leaf([_search_field(item) for item in items], origin(group, kind.name, "search", key))
        for key, items in (("full_text", kind.full_text), ("vectors", kind.vectors))
    }
    description["merge"] = {
        "granularity": _make_leaf(kind.granularity, origin(group, kind.name, "merge", "granularity"))
    }
    description["review"] = _make_leaf("required" if kind.review else None, origin(group, kind.name, "review"))
    return description


def _describe_collection(kind: RecordType) -> dict[str, Any]:
    """Return a collection in the form of its definition."""
    policy = dict(kind.policy.source) if kind.policy else {}
    return {key: _make_leaf(value, kind.place) for key, value in (("table", kind.table), ("policy", policy))}


def _describe_model(row: ChatModelSettings, settings: Settings) -> dict[str, Any]:
    """Return a row of the registry of chat models, with its providers in their order."""

    def leaves(values: Mapping[str, Any], at: str) -> dict[str, Any]:
        return {
            name: _make_leaf(value, settings.origins.get(f"{at}.{name}", DEFAULT)) for name, value in values.items()
        }

    at, model_values = f"global.models.{row.name}", to_builtins(row)
    providers, _ = model_values.pop("providers"), model_values.pop("name")
    provider_leaves = [leaves(provider, f"{at}.providers.{index}") for index, provider in enumerate(providers)]
    return {"providers": provider_leaves} | leaves(model_values, at)


def _search_field(item: SearchField) -> dict[str, Any]:
    options = {"weight": item.weight, "language": item.language, "chunk_size": item.chunk_size}
    return {"field": item.name} | {key: value for key, value in options.items() if value is not None}


def _describe_policy(policy: Policy, origin: _Origin) -> dict[str, Any]:
    at = ("policies", policy.name)
    plain = {key: _make_leaf(policy.source.get(key), origin(*at, key)) for key in POLICY_KEYS if key in policy.source}
    groups = {key: policy.overrides.get(key) for key in ("fusion", "expansion")}
    return plain | {
        "intents": {
            "allowed": _make_leaf(list(policy.intents) if policy.intents else None, origin(*at, "intents", "allowed")),
            "default": _make_leaf(policy.default_intent, origin(*at, "intents", "default")),
        },
        **{key: _make_leaf(to_builtins(value) if value else None, origin(*at, key)) for key, value in groups.items()},
    }
