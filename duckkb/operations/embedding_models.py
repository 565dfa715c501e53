"""The action models: the configured models, their abilities and trust; and whether chat models answer.

`impact --model`: the judged questions, asked of the same records with two models.

The action `index migrate`: the vectors of another model beside the present ones.

A base wired with a model, its own or another: the common start of actions on two models.

The action embed: vectors of texts, each cut where the model stops reading; also vectors that callers give."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb import config
from duckkb.config import Loaded
from duckkb.engine import index_jobs
from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import boot
from duckkb.engine.index_jobs import Listen, Migration, MigrationBudget, fingerprint, look
from duckkb.llm.chat_models import predict, row_of
from duckkb.llm.embedder_contract import from_hex, from_numbers, to_hex
from duckkb.ontology.model import RecordType
from duckkb.ontology.ontology_files import questions_in
from duckkb.operations.change_review import ImpactOptions, refuse_limits
from duckkb.operations.lifecycle import OpenOptions, Unopened, find
from duckkb.operations.name_resolution import regular_file
from duckkb.ports import ChatModel
from duckkb.review import impact_report
from duckkb.review.diff_model import Label
from duckkb.review.impact_report import ImpactReport, JudgedQuestion, RankedAnswer
from duckkb.storage import revisions
from duckkb.storage.line import Limits, LineError, parse_json
from duckkb.types.codes import CODES
from duckkb.types.errors import DuckkbError, Finding, Refused, Unavailable, UsageError, shell_word
from duckkb.types.queries import Notice
from duckkb.types.records import Cut
from duckkb.types.settings import (
    NO_MODEL,
    ChatModelSettings,
    EmbeddingSettings,
    ExpandSettings,
    ProviderSettings,
    RerankSettings,
    Settings,
)

if TYPE_CHECKING:
    import numpy as np

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


class ModelSide(Struct, frozen=True):
    """A base with a model.

    `model` is as typed, empty for the base's own; `switch` is the line of config.yaml that would name it.
    """

    loaded: Loaded
    wiring: Wiring
    model: str
    switch: str = ""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def name(self) -> str:
        """The name of the model as people read it."""
        return self.settings.embedding.model + ("" if self.model else " (configured)")

    def command(self, verb: str) -> str:
        """Return a command about this model, as it would be typed."""
        return f"{verb} {shell_word(self.model)}"


def side(unopened: Unopened, model: str, opening: OpenOptions) -> ModelSide:
    """Return the base with a model as `config.config_files` takes it; empty for its own model.

    Raises as `open`, and `errors.UsageError`.
    """
    configuration, wiring = unopened.wire(unopened.root, opening)
    if not model:
        return ModelSide(configuration, wiring, "")
    other_model = config.other_model(configuration, model)
    configuration, wiring = unopened.wire(unopened.root, replace(opening, embedding=other_model.settings.embedding))
    return ModelSide(configuration, wiring, model, other_model.line)


def fingerprints(sides: Iterable[ModelSide], kind: RecordType) -> set[str]:
    """Return the fingerprints of the models that embed a type's texts on some sides."""
    return {fingerprint(model_side.wiring, kind) for model_side in sides}


def require_trust(one: ModelSide) -> None:
    """Raise `errors.Unavailable` (E_UNTRUSTED) where this machine does not trust the hosts of a model."""
    kinds = one.loaded.ontology
    addresses = [kind.settings(one.settings).embedding.address for kind in kinds]
    if not any(addresses) or config.is_trusted(one.loaded.root, one.settings, one.loaded.env, kinds):
        return
    message = f"The hosts and key variables that {one.name} needs have not been accepted on this machine."
    remedy = one.command("duckkb trust --model") if one.model else "`duckkb trust --show`, then `duckkb trust`"
    raise Unavailable(message, code="E_UNTRUSTED", suggestion=remedy)


_MODEL_EXAMPLE = "`duckkb impact --model ...NEW` for the configured model against NEW, or `--model OLD...NEW`"


