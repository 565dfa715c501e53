"""`ask`: pack the evidence on a question, refuse where it is too thin, ask a chat model, and check its answer.

A refusal is a result as an answer is: no model is asked, and the nearest records are named. Whatever the checks
cannot find in the texts that a sentence cites is marked, whatever the model claims (docs/ask.md).
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from duckkb.actions.answering import evidence
from duckkb.actions.answering.claims import CheckedSentence, check_sentences
from duckkb.actions.answering.context_pack import COUNTER, ContextPack, Entry, choose_kinds, context_pack
from duckkb.actions.answering.evidence import Support
from duckkb.actions.answering.prompt import NO_ANSWER, PROMPT, messages
from duckkb.actions.registry.record_lines import notice_object
from duckkb.actions.resolve import convert_identity, find_kind
from duckkb.documents.chunks import estimate_tokens
from duckkb.engine.base import Base
from duckkb.errors import Unavailable, UsageError
from duckkb.messages import ChatRequest, ContentDelta, Finish, ReasoningDelta
from duckkb.ontology.model import RecordType
from duckkb.ports import ChatModel
from duckkb.review.provenance.citation import parse

Listener = Callable[[ContentDelta | ReasoningDelta], None]

_NEAREST = 3
_JUDGED = 10  # packed records, best first, that are judged for support
_ROOM = 1_024  # tokens reserved for the answer


class Evidence(Struct, frozen=True):
    """A pack with enough evidence on its question."""

    pack: ContextPack
    support: Support


class Answered(Struct, frozen=True):
    """A checked answer of a model from a pack. `cut` says why it stopped early; empty where it is complete."""

    pack: ContextPack
    support: Support
    text: str
    sentences: tuple[CheckedSentence, ...]
    model: str
    finish: Finish | None = None
    cut: str = ""

    @property
    def unsupported(self) -> tuple[CheckedSentence, ...]:
        """The marked sentences."""
        return tuple(sentence for sentence in self.sentences if sentence.marks)

    @property
    def cited(self) -> tuple[Entry, ...]:
        """The entries that the answer cites, in the order of their numbers."""
        numbers = {number for item in self.sentences for number in item.sentence.cites}
        return tuple(item for item in self.pack.entries if item.number in numbers)


class Declined(Struct, frozen=True):
    """The reason why there is no answer.

    Either the evidence is thin and no model was asked, or `model` found no answer in it.
    """

    pack: ContextPack
    support: Support
    model: str = ""
    finish: Finish | None = None

    @property
    def reason(self) -> str:
        if self.model:
            return f"{self.model} found no answer in {len(self.pack.entries)} entries"
        if not self.pack.entries:
            return (
                "nothing was found on the question" if not self.pack.omitted else "nothing found has room in the budget"
            )
        return "not enough evidence to answer; no model was called"

    @property
    def nearest(self) -> tuple[Entry, ...]:
        """The first entries of the pack."""
        return self.pack.entries[:_NEAREST]


def ask(
    base: Base,
    question: str,
    *,
    model: str | None = None,
    types: Sequence[str] = (),
    budget: int | None = None,
    limit: int = 20,
    listen: Listener = lambda _: None,
) -> Answered | Declined:
    """Answer a question from the base's evidence, by the chat model of this name (else the configuration's).

    `listen` gets the words as they come. Types, budget (None for the setting's) and limit are those of the
    pack. Raises as `context_pack` and `ports.ChatModel.stream`; an answer that breaks off after its first word
    is returned as far as it came.
    """
    verdict = gather_evidence(base, question, types=types, budget=budget, limit=limit)
    if isinstance(verdict, Declined):
        return verdict
    pack, support = verdict.pack, verdict.support
    chat_model = base.wiring.chat(model)
    text, finish, cut = _stream_answer(chat_model, _request(chat_model, pack), listen)
    if not cut and text.strip(' .。\n*`"') == NO_ANSWER:
        return Declined(pack, support, chat_model.settings.name, finish)
    sources = {entry.number: entry.text for entry in pack.entries}
    return Answered(pack, support, text, check_sentences(text, sources), chat_model.settings.name, finish, cut)


def gather_evidence(
    base: Base, question: str, *, types: Sequence[str] = (), budget: int | None = None, limit: int = 20
) -> Evidence | Declined:
    """Return the evidence from which `ask` would have a model answer, or why it would not; no model is asked."""
    most = base.settings.ask.budget if budget is None else budget
    pack = context_pack(base, question, types=types, budget=most, limit=limit)
    support = _measure_support(base, pack, types)
    return Declined(pack, support) if not pack.entries or support.is_thin else Evidence(pack, support)


def ask_as_object(
    base: Base,
    question: str,
    *,
    model: str | None = None,
    types: Sequence[str] = (),
    budget: int | None = None,
    limit: int = 20,
) -> dict[str, Any]:
    """Return the result of `ask` as a plain object."""
    return convert_answer_to_object(ask(base, question, model=model, types=types, budget=budget, limit=limit))


def convert_answer_to_object(found: Answered | Declined) -> dict[str, Any]:
    """Convert an answer, or a refusal, to a plain object: `refusal` is null for an answer, `answer` for a refusal."""
    if isinstance(found, Declined):
        nearest = [_describe_entry(item) for item in found.nearest]
        refusal = {"code": "E_NO_EVIDENCE", "reason": found.reason, "nearest": nearest}
        fields: dict[str, Any] = {
            "answer": None,
            "sentences": [],
            "entries": [],
            "unsupported": 0,
            "cut": None,
            "refusal": refusal,
        }
    else:
        fields = {
            "answer": found.text,
            "sentences": [_describe_sentence(item) for item in found.sentences],
            "entries": [_describe_entry(item) for item in found.cited],
            "unsupported": len(found.unsupported),
            "cut": found.cut or None,
            "refusal": None,
        }
    return {"question": found.pack.question, **fields, **_describe_run(found)}


def _describe_run(outcome: Answered | Declined) -> dict[str, Any]:
    """Return the model, pack and usage behind an answer."""
    pack, finish, usage = outcome.pack, outcome.finish, outcome.finish.usage if outcome.finish else None
    count_names = ("prompt", "completion", "total", "cached")
    return {
        "model": outcome.model or None,
        "provider": finish.provider if finish else None,
        "usage": None if usage is None else {name: getattr(usage, name) for name in count_names},
        "support": {"coverage": outcome.support.coverage, "lead": outcome.support.lead},
        "pack": {
            "commit": pack.commit,
            "uncommitted": pack.uncommitted,
            "budget": pack.budget,
            "tokens": pack.tokens,
            "counter": COUNTER,
            "fingerprint": pack.fingerprint,
            "entries": len(pack.entries),
            "omitted": len(pack.omitted),
        },
        "prompt": PROMPT,
        "fingerprint": sha256(f"{pack.fingerprint}\n{PROMPT}\n{outcome.model}".encode()).hexdigest()[:16],
        "notices": [notice_object(notice) for notice in dict.fromkeys(pack.notices)],
    }


def _measure_support(base: Base, pack: ContextPack, types: Sequence[str]) -> Support:
    packed_types: dict[tuple[str, int], RecordType] = {}
    for entry in pack.entries[:_JUDGED]:
        citation = parse(entry.uri)
        kind = find_kind(base, citation.type)
        row = base.tree.get(kind, convert_identity(base, kind, citation.identity))
        assert row is not None, "an entry is a record"
        packed_types[kind.name, row.record.id] = kind
    kinds, _ = choose_kinds(base, types)
    return evidence.support(base, kinds, pack.question, [(kind, id) for (_, id), kind in packed_types.items()])


def _request(model: ChatModel, pack: ContextPack) -> ChatRequest:
    """Build the request; raises `errors.UsageError` (E_MODEL_CANNOT) for more evidence than the model reads."""
    conversation = messages(pack)
    tokens = sum(estimate_tokens(message.content) for message in conversation)
    most = model.settings.context_tokens
    if tokens + _ROOM > most:
        raise UsageError(
            f"the question with its evidence takes {tokens} tokens, and {model.settings.name} reads {most}, the answer included",
            code="E_MODEL_CANNOT",
            suggestion=f"--budget {max(pack.budget - (tokens + _ROOM - most), 100)}",
        )
    temperature = 0.0 if model.settings.reasoning == "none" else None
    return ChatRequest(conversation, temperature=temperature)


def _stream_answer(model: ChatModel, request: ChatRequest, listen: Listener) -> tuple[str, Finish | None, str]:
    """Stream a model's answer; return its text, its end, and why it stopped early, if it did."""
    pieces: list[str] = []
    finish: Finish | None = None
    cut = ""
    try:
        for event in model.stream(request):
            if isinstance(event, ContentDelta):
                pieces.append(event.text)
            if isinstance(event, ContentDelta | ReasoningDelta):
                listen(event)
            elif isinstance(event, Finish):
                finish = event
    except Unavailable as problem:
        if not "".join(pieces).strip() or problem.code == "E_CANCELLED":
            raise
        cut = problem.message
    text = "".join(pieces)
    if not text.strip():
        message = f"{model.settings.name} answered nothing"
        raise Unavailable(message, code="E_MODEL", suggestion="duckkb ask --model NAME", details={"reason": "empty"})
    if finish is None:
        cut = cut or "nothing said that this was its end"
    elif finish.reason != "stop":
        cut = {"length": "it reached its limit of tokens", "content_filter": "a filter of its provider stopped it"}.get(
            finish.reason, "it called a tool, but no tools are available"
        )
    return text, finish, cut


def _describe_entry(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "uri": entry.uri,
        "path": entry.path,
        "line": entry.line,
        "sha256": entry.sha256,
        "score": entry.score,
    }


def _describe_sentence(sentence: CheckedSentence) -> dict[str, Any]:
    return {
        "text": sentence.sentence.text,
        "cites": list(sentence.sentence.cites),
        "marks": [{"fault": mark.fault, "part": mark.part} for mark in sentence.marks],
    }
