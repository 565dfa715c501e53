"""Chooses among the existing models, and stands in where there is none."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from duckkb.ports import ChatModel, Embedder, Expander, Reranker
from duckkb.types.errors import Unavailable
from duckkb.types.records import Cut, Fingerprint
from duckkb.types.settings import (
    DEFAULT_MODEL,
    ChatModelSettings,
    EmbeddingSettings,
    Environment,
    ExpandSettings,
    RerankSettings,
    Settings,
)

if TYPE_CHECKING:
    import numpy as np

_WITHOUT_MODEL = "search with -m, or name a model: global.embedding_model in config.yaml"
_TRUST = "`duckkb trust --show`, then `duckkb trust`"
_NOTHING = Fingerprint("none", "none")


class NoModel:
    """The embedder of a base that has no model, or may not use the one it names.

    Every use raises `errors.Unavailable` with `reason`, `code` and `suggestion`. Where a model is named but
    cannot be used here, `fingerprint` is that model's, so that vectors it made elsewhere stay valid.
    """

    def __init__(
        self, reason: str, code: str = "E_MODEL", suggestion: str = "", fingerprint: Fingerprint = _NOTHING
    ) -> None:
        self.reason = reason
        self.code = code
        self.suggestion = suggestion
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    def embed_passages(self, texts: Sequence[str]) -> "np.ndarray":
        self._refuse()

    def embed_queries(self, texts: Sequence[str]) -> "np.ndarray":
        self._refuse()

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        self._refuse()

    def cut(self, texts: Sequence[str], *, passage: bool) -> list[Cut]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unavailable(self.reason, code=self.code, suggestion=self.suggestion)


def make_embedder(
    settings: Settings, env: Environment, *, trusted: bool, secret: Callable[[str], str | None]
) -> Embedder:
    """Return the embedder that the settings name; a `NoModel` with the reason where it may not be used.

    Loads nothing.
    `trusted` says that this machine accepted the configuration's hosts and key variables; the local model needs
    no trust. `secret` returns the value of an environment variable by name.
    """
    embedding = settings.embedding
    if embedding.model == "none":
        return NoModel("There is no embedding model (embedding_model: none).", suggestion=_WITHOUT_MODEL)
    if embedding.model == DEFAULT_MODEL:
        from duckkb.llm.providers.offline_model import LocalE5  # few processes need a model, and none needs two

        return LocalE5(env.cache_home, embedding.mode, embedding.symmetric)
    if embedding.address is None:
        reason = f"The embedding model {embedding.model} is not a local one and has no address."
        return NoModel(reason, suggestion="set global.embedding.base_url in config.yaml")
    return _make_endpoint(
        replace(embedding, base_url=embedding.address, api_key_env=embedding.key_variable), trusted, secret
    )


def _make_endpoint(embedding: EmbeddingSettings, has_trust: bool, secret: Callable[[str], str | None]) -> Embedder:
    from duckkb.llm.providers.embedding_endpoint import OpenAIEndpoint

    variable = embedding.api_key_env
    key = secret(variable) if variable and has_trust else None
    endpoint = OpenAIEndpoint(embedding, key)
    if not has_trust:
        reason = f"The embedding endpoint {endpoint.host} has not been accepted on this machine."
        return NoModel(reason, "E_UNTRUSTED", _TRUST, endpoint.fingerprint)
    if variable and not key:
        reason = f"The variable {variable} that embedding.api_key_env names is not set."
        return NoModel(reason, suggestion=f"export {variable}=KEY", fingerprint=endpoint.fingerprint)
    return endpoint


def make_reranker(settings: RerankSettings, *, trusted: bool, secret: Callable[[str], str | None]) -> Reranker | None:
    """Return the reranker that the settings name, None without one. Sends no request.

    A reranker that may not be used says why when it is asked. `trusted` and `secret` are as in `make_embedder`.
    """
    if not settings.is_asked:
        return None
    from duckkb.llm.providers.reranking_models import ChatReranker, HttpReranker, TeiReranker

    kinds: dict[str, type[HttpReranker | ChatReranker]] = {
        "http": HttpReranker,
        "tei": TeiReranker,
        "chat": ChatReranker,
    }
    return kinds[settings.method](settings, *_check_admission("rerank", settings, trusted, secret))


def make_expander(settings: ExpandSettings, *, trusted: bool, secret: Callable[[str], str | None]) -> Expander | None:
    """Return the expander that the settings name, as `make_reranker` does; `feedback` is no model."""
    if not settings.is_asked:
        return None
    from duckkb.llm.providers.reranking_models import ChatExpander

    return ChatExpander(settings, *_check_admission("expand", settings, trusted, secret))


def make_chat_model(
    row: ChatModelSettings, *, trusted: bool, secret: Callable[[str], str | None], only: int | None = None
) -> ChatModel:
    """Return the model of a row of the registry, whose providers are asked in order. Sends no request.

    `only` chooses one provider by its place. A model that may not be used says why when it is asked. `trusted`
    and `secret` are as in `make_embedder`.
    """
    from duckkb.llm.call_pool import Failover
    from duckkb.llm.providers.chat_endpoint import ChatEndpoint

    providers = row.providers if only is None else row.providers[only : only + 1]
    if not trusted:
        hosts = ", ".join(dict.fromkeys(provider.host for provider in providers))
        message = f"The providers of the chat model {row.name} have not been accepted on this machine: {hosts}."
        return Failover(row, (), Unavailable(message, "E_UNTRUSTED", _TRUST, {"reason": "untrusted"}))
    return Failover(row, [ChatEndpoint(row, provider, secret) for provider in providers])


def chat_model(row: ChatModelSettings, secret: Callable[[str], str | None]) -> ChatModel:
    """Return the model of a row, for a program without a knowledge base: the author of a row trusts it.

    `secret` returns the value of an environment variable by name, such as `os.environ.get`; it is called at
    each request.
    """
    return make_chat_model(row, trusted=True, secret=secret)


def _check_admission(
    name: str, settings: RerankSettings | ExpandSettings, has_trust: bool, secret: Callable[[str], str | None]
) -> tuple[str | None, Unavailable | None]:
    """Return the key for the model of `global.rerank` or `global.expand`, or why it may not be asked here."""
    from urllib.parse import urlsplit

    variable = settings.api_key_env
    if not has_trust:
        message = f"The {name} endpoint {urlsplit(settings.base_url).netloc} has not been accepted on this machine."
        return None, Unavailable(message, "E_UNTRUSTED", _TRUST, {"reason": "untrusted"})
    key = secret(variable) if variable else None
    if variable and not key:
        message = f"The variable {variable} that {name}.api_key_env names is not set."
        return None, Unavailable(message, "E_MODEL", f"export {variable}=KEY", {"reason": "no_key"})
    return key, None
