"""Every setting and environment variable of duckkb, once: the loader, the example file and the docs read these."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import reduce
from operator import attrgetter
from typing import Any, cast

from msgspec import Struct

from duckkb.ontology.names import (
    CHUNK_SIZE,
    EXPANSION,
    FUSION,
    GRANULARITIES,
    LANGUAGE,
    Choice,
    Flag,
    Names,
    Number,
    Rule,
    Text,
    Url,
    VariableName,
    Whole,
    is_folder,
    show_value,
    suggest_known_names,
)
from duckkb.ontology.policies import OVERRIDES
from duckkb.ontology.yaml_source import Section
from duckkb.types.errors import Finding
from duckkb.types.settings import DEFAULT_MODEL, KNOWN_MODELS, NO_MODEL, Settings

INCLUDE = "ontology/**/*.yaml"
DEFAULT = "default"


class InnerPath(Struct, frozen=True):
    """A path below the folder that it is relative to."""

    def __str__(self) -> str:
        return "relative path"

    def problem(self, value: Any) -> str | None:
        is_path = isinstance(value, str) and value.isprintable() and len(value) <= 200 and is_folder(value)
        return None if is_path else "must be a relative path, with / and without `..`"


class Include(Struct, frozen=True):
    """The single pattern of a setting, written as text or as a list of it."""

    def __str__(self) -> str:
        return "always this"

    def problem(self, value: Any) -> str | None:
        return None if value in (INCLUDE, [INCLUDE]) else f"must be {INCLUDE}; put the files of types there"


class Key(Struct, frozen=True):
    """A setting.

    `name` is its dotted place in config.yaml, and `attribute` its place in `Settings`, which holds its default.
    A default of None means absent, and may be written so. `where` names what else may set it, for a part of the
    base.
    """

    name: str
    attribute: str
    rule: Rule
    meaning: str
    where: str = ""

    @property
    def default(self) -> Any:
        return self.get_value(_STANDARD)

    def get_value(self, settings: Settings) -> Any:
        """Return its value in these settings."""
        return attrgetter(self.attribute)(settings) if self.attribute else INCLUDE

    @property
    def section(self) -> tuple[str, ...]:
        return tuple(self.name.split(".")[:-1])

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


_STANDARD = Settings()

KEYS: tuple[Key, ...] = (
    Key("global.chunk_size", "chunk_size", CHUNK_SIZE, "Longest chunk of a text, in characters.", "search item"),
    Key("global.tokenizer", "tokenizer", Choice(("jieba", "plain")), "How text becomes words; jieba knows Chinese."),
    Key("global.language", "language", LANGUAGE, "Whose word endings are cut for matching.", "search item"),
    Key(
        "global.fold_chinese", "fold_chinese", Choice(("none", "simplified")),
        "Match traditional characters as simplified ones, in texts and queries.",
    ),
    Key(
        "global.word_forms", "word_forms", Choice(("written", "all")),
        "Also find words by their other forms, ranked below the same form: `café` without accents, `getUserName` by "
        "its parts, `.NET` with its dot; `written` matches only the written form.",
    ),
    Key(
        "global.embedding_model", "embedding.model", Text(),
        f"The model behind similarity: {DEFAULT_MODEL} runs offline, {NO_MODEL} turns vectors off,"
        f" any other is asked at base_url. Of OpenAI's ({', '.join(KNOWN_MODELS)}) address and key variable are known;"
        " until `duckkb trust` and a key, search is by words.",
    ),
    Key(
        "global.embedding.base_url", "embedding.base_url", Url(),
        f"An OpenAI-compatible endpoint; used after `duckkb trust`, for any model but {DEFAULT_MODEL}, also that of a collection.",
    ),
    Key(
        "global.embedding.api_key_env", "embedding.api_key_env", VariableName(),
        "The environment variable that holds the endpoint's key.",
    ),
    Key(
        "global.embedding.dimensions", "embedding.dimensions", Whole(1, 16_384),
        "Length of the vectors to ask an endpoint for.",
    ),
    Key("global.embedding.batch_size", "embedding.batch_size", Whole(1, 2_048), "Texts in one request to an endpoint."),
    Key(
        "global.embedding.concurrency", "embedding.concurrency", Whole(1, 64),
        "Batches that are embedded at the same time; where it is not set, 4 at an endpoint and 1 offline.",
    ),
    Key(
        "global.embedding.price_per_million_tokens", "embedding.price_per_million_tokens", Number(0, 1_000_000),
        "Price of a million tokens at an endpoint, in any currency; `duckkb index plan` then estimates the cost of a job.",
    ),
    Key(
        "global.embedding.timeout_s", "embedding.timeout_s", Number(0.1, 600),
        "Longest wait for one answer, in seconds.",
    ),
    Key("global.embedding.max_retries", "embedding.max_retries", Whole(0, 20), "Repeats of a request that failed."),
    Key(
        "global.embedding.symmetric", "embedding.symmetric", Flag(),
        "Treat queries as texts: for bases where both are the same kind of thing.",
    ),
    Key(
        "global.embedding.mode", "embedding.mode", Choice(("q4", "int8")),
        "How the offline model computes; int8 is faster on some machines and a little less exact.",
    ),
    Key(
        "global.fusion.method", "fusion.method", FUSION["method"],
        "How two lists become one: ranks or scores.", "policy",
    ),
    Key("global.fusion.k", "fusion.k", FUSION["k"], "rrf: higher values reduce the weight of the first ranks.", "policy"),
    Key("global.fusion.weight", "fusion.weight", FUSION["weight"], "minmax: the part of the vector list.", "policy"),
    Key(
        "global.fusion.gate", "fusion.gate", FUSION["gate"],
        "minmax: how much of the question the best record by words has to cover for the lexical list to count; 0 counts it always.",
        "policy",
    ),
    Key(
        "global.expansion.method", "expansion.method", EXPANSION["method"],
        "feedback: search by vector once more, with the question moved towards its first hits.", "policy",
    ),
    Key("global.expansion.weight", "expansion.weight", EXPANSION["weight"], "feedback: how far it moves.", "policy"),
    Key("global.expansion.hits", "expansion.hits", EXPANSION["hits"], "feedback: how many first hits.", "policy"),
    Key(
        "global.rerank.method", "rerank.method", Choice(("none", "http", "tei", "chat")),
        "Who judges the first candidates of a `query` by their texts: a rerank endpoint (http: Jina's and Cohere's protocol, as"
        " of llama.cpp and vLLM; tei: that of Hugging Face's text-embeddings-inference, whose addresses have no /v1), or a chat model"
        " by the probability of its yes (chat; needs logprobs).",
    ),
    Key("global.rerank.model", "rerank.model", Text(), "The model that is asked, as its endpoint calls it."),
    Key(
        "global.rerank.base_url", "rerank.base_url", Url(),
        "Where it is asked: /rerank or /chat/completions below this address; used after `duckkb trust`, without a proxy.",
    ),
    Key(
        "global.rerank.api_key_env", "rerank.api_key_env", VariableName(),
        "The environment variable that holds the endpoint's key.",
    ),
    Key(
        "global.rerank.timeout_ms", "rerank.timeout_ms", Whole(1, 600_000),
        "Longest total wait of a question for it, in milliseconds; then the fused order stays, with a notice.",
    ),
    Key("global.rerank.max_candidates", "rerank.max_candidates", Whole(1, 1_000), "How many candidates are judged."),
    Key(
        "global.rerank.context_tokens", "rerank.context_tokens", Whole(512, 1 << 20),
        "What the model reads at once, question and text together, about; a longer text is judged by its beginning.",
    ),
    Key("global.rerank.concurrency", "rerank.concurrency", Whole(1, 64), "Requests under way at once in a process."),
    Key(
        "global.rerank.queue_limit", "rerank.queue_limit", Whole(0, 100_000),
        "Questions of a process that wait behind those requests.",
    ),
    Key(
        "global.rerank.drop_policy", "rerank.drop_policy", Choice(("timeout_fallback", "wait")),
        "A question beyond queue_limit keeps the fused order at once (timeout_fallback), or waits for its turn as long as"
        " timeout_ms lets it (wait).",
    ),
    Key(
        "global.rerank.dedupe", "rerank.dedupe", Choice(("join", "off")),
        'join: the same question asked while it is being answered shares that answer. ("off" is written in quotes.)',
    ),
    Key(
        "global.expand.method", "expand.method", Choice(("none", "feedback", "chat")),
        "Who adds to the question of a `query`: feedback as `global.expansion` has it, without a model, or a chat model that"
        " writes words, a paraphrase and a made-up answer (chat).",
    ),
    Key("global.expand.model", "expand.model", Text(), "The model that is asked, as its endpoint calls it."),
    Key(
        "global.expand.base_url", "expand.base_url", Url(),
        "Where it is asked: /chat/completions below this address; used after `duckkb trust`, without a proxy.",
    ),
    Key(
        "global.expand.api_key_env", "expand.api_key_env", VariableName(),
        "The environment variable that holds the endpoint's key.",
    ),
    Key(
        "global.expand.timeout_ms", "expand.timeout_ms", Whole(1, 600_000),
        "Longest total wait of a question for it, in milliseconds; then the question is not expanded.",
    ),
    Key(
        "global.expand.context_tokens", "expand.context_tokens", Whole(1_024, 1 << 20),
        "What the model reads at once, about; a longer question is not expanded.",
    ),
    Key(
        "global.models", "models", Names(),
        "The chat models by name, each a row of these keys; `duckkb models list` shows them.",
    ),
    Key("global.ask.model", "ask.model", Text(), "The chat model that answers questions; the only one where none is named."),
    Key(
        "global.ask.budget", "ask.budget", Whole(200, 1 << 20),
        "Tokens of evidence that it is given with a question.",
    ),
    Key(
        "global.ann", "vectors.ann", OVERRIDES["ann"][1],
        "How vectors are compared: all of them (exact), those that a graph leads to (hnsw; made by index jobs, with the extra"
        " `ann`), or by a graph from 2,000,000 chunks of a type on (auto).", "policy",
    ),
    Key(
        "layout.part", "part", Choice(("branch", "fixed")),
        "Which file new records go to: one of each clone and branch, or always the first of the day (one writer only).",
    ),
    Key(
        "limits.max_record_bytes", "max_record_bytes", Whole(1_024, 256 * 1024 * 1024),
        "Longest line of a record, in bytes.",
    ),
    Key("limits.max_depth", "max_depth", Whole(2, 128), "Deepest nesting of a record's values."),
    Key(
        "limits.shrink_records", "shrink.records", Whole(0, 1_000_000_000),
        "Records of a table that one write, merge or pull request may delete; more need --allow-shrink.",
    ),
    Key(
        "limits.shrink_share", "shrink.share", Number(0, 1),
        "The part of a table's records that it may delete, where that is more than shrink_records.",
    ),
    Key(
        "limits.served_seconds", "served_seconds", Number(0, 86_400),
        "How long an answer that only reads may take where a base is served, and most of what callers can ask for by a `timeout`,"
        " in seconds; 0: any.",
    ),
    Key(
        "merge.granularity", "merge_granularity", Choice(GRANULARITIES),
        "What two branches may both change without a conflict: different fields of a record, or different records.",
        "type",
    ),
    Key(
        "search.embed_wait_s", "embed_wait_s", Number(0, 3_600),
        "How long a search computes missing vectors before it answers without them, in seconds.",
    ),
    Key(
        "snapshot.min_bytes", "snapshot_bytes", Whole(0, 1 << 40),
        "Size of all parts together from which their lines are kept in the user's cache folder, in bytes; a smaller base is read whole.",
    ),
    Key(
        "arch.command", "arch.command", Text(2_000),
        "What writes a graph of the code that this repository holds: a command of the shell, run in an empty folder after `duckkb"
        " trust`, with the code's folder in $DUCKKB_CODE. `duckkb arch build` imports what it writes; off where there is none.",
    ),
    Key("arch.output", "arch.output", InnerPath(), "The file that it writes in that folder: node-link JSON."),
    Key("arch.timeout_s", "arch.timeout_s", Number(0.1, 86_400), "How long it may take, in seconds."),
    Key("arch.hints", "arch.hints", Whole(0, 1_000), "How many edges of the graph are said beside an answer (`query --arch-hints`)."),
    Key("arch.min_confidence", "arch.min_confidence", Number(0, 1), "Edges that are less sure are not said; one without a confidence is sure."),
    Key("include", "", Include(), "More files with nodes, edges, policies and questions, beside this one."),
)  # fmt: skip

SECTIONS: Mapping[str, str] = {
    "nodes": "Node types: table, identity, schema (JSON Schema 2020-12), search, policy, merge, review (`required`: agents propose).",
    "edges": "Edge types: label, from, to, cardinality, identity, schema, search, policy, merge, review.",
    "policies": "How records are indexed and searched: see `duckkb policy show`.",
    "collections": "Collections, each with its own policy; `duckkb col init` writes them to ontology/collections/.",
    "questions": "Judged questions: question, type, mode, where, expected.",
}

_OF_THE_BASE = ("layout.part", "merge.granularity", "global.models", "include")
"""Settings that no variable changes: how truth is written and merged, and what is no single value."""
SETTING_VARIABLES: Mapping[str, Key] = {
    "DUCKKB_" + key.name.removeprefix("global.").replace(".", "_").upper(): key
    for key in KEYS
    if key.name not in _OF_THE_BASE
}
"""Every environment variable that overrides a setting for one process: DUCKKB_RERANK_TIMEOUT_MS over
`global.rerank.timeout_ms`."""

VARIABLES: Mapping[str, str] = {
    "DUCKKB_KB": "The knowledge base to use where `--kb` does not name one.",
    "DUCKKB_BACKEND": "The address of a published base that answers instead of a clone (docs/publish.md), like --backend.",
    "DUCKKB_WRITER": "Stands for this clone's id when new records get their file; for CI and tests.",
    "DUCKKB_TRUST": "The hash of the demands that this run accepts, or several with commas between; `duckkb trust --show` prints it.",
    "DUCKKB_SANDBOX": "1: paths given to commands must be inside the knowledge base.",
    "DUCKKB_AGENT": "1: the writer is an agent, which must propose changes that need a review.",
    "DUCKKB_DAEMON": "Of the warm process that answers commands which only read: auto starts it with the first embedded question, off asks none, require fails without one. Where it is not set, one that was started is asked.",
    "DUCKKB_CACHE_HOME": "Folder for what is derived (stores, vectors, converted models), instead of the user's cache folder.",
    "DUCKKB_ENCRYPTION_KEY": "Seals what is derived: 32 bytes as hex or base64, or a passphrase (docs/encryption.md).",
    "DUCKKB_ENCRYPTION_KEY_FILE": "A file with that key, which others cannot read.",
    "XDG_RUNTIME_DIR": "Where sealed state is opened if /dev/shm is no tmpfs.",
    "XDG_CACHE_HOME": "The user's cache folder; duckkb uses `duckkb` in it. Default ~/.cache.",
    "XDG_STATE_HOME": "The user's state folder; duckkb keeps what was trusted there, and this machine's `settings.json`. Default ~/.local/state.",
}
"""Every environment variable that duckkb reads. Those of `api_key_env` are named by the configuration instead."""


def read_settings(root: Section, variables: Mapping[str, str] | None = None) -> Settings:
    """Read the settings at the top of config.yaml, with the origin of each; problems are noted in the section.

    `variables` of the environment, named as in `SETTING_VARIABLES`, override the file.
    """
    sections = {path: _find_section(root, path) for path in _PATHS}
    for path, section in sections.items():
        section.refuse_unknown(_PATHS[path], _ELSEWHERE)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key in KEYS:
        section, leaf, standard = sections[key.section], key.leaf, key.get_value(_STANDARD)
        is_absent = standard is None and section.value.get(leaf) is None
        values[key.name] = None if is_absent else section.get(leaf, key.rule, standard)
        origins[key.name] = section.place(leaf) if leaf in section else DEFAULT
    for variable, text in (variables or {}).items():
        key = SETTING_VARIABLES[variable]
        values[key.name], origins[key.name] = _read_variable(root, variable, text), variable
    problems = [*_check_model(values), *_check_model_names(values)]
    if values["global.models"]:
        from duckkb.llm.chat_models import read_models  # few bases have any

        values["global.models"] = read_models(sections[("global",)].sub("models"), origins)
    problems += _check_answer_model(values)
    for problem in problems:
        _report(root, problem, origins[problem[0]])
    return _make_settings(values, origins)


def _read_variable(root: Section, variable: str, text: str) -> Any:
    """Read a setting from the environment; note problems under the name of the variable."""
    key, value = SETTING_VARIABLES[variable], cast("Any", text)
    if isinstance(key.rule, (Whole, Number, Flag)):
        with suppress(ValueError):
            value = json.loads(text)
    if problem := key.rule.problem(value):
        remedy = f"unset {variable}, or give it another value"
        message = f"{variable} of the environment {problem}"
        root.found.append(Finding(root.code, message, field=key.name, remedy=remedy))
        return key.get_value(_STANDARD)
    return value


def _find_section(root: Section, path: tuple[str, ...]) -> Section:
    return reduce(lambda section, key: section.sub(key), path, root)


def _list_paths() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the keys allowed in each section, by its place; types and policies besides the settings at the top."""
    steps = [tuple(key.name.split(".")) for key in KEYS]
    places = dict.fromkeys(path[:depth] for path in steps for depth in range(len(path)))
    inside = {at: dict.fromkeys(path[len(at)] for path in steps if path[: len(at)] == at) for at in places}
    return {at: (*keys, *(() if at else SECTIONS)) for at, keys in inside.items()}