def impact_of_models(unopened: Unopened, models: str, options: ImpactOptions) -> ImpactReport:
    """Ask the judged questions of the base as it is with two models, `OLD...NEW`.

    Each is as `config.config_files` takes it; an empty name is the base's own model. Raises as `open` does,
    `errors.UsageError`, `errors.Refused` (E_VECTORS) where a model lacks some vectors, and `errors.Unavailable`
    where it does not answer, since a partial lane cannot be compared.
    """
    refuse_limits(options)
    old, dots, new = models.partition("...")
    if not dots:
        raise UsageError(f"{models!r} names no two models", suggestion=_MODEL_EXAMPLE)
    opening = OpenOptions(lenient=options.lenient, progress=options.progress)
    sides = [side(unopened, model.strip(), opening) for model in (old, new)]
    raw_questions = [question for document in sides[0].loaded.documents for question in questions_in(document)]
    questions, findings = impact_report.read(raw_questions), list[Finding]()
    if questions and all(len(fingerprints(sides, kind)) == 1 for kind in _find_types(sides[0], questions)):
        raise UsageError("both models make the same vectors for the questions", suggestion=_MODEL_EXAMPLE)
    for model_side in sides:
        require_trust(model_side)
    with ExitStack() as closes:
        bases = [closes.enter_context(closing(boot(model_side.wiring))) for model_side in sides]
        for model_side, base in zip(sides, bases, strict=True):
            _refuse_partial(model_side, base, questions)
        before, after = (_ask_model(base, questions, options.k) for base in bases)
        if wrong := bases[0].tree.unreadable:
            message = f"{len(wrong):,} unreadable lines were skipped, the first at {wrong[0].place}"
            findings.append(Finding("W_LENIENT", message, remedy=CODES["W_LENIENT"].remedy))
    rows, prefix = impact_report.side_by_side(questions, before, after, options.k), revisions.prefix(unopened.root)
    limits = options.fail_on or {}
    return ImpactReport(
        Label(sides[0].name), Label(sides[1].name), options.k, rows, (), limits, tuple(findings), prefix
    )


def _find_types(model_side: ModelSide, questions: Sequence[JudgedQuestion]) -> list[RecordType]:
    """Return the types of the questions in which texts have vectors."""
    kinds = (model_side.wiring.ontology.find(name) for name in sorted({question.type for question in questions}))
    return [kind for kind in kinds if kind is not None and kind.has_text_vectors]


def _refuse_partial(model_side: ModelSide, base: Base, questions: Sequence[JudgedQuestion]) -> None:
    """Raise `errors.Refused` where texts that a question may find have no vector of the model."""
    migration = look(base, _find_types(model_side, questions))
    if pending := migration.built.pending:
        message = (
            f"{pending:,} of {migration.texts:,} texts have no vector of {model_side.name} yet, so nothing is compared"
        )
        remedy = model_side.command("duckkb index migrate --to") if model_side.model else "duckkb index build"
        raise Refused(message, code="E_VECTORS", suggestion=remedy)


def _ask_model(base: Base, questions: Sequence[JudgedQuestion], k: int) -> Sequence[RankedAnswer | None]:
    """Return the answers with one model, without changing what is stored for the configured model."""
    base.in_memory = True
    answers = impact_report.ask(base, questions, k)
    if degradation := next((answer.degraded for answer in answers if answer is not None and answer.degraded), ""):
        message = f"with {base.settings.embedding.model} not every question got an answer: {degradation}"
        raise Unavailable(message, code="E_MODEL", suggestion="correct the model, then compare again")
    return answers


class MigratedModel(Struct, frozen=True):
    """The result of a migration to `model`.

    `switch` is the line of config.yaml that activates the model, empty while texts are left. `left_alone` are
    types with vectors whose policies name another model, or none.
    """

    model: str
    done: Migration
    left_alone: tuple[str, ...]
    switch: str


def migrate(
    unopened: Unopened,
    to: str,
    opening: OpenOptions,
    budget: MigrationBudget,
    *,
    dry_run: bool = False,
    listen: Listen = lambda _: None,
) -> MigratedModel:
    """Embed all texts with the model `to`, each once, beside the present vectors.

    `to` is as `config.config_files` takes it.

    Neither the configuration nor the answers of searches change. `dry_run` reports the work and asks nobody.

    Raises `errors.UsageError` where `to` is invalid, or makes the vectors that the base has,
    `errors.Unavailable` (E_UNTRUSTED; E_LOCKED while another job runs), and as `open`.
    """
    sides = [side(unopened, model, opening) for model in ("", to)]
    new_side = sides[1]
    vector_kinds = [kind for kind in new_side.wiring.ontology if kind.has_text_vectors]
    kinds = [kind for kind in vector_kinds if len(fingerprints(sides, kind)) > 1]
    if not kinds:
        message = f"no type would get other vectors: {new_side.settings.embedding.model} makes those that the base has"
        raise UsageError(message, suggestion="duckkb index build makes the missing ones")
    if not dry_run:
        require_trust(new_side)
    with closing(boot(new_side.wiring)) as base:
        result = index_jobs.look(base, kinds) if dry_run else index_jobs.migrate(base, kinds, budget, listen)
    left_alone = tuple(kind.name for kind in vector_kinds if kind not in kinds)
    return MigratedModel(
        new_side.settings.embedding.model, result, left_alone, switch="" if result.built.pending else new_side.switch
    )


