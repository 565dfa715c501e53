"""What a token is: identifiers, numbers, scripts, signs. One line a rule."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duckkb.index.tokens import LONGEST, JiebaTokenizer, PlainTokenizer
from duckkb.types.records import Tokens

TOKENIZER = JiebaTokenizer()
ODD_TEXTS = [
    "",
    " \n\t ",
    "。。！——…",
    '" * ( ) : NEAR',
    "\u0301",
    "e\u0301\u0301\u0301",
    "\u200b\u200d\ufeff",
    "\ud800 lone",
    "\x00\x1b[31mred",
    "שלום עולם مرحبا \u202eabc",
    "👩‍💻👍🏽🇨🇳",
    "ﷺ ½ ㎏ ①",
    "a" * 100_000,
    "-" * 100_000,
    "a-" * 50_000,
    "好" * 100_000,
    "。a" * 50_000,
    "a\u0301" * 50_000,
]


def words(text: str) -> set[str]:
    return set(TOKENIZER.tokenize([text])[0].words.split())


def sequence(text: str) -> str:
    return TOKENIZER.tokenize([text])[0].sequence


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("text-embedding-3-small", "text-embedding-3-small", "text embedding 3 small"),
        ("E_DUP_ID", "e_dup_id", "e dup id"),
        ("v2.0.1", "v2.0.1", "v2 0 1"),
        ("3.14", "3.14", "3 14"),
        ("std::vector", "std::vector", "std vector"),
        ("user@example.org", "user@example.org", "user example org"),
        ("https://example.org/a/b", "https://example.org/a/b", "https example org a b"),
        ("12:30", "12:30", "12 30"),
        ("AT&T", "at&t", "at t"),
        ("C++", "c++", "c"),
        ("C#", "c#", "c"),
        ("naïve_größe", "naïve_grösse", "naïve grösse"),
    ],
)
def test_an_identifier_is_found_whole_and_by_its_parts(text: str, whole: str, parts: str) -> None:
    for written in (text, f"see {text}.", f"({text}),", f"“{text}”", f"用{text}。"):
        assert {whole, *parts.split()} <= words(written)
        assert parts in sequence(written)


@pytest.mark.parametrize(("text", "plain"), [("full-text", "full text"), ("and/or", "and or"), ("l'homme", "l homme")])
def test_compounds_of_plain_words_are_their_words_alone(text: str, plain: str) -> None:
    assert TOKENIZER.tokenize([text])[0] == Tokens(plain, plain)


@pytest.mark.parametrize("text", ["the author's note", "the author’s note", "THE AUTHOR'S NOTE"])
def test_a_possessive_is_the_word_that_owns(text: str) -> None:
    assert sequence(text) == "the author note"


def test_dots_and_dashes_in_a_row_part_words() -> None:
    assert words("wait...what--now—then") == {"wait", "what", "now", "then"}


def test_a_sentence_leaves_no_dot_on_its_last_word() -> None:
    assert words("It ends here. Really? Yes!") == {"it", "ends", "here", "really", "yes"}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ＤｕｃｋＤＢ　２．０", "duckdb 2.0"),
        ("STRASSE", "straße"),
        ("e\u0301te\u0301", "été"),
        ("co\u00adoperate", "cooperate"),
        ("ﬁle", "file"),
        ("ﾃﾞｰﾀ", "データ"),
        ("text\u2010embedding\u20113", "text-embedding-3"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
    ],
)
def test_forms_of_one_word_give_one_token(text: str, same: str) -> None:
    assert TOKENIZER.tokenize([text]) == TOKENIZER.tokenize([same])


def test_marks_stay_on_their_letters() -> None:
    assert words("हिन्दी भाषा") == {"हिन्दी", "भाषा"}


@pytest.mark.parametrize(
    ("text", "part"), [("データベース", "データ"), ("데이터베이스를", "데이터베이스"), ("ประเทศไทย", "ไทย")]
)
def test_scripts_without_spaces_are_found_by_a_part(text: str, part: str) -> None:
    assert words(part) <= words(text)
    assert sequence(part) in sequence(text)


def test_emoji_are_tokens_and_punctuation_is_none() -> None:
    assert words("👩‍💻 ships 🚀❤️ 🇨🇳, (¡¿。、!)") == {"👩", "💻", "ships", "🚀", "❤", "🇨🇳"}


def test_a_word_without_end_is_cut_into_pieces() -> None:
    assert sequence("x" * (LONGEST + 1)).split() == ["x" * LONGEST, "x"]
    assert sequence("é" * (LONGEST + 1)).split() == ["é" * LONGEST, "é"]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
@pytest.mark.parametrize("tokenizer", [TOKENIZER, PlainTokenizer()], ids=["jieba", "plain"])
def test_odd_texts_give_clean_tokens(tokenizer: JiebaTokenizer | PlainTokenizer, text: str) -> None:
    tokens = tokenizer.tokenize([text])[0]
    for listed in (tokens.words, tokens.sequence):
        assert listed == " ".join(listed.split())
        assert all(0 < len(word) <= LONGEST for word in listed.split())
        listed.encode()  # no lone surrogate comes through


def test_a_text_of_a_megabyte_keeps_every_word() -> None:
    text = "Die Straße führt nach 北京 and v2.0.1. " * 25_000
    assert len(sequence(text).split()) == 25_000 * 10


@pytest.mark.parametrize(
    "text", ["がぎぐ パピプ", "हिन्दी भाषा", "ประเทศไทย", "데이터", "內存 数据", "שָׁלוֹם", "мой край", "plain words"]
)
def test_marks_that_are_no_accents_stay(text: str) -> None:
    assert JiebaTokenizer(forms="all").tokenize([text]) == TOKENIZER.tokenize([text])


@pytest.mark.parametrize(
    ("text", "sequence"),
    [
        ("Café ZÜRICH", "cafe|café zurich|zürich"),
        ("e\u0301te\u0301", "ete|été"),
        ("Łódź Straße Ærø", "lodz|łódź strasse aero|ærø"),
        ("Việt Nam", "viet|việt nam"),
        ("ISPARTA ısparta", "isparta isparta|ısparta"),
        ("Θεός ёлка", "θεοσ|θεόσ елка|ёлка"),
        ("用getUserName。", "用 getusername | get user name"),
        ("the HTTPServer of APIs", "the httpserver of apis | http server"),
        ("iPhone, 2D and aB3xYz" + "Q" * 64, "iphone 2d and ab3xyz" + "q" * 64),
    ],
)
def test_all_forms_of_a_word_stand_at_its_place(text: str, sequence: str) -> None:
    assert JiebaTokenizer(forms="all").tokenize([text])[0].sequence == sequence


@pytest.mark.parametrize("text", [".NET 8", "use .NET", "(.NET)", "基于.NET的", "`.net`"])
def test_a_name_that_begins_with_a_dot_is_a_word(text: str) -> None:
    assert ".net" in JiebaTokenizer(forms="all").tokenize([text])[0].words.split()


@pytest.mark.parametrize("text", ["inter.net", "end.Net", "a).net", "... net", "./net", ".5"])
def test_a_dot_behind_a_word_begins_none(text: str) -> None:
    words = JiebaTokenizer(forms="all").tokenize([text])[0].words.split()
    assert not any(word.startswith(".") for word in words)


def test_a_batch_is_its_texts_one_by_one() -> None:
    texts = ["内存 database", "", "内存 database", "v2.0.1"]
    assert TOKENIZER.tokenize(texts) == [TOKENIZER.tokenize([text])[0] for text in texts]
    assert TOKENIZER.tokenize([]) == []


def test_fingerprints_tell_tokenizers_and_foldings_apart() -> None:
    made = [
        *(JiebaTokenizer(fold=fold, forms=forms) for fold in ("none", "simplified") for forms in ("written", "all")),
        *(PlainTokenizer(fold=fold, forms=forms) for fold in ("none", "simplified") for forms in ("written", "all")),
    ]
    assert len({tokenizer.fingerprint for tokenizer in made}) == 8
    assert JiebaTokenizer().fingerprint == JiebaTokenizer(cache_dir=Path("elsewhere")).fingerprint


@pytest.mark.long
def test_threads_share_a_tokenizer() -> None:
    texts = [f"第{number}次 DuckDB内存数据库 text-embedding-{number}" for number in range(400)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: JiebaTokenizer().tokenize([text])[0], texts))
    assert found == TOKENIZER.tokenize(texts)


_PROGRAM = """
import hashlib
from duckkb.index.text_chunks import chunk
from duckkb.index.tokens import JiebaTokenizer
text = "Istanbul İstanbul ISTANBUL 数据库的内存 v2.0.1 naïve Straße. " * 40
tokenizer = JiebaTokenizer(fold="simplified")
made = [tokenizer.tokenize([piece.text]) for piece in chunk(text, 100)]
print(hashlib.sha256(repr((made, tokenizer.fingerprint)).encode()).hexdigest())
"""


def test_hash_seed_and_locale_change_nothing() -> None:
    def run(seed: str, locale: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "LANG": locale}
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=True
        ).stdout

    found = {run("0", "C"), run("1", "C.UTF-8"), run("77", "tr_TR.UTF-8")}
    assert len(found) == 1
    assert len(found.pop().strip()) == hashlib.sha256().digest_size * 2


def test_english_texts_load_no_dictionary() -> None:
    program = (
        "import sys; from duckkb.index.tokens import JiebaTokenizer; t = JiebaTokenizer()\n"
        "names = {'rjieba', 'rjieba.rjieba', 'jieba'}\n"
        "t.tokenize(['plain', 'naïve “text”']); t.fingerprint; assert not names & set(sys.modules)\n"
        "t.tokenize(['中文']); assert names & set(sys.modules) == {'rjieba.rjieba'}\n"
        "import rjieba; assert rjieba.cut_for_search('中文') == t.tokenize(['中文'])[0].words.split()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
