"""Settings as a frozen value. Only `config` reads config.yaml and the environment, and builds it from them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

Reasoning = Literal["none", "native", "mapped", "fixed"]
DEFAULT_MODEL, NO_MODEL = "multilingual-e5-small", "none"
KNOWN_MODELS = ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002")
"""Models that only one well-known endpoint serves under these names."""
_OPENAI, _OPENAI_KEY = "https://api.openai.com/v1", "OPENAI_API_KEY"
DEFAULT_READS = 512
"""The tokens that the offline model reads in one go, with those it adds around a text."""
CACHE_LIMIT = 16 * 1024**3
"""The default limit of all derived state, in bytes; this machine's settings may override it."""
LOOPBACK = "http://127.0.0.1:8080/v1"
"""The default address of a model on this machine: the port of llama.cpp's server."""
SEAL_KEY, SEAL_KEY_FILE = "DUCKKB_ENCRYPTION_KEY", "DUCKKB_ENCRYPTION_KEY_FILE"
"""Variables that hold the key of derived state, or name a file with it; child processes do not inherit them."""
_GRAPH_FROM = 2_000_000
"""The number of chunks from which `auto` uses a graph: comparing that many takes a twentieth of a second."""


class Fusion(Struct, frozen=True):
    """How two ranked lists are fused: `rrf` with `k`, or `minmax` with the vector lane's `weight` and the `gate`.

    The weight is from 0 to 1.

    The gate is the share of the question (0 to 1) that the best record of the lexical lane must cover for that
    lane to count.
    """

    method: Literal["rrf", "minmax"] = "rrf"
    k: int = 60
    weight: float = 0.7
    gate: float = 0.0


class Expansion(Struct, frozen=True):
    """How a question is expanded before it is answered: `none` or `feedback`.

    Feedback moves its vector by `weight` (0 to 1) towards the mean of the best chunks of its first `hits` records.
    """

    method: Literal["none", "feedback"] = "none"
    weight: float = 0.3
    hits: int = 3


class VectorSettings(Struct, frozen=True):
    """How the vector lane compares: all chunks (`exact`), those of a graph (`hnsw`), or by their number (`auto`)."""

    ann: Literal["auto", "exact", "hnsw"] = "auto"

    def wants_graph(self, chunks: int) -> bool:
        """Return whether that many chunks are compared by a graph."""
        return self.ann == "hnsw" or (self.ann == "auto" and chunks >= _GRAPH_FROM)


class EmbeddingSettings(Struct, frozen=True):
    """The settings `global.embedding_model` and `global.embedding.*`.

    `timeout_s` is in seconds; `mode` concerns the local model. `concurrency` is how many batches are embedded
    at the same time, `price_per_million_tokens` is in any currency. `base_url` and `api_key_env` are as
    configured, for any model that needs an endpoint; `address` and `key_variable` are this model's.
    """

    model: str = DEFAULT_MODEL
    base_url: str | None = None
    api_key_env: str | None = None
    dimensions: int | None = None
    batch_size: int = 64
    timeout_s: float = 30.0
    max_retries: int = 3
    symmetric: bool = False
    mode: Literal["q4", "int8"] = "q4"
    concurrency: int | None = None
    price_per_million_tokens: float | None = None

    @property
    def address(self) -> str | None:
        """The address of the model; None for a local model and for one without an address."""
        if self.model in (DEFAULT_MODEL, NO_MODEL):
            return None
        return self.base_url or (_OPENAI if self.model in KNOWN_MODELS else None)

    @property
    def key_variable(self) -> str | None:
        """The environment variable that holds the key for that address."""
        if self.address is None:
            return None
        return self.api_key_env or (None if self.base_url else _OPENAI_KEY)

    @property
    def reads(self) -> int | None:
        """The tokens that the model reads in one go, by its name; None for an endpoint's or without a model."""
        return DEFAULT_READS if self.model == DEFAULT_MODEL else None


class RerankSettings(Struct, frozen=True):
    """The settings `global.rerank.*` of the model that reranks the first candidates of a `query`.

    `timeout_ms` is the longest wait of one question in all, in milliseconds. A process sends at most
    `concurrency` requests at once; `queue_limit` questions wait behind them.
    """

    method: Literal["none", "http", "tei", "chat"] = "none"
    model: str | None = None
    base_url: str = LOOPBACK
    api_key_env: str | None = None
    timeout_ms: int = 5_000
    max_candidates: int = 30
    context_tokens: int = 4_096
    concurrency: int = 4
    queue_limit: int = 16
    drop_policy: Literal["timeout_fallback", "wait"] = "timeout_fallback"
    dedupe: Literal["join", "off"] = "join"

    @property
    def is_asked(self) -> bool:
        """Whether an endpoint is configured to be asked."""
        return self.method != "none"


class ExpandSettings(Struct, frozen=True):
    """The settings `global.expand.*` of the model that writes variants of a `query`'s question.

    `timeout_ms` is the longest wait, in milliseconds.
    """

    method: Literal["none", "feedback", "chat"] = "none"
    model: str | None = None
    base_url: str = LOOPBACK
    api_key_env: str | None = None
    timeout_ms: int = 5_000
    context_tokens: int = 2_048

    @property
    def is_asked(self) -> bool:
        """Whether an endpoint is configured to be asked."""
        return self.method == "chat"


