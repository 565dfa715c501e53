"""Settings as a frozen value. `config` builds it from config.yaml and the environment; nobody else reads either."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

Reasoning = Literal["none", "native", "mapped", "fixed"]
DEFAULT_MODEL, NO_MODEL = "multilingual-e5-small", "none"
KNOWN_MODELS = ("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002")
"""Models that one well-known endpoint alone serves under these names."""
_OPENAI, _OPENAI_KEY = "https://api.openai.com/v1", "OPENAI_API_KEY"
DEFAULT_READS = 512
"""Tokens that the offline model reads in one go, with those around a text."""
CACHE_LIMIT = 16 * 1024**3
"""Bytes that all that is derived may take, where this machine's settings name no others."""
LOOPBACK = "http://127.0.0.1:8080/v1"
"""Where a model on this machine is asked that has no address: the port of llama.cpp's server."""
SEAL_KEY, SEAL_KEY_FILE = "DUCKKB_ENCRYPTION_KEY", "DUCKKB_ENCRYPTION_KEY_FILE"
"""Variables that hold, or name a file with, the key of derived state; no child process of ours is given them."""
_GRAPH_FROM = 2_000_000
"""Chunks from which `auto` has a graph: comparing as many takes a twentieth of a second."""


class Fusion(Struct, frozen=True):
    """How two ranked lists become one: `rrf` with `k`, or `minmax` with the vector lane's `weight` (0 to 1) and the `gate`, the
    share of the question (0 to 1) that the best record of the lexical lane has to cover for that lane to count."""

    method: Literal["rrf", "minmax"] = "rrf"
    k: int = 60
    weight: float = 0.7
    gate: float = 0.0


class Expansion(Struct, frozen=True):
    """How a question grows before it is answered: `none`, or `feedback`, which moves its vector by `weight` (0 to 1)
    towards the mean of the best chunks of its first `hits` records."""

    method: Literal["none", "feedback"] = "none"
    weight: float = 0.3
    hits: int = 3


class VectorSettings(Struct, frozen=True):
    """How the vector lane compares: all chunks (`exact`), those of a graph (`hnsw`), or by their number (`auto`)."""

    ann: Literal["auto", "exact", "hnsw"] = "auto"

    def wants_graph(self, chunks: int) -> bool:
        """Whether so many chunks are compared by a graph."""
        return self.ann == "hnsw" or (self.ann == "auto" and chunks >= _GRAPH_FROM)


class EmbeddingSettings(Struct, frozen=True):
    """`global.embedding_model` and `global.embedding.*`. `timeout_s` is in seconds; `mode` concerns the local model;
    `concurrency` is how many batches are embedded at the same time, `price_per_million_tokens` in any currency. `base_url` and
    `api_key_env` are as configured, for whichever model needs an endpoint; `address` and `key_variable` are this model's."""

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
        """Where the model is asked; None for one that runs here, and for one that has no address."""
        if self.model in (DEFAULT_MODEL, NO_MODEL):
            return None
        return self.base_url or (_OPENAI if self.model in KNOWN_MODELS else None)

    @property
    def key_variable(self) -> str | None:
        """The variable that holds the key for that address."""
        if self.address is None:
            return None
        return self.api_key_env or (None if self.base_url else _OPENAI_KEY)

    @property
    def reads(self) -> int | None:
        """Tokens that the model reads of a text in one go, where that follows from its name; None for an endpoint's, and without
        one."""
        return DEFAULT_READS if self.model == DEFAULT_MODEL else None


class RerankSettings(Struct, frozen=True):
    """`global.rerank.*`: who judges the first candidates of a `query` by their texts. `timeout_ms` is the longest wait of one
    question in all, in milliseconds; at most `concurrency` requests are under way at once in a process, and `queue_limit`
    questions wait behind them."""

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
        """Whether an endpoint is asked."""
        return self.method != "none"


