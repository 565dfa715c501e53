"""The action models: the configured models, their abilities and trust; and whether chat models answer."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from duckkb import config
from duckkb.actions.folder import find
from duckkb.errors import DuckkbError, Unavailable
from duckkb.llm.prediction import predict
from duckkb.llm.registry import row_of
from duckkb.ports import ChatModel
from duckkb.settings import (
    NO_MODEL,
    ChatModelSettings,
    EmbeddingSettings,
    ExpandSettings,
    ProviderSettings,
    RerankSettings,
)

Making = Callable[[ChatModelSettings, bool, int], ChatModel]
"""A function that makes the model of a row with the provider at one place; the flag says whether its host is
trusted."""
_QUESTION = "Say OK."
_MOST_TOKENS = 64


def models(path: "str | Path | None" = None) -> list[dict[str, Any]]:
    """Return a row per model, without asking any.

    It has `kind` (embedding, rerank, expand, chat), `name`, `providers` with host and key variable, whether
    that `is_set` (never its value), whether this machine trusts them, and the abilities of chat models.
    """
    configuration, has_trust = _load_configuration(path)
    settings = configuration.settings
    embedding = [
        settings.embedding,
        *(kind.settings(settings).embedding for kind in configuration.ontology if kind.vectors),
    ]
    models_by_address = {(model.model, model.address): model for model in embedding if model.model != NO_MODEL}
    rows = [
        _describe_model(
            "embedding",
            model.model,
            _list_providers(replace(model, base_url=model.address, api_key_env=model.key_variable)),
        )
        for model in models_by_address.values()
    ]
    rows += [
        _describe_model(kind, model.model or "", _list_providers(model))
        for kind, model in (("rerank", settings.rerank), ("expand", settings.expand))
        if model.is_asked
    ]
    for name, row in settings.models.items():
        able = {key: getattr(row, key) for key in ("json_mode", "tools", "reasoning", "context_tokens")}
        answers = name == settings.ask.model or (settings.ask.model is None and len(settings.models) == 1)
        rows.append(_describe_model("chat", name, row.providers) | able | {"answers": answers})
    return [row | {"trusted": has_trust if row["providers"] else True} for row in rows]


def try_models(make: Making, path: "str | Path | None" = None, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Ask each provider of a chat model, or of all, a tiny question in the registry's order; yield each result.

    It has `ok`, the time in milliseconds (`ms`) and `usage`, or the reason of the failure. Raises
    `errors.UsageError` (E_NO_MODEL), and `errors.Unavailable` (E_UNTRUSTED) before anybody is asked.
    """
    configuration, has_trust = _load_configuration(path)
    rows = (
        [row_of(configuration.settings, name)]
        if name or not configuration.settings.models
        else [*configuration.settings.models.values()]
    )
    for row in rows:
        for place, provider in enumerate(row.providers):
            yield {"model": row.name, "provider": provider.name} | _try_model(make(row, has_trust, place))


def _try_model(model: ChatModel) -> dict[str, Any]:
    start = time.monotonic()
    try:
        prediction = predict(model, _QUESTION, max_tokens=_MOST_TOKENS)
    except Unavailable as problem:
        if problem.code == "E_UNTRUSTED":
            raise
        return {"ok": False, "ms": _measure_since(start), "usage": None} | _describe_failure(problem)
    usage = asdict(prediction.finish.usage) if prediction.finish.usage else None
    return {"ok": True, "ms": _measure_since(start), "usage": usage}


def _describe_failure(problem: DuckkbError) -> dict[str, Any]:
    (only,) = problem.details.get("tries") or [{"reason": problem.code, "message": problem.message}]
    return {"reason": only["reason"], "error": only["message"], "suggestion": problem.suggestion}


def _measure_since(start: float) -> int:
    return round((time.monotonic() - start) * 1_000)


def _load_configuration(path: "str | Path | None") -> tuple[config.Loaded, bool]:
    root = find(path)
    env = config.read_environment(root)
    configuration = config.load(root, env)
    return configuration, config.is_trusted(root, configuration.settings, env, configuration.ontology)


def _describe_model(kind: str, name: str, providers: tuple[ProviderSettings, ...]) -> dict[str, Any]:
    return {"kind": kind, "name": name, "providers": [*map(_describe_provider, providers)]}


def _list_providers(model: EmbeddingSettings | RerankSettings | ExpandSettings) -> tuple[ProviderSettings, ...]:
    """Return the providers of a model with a single provider; empty for a local model."""
    if model.base_url is None:
        return ()
    return (ProviderSettings(model.base_url, model.model or "", model.api_key_env),)


def _describe_provider(provider: ProviderSettings) -> dict[str, Any]:
    variable = provider.api_key_env
    return {
        "model": provider.model,
        "host": provider.host,
        "api_key_env": variable,
        "is_set": config.secret(variable) is not None if variable else None,
    }
