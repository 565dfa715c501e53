"""Words of runs of characters that are written without spaces."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from duckkb.indexing.glossary import native
from duckkb.installed import version_of

Segment = Callable[[str], list[str]]
"""A run of characters of one script -> its words, each of which stands in the run."""


def pairs(run: str) -> list[str]:
    """Each two neighbouring characters; a lone character is its own word.

    >>> pairs("データ"), pairs("字")
    (['デー', 'ータ'], ['字'])
    """
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


def chinese_words(cache_dir: Path | None) -> Segment:
    """jieba's search mode over a run of Han characters, as rjieba does it, by jieba where that is not installed.

    Loads the dictionary, 65 ms (rjieba) or 500 ms (jieba, which keeps its own cache file in `cache_dir`).
    """
    try:
        return _quick_words()
    except ImportError:
        return reference_words(cache_dir)


@cache
def _quick_words() -> Segment:
    words: Segment = native().Jieba().cut_for_search
    return words


@cache
def reference_words(cache_dir: Path | None) -> Segment:
    """The same by jieba itself, which rjieba is tested against."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its patterns are not raw strings, which newer Pythons point out
        import jieba
    jieba.setLogLevel(logging.CRITICAL)  # it would print its loading times
    tokenizer = jieba.Tokenizer()
    tokenizer.tmp_dir = _own_folder(cache_dir)

    def words(run: str) -> list[str]:
        return list(tokenizer.cut_for_search(run))

    return words


def _own_folder(cache_dir: Path | None) -> str:
    """jieba reads back what it finds in its folder, so that one must not be the shared temporary folder. Given one that
    does not exist, it goes without a cache file."""
    if cache_dir is not None:
        with suppress(OSError):
            cache_dir.mkdir(parents=True, exist_ok=True)
            return str(cache_dir)
    return str(Path(__file__).with_name("no-cache"))


def segmenter_version() -> str:
    """Names the segmenter and its dictionary in a tokenizer's fingerprint, without loading either."""
    name = "rjieba" if find_spec("rjieba") else "jieba"
    try:
        return f"{name} {version_of(name, name)}"
    except ImportError:  # importlib's PackageNotFoundError is one
        return f"{name} of unknown version"