_BOM = b"\xef\xbb\xbf"
_EXAMPLE = 'duckkb embed "some text"'
MOST_DIMENSIONS = 16_384
_WORD = re.compile("[0-9a-fA-F]{8}")
_SUGGESTION = "give a JSON array of numbers, or of 8 hex digits each as `duckkb embed` prints it"
_BATCH_EXAMPLE = 'duckkb embed --batch \'["one", "two"]\''


class Embedding(Struct, frozen=True):
    """Vectors as lists of 8 hex digits a value (float32, big-endian), the model's name, and its tokens.

    The tokens include prefix and marks; they are an estimate for an endpoint. Each truncated text has a notice.
    """

    vectors: tuple[list[str], ...]
    model: str
    tokens: int
    notices: tuple[Notice, ...] = ()


def embed(base: Base, texts: str | Sequence[str], *, passage: bool = False) -> Embedding:
    """Return vectors of texts as hex float32, with the model's name and the tokens used.

    A text over the model's limit is truncated, with a notice. Raises `errors.UsageError`, `errors.Unavailable`.
    """
    inputs = _check_texts([texts] if isinstance(texts, str) else texts, exit_code=2)
    model = base.wiring.embedder
    cuts = model.cut(inputs, passage=passage)
    vectors = (model.embed_passages if passage else model.embed_queries)([cut.text for cut in cuts])
    notices = tuple(_build_notice(number, cut) for number, cut in enumerate(cuts, 1) if cut.is_truncated)
    return Embedding(tuple(to_hex(vectors)), model.fingerprint.name, sum(cut.tokens for cut in cuts), notices)


def embed_input(
    base: Base, text: str | None, file: str | None, *, batch: bool = False, stdin: BinaryIO | None = None
) -> list[str]:
    """Return the texts of an `embed` command line, from an argument, a file or stdin.

    CR LF counts as LF, and trailing line ends are removed. Raises `errors.UsageError`, with exit code 1 for
    wrong content of a file.
    """
    most = base.limits.max_record_bytes
    if file is not None:
        with regular_file(base, Path(file), "a text file").open("rb") as stream:
            data, name, exit_code = stream.read(most + 1), file, 1
    elif text is not None:
        data, name, exit_code = _encode_argument(text), "the argument", 2
    else:
        data, name, exit_code = stdin.read(most + 1) if stdin else b"", "stdin", 2
    whole = decode_input(data, name, most, exit_code).replace("\r\n", "\n").rstrip("\n")
    return _check_texts(_array(base, whole, name, exit_code) if batch else [whole], exit_code)


