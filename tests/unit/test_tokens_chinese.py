"""Chinese texts: words, single characters, mixed scripts, folding, and the two segmenters against each other."""

import sys
from pathlib import Path

import pytest

from duckkb.index.chinese import Glossary, chinese_words, reference_words
from duckkb.index.tokens import JiebaTokenizer, PlainTokenizer

TOKENIZER = JiebaTokenizer()
TEXT = "DuckDB内存数据库的查询速度很快，２０２４年发布。"


def words(text: str, tokenizer: JiebaTokenizer = TOKENIZER) -> list[str]:
    return tokenizer.tokenize([text])[0].words.split()


def sequence(text: str, tokenizer: JiebaTokenizer = TOKENIZER) -> str:
    return tokenizer.tokenize([text])[0].sequence


@pytest.mark.parametrize(
    "query", ["内存", "数据库", "数据", "查询", "快", "duckdb", "DuckDB内存", "2024", "２０２４年"]
)
def test_dk_21_a_query_shares_its_tokens_with_the_text(query: str) -> None:
    assert set(words(query)) & {*words(TEXT), *sequence(TEXT).split()}
    assert f" {sequence(query)} " in f" {sequence(TEXT)} "


def test_dk_21_words_come_as_search_mode_gives_them() -> None:
    assert words("清华大学") == ["清华", "华大", "大学", "清华大学"]


def test_dk_21_characters_are_adjacent_in_the_sequence() -> None:
    assert sequence("DuckDB内存 v2.0版") == "duckdb 内 存 v2 0 版"


def test_dk_21_one_character_is_a_query() -> None:
    assert (words("锁"), sequence("锁")) == (["锁"], "锁")


def test_dk_21_traditional_meets_simplified_only_where_asked() -> None:
    folding = JiebaTokenizer(fold="simplified")
    assert folding.tokenize(["資料庫的記憶體"]) == folding.tokenize(["资料库的记忆体"])
    assert TOKENIZER.tokenize(["資料庫"]) != TOKENIZER.tokenize(["资料库"])
    assert folding.tokenize(["plain text"]) == TOKENIZER.tokenize(["plain text"])


def test_folding_twice_changes_nothing() -> None:
    from duckkb.index.chinese import read_simplified_table

    table = read_simplified_table()
    assert all(len(target) == 1 and ord(target) not in table for target in table.values())


def test_characters_outside_the_dictionary_are_words_of_their_own() -> None:
    assert words("㐀〇𠀀") == ["㐀", "〇", "𠀀"]


@pytest.mark.parametrize(
    "run",
    [
        "数据库的查询速度",
        "我来到北京清华大学",
        "永和服装饰品有限公司",
        "他说的确实在理",
        "臺灣資料庫",
        "很",
        "哈哈哈哈",
    ],
)
def test_jieba_alone_gives_the_same_words_and_prints_nothing(run: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert reference_words(None)(run) == chinese_words(None)(run)
    assert capfd.readouterr() == ("", "")


def test_jieba_keeps_its_dictionary_where_it_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reference_words(tmp_path / "made")("数据库")
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["jieba.cache"]
    assert capfd.readouterr() == ("", "")


def test_the_plain_tokenizer_takes_pairs_of_characters() -> None:
    tokens = PlainTokenizer().tokenize(["DuckDB内存库"])[0]
    assert (tokens.words, tokens.sequence) == ("duckdb 内存 存库", "duckdb 内 存 库")


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert reference_words(tmp_path / "file" / "cache")("数据库") == chinese_words(None)("数据库")


def test_many_runs_are_cut_as_few_are() -> None:
    runs = ["我来到北京清华大学", "数据库的查询速度", "他说的确实在理"]
    many = JiebaTokenizer()
    many.tokenize(["内存" * 300])
    assert [many.tokenize([run]) for run in runs] == [JiebaTokenizer().tokenize([run]) for run in runs]


def test_another_dictionary_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jieba").mkdir()
    (tmp_path / "jieba" / "__init__.py").write_text("")
    (tmp_path / "jieba" / "dict.txt").write_text("内存 3 n\n", "utf-8")
    assert Glossary.open() is not None
    monkeypatch.delitem(sys.modules, "jieba", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert Glossary.open() is None
    assert JiebaTokenizer().tokenize(["清华大学"]) == TOKENIZER.tokenize(["清华大学"])
