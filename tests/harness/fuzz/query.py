"""Fuzzing of queries: the syntax against a reader written by hand, and the whole lexical lane over a small real index."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from duckkb.app.retrievers import MemoryRows
from duckkb.engine.rank_fusion import drop_exclusions, parse, plain
from duckkb.index.text_chunks import chunk
from duckkb.index.tokens import JiebaTokenizer, PlainTokenizer
from duckkb.index.word_index import Lexical
from duckkb.ontology.model import NodeType, SearchField
from duckkb.ports import Row, Tokenizer
from duckkb.types.queries import LexicalQuery
from duckkb.types.records import IndexEntry, Record
from tests.harness.fuzz.mutate import ODD_CHARACTERS, Mutator

KIND = NodeType(
    "Note", "note", ("id",), {}, full_text=(SearchField("title", 2.0), SearchField("text"), SearchField("german", 1.5, "german"))
)  # fmt: skip
WORDS = (
    *("ranking", "ranked", "lists", "fusion", "text-embedding-3-small", "v2.0.1", "c++", "c#", "e_dup_id", "don't", "2024-05", "-v", "-1.5", "--force"),
    *("caf\u00e9", "Stra\u00dfe", "na\u00efve", "\u5185\u5b58", "\u6570\u636e\u5e93", "\u5185\u5b58\u6570\u636e\u5e93", "DuckDB\u5185\u5b58", "\u30c7\u30fc\u30bf"),
    *("\ud55c\uad6d\uc5b4", "\u0e44\u0e17\u0e22", "\u0639\u0631\u0628\u064a", "\u05e2\u05d1\u05e8\u05d9\u05ea", "\U0001f9ea", "\U0001f1e8\U0001f1ed", "a", "i", "\uff11\uff12\uff13", "x" * 300),
    *ODD_CHARACTERS,
)  # fmt: skip
TOKENS = tuple(
    token.encode("utf-8")
    for token in ('"', '""', '" "', "-", "--", "*", "**", " -", '-"', '*"', " ", "\t", "\u3000", "\u00a0", "\u200b", "(", ")",
                  ":", "NEAR", "AND", "OR", "NOT", "title:", "^2", "~", "\\", "+", ".*", "[a TO b]", "/a.*/", ".", "..",
                  "'s", "_", "'", "\u2019", "\u201c", "\u201d", "\u2011", "\u0301", *WORDS)
)  # fmt: skip


class SyntaxTarget:
    """Queries to their parser (`read`), to the tokenizers and, as texts, to the chunker."""

    name = "query syntax"
    modules = ("duckkb/engine/rank_fusion.py", "duckkb/index/text_chunks.py", "duckkb/index/tokens.py")

    def __init__(self, read: Callable[[str], LexicalQuery] = parse) -> None:
        self._read = read
        self._tokenizers = (JiebaTokenizer(), PlainTokenizer("simplified"))

    def inputs(self, chance: Random) -> Iterator[str]:
        return queries(chance)

    def check(self, value: str) -> bool:
        read = self._read(value)
        assert read == read_by_hand(value), (read, read_by_hand(value))
        has_operators = bool(read.phrases or read.excluded or read.prefixes)
        assert drop_exclusions(value) == (wanted_by_hand(value) if read.excluded else value), drop_exclusions(value)
        assert plain(value).split() == plain_by_hand(value), plain(value)
        assert self._read(plain(value)) == LexicalQuery(" ".join(plain_by_hand(value))), plain(value)
        _check_chunks(value)
        made = [tokenizer.tokenize([value])[0] for tokenizer in self._tokenizers]
        for tokens in made:
            assert all(tokens.words.split(" ")) or not tokens.words, tokens
            assert not any(sign.isspace() and sign != " " for sign in tokens.words + tokens.sequence), tokens
            assert max(map(len, tokens.words.split(" "))) <= 255, tokens
        return has_operators and bool(made[0].words)


class LaneTarget:
    """Queries to an index of some fifty records in many scripts, with and without a filter, at several depths."""

    name = "lexical lane"
    modules = (
        "duckkb/index/word_index.py", "duckkb/index/word_fields.py", "duckkb/index/word_query.py",
        "duckkb/index/word_fields.py",
    )  # fmt: skip

    def __init__(self) -> None:
        chance = Random("records")
        self.lanes = tuple(
            _lane(records(chance, 50), tokenizer, language)
            for tokenizer, language in (
                (JiebaTokenizer("simplified"), "english"),
                (JiebaTokenizer("simplified", forms="all"), "english"),
                (PlainTokenizer(), "none"),
                (PlainTokenizer(forms="all"), "none"),
            )
        )
        self._checked = 0

    def inputs(self, chance: Random) -> Iterator[str]:
        return queries(chance)

    def check(self, value: str) -> bool:
        self._checked += 1
        lane = self.lanes[self._checked // 4 % len(self.lanes)]  # each lane at each depth
        if self._checked % 7 == 0:
            self._store(lane, value)
        return check_lane(lane, parse(value), self._checked)

    def _store(self, lane: Any, text: str) -> None:
        """A query's text as that of a record: what is asked for must then be found there."""
        record_id = 1 + self._checked % 20
        texts = {"title": text, "text": text[::-1]}
        lane.rows.change({record_id: _row(record_id, f"n{record_id:03}", texts, lane.tokenizer, 50_000)})
        (tokens,) = lane.tokenizer.tokenize([text])
        for word in tokens.words.split(" ")[:3]:
            hits = lane.lexical.ask(LexicalQuery(word), 1_000)
            assert not word or record_id in {hit.id for hit in hits}, (word, record_id)
        phrase = lane.lexical.ask(LexicalQuery(phrases=(text,)), 1_000)
        assert not tokens.sequence or record_id in {hit.id for hit in phrase}, (text, record_id)