def _encode_argument(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # the bytes as typed
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def decode_input(data: bytes, name: str, most: int, exit_code: int) -> str:
    """Decode bytes as text; raises `errors.UsageError` that names the problem."""
    if len(data) > most:
        message = f"{name} has more bytes than limits.max_record_bytes ({most:,})"
        raise UsageError(message, "E_TOO_LARGE", "embed it in parts", exit_code=exit_code)
    if data.startswith(_BOM):
        message = f"{name} starts with a byte order mark"
        raise UsageError(message, "E_BOM", "save it as UTF-8 without one", exit_code=exit_code)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        message = f"{name} is not UTF-8 text: byte {error.start + 1} is 0x{data[error.start]:02x}"
        raise UsageError(message, "E_UTF8", "convert it to UTF-8", exit_code=exit_code) from error


def _array(base: Base, text: str, name: str, exit_code: int) -> list[str]:
    """Parse a JSON array of strings."""
    if not text.strip():
        raise UsageError(f"{name} is empty: --batch takes a JSON array", "E_USAGE", _BATCH_EXAMPLE, exit_code=exit_code)
    try:
        value = parse_json(text.encode(), base.limits)
    except LineError as error:
        first = error.findings[0]
        place = f" at {first.field}" if first.field else ""
        message = f"{name} is not a JSON array of strings: {first.message}{place}"
        raise UsageError(message, first.code, _BATCH_EXAMPLE, findings=error.findings, exit_code=exit_code) from error
    if not isinstance(value, list):
        raise UsageError(f"{name} is JSON, but not an array", "E_JSON", _BATCH_EXAMPLE, exit_code=exit_code)
    if not value:
        raise UsageError(f"{name} is an empty array", "E_USAGE", _BATCH_EXAMPLE, exit_code=exit_code)
    return value


def _check_texts(texts: object, exit_code: int) -> list[str]:
    """Return texts that a model accepts; raises `errors.UsageError` that names the first other value."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
        raise UsageError("give one text, or several", suggestion=_EXAMPLE, exit_code=exit_code)
    for number, text in enumerate(texts, 1):
        problem, code = flaw(text)
        if problem:
            place = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
            raise UsageError(f"{place} {problem}", code, _EXAMPLE, exit_code=exit_code)
    return list(texts)


def flaw(text: object) -> tuple[str, str]:
    """Return what is wrong with a text, and its code; two empty strings where nothing is."""
    if not isinstance(text, str):
        return "is not a string", "E_USAGE"
    if not text.strip():
        return "is empty" if not text else "has only white space", "E_USAGE"
    if "\0" in text:
        return f"has a NUL character at {text.index(chr(0)) + 1}", "E_NUL"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "has half of a surrogate pair", "E_SURROGATE"
    return "", ""


def _build_notice(number: int, cut: Cut) -> Notice:
    counts = f"original {cut.original}, truncated {cut.tokens}, limit {cut.limit} tokens"
    return Notice("W_TRUNCATED", f"text {number} was cut: {counts}", "embed it in parts")


def vector_input(base: Base, file: str, *, stdin: BinaryIO | None = None) -> "np.ndarray":
    """Return the vector (float32, 1-d) of a file or of stdin (`-`): a JSON array of numbers or of 8 hex digits.

    Raises `errors.UsageError`.
    """
    most = base.limits.max_record_bytes
    if file == "-":
        return read_vector(stdin.read(most) if stdin else b"")
    with regular_file(base, Path(file), "a file with a vector").open("rb") as stream:
        return read_vector(stream.read(most))


def read_vector(data: bytes) -> "np.ndarray":
    """Parse a vector: float32, 1-d, 1 to 16,384 values, finite and not all zeros; hex is exact.

    Raises `errors.UsageError` that names the first wrong value, counted from 1.
    """
    values = _parse_values(data)
    is_hex = isinstance(values[0], str)
    for place, value in enumerate(values, 1):
        if flaw := _find_flaw(value, is_hex):
            raise _build_refusal(f"value {place} of the vector {flaw}")
    vector = from_hex(values) if is_hex else from_numbers(values)
    finite = abs(vector) < float("inf")  # false for NaN too
    if not finite.all():
        place = int(finite.argmin()) + 1
        flaw = "is not a finite number" if is_hex else "is too large for float32"
        raise _build_refusal(f"value {place} of the vector {flaw}")
    if not vector.any():
        raise _build_refusal("all values of the vector are 0")
    return vector


def _parse_values(data: bytes) -> list[Any]:
    if not data.strip():
        raise _build_refusal("no vector given: the input is empty")
    try:
        values = parse_json(data, Limits())
    except LineError as error:
        first = error.findings[0]
        place = f"value {int(first.field[1:]) + 1}: " if first.field[1:].isdecimal() else ""
        raise _build_refusal(f"the vector cannot be read: {place}{first.message}") from error
    if not isinstance(values, list):
        raise _build_refusal("a vector is a JSON array")
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise _build_refusal(f"a vector has 1 to {MOST_DIMENSIONS:,} values; this one has {len(values):,}")
    return values


def _find_flaw(value: object, is_hex: bool) -> str:
    """Return what is wrong with a value, for vectors of hex or of numbers; empty where nothing is."""
    if isinstance(value, str):
        if not is_hex:
            return "is a string, while the first is a number"
        return "" if _WORD.fullmatch(value) else "is not 8 hex digits"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is neither a number nor 8 hex digits"
    return "is a number, while the first is a string" if is_hex else ""


def _build_refusal(message: str) -> UsageError:
    return UsageError(message, suggestion=_SUGGESTION)
