"""The plan of a find, a pure function of the intent, the types' search fields and policies, and the base's models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from duckkb.errors import UsageError, shell_word
from duckkb.ontology.model import RecordType, settings_of
from duckkb.queries import Lane, Mode, Notice, Plan
from duckkb.settings import NO_MODEL, Expansion, Fusion, Settings

if TYPE_CHECKING:
    import numpy as np

RECALL_DEPTH = 50
RECALL_FACTOR = 5
_FLAGS: dict[Mode, str] = {"similar": "-s", "match": "-m", "hybrid": "-H", "where": "-w"}


class Intent(Struct, frozen=True):
    """What a caller wants, and of which types.

    `vector` is a question given as a vector (1-d, float32 after checking). `fusion` and `expansion` override
    the policy's. `exact` asks for scores by words that depend on the records alone (`LexicalQuery`).
    """

    text: str | None = None
    mode: Mode | None = None
    where: str | None = None
    limit: int = 10
    vector: "np.ndarray | Sequence[float] | None" = None
    fusion: Fusion | None = None
    expansion: Expansion | None = None
    explain: bool = False
    exact: bool = False
    kinds: tuple[RecordType, ...] = ()

    @property
    def has_text(self) -> bool:
        return bool(self.text and self.text.strip())


def plan(ask: Intent, records: int, base: Settings) -> Plan:
    """Plan an intent over types that hold `records` records; a limit above that number is lowered to it.

    Raises `errors.UsageError` (E_USAGE, E_INTENT) for what cannot be served.
    """
    kinds = ask.kinds
    if ask.limit <= 0:
        raise UsageError(f"limit must be 1 or more, not {ask.limit}", suggestion="leave --limit out for the first 10")
    limit = min(ask.limit, max(records, 1))
    if not ask.has_text and ask.vector is None:
        return _filter_only(ask, limit)
    mode = ask.mode or _default_mode(ask, has_model=base.embedding.model != NO_MODEL)
    mode, notices = _resolve_mode(mode, ask)
    lanes = _choose_lanes(mode, ask)
    depth = limit if len(lanes) < 2 else max(RECALL_DEPTH, RECALL_FACTOR * limit)
    settings = settings_of([kind.policy for kind in kinds], base)
    fusion, expansion = ask.fusion or settings.fusion, ask.expansion or settings.expansion
    if ask.vector is not None or "vector" not in lanes:
        expansion = Expansion("none")  # a given vector is asked unchanged
    return Plan(mode, lanes, limit, depth, fusion, expansion, notices)


def servable(kinds: Sequence[RecordType], mode: Mode | None) -> list[RecordType]:
    """Return the types of `find all` that can serve a mode; None means any search at all."""
    return [kind for kind in kinds if mode == "where" or _can(kind, mode)]


def _can(kind: RecordType, mode: Mode | None) -> bool:
    match mode:
        case "similar":
            return kind.has_text_vectors
        case "match":
            return bool(kind.full_text)
        case _:
            return bool(kind.has_text_vectors or kind.full_text)


def _filter_only(ask: Intent, limit: int) -> Plan:
    kinds = ask.kinds
    if ask.mode not in (None, "where"):
        _resolve_mode(ask.mode, ask)  # refuses types without this lane before a missing text
        name, flag = kinds[0].name if len(kinds) == 1 else "all", _FLAGS[ask.mode]
        command = f'duckkb find {name} "what you look for" {flag}'
        if ask.where is not None:  # a filter alone has no mode
            command = f"duckkb find {name} -w {shell_word(ask.where)}"
        raise UsageError(f"{flag} needs a query text", suggestion=command)
    if ask.where is None:
        raise _build_empty_refusal(kinds)
    return Plan("where", (), limit, limit)


def _build_empty_refusal(kinds: Sequence[RecordType]) -> UsageError:
    """Return the refusal of an empty question, which says what these types can be asked."""
    name, by_filter = kinds[0].name if len(kinds) == 1 else "all", "-w \"FIELD = 'value'\""
    if any(kind.has_text_vectors or kind.full_text for kind in kinds):
        return UsageError("give a query, a filter, or both", suggestion=f'duckkb find {name} "a question"')
    if any(kind.vectors for kind in kinds):
        return UsageError(
            "give a vector, a filter, or both", suggestion=f"duckkb find {name} --vector FILE {by_filter}"
        )
    return UsageError("give a filter", suggestion=f"duckkb find {name} {by_filter}")


def _default_mode(ask: Intent, *, has_model: bool) -> Mode:
    kinds = ask.kinds
    if ask.vector is not None:
        return "hybrid" if ask.has_text else "similar"
    intents = {kind.policy.default_intent for kind in kinds if kind.policy and kind.policy.default_intent}
    if len(intents) == 1:
        return intents.pop()
    vectors = has_model and any(kind.has_text_vectors for kind in kinds)
    words = any(kind.full_text for kind in kinds)
    return "hybrid" if vectors and words else "similar" if vectors else "match"


def _resolve_mode(mode: Mode, ask: Intent) -> tuple[Mode, tuple[Notice, ...]]:
    """Return the mode that these types can serve; raises `errors.UsageError` for others.

    Hybrid narrows to the only lane there is, with a notice.
    """
    kinds, has_vector = ask.kinds, ask.vector is not None
    names = ", ".join(kind.name for kind in kinds)
    words = any(kind.full_text for kind in kinds)
    vectors = any(kind.vectors if has_vector else kind.has_text_vectors for kind in kinds)
    if not words and not vectors:
        raise _build_lane_refusal(mode, kinds, names)
    if mode == "where":
        raise UsageError(
            "where takes a filter and no query text", suggestion="leave the query out, or choose -m, -s or -H"
        )
    if mode == "hybrid" and not (words and vectors):
        mode = "match" if words else "similar"
        notice = Notice(
            "W_MODE", f"{names} has no {'vectors' if words else 'full_text'} fields: ran {mode}", _FLAGS[mode]
        )
        return _check_mode(mode, kinds), (notice,)
    if mode == "similar" and not vectors:
        raise _build_intent_refusal(
            kinds, mode, f"{names} has no vectors fields", f'use -m: duckkb find {names} "..." -m'
        )
    if mode == "match" and not words:
        raise _build_intent_refusal(
            kinds, mode, f"{names} has no full_text fields", f'use -s: duckkb find {names} "..." -s'
        )
    if mode == "match" and has_vector:
        raise UsageError("match takes words, not a vector", suggestion="choose -s, or -H with both")
    return _check_mode(mode, kinds), ()


def _build_lane_refusal(mode: Mode, kinds: Sequence[RecordType], names: str) -> UsageError:
    """Return the refusal of a question where there are no search fields, or only vectors that callers give."""
    if any(kind.vectors for kind in kinds):
        remedy = f"duckkb find {names} --vector FILE"
        message = f"{names} compares vectors that callers give; give a vector instead of a text"
    else:
        remedy, message = "use --where, or add `search` to the type in the ontology", f"{names} has no search fields"
    return _build_intent_refusal(kinds, "similar" if mode == "where" else mode, message, remedy)


def _check_mode(mode: Mode, kinds: Sequence[RecordType]) -> Mode:
    for kind in kinds:
        intents = kind.policy.intents if kind.policy else None
        if intents is not None and mode not in intents:
            message = f"{kind.name} does not allow {mode}"
            raise _build_intent_refusal([kind], mode, message, f"its policy allows: {', '.join(intents)}")
    return mode


def _choose_lanes(mode: Mode, ask: Intent) -> tuple[Lane, ...]:
    if mode == "hybrid":
        return ("vector", "fts") if ask.has_text else ("vector",)
    return ("vector",) if mode == "similar" else ("fts",)


def _build_intent_refusal(kinds: Sequence[RecordType], mode: Mode, message: str, suggestion: str) -> UsageError:
    """Return a refusal with the policy's suggestion where it has one, else with `suggestion`."""
    hints = (kind.policy.refuse.get(mode) for kind in kinds if kind.policy)
    return UsageError(message, code="E_INTENT", suggestion=next(filter(None, hints), suggestion))
