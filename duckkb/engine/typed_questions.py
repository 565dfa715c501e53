"""The text of `duckkb query`, parsed into typed questions: each line names its lane.

A single line without a type, or `expand: TEXT`, is a question to be expanded. Else each line has a type. `lex:`
holds words for the lexical lane. `vec:` (a question) and `hyde:` (an answer as a text might have it:
hypothetical document embeddings, Gao et al., ACL 2023) are for the vector lane. One `intent:` may add what is
meant. Types are in any case, blank lines do not count, and the text after the first colon stays as it is.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from duckkb.engine import rank_fusion
from duckkb.types.errors import UsageError
from duckkb.types.queries import Lane, LexicalQuery

QuestionType = Literal["lex", "vec", "hyde", "expand"]
MOST_QUESTIONS = 32
"""The most questions of a query; each is a search of its own."""

_LANES: Mapping[QuestionType, tuple[Lane, ...]] = {
    "lex": ("fts",),
    "vec": ("vector",),
    "hyde": ("vector",),
    "expand": ("fts", "vector"),
}
_LINE_END = re.compile(r"\r\n|\r|\n")
_TYPED = re.compile(r"(?P<type>lex|vec|hyde|expand|intent):(?P<text>.*)", re.IGNORECASE | re.DOTALL)
_LEX_PIECE = re.compile(r'(?P<minus>(?<!\S)-(?=[^\s-]))?(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
_HYPHENATED = re.compile(r"[^\W_]-[^\W_]")


class Question(Struct, frozen=True):
    """A question for one lane, or (`expand`) for both; `line` counts from 1.

    `words` is the query of a `lex` line; other questions are parsed as people type.
    """

    type: QuestionType
    text: str
    line: int = 1
    words: LexicalQuery | None = None

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return _LANES[self.type]


class Questions(Struct, frozen=True):
    """The questions of a caller, in the order of the lines; `intent` says what is meant, and is not searched for."""

    questions: tuple[Question, ...]
    intent: str = ""


def to_lines(searches: Sequence[Mapping[str, str]], intent: str = "") -> str:
    """Format searches, each with its `type` and `query`, as the lines that `read` parses."""
    lines = [f"{search['type']}: {_join_lines(search['query'])}" for search in searches]
    return "\n".join([*lines, *([f"intent: {_join_lines(intent)}"] if intent else [])])


def _join_lines(text: str) -> str:
    return _LINE_END.sub(" ", text)


def read(text: str) -> Questions:
    r"""Parse a query; raises `errors.UsageError` (E_QUERY) that names the first wrong line.

    >>> [(question.type, question.text) for question in read("LEX: hash ids\n\nvec: how are ids: made").questions]
    [('lex', 'hash ids'), ('vec', 'how are ids: made')]
    """
    lines = [(number, line.strip()) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip()]
    if not lines:
        raise _build_refusal(1, "the question is empty", 'duckkb query "a question"')
    if len(lines) > MOST_QUESTIONS + 1:
        wording = f"more than {MOST_QUESTIONS} questions"
        raise _build_refusal(lines[MOST_QUESTIONS][0], wording, "ask them in several queries")
    entries = [(number, *_split_type(line)) for number, line in lines]
    if len(entries) == 1 and entries[0][1] in ("", "expand"):
        number, _, question = entries[0]
        return Questions((Question("expand", _require_text(question, number, "expand"), number),))
    intent, questions = "", []
    for number, kind, wording in entries:
        match kind:
            case "intent" if intent:
                raise _build_refusal(number, "a second `intent:`", "write the intent in one line")
            case "intent":
                intent = _require_text(wording, number, kind)
            case "lex" | "vec" | "hyde":
                questions.append(_parse_question(kind, _require_text(wording, number, kind), number))
            case "expand":
                raise _build_refusal(
                    number, "`expand:` must be the only line", "leave the other lines out, or give it a type"
                )
            case _:
                remedy = "begin each line with lex:, vec: or hyde:, or ask one line alone"
                raise _build_refusal(number, "a line without a type among others", remedy)
    if not questions:
        raise _build_refusal(lines[0][0], "`intent:` alone asks for nothing", "add a line with lex:, vec: or hyde:")
    return Questions(tuple(questions), intent)


def lexical(text: str, line: int = 1) -> LexicalQuery:
    """Parse a `lex` question: every word, with an open end, and every "phrase", without -word and -"phrase".

    Words with a hyphen inside are phrases. Raises `errors.UsageError` (E_QUERY) for more than one line, an
    unclosed quote, and exclusions alone.

    >>> lexical('hash "on disk" gpt-4 -random')
    LexicalQuery(text='hash', phrases=('on disk', 'gpt-4'), excluded=('random',), prefixes=('hash',), every=True, exact=False)
    """
    if _LINE_END.search(text):
        raise _build_refusal(line, "a `lex` question is one line", "ask one line, or begin each with its type")
    if text.count('"') % 2:
        raise _build_refusal(line, "a quote is not closed", 'close it: "a phrase"')
    words: list[str] = []
    phrases: list[str] = []
    exclusions: list[str] = []
    for piece in _LEX_PIECE.finditer(text):
        term = (piece["word"] or piece["phrase"] or "").strip()
        if not _is_sayable(term):
            continue
        is_phrase = piece["word"] is None or _HYPHENATED.search(term)
        (exclusions if piece["minus"] else phrases if is_phrase else words).append(term)
    if not words and not phrases:
        message = "only exclusions" if exclusions else "it has no word to search for"
        raise _build_refusal(line, message, "add a word that has to be there")
    return LexicalQuery(" ".join(words), tuple(phrases), tuple(exclusions), tuple(words), every=True)


def _split_type(line: str) -> tuple[str, str]:
    """Return the type of a line, empty without one, and its text."""
    match = _TYPED.fullmatch(line)
    return (match["type"].lower(), match["text"].strip()) if match else ("", line)


def _require_text(text: str, line: int, kind: str) -> str:
    if not text:
        raise _build_refusal(line, f"`{kind}:` without a text", f"`{kind}: what you look for`, or leave the line out")
    return text


def _parse_question(kind: Literal["lex", "vec", "hyde"], text: str, line: int) -> Question:
    if kind == "lex":
        return Question(kind, text, line, lexical(text, line))
    if exclusion := next(_iter_exclusions(text), None):
        raise _build_refusal(line, f"`{kind}:` cannot exclude: -{exclusion}", f"put -{exclusion} in a `lex:` line")
    return Question(kind, text, line)


def _iter_exclusions(text: str) -> Iterator[str]:
    """Yield what a text excludes, as in any question: `multi-agent`, `-1.5` and `-v` exclude nothing."""
    yield from rank_fusion.parse(text).excluded


def _is_sayable(text: str) -> bool:
    """Return whether a text has any token; punctuation alone has none."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in text)


def _build_refusal(line: int, message: str, remedy: str) -> UsageError:
    return UsageError(f"line {line} of the query: {message}", "E_QUERY", remedy, {"line": line})