class ProviderSettings(Struct, frozen=True):
    """A provider of a chat model, at an address that speaks OpenAI's protocol.

    It also has the model's name there, the key variable and the timeout of an answer in seconds.

    `stream_usage`: it accepts a request to count tokens. `returns_reasoning`: it wants the model's earlier
    reasoning back. `reasoning_body` is added to a request where more than low effort is asked of a `mapped`
    model, `reasoning_off` where low effort is (None: each true as false).
    """

    base_url: str = LOOPBACK
    model: str = ""
    api_key_env: str | None = None
    timeout_s: float = 60.0
    stream_usage: bool = True
    returns_reasoning: bool = False
    reasoning_body: Mapping[str, Any] = {}
    reasoning_off: Mapping[str, Any] | None = None

    def map_effort(self, effort: str) -> Mapping[str, Any]:
        """Return what a request to a `mapped` model adds for this effort."""
        if effort != "low":
            return self.reasoning_body
        if self.reasoning_off is not None:
            return self.reasoning_off
        return {name: False for name, value in self.reasoning_body.items() if value is True}

    @property
    def host(self) -> str:
        """The host and port, as people read them."""
        from urllib.parse import urlsplit

        address = urlsplit(self.base_url)
        return f"{address.hostname}:{address.port}" if address.port else str(address.hostname)

    @property
    def name(self) -> str:
        """The name of the provider among those of a model: `MODEL@HOST`."""
        return f"{self.model}@{self.host}"


class ChatModelSettings(Struct, frozen=True):
    """The settings `global.models.NAME` of a chat model. Its `providers` are asked in this order.

    `json_mode`: whether it can be held to JSON. `reasoning`: not at all, by the effort that is asked
    (`native`), by a provider's own switch for it (`mapped`), or always (`fixed`). `context_tokens` is its
    context window.
    """

    name: str
    providers: tuple[ProviderSettings, ...]
    json_mode: bool = True
    tools: bool = True
    reasoning: Reasoning = "none"
    context_tokens: int = 8_192


class AskSettings(Struct, frozen=True):
    """The settings `global.ask.*`: the chat model that answers questions, and its tokens of evidence.

    The model is named as in `global.models`; None means the only model there.
    """

    model: str | None = None
    budget: int = 4_000


class ArchSettings(Struct, frozen=True):
    """The settings `arch.*` of the command that writes a graph of the code.

    The command writes the file `output` of the folder in which it runs, in at most `timeout_s` seconds; None
    where there is no command. An answer shows at most `hints` edges, none with a `confidence` below
    `min_confidence`.
    """

    command: str | None = None
    output: str = "graph.json"
    timeout_s: float = 600.0
    hints: int = 5
    min_confidence: float = 0.0


class Shrink(Struct, frozen=True):
    """How many records of a table one change may delete without permission.

    That is `records`, or `share` (0 to 1) of all records where that is more.
    """

    records: int = 20
    share: float = 0.1

    def most(self, total: int) -> int:
        return max(self.records, int(total * self.share))


class Settings(Struct, frozen=True):
    """Everything in config.yaml outside the ontology. Sizes are in characters (`chunk_size`) or bytes."""

    chunk_size: int = 800
    tokenizer: Literal["jieba", "plain"] = "jieba"
    language: str = "english"
    fold_chinese: Literal["none", "simplified"] = "none"
    word_forms: Literal["written", "all"] = "written"
    embedding: EmbeddingSettings = EmbeddingSettings()
    fusion: Fusion = Fusion()
    expansion: Expansion = Expansion()
    vectors: VectorSettings = VectorSettings()
    part: Literal["branch", "fixed"] = "branch"
    max_record_bytes: int = 8_388_608
    max_depth: int = 64
    merge_granularity: Literal["field", "record"] = "field"
    embed_wait_s: float = 20.0
    snapshot_bytes: int = 262_144
    shrink: Shrink = Shrink()
    rerank: RerankSettings = RerankSettings()
    expand: ExpandSettings = ExpandSettings()
    arch: ArchSettings = ArchSettings()
    models: Mapping[str, ChatModelSettings] = {}
    ask: AskSettings = AskSettings()
    served_seconds: float = 30.0
    origins: Mapping[str, str] = {}


NOWHERE = Path(os.devnull) / "a folder that came with the knowledge base is not used"
"""A folder that cannot exist, in place of a user's folder that lies inside the base; nothing can be read or made
there."""


class Environment(Struct, frozen=True):
    """What duckkb takes from the environment. Keys are not kept; a model asks for its key by name.

    `backend` is the address of a target that answers in place of a clone. `cache_limit` bounds all that lies in
    `cache_home`, in bytes. `daemon` says whether a warm process is started (`auto`). `settings` are the
    variables that override config.yaml, by name, as text.
    """

    kb: str | None = None
    writer: str | None = None
    trust: str | None = None
    backend: str | None = None
    sandbox: bool = False
    agent: bool = False
    daemon: str = ""
    cache_home: Path = Path("~/.cache/duckkb")
    cache_limit: int = CACHE_LIMIT
    state_home: Path = Path("~/.local/state/duckkb")
    settings: Mapping[str, str] = {}
