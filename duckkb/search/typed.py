"""The text given to `duckkb query`, read as typed questions: lines that say which lane they are for.

One line without a type, or `expand: TEXT`, is a question to be expanded. Else each line has a type: `lex:` words for the
lexical lane, `vec:` a question and `hyde:` an answer as it might stand in a text (hypothetical document embeddings, Gao et
al., ACL 2023) for the vector lane; one `intent:` may say beside them what is meant. Types are written in any case, blank lines
do not count, and what follows the first colon stays as it is.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from duckkb.errors import UsageError
from duckkb.queries import Lane, LexicalQuery
from duckkb.search import syntax

QuestionType = Literal["lex", "vec", "hyde", "expand"]
MOST_QUESTIONS = 32
"""Of one query; each is a search of its own."""

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
    """One question for one lane, or (`expand`) for both; `line` counts from 1. `words` is what a `lex` line asks for; any
    other question is read as people type."""

    type: QuestionType
    text: str
    line: int = 1
    words: LexicalQuery | None = None

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return _LANES[self.type]


class Questions(Struct, frozen=True):
    """What a caller asks, in the order of the lines; `intent` says what is meant, and is not searched for."""

    questions: tuple[Question, ...]
    intent: str = ""


def to_lines(searches: Sequence[Mapping[str, str]], intent: str = "") -> str:
    """Searches, each with its `type` and `query`, as the lines that `read` takes."""
    lines = [f"{search['type']}: {_one_line(search['query'])}" for search in searches]
    return "\n".join([*lines, *([f"intent: {_one_line(intent)}"] if intent else [])])


def _one_line(text: str) -> str:
    return _LINE_END.sub(" ", text)


def read(text: str) -> Questions:
    """Read a query; raises `errors.UsageError` (E_QUERY) that names the first line that is wrong.

    >>> [(one.type, one.text) for one in read("LEX: hash ids\\n\\nvec: how are ids: made").questions]
    [('lex', 'hash ids'), ('vec', 'how are ids: made')]
    """
    lines = [(number, line.strip()) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip()]
    if not lines:
        raise _refusal(1, "there is nothing to look for", 'duckkb query "a question"')
    if len(lines) > MOST_QUESTIONS + 1:
        said = f"there are more than {MOST_QUESTIONS} questions"
        raise _refusal(lines[MOST_QUESTIONS][0], said, "ask them in several queries")
    typed = [(number, *_taken_apart(line)) for number, line in lines]
    if len(typed) == 1 and typed[0][1] in ("", "expand"):
        number, _, question = typed[0]
        return Questions((Question("expand", _said(question, number, "expand"), number),))
    intent, questions = "", []
    for number, kind, said in typed:
        match kind:
            case "intent" if intent:
                raise _refusal(number, "a second `intent:`", "say what is meant in one line")
            case "intent":
                intent = _said(said, number, kind)
            case "lex" | "vec" | "hyde":
                questions.append(_question(kind, _said(said, number, kind), number))
            case "expand":
                raise _refusal(number, "`expand:` stands alone", "leave the other lines out, or give it a type")
            case _:
                remedy = "begin each line with lex:, vec: or hyde:, or ask one line alone"
                raise _refusal(number, "a line without a type among others", remedy)
    if not questions:
        raise _refusal(lines[0][0], "`intent:` alone asks for nothing", "add a line with lex:, vec: or hyde:")
    return Questions(tuple(questions), intent)


def lexical(text: str, line: int = 1) -> LexicalQuery:
    """What a `lex` question asks for: every word, with an open end, and every "phrase", without -word and -"phrase". Words
    with a hyphen inside are phrases. Raises `errors.UsageError` (E_QUERY) for more than one line, a quote that is not closed,
    and exclusions alone.

    >>> lexical('hash "on disk" gpt-4 -random')
    LexicalQuery(text='hash', phrases=('on disk', 'gpt-4'), excluded=('random',), prefixes=('hash',), every=True, exact=False)
    """
    if _LINE_END.search(text):
        raise _refusal(line, "a `lex` question is one line", "ask one line, or begin each with its type")
    if text.count('"') % 2:
        raise _refusal(line, "a quote is not closed", 'close it: "a phrase"')
    words: list[str] = []
    phrases: list[str] = []
    excluded: list[str] = []
    for piece in _LEX_PIECE.finditer(text):
        found = (piece["word"] or piece["phrase"] or "").strip()
        if not _is_sayable(found):
            continue
        is_phrase = piece["word"] is None or _HYPHENATED.search(found)
        (excluded if piece["minus"] else phrases if is_phrase else words).append(found)
    if not words and not phrases:
        said = "only exclusions" if excluded else "there is no word to look for"
        raise _refusal(line, said, "add a word that has to be there")
    return LexicalQuery(" ".join(words), tuple(phrases), tuple(excluded), tuple(words), every=True)


def _taken_apart(line: str) -> tuple[str, str]:
    """The type of a line, empty without one, and its text."""
    found = _TYPED.fullmatch(line)
    return (found["type"].lower(), found["text"].strip()) if found else ("", line)


def _said(text: str, line: int, kind: str) -> str:
    if not text:
        raise _refusal(line, f"`{kind}:` without a text", f"`{kind}: what you look for`, or leave the line out")
    return text


def _question(kind: Literal["lex", "vec", "hyde"], text: str, line: int) -> Question:
    if kind == "lex":
        return Question(kind, text, line, lexical(text, line))
    if excluded := next(_exclusions(text), None):
        raise _refusal(line, f"`{kind}:` cannot exclude: -{excluded}", f"put -{excluded} in a `lex:` line")
    return Question(kind, text, line)


def _exclusions(text: str) -> Iterator[str]:
    """What a text excludes as the lexical lane reads any question: `multi-agent`, `-1.5` and `-v` exclude nothing."""
    yield from syntax.parse(text).excluded


def _is_sayable(text: str) -> bool:
    """Whether something of it is a token; punctuation alone is none."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in text)


def _refusal(line: int, message: str, remedy: str) -> UsageError:
    return UsageError(f"line {line} of the query: {message}", "E_QUERY", remedy, {"line": line})
