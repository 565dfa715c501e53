"""Typed questions: what is read of a text, what is refused with the line that is wrong, and what `lex` finds."""

import random
import re
from typing import Any

import pytest

from duckkb.app.retrievers import MemoryRows
from duckkb.engine.typed_questions import lexical, read
from duckkb.index.tokens import JiebaTokenizer
from duckkb.index.word_index import Lexical
from duckkb.ontology.model import NodeType, SearchField
from duckkb.ports import Row
from duckkb.types.errors import UsageError
from duckkb.types.queries import LexicalQuery
from duckkb.types.records import IndexEntry, Record

READ = {
    "how are ids made": [("expand", "how are ids made", 1)],
    "\n  Expand:  a: b \n": [("expand", "a: b", 2)],
    "note: see C:\\x": [("expand", "note: see C:\\x", 1)],
    "LEX: hash ids\r\n\r\nVec: why: so\nhyde: Ids are hashes.\nlex: 内存": [
        ("lex", "hash ids", 1),
        ("vec", "why: so", 3),
        ("hyde", "Ids are hashes.", 4),
        ("lex", "内存", 5),
    ],
    "lex: lex: twice\nintent: storage": [("lex", "lex: twice", 1)],
    "vec: multi-agent gpt-4 at -1.5 - x --force": [("vec", "multi-agent gpt-4 at -1.5 - x --force", 1)],
}


@pytest.mark.parametrize("text", READ)
def test_what_is_read_of_a_query(text: str) -> None:
    found = read(text)
    assert [(one.type, one.text, one.line) for one in found.questions] == READ[text]
    assert found.intent == ("storage" if "intent" in text else "")
    assert all((one.words is not None) is (one.type == "lex") for one in found.questions)


REFUSED = {
    "": 1,
    " \n\n": 1,
    "lex: a\n\nplain": 3,
    "plain\nlex: a": 1,
    "plain\nother": 1,
    "lex: a\nexpand: b": 2,
    "expand: a\nintent: b": 1,
    "expand:": 1,
    "lex: a\nvec:  \nhyde: c": 2,
    "intent: alone": 1,
    "\nintent:": 2,
    "intent: a\nintent: b\nlex: c": 2,
    'vec: a\nlex: -only -"these two"': 2,
    "lex: ? -only": 1,
    'lex: ""': 1,
    'vec: a\nlex: an "open quote': 2,
    "lex: a\nvec: cats -dogs": 2,
    'hyde: cats -"big dogs"': 1,
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_names_the_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    problem = caught.value
    assert (problem.code, problem.exit_code, problem.details["line"]) == ("E_QUERY", 2, REFUSED[text])
    assert f"line {REFUSED[text]} " in problem.message and problem.suggestion


@pytest.mark.parametrize("text", ["one\ntwo", "one\rtwo"])
def test_a_lex_question_is_one_line(text: str) -> None:
    with pytest.raises(UsageError):
        lexical(text)


LEX: dict[str, tuple[Any, ...]] = {
    "hash ids": ("hash ids", (), ()),
    'multi-agent DEC-0054 gpt-4 "on disk" plan': ("plan", ("multi-agent", "DEC-0054", "gpt-4", "on disk"), ()),
    'a -b -"c d" -multi-agent': ("a", (), ("b", "c d", "multi-agent")),
    '内存 -磁盘 -"数据 文件"': ("内存", (), ("磁盘", "数据 文件")),
    "ls --force - x": ("ls --force x", (), ()),
    'x"y z"w': ("x w", ("y z",), ()),
}


@pytest.mark.parametrize("text", LEX)
def test_what_a_lex_question_asks_for(text: str) -> None:
    words, phrases, excluded = LEX[text]
    assert lexical(text) == LexicalQuery(words, phrases, excluded, tuple(words.split()), every=True)


ENGLISH = ["snow", "snowing", "snowball", "storm", "store", "cat", "catalogue", "data", "database", "data-base"]
CHINESE = ["内存", "数据库", "配置", "连接", "缓存", "文件"]
PLAIN = NodeType("Doc", "doc", ("id",), {}, full_text=(SearchField("body", language="none"),))
TOKENIZER = JiebaTokenizer()


def searched(bodies: list[str]) -> Lexical:
    made = TOKENIZER.tokenize(bodies)
    rows = (
        Row(Record("Doc", number, (number,), {}, "", ""), (IndexEntry("body", 0, body, tokens),))
        for number, (body, tokens) in enumerate(zip(bodies, made, strict=True))
    )
    return Lexical(PLAIN, MemoryRows(rows), TOKENIZER, "none")


def units(text: str) -> list[str]:
    return re.findall("[a-z]+|[\u4e00-\u9fff]", text)


def stands_in(text: str, asked: str) -> bool:
    """Whether the words, or characters, of `asked` stand in the text in a row."""
    row, wanted = units(text), units(asked)
    return any(row[at : at + len(wanted)] == wanted for at in range(len(row)))


def fits(text: str, words: list[str], phrases: list[str], excluded: list[str]) -> bool:
    def has(word: str) -> bool:
        if word.isascii():
            return any(unit.startswith(word) for unit in units(text))
        return all(stands_in(text, part) for part in re.split("(?=配置)|(?<=配置)", word))

    held = all(has(word) for word in words) and all(stands_in(text, phrase) for phrase in phrases)
    return held and not any(stands_in(text, one) for one in excluded)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_lex_finds_what_has_every_word_and_phrase_and_nothing_excluded(seed: int) -> None:
    draw = random.Random(seed)
    bodies = [
        " ".join(draw.choices(ENGLISH, k=draw.randint(1, 6)))
        + "，"
        + "".join(draw.choices(CHINESE, k=draw.randint(0, 4)))
        for _ in range(150)
    ]
    lane, found_some = searched(bodies), 0
    for _ in range(60):
        words = draw.sample(["sno", "snow", "cat", "data", "stor", "base", *CHINESE, "配置数据库"], draw.randint(0, 2))
        phrases = draw.sample(["cat snow", "data-base", "内存缓存", "snow store", "库连"], 0 if words else 1)
        excluded = draw.sample(["storm", "catalogue", "文件", "cat data", "缓存配置"], draw.randint(0, 2))
        said = [one if "-" in one else f'"{one}"' for one in phrases]
        text = " ".join([*words, *said, *(f'-"{one}"' if " " in one else f"-{one}" for one in excluded)])
        hits = lane.ask(lexical(text), len(bodies))
        expected = {number for number, body in enumerate(bodies) if fits(body, words, phrases, excluded)}
        assert {hit.id for hit in hits} == expected, text
        found_some += bool(expected)
        for hit in hits[:3]:
            terms = lane.explain(lexical(text), hit.id)["terms"]
            assert sum(term["score"] for term in terms) == pytest.approx(hit.score, abs=1e-4)
    assert found_some > 20


def test_whole_words_rank_before_words_that_only_begin_so() -> None:
    lane = searched(["snowing all day", "snow", "snowball snowing", "cat"])
    assert [hit.id for hit in lane.ask(lexical("snow"), 9)] == [1, 0, 2]