_PATHS = _list_paths()
_ELSEWHERE = {key.leaf: key.name for key in reversed(KEYS)}  # the first place of a name that stands in several
_Problem = tuple[str, str, str]  # of a setting: its name, what is wrong, what to do


def _check_model(values: Mapping[str, Any]) -> Iterator[_Problem]:
    model = values["global.embedding_model"]
    is_known = model in (DEFAULT_MODEL, NO_MODEL, *KNOWN_MODELS)
    if not is_known and values["global.embedding.base_url"] is None:
        remedy = f"set `global.embedding.base_url`, or use {DEFAULT_MODEL} or {NO_MODEL}"
        yield "global.embedding_model", "needs an endpoint: this model does not come with duckkb", remedy


def _check_model_names(values: Mapping[str, Any]) -> Iterator[_Problem]:
    """Check that models asked at endpoints have names, which their requests and cached answers need."""
    for name in ("rerank", "expand"):
        method = values[f"global.{name}.method"]
        if method in ("http", "tei", "chat") and values[f"global.{name}.model"] is None:
            yield f"global.{name}.method", f"{method} needs the name of a model", f"set `global.{name}.model`"


def _check_answer_model(values: Mapping[str, Any]) -> Iterator[_Problem]:
    """Check that the model that answers questions is a row of the registry."""
    model, models = values["global.ask.model"], values["global.models"]
    if model is not None and model not in models:
        remedy = suggest_known_names(model, models) if models else "add it to `global.models`"
        yield "global.ask.model", f"no chat model {show_value(model)}", remedy


def _report(root: Section, problem: _Problem, origin: str) -> None:
    """Note a problem where its value stands: at the line of the file, or with the variable that gave it."""
    name, message, remedy = problem
    if origin in SETTING_VARIABLES:
        message, remedy = f"{origin} of the environment: {message}", f"{remedy}, or unset {origin}"
        root.found.append(Finding(root.code, message, field=name, remedy=remedy))
    else:
        *path, leaf = name.split(".")
        _find_section(root, tuple(path)).problem(message, leaf, remedy=remedy)


def _make_settings(values: Mapping[str, Any], origins: Mapping[str, str]) -> Settings:
    top_values: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for key in KEYS:
        group, _, name = key.attribute.rpartition(".")
        value = values[key.name]
        if key.attribute:
            (inside.setdefault(group, {}) if group else top_values)[name] = (
                float(value) if type(key.default) is float else value
            )
    groups = {group: type(getattr(_STANDARD, group))(**fields) for group, fields in inside.items()}
    return Settings(**top_values, **groups, origins=origins)
