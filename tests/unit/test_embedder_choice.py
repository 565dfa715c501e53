"""Which embedder settings, trust and environment lead to."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from duckkb.llm.providers import NoModel, make_embedder
from duckkb.llm.providers.embedding_endpoint import OpenAIEndpoint
from duckkb.llm.providers.offline_model import LocalE5
from duckkb.ports import Embedder
from duckkb.types.errors import Unavailable
from duckkb.types.settings import EmbeddingSettings, Environment, Settings

REMOTE = EmbeddingSettings("text-embedding-3-small", "https://models.example:8443/v1", "EXAMPLE_KEY", 256)


def made(
    embedding: EmbeddingSettings, trusted: bool = True, variables: Mapping[str, str] = MappingProxyType({})
) -> Embedder:
    environment = Environment(cache_home=Path("/nowhere/at/all"))
    return make_embedder(Settings(embedding=embedding), environment, trusted=trusted, secret=variables.get)


def refusal(embedder: Embedder) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        embedder.embed_queries(["text"])
    return caught.value


@pytest.mark.parametrize("trusted", [True, False])
def test_the_default_is_the_local_model_which_needs_no_trust(trusted: bool) -> None:
    embedder = made(EmbeddingSettings(mode="int8", symmetric=True), trusted)
    assert isinstance(embedder, LocalE5)
    assert embedder.fingerprint == LocalE5(Path("/elsewhere"), "int8", symmetric=True).fingerprint


def test_an_address_serves_any_model_but_the_offline_one() -> None:
    assert isinstance(made(replace(REMOTE, model="multilingual-e5-small")), LocalE5)
    for embedding in (REMOTE, replace(REMOTE, api_key_env=None)):
        embedder = made(embedding, variables={"EXAMPLE_KEY": "k"})
        assert isinstance(embedder, OpenAIEndpoint)
        assert embedder.fingerprint.dimension == 256


def test_no_model_is_a_choice() -> None:
    embedder = made(EmbeddingSettings(model="none"))
    assert (embedder.fingerprint.name, embedder.fingerprint.dimension) == ("none", 0)
    assert refusal(embedder).code == "E_MODEL"


def test_a_model_without_an_address_says_which_setting_is_missing() -> None:
    error = refusal(made(EmbeddingSettings(model="some-model")))
    assert error.code == "E_MODEL" and "base_url" in error.suggestion


def test_an_endpoint_that_is_not_trusted_is_not_asked_for_its_key_and_names_its_host() -> None:
    asked: list[str] = []

    def secret(name: str) -> str | None:
        asked.append(name)
        return "key"

    embedder = make_embedder(Settings(embedding=REMOTE), Environment(), trusted=False, secret=secret)
    error = refusal(embedder)
    assert isinstance(embedder, NoModel) and asked == []
    assert error.code == "E_UNTRUSTED" and "models.example:8443" in error.message and "duckkb trust" in error.suggestion


@pytest.mark.parametrize("variables", [{}, {"EXAMPLE_KEY": ""}], ids=["unset", "empty"])
def test_a_missing_key_names_its_variable(variables: dict[str, str]) -> None:
    error = refusal(made(REMOTE, variables=variables))
    assert error.code == "E_MODEL" and "EXAMPLE_KEY" in error.message


def test_vectors_made_elsewhere_stay_valid_where_the_model_may_not_be_used() -> None:
    usable = made(REMOTE, variables={"EXAMPLE_KEY": "k"}).fingerprint
    assert made(REMOTE).fingerprint == made(REMOTE, trusted=False).fingerprint == usable