def queries(chance: Random) -> Iterator[str]:
    mutator = Mutator(chance, TOKENS)
    pool = [query(chance).encode() for _ in range(100)]
    while True:
        pool[chance.randrange(len(pool))] = query(chance).encode()
        for _ in range(10):
            made = mutator.mutate(chance.choice(pool), chance.choice(pool))
            yield made.decode("utf-8", chance.choice(("replace", "surrogateescape", "ignore")))


def query(chance: Random) -> str:
    """A query as people type it."""
    return " ".join(_piece(chance) for _ in range(chance.randint(1, 5)))


def _piece(chance: Random) -> str:
    word = chance.choice(WORDS)
    match chance.randrange(9):
        case 0:
            return f'"{word} {chance.choice(WORDS)}"'
        case 1:
            return f"-{word}"
        case 2:
            return f"{word[: chance.randint(1, 4)]}*"
        case 3:
            return f'-"{word} {chance.choice(WORDS)}"'
        case _:
            return word


def records(chance: Random, number: int) -> dict[int, tuple[str, dict[str, str]]]:
    """Identity and texts by id."""
    made = {}
    for record_id in range(1, number + 1):
        texts = {
            name: " ".join(chance.choices(WORDS, k=chance.choice((0, 3, 12, 60))))
            for name in ("title", "text", "german")
        }
        made[record_id] = (f"n{record_id:03}", texts)
    return made


def _lane(held: dict[int, tuple[str, dict[str, str]]], tokenizer: Tokenizer, language: str) -> Any:
    rows = MemoryRows(_row(record_id, name, texts, tokenizer) for record_id, (name, texts) in held.items())
    return SimpleNamespace(lexical=Lexical(KIND, rows, tokenizer, language), rows=rows, tokenizer=tokenizer)


def _row(record_id: int, name: str, texts: dict[str, str], tokenizer: Tokenizer, size: int = 120) -> Row:
    pieces = [(field, piece) for field, text in texts.items() for piece in chunk(text, size)]
    tokens = tokenizer.tokenize([piece.text for _, piece in pieces])
    entries = tuple(
        IndexEntry(field, piece.seq, piece.text, made) for (field, piece), made in zip(pieces, tokens, strict=True)
    )
    return Row(Record("Note", record_id, (name,), {}, "", ""), entries)


