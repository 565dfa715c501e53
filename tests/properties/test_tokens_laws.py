"""Laws of the tokenizer."""

import re
import unicodedata
from functools import cache
from pathlib import Path

import jieba
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckkb.index.chinese import Glossary, chinese_words, reference_words
from duckkb.index.tokens import JiebaTokenizer, normalise

LAW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TOKENIZER = JiebaTokenizer()
ASCII = st.text(st.sampled_from("abzAZ019 -_./:@#+'&,;()\t\n\"?%"), max_size=60)
MIXED = st.text(
    st.one_of(
        st.characters(codec="utf-8"),
        st.sampled_from("abc019 -_.'’#+ 的内存数据库データ한국어ไทยéß\u0301\u200d👩🇨🇳。，　ＡＢ１"),
    ),
    max_size=60,
)


WORDS = [
    word
    for word in (Path(jieba.__file__).with_name("dict.txt")).read_text("utf-8").split()[::3]
    if re.fullmatch("[\u4e00-\u9fd5]+", word)
]
HAN = st.lists(
    st.one_of(st.sampled_from(WORDS), st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5), max_size=3)),
    min_size=1,
    max_size=8,
).map("".join)


@LAW
@given(st.lists(HAN.filter(bool), min_size=1, max_size=4))
def test_a_run_is_cut_by_the_words_that_it_holds_as_by_all_words(runs: list[str]) -> None:
    glossary = Glossary.open()
    assert glossary is not None, "shown for the dictionary that is installed; for another: look at all its words first"
    assert [glossary.words(run) for run in runs] == [chinese_words(None)(run) for run in runs]


def test_words_of_the_dictionary_are_cut_alike_with_and_without_the_rest_of_it() -> None:
    glossary, whole = Glossary.open(), chinese_words(None)
    assert glossary is not None
    some = WORDS[::97]
    assert [glossary.words(word) for word in some] == [*map(whole, some)]


@LAW
@given(MIXED)
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFKC", once)


@LAW
@given(ASCII)
def test_the_fast_road_gives_the_tokens_of_the_scanner(text: str) -> None:
    glued = text.replace(" ", "\t")  # the roads part at spaces, so the full stop sends all of it to the scanner
    assert TOKENIZER.tokenize(["。\t" + glued]) == TOKENIZER.tokenize([text])


@LAW
@given(MIXED, MIXED)
def test_a_space_parts_texts(left: str, right: str) -> None:
    both, first, second = TOKENIZER.tokenize([f"{left} \n {right}", left, right])
    assert both.sequence.split() == first.sequence.split() + second.sequence.split()
    assert sorted(both.words.split()) == sorted(first.words.split() + second.words.split())


@LAW
@given(MIXED)
def test_tokens_are_parted_by_single_spaces_and_written_normalised(text: str) -> None:
    tokens = TOKENIZER.tokenize([text])[0]
    for listed in (tokens.words, tokens.sequence):
        assert listed == " ".join(listed.split())
        assert all(normalise(token) == token for token in listed.split())


@LAW
@given(MIXED)
def test_case_width_and_composition_do_not_matter(text: str) -> None:
    forms = [text, unicodedata.normalize("NFD", text), normalise(text)]
    assert len(set(TOKENIZER.tokenize(forms))) == 1


@LAW
@given(st.text(st.characters(categories=["L", "N"], codec="utf-8"), min_size=1, max_size=40))
def test_no_letter_or_digit_is_lost(text: str) -> None:
    kept = "".join(TOKENIZER.tokenize([text])[0].sequence.split())
    wanted = [char for char in normalise(text) if unicodedata.category(char)[0] in "LN"]
    assert [char for char in kept if unicodedata.category(char)[0] in "LN"] == wanted


@cache
def dictionary() -> list[str]:
    lines = Path(jieba.__file__).with_name("dict.txt").read_text("utf-8").splitlines()
    words = [line.split(" ")[0] for line in lines[::37]]
    return [word for word in words if all("\u4e00" <= char <= "\u9fd5" for char in word)]


@settings(LAW, max_examples=400)
@given(st.data())
def test_rjieba_cuts_han_runs_as_jieba_does(data: st.DataObject) -> None:
    known = st.sampled_from(dictionary())
    random = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FD5), min_size=1, max_size=4)
    run = "".join(data.draw(st.lists(known | random, min_size=1, max_size=8)))
    assert chinese_words(None)(run) == reference_words(None)(run)
