"""models: which models the configuration names, what each can do and whether it may be asked; and whether chat models answer."""

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
"""Makes the model of a row of which one provider alone is asked, by its place; the flag says whether its host is trusted."""
_QUESTION = "Say OK."
_MOST_TOKENS = 64


def models(path: "str | Path | None" = None) -> list[dict[str, Any]]:
    """A row a model: `kind` (embedding, rerank, expand, chat), `name`, `providers` with host and key variable, whether that
    `is_set` (never its value), whether the machine trusts them, and of chat models what they can do. Asks nobody."""
    loaded, trusted = _loaded(path)
    settings = loaded.settings
    embedding = [settings.embedding, *(kind.settings(settings).embedding for kind in loaded.ontology if kind.vectors)]
    served = {(one.model, one.address): one for one in embedding if one.model != NO_MODEL}
    rows = [
        _row("embedding", one.model, _served(replace(one, base_url=one.address, api_key_env=one.key_variable)))
        for one in served.values()
    ]
    rows += [
        _row(kind, one.model or "", _served(one))
        for kind, one in (("rerank", settings.rerank), ("expand", settings.expand))
        if one.is_asked
    ]
    for name, row in settings.models.items():
        able = {key: getattr(row, key) for key in ("json_mode", "tools", "reasoning", "context_tokens")}
        answers = name == settings.ask.model or (settings.ask.model is None and len(settings.models) == 1)
        rows.append(_row("chat", name, row.providers) | able | {"answers": answers})
    return [row | {"trusted": trusted if row["providers"] else True} for row in rows]


def tried(make: Making, path: "str | Path | None" = None, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Each provider of a chat model, or of all of them, in the order of the registry, with its answer to a tiny question: `ok`,
    how long it took in milliseconds (`ms`), its `usage`; or why there is none. Raises `errors.UsageError` (E_NO_MODEL), and
    `errors.Unavailable` (E_UNTRUSTED) before anybody is asked."""
    loaded, trusted = _loaded(path)
    rows = [row_of(loaded.settings, name)] if name or not loaded.settings.models else [*loaded.settings.models.values()]
    for row in rows:
        for place, provider in enumerate(row.providers):
            yield {"model": row.name, "provider": provider.name} | _asked(make(row, trusted, place))


def _asked(model: ChatModel) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        found = predict(model, _QUESTION, max_tokens=_MOST_TOKENS)
    except Unavailable as problem:
        if problem.code == "E_UNTRUSTED":
            raise
        return {"ok": False, "ms": _since(begun), "usage": None} | _why(problem)
    usage = asdict(found.finish.usage) if found.finish.usage else None
    return {"ok": True, "ms": _since(begun), "usage": usage}


def _why(problem: DuckkbError) -> dict[str, Any]:
    (only,) = problem.details.get("tries") or [{"reason": problem.code, "message": problem.message}]
    return {"reason": only["reason"], "error": only["message"], "suggestion": problem.suggestion}


def _since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1_000)


def _loaded(path: "str | Path | None") -> tuple[config.Loaded, bool]:
    root = find(path)
    env = config.around(root)
    loaded = config.load(root, env)
    return loaded, config.is_trusted(root, loaded.settings, env, loaded.ontology)


def _row(kind: str, name: str, providers: tuple[ProviderSettings, ...]) -> dict[str, Any]:
    return {"kind": kind, "name": name, "providers": [*map(_provider, providers)]}


def _served(model: EmbeddingSettings | RerankSettings | ExpandSettings) -> tuple[ProviderSettings, ...]:
    """Who serves a model of one provider; nobody where it runs here."""
    if model.base_url is None:
        return ()
    return (ProviderSettings(model.base_url, model.model or "", model.api_key_env),)


def _provider(one: ProviderSettings) -> dict[str, Any]:
    variable = one.api_key_env
    return {
        "model": one.model,
        "host": one.host,
        "api_key_env": variable,
        "is_set": config.secret(variable) is not None if variable else None,
    }