def check_lane(lane: Any, read: LexicalQuery, turn: int) -> bool:
    """The lane's laws; returns whether the query asks for anything at all."""
    depth = (1, 3, 10, 1_000)[turn % 4]
    allowed = None if turn % 3 else frozenset(range(1, 50, 1 + turn % 5))
    hits = lane.lexical.ask(read, depth, allowed)
    found = [hit.id for hit in hits]
    assert len(set(found)) == len(found) <= depth and set(found) <= (allowed or set(lane.rows)), hits
    assert all(math.isfinite(hit.score) and hit.score >= 0 for hit in hits), hits
    assert all(one.score >= other.score - 1e-5 for one, other in pairwise(hits)), hits
    assert all(
        lane.lexical.chunk(read, hit.id) in {(e.field, e.seq) for e in lane.rows[hit.id].entries} or not hit.score
        for hit in hits
    )
    out = lane.lexical.find_excluded_ids(read)
    assert out.isdisjoint(found), (out, found)
    if turn % 5 == 0:
        whole = lane.lexical.ask(read, 1_000, allowed)
        assert found == [hit.id for hit in whole][:depth], (found, whole)
        begun = replace(read, prefixes=(read.text, *read.prefixes))
        some, every = (lane.lexical.ask(replace(begun, every=every), 1_000, allowed) for every in (False, True))
        assert {hit.id for hit in every} <= {hit.id for hit in some}, (every, some)
    for hit in hits[turn % 3 : turn % 3 + 1]:
        told = lane.lexical.explain(read, hit.id)
        assert math.isclose(told["score"], hit.score, rel_tol=1e-4, abs_tol=1e-4), (told, hit)
        assert math.isclose(sum(term["score"] for term in told["terms"]), told["score"], rel_tol=1e-3, abs_tol=1e-3), (
            told
        )
        check_shown_chunk(lane, read, hit.id)
    return bool(hits or out)


def check_shown_chunk(lane: Any, read: LexicalQuery, record_id: int) -> None:
    """The chunk of a field that is shown is one that holds the most of the query, and no record covers more than all of it."""
    entries = [entry for entry in lane.rows[record_id].entries if entry.field == "text"]
    weights = lane.lexical.weights(read, "text", [entry.content for entry in entries])
    _, shown = lane.lexical.chunk(read, record_id, field="text")
    assert not weights or weights[[entry.seq for entry in entries].index(shown)] == max(weights), (weights, shown)
    assert 0 <= (lane.lexical.coverage(read, record_id) or 0) <= 1 + 1e-9


def _check_chunks(text: str) -> None:
    for size in (1, 7, 100):
        made = chunk(text, size)
        assert "".join(one.text for one in made) == text, made
        assert all(0 < len(one.text) <= size for one in made), made
        assert [one.seq for one in made] == list(range(len(made))), made


def read_by_hand(text: str) -> LexicalQuery:
    """The query syntax, read one character after the other."""
    words: list[str] = []
    found: dict[str, list[str]] = {"phrase": [], "excluded": [], "prefix": []}
    for kind, piece, _ in _pieces_by_hand(text):
        if kind == "word":
            words.append(piece)
        elif kind != "sign" and piece.strip():
            found[kind].append(piece.strip())
    return LexicalQuery(" ".join(words), *(tuple(found[kind]) for kind in ("phrase", "excluded", "prefix")))


def wanted_by_hand(text: str) -> str:
    return " ".join(typed for kind, _, typed in _pieces_by_hand(text) if kind != "excluded")


def plain_by_hand(text: str) -> list[str]:
    """The words without quotes, without dashes and asterisks before them and asterisks behind them."""
    words = (word.lstrip("-*").rstrip("*") for word in text.replace('"', " ").split())
    return [word for word in words if word]


def _pieces_by_hand(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, what is meant and what was typed of every piece; a "sign" means nothing."""
    at, size = 0, len(text)
    while at < size:
        if text[at].isspace():
            at += 1
            continue
        starts = at == 0 or text[at - 1].isspace()
        minus = starts and text[at] == "-"
        body = at + minus
        if body < size and text[body] == '"' and '"' in text[body + 1 :]:
            end = text.index('"', body + 1)
            yield ("excluded" if minus else "phrase"), text[body + 1 : end], text[at : end + 1]
            at = end + 1
            continue
        if text[at] == '"':
            yield "sign", "", '"'
            at += 1
            continue
        end = next((place for place in range(at, size) if text[place].isspace() or text[place] == '"'), size)
        piece, at = text[at:end], end
        closed = end == size or text[end].isspace()
        if minus and _excludes(piece[1:]):
            yield "excluded", piece[1:], piece
        elif piece.endswith("*") and closed and "*" not in piece.rstrip("*") and piece.rstrip("*"):
            yield "prefix", piece.rstrip("*"), piece
        else:
            yield ("sign" if piece in ("*", "-") else "word"), piece, piece


def _excludes(word: str) -> bool:
    """Whether a dash before this excludes it: it makes a flag of a letter and of another dash, an amount of a number."""
    is_letter = len(word) == 1 and word.isascii() and word.isalpha()
    return not (word.startswith("-") or is_letter or set(word) <= set("0123456789.,"))
