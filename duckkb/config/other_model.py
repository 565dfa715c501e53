"""A base's settings with another embedding model, as if config.yaml named it.

The model is given as config.yaml names it: by NAME alone, which changes only `global.embedding_model`, or by a
YAML or JSON mapping `{embedding_model: NAME, embedding: {base_url: ...}}` whose keys replace those below
`global:`.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.config.keys import read_settings
from duckkb.config.load import Loaded, secret_findings
from duckkb.errors import Finding, UsageError
from duckkb.ontology.source import read_yaml, root_section
from duckkb.settings import DEFAULT_MODEL, NO_MODEL, Settings

_MODEL, _EMBEDDING = "embedding_model", "embedding"
_OF_ENDPOINTS = ("base_url", "api_key_env", "dimensions", "concurrency", "price_per_million_tokens")
_REMEDY = "give NAME, or '{embedding_model: NAME, embedding: {base_url: URL, ...}}' as below `global:` in config.yaml"


class OtherModel(Struct, frozen=True):
    """Settings with another model, and the `line` of config.yaml that switches to it.

    The line is `embedding_model: NAME` below `global:` where nothing else differs, else the whole of `global:`.
    """

    settings: Settings
    line: str


def other_model(loaded: Loaded, model: str) -> OtherModel:
    """Return a base's settings with the model that a text names.

    Raises `errors.UsageError` where the text is invalid, or the settings would not load.
    """
    configuration = loaded.documents[0].value
    present: Mapping[str, Any] = configuration.get("global") or {}
    changes = _read_changes(model.strip(), present)
    whole = {**present, **changes}
    data = json.dumps({**configuration, "global": whole}, ensure_ascii=False).encode()
    document = read_yaml(data, "the model")
    problems: list[Finding] = [*document.findings, *secret_findings(document)]
    settings = read_settings(root_section(document, "E_CONFIG", problems)) if not problems else loaded.settings
    if problems:
        first = problems[0]
        raise UsageError(f"the model cannot be configured: {first.field} {first.message}", suggestion=_REMEDY)
    name = settings.embedding.model
    if name == NO_MODEL:
        raise UsageError(f"{NO_MODEL} is not an embedding model", suggestion=_REMEDY)
    line = f"{_MODEL}: {json.dumps(name)}" if changes.keys() == {_MODEL} else f"global: {json.dumps(whole)}"
    return OtherModel(replace(loaded.settings, embedding=settings.embedding), line)


def _read_changes(model: str, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys below `global:` that a text changes, with their values."""
    if not model.startswith("{"):
        if not model:
            raise UsageError("the model has no name", suggestion=_REMEDY)
        changes: dict[str, Any] = {_MODEL: model}
    else:
        document = read_yaml(model.encode("utf-8", "surrogateescape"), "the model")
        changes = dict(document.value)
        if document.findings or not changes or not changes.keys() <= {_MODEL, _EMBEDDING}:
            problem = (
                document.findings[0].message if document.findings else f"has other keys than {_MODEL}, {_EMBEDDING}"
            )
            raise UsageError(f"the model {problem}", suggestion=_REMEDY)
    embedding = present.get(_EMBEDDING) or {}
    if (
        changes.get(_MODEL) == DEFAULT_MODEL
        and _EMBEDDING not in changes
        and not embedding.keys().isdisjoint(_OF_ENDPOINTS)
    ):
        changes[_EMBEDDING] = {name: value for name, value in embedding.items() if name not in _OF_ENDPOINTS}
    return changes
