"""The models that exist, and the one place that chooses among them."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from duckkb.llm.providers.none import NoModel
from duckkb.ports import Embedder
from duckkb.settings import DEFAULT_MODEL, Environment, Settings

__all__ = ["LocalE5", "NoModel", "OpenAIEndpoint", "make_embedder"]

if TYPE_CHECKING:
    from duckkb.llm.providers.local import LocalE5
    from duckkb.llm.providers.openai_endpoint import OpenAIEndpoint

_HOMES = {"LocalE5": "local", "OpenAIEndpoint": "openai_endpoint"}
_WITHOUT_MODEL = "search with -m, or name a model: global.embedding_model in config.yaml"


def make_embedder(
    settings: Settings, env: Environment, *, trusted: bool, secret: Callable[[str], str | None]
) -> Embedder:
    """The embedder that the settings name; a `NoModel` that says why where it may not be used. Loads nothing.

    `trusted` tells whether this machine accepted the configuration's hosts and key variables; the local model needs no
    trust. `secret` gives the value of an environment variable by name.
    """
    wanted = settings.embedding
    if wanted.model == "none":
        return NoModel("There is no embedding model (embedding_model: none).", suggestion=_WITHOUT_MODEL)
    if wanted.base_url is None and wanted.model == DEFAULT_MODEL:
        from duckkb.llm.providers.local import LocalE5

        return LocalE5(env.cache_home, wanted.mode, wanted.symmetric)
    if wanted.base_url is None:
        reason = f"The embedding model {wanted.model} is not a local one and has no address."
        return NoModel(reason, suggestion="set global.embedding.base_url in config.yaml")
    return _endpoint(settings, trusted, secret)


def _endpoint(settings: Settings, trusted: bool, secret: Callable[[str], str | None]) -> Embedder:
    from duckkb.llm.providers.openai_endpoint import OpenAIEndpoint

    wanted = settings.embedding
    variable = wanted.api_key_env
    key = secret(variable) if variable and trusted else None
    endpoint = OpenAIEndpoint(wanted, key)
    if not trusted:
        reason = f"The embedding endpoint {endpoint.host} has not been accepted on this machine."
        return NoModel(reason, "E_UNTRUSTED", "duckkb trust --show, then duckkb trust", endpoint.fingerprint)
    if variable and not key:
        reason = f"The variable {variable} that embedding.api_key_env names is not set."
        return NoModel(reason, suggestion=f"export {variable}=KEY", fingerprint=endpoint.fingerprint)
    return endpoint


def __getattr__(name: str) -> Any:
    """The models that few processes need are imported when they are named."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
