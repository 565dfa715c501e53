"""Word differences: nothing lost, nothing invented, readable, and in time that grows with the texts."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duckkb.review.record_changes import Run, json_words, keep_near_changes, words
from duckkb.types.invisible_characters import invisible_in, visible

TEXTS = st.text(alphabet=st.sampled_from(list("ab 知识\n,1.\u202e")), max_size=40) | st.text(max_size=30)


def _sides(runs: list[Run]) -> tuple[str, str]:
    old = "".join(run.text for run in runs if run.kind != "new")
    return old, "".join(run.text for run in runs if run.kind != "gone")


@given(TEXTS, TEXTS)
def test_runs_hold_both_texts_whole_and_no_two_neighbours_of_one_kind(old: str, new: str) -> None:
    runs = words(old, new)
    assert _sides(runs) == (old, new)
    assert all(run.text for run in runs)
    assert all(one.kind != other.kind for one, other in pairwise(runs))


@given(TEXTS, TEXTS, st.integers(0, 5))
def test_a_cut_leaves_every_change_and_loses_no_text(old: str, new: str, reach: int) -> None:
    runs = words(old + "word " * 40 + new, new + "word " * 40 + old)
    kept = keep_near_changes(runs, reach)
    assert "".join(run.text for run in kept) == "".join(run.text for run in runs)
    assert [run for run in kept if run.kind in ("gone", "new")] == [run for run in runs if run.kind in ("gone", "new")]


def test_words_numbers_and_chinese_characters_are_the_pieces() -> None:
    assert words("at most 1.5 MB", "at most 2.5 MB") == [
        Run("same", "at most "),
        Run("gone", "1.5"),
        Run("new", "2.5"),
        Run("same", " MB"),
    ]
    assert words("一个部件最多一千条", "一个部件最多两千条记录") == [
        Run("same", "一个部件最多"),
        Run("gone", "一"),
        Run("new", "两"),
        Run("same", "千条"),
        Run("new", "记录"),
    ]
    assert words("", "new") == [Run("new", "new")]
    assert words("same", "same") == [Run("same", "same")]


def test_a_lone_blank_between_two_changes_belongs_to_them() -> None:
    assert words("red fox", "blue cat") == [Run("gone", "red fox"), Run("new", "blue cat")]


def test_json_values_are_compared_as_text_only_where_both_are_text() -> None:
    assert json_words('"a\\nb"', '"a\\nc"') == [Run("same", "a\n"), Run("gone", "b"), Run("new", "c")]
    assert json_words("[1,2]", "[1,3]") == [Run("same", "[1,"), Run("gone", "2"), Run("new", "3"), Run("same", "]")]
    assert _sides(json_words("1", '"1"')) == ("1", '"1"')
    assert json_words(None, '"x"') == [Run("new", "x")]


def test_long_texts_of_a_few_words_again_and_again_are_compared_too() -> None:
    old, new = "ab ba " * 30_000, "ba ab " * 30_000 + "知" * 50_000
    assert _sides(words(old, new)) == (old, new)


def test_what_nobody_sees_is_shown_and_what_writing_needs_is_left() -> None:
    assert visible("a\u202eb\u200bc\x1b[31m") == "a\\u202eb\\u200bc\\u001b[31m"
    assert visible("\U000e0041") == "\\U000e0041"
    for needed in (
        "👨\u200d👩\u200d👧",
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "می\u200cخواهم",
        "PDF\u200cها",
        "(کتاب)\u200cها",
        "\u200dه",
        "ꦏ\ua9c0\u200cꦏ",
        "\U00011013\U00011046\u200c\U00011013",
        "क\u094d\u200dष",
        "葛\U000e0100",
        "a\tb\n",
    ):
        assert visible(needed) == needed, ascii(needed)
    assert [found for _, found in invisible_in("pay\u200dpal a\ufe0f")] == ["\u200d", "\ufe0f"]
    assert [found for _, found in invisible_in("pay\u200cpal علی\u200c علی\u200c")] == ["\u200c"] * 3, (
        "at a word's end nobody sees it"
    )