class ExpandSettings(Struct, frozen=True):
    """`global.expand.*`: who writes variants of the question of a `query`. `timeout_ms` is the longest wait, in milliseconds."""

    method: Literal["none", "feedback", "chat"] = "none"
    model: str | None = None
    base_url: str = LOOPBACK
    api_key_env: str | None = None
    timeout_ms: int = 5_000
    context_tokens: int = 2_048

    @property
    def is_asked(self) -> bool:
        """Whether an endpoint is asked."""
        return self.method == "chat"


class ProviderSettings(Struct, frozen=True):
    """Who serves a chat model: an address that speaks OpenAI's protocol, the model's name there, the variable with the key, and
    how long one answer may take, in seconds. `stream_usage`: it understands that it is asked to count tokens;
    `returns_reasoning`: it wants to read again what the model thought; `reasoning_body` is what a request has besides where
    reasoning is asked of a `mapped` model with more than low effort, `reasoning_off` with low (None: each true as false)."""

    base_url: str = LOOPBACK
    model: str = ""
    api_key_env: str | None = None
    timeout_s: float = 60.0
    stream_usage: bool = True
    returns_reasoning: bool = False
    reasoning_body: Mapping[str, Any] = {}
    reasoning_off: Mapping[str, Any] | None = None

    def map_effort(self, effort: str) -> Mapping[str, Any]:
        """Map an effort to what a request to a `mapped` model has besides."""
        if effort != "low":
            return self.reasoning_body
        if self.reasoning_off is not None:
            return self.reasoning_off
        return {name: False for name, value in self.reasoning_body.items() if value is True}

    @property
    def host(self) -> str:
        """Host and port, as a person is told them."""
        from urllib.parse import urlsplit

        address = urlsplit(self.base_url)
        return f"{address.hostname}:{address.port}" if address.port else str(address.hostname)

    @property
    def name(self) -> str:
        """Tells it from the others of a model: `MODEL@HOST`."""
        return f"{self.model}@{self.host}"


class ChatModelSettings(Struct, frozen=True):
    """`global.models.NAME`: one row of the registry of chat models. Its `providers` are asked in this order. `json_mode` says whether
    it can be held to JSON; `reasoning` whether it thinks before it speaks: not at all, by the effort that is asked (`native`), by
    a provider's own switch that stands for it (`mapped`), or always (`fixed`). `context_tokens` is what it reads at once."""

    name: str
    providers: tuple[ProviderSettings, ...]
    json_mode: bool = True
    tools: bool = True
    reasoning: Reasoning = "none"
    context_tokens: int = 8_192


class AskSettings(Struct, frozen=True):
    """`global.ask.*`: the chat model that answers questions, by its name in `global.models` (None: the only one there is), and the
    tokens of evidence that it is given."""

    model: str | None = None
    budget: int = 4_000


class ArchSettings(Struct, frozen=True):
    """`arch.*`: the command that writes a graph of the code to the file `output` of the folder in which it runs, in at most
    `timeout_s` seconds; None where there is none. At most `hints` edges of it are said beside an answer, none of which has a
    `confidence` below `min_confidence`."""

    command: str | None = None
    output: str = "graph.json"
    timeout_s: float = 600.0
    hints: int = 5
    min_confidence: float = 0.0


class Shrink(Struct, frozen=True):
    """How many records of a table one change may delete without anybody having said so: `records`, or where that is more
    the `share` (0 to 1) of all."""

    records: int = 20
    share: float = 0.1

    def most(self, total: int) -> int:
        return max(self.records, int(total * self.share))


class Settings(Struct, frozen=True):
    """Everything config.yaml says outside the ontology. Sizes in characters (`chunk_size`) or bytes."""

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
"""Stands for a folder of the user's that lies inside the base; nothing can be read or made below it."""


class Environment(Struct, frozen=True):
    """What duckkb takes from the environment; keys are not kept here but asked for by name when a model is made.
    `backend` is the address of a target that answers instead of a clone. `cache_limit` is in bytes, of all that lies in `cache_home`; `daemon` says
    whether a warm process is started (`auto`). `settings` are the variables that stand over what config.yaml says, by name, as text."""

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
