"""One corpus for everything that is measured: texts, scalars, vectors and questions, the same for the same number.

English and Chinese records, four to one, of 40 to 160 words (log-normal); words are drawn by Zipf's law. `topic` has 100
values, `side` two. Vectors have 384 dimensions and lie around centres of which a few are crowded. A question is some words
of one record with a vector near that record's. The corpus of 10,000 records is the beginning of that of 100,000.

    make(folder, 10_000)
    corpus = Corpus(folder)
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np

DIMENSION = 384
BLOCK = 10_000
SPARE = 400
"""Records beside the corpus, each with a word of its own, to change others into."""
CHANGING = 2
"""How many of the first records may be changed; no question is about one of these."""
TOPICS, SIDES = 100, ("left", "right")

_SEED = 20261122
_ENGLISH, _CHINESE = 30_000, 20_000
_CENTRES = 2_000
_SHORTEST, _LONGEST = 40, 160
_HEAD = """
the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they you
were their one all we can her has there been if more when will would who so no out up into than its only some could
time them other then do also may like over such between under after before because where how what each any these
those most through while about against during without within along system data value number part place case work way
order group point fact world state hand water house line page letter answer question example result change write
read build record file index search word note table field query engine memory model vector text node edge graph lock
key journal
"""
_ONSETS = """
b br c cl d dr f fl g gr h j k l m n p pr qu r s sh sl st t th tr v w
"""
_VOWELS = """
a e i o u ai ea ou
"""
_CODAS = ["", "n", "r", "l", "m", "s", "t", "ck", "nd", "st"]


@dataclass(frozen=True)
class Question:
    """Words as they are typed, their numbers in the vocabulary, a vector (float32 of unit length), and what to filter by."""

    text: str
    words: tuple[int, ...]
    vector: np.ndarray
    topic: str
    side: str


class Corpus:
    """A corpus that `make` wrote. Arrays are mapped from the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._about = json.loads((folder / "about.json").read_text("utf-8"))
        self.size: int = self._about["records"]

    @property
    def rows_file(self) -> Path:
        """JSONL, a record a line."""
        return self.folder / "rows.jsonl"

    @property
    def text_bytes(self) -> int:
        """Bytes of the texts in UTF-8."""
        return int(self._about["text_bytes"])

    @cached_property
    def vectors(self) -> np.ndarray:
        """float32, (records, 384), rows of unit length."""
        return np.load(self.folder / "vectors.npy", mmap_mode="r")

    @cached_property
    def words(self) -> np.ndarray:
        """int32: the word numbers of all texts, one text behind the other."""
        return np.load(self.folder / "words.npy", mmap_mode="r")

    @cached_property
    def ends(self) -> np.ndarray:
        """int64, (records,): where each text ends in `words`."""
        return np.load(self.folder / "ends.npy")

    @cached_property
    def scalars(self) -> np.ndarray:
        """int32, (records, 2): the numbers of topic and side."""
        return np.load(self.folder / "scalars.npy")

    @cached_property
    def spare(self) -> list[dict[str, str]]:
        """Texts that no record has, with a `mark`, the word that only this one has."""
        return list(_lines(self.folder / "spare.jsonl"))

    @cached_property
    def spare_vectors(self) -> np.ndarray:
        """float32, (spares, 384)."""
        return np.load(self.folder / "spare_vectors.npy")

    def rows(self) -> Iterator[dict[str, str]]:
        """id, topic, side, text of each record."""
        return _lines(self.rows_file)

    def questions(self, language: str = "en") -> list[Question]:
        """Questions in "en" or "zh"."""
        asked = self._about["questions"][language]
        vectors = np.load(self.folder / f"questions_{language}.npy")
        return [
            Question(one["text"], tuple(one["words"]), vector, one["topic"], one["side"])
            for one, vector in zip(asked, vectors, strict=True)
        ]


def identity(number: int) -> str:
    """The id of a record by its place.

    >>> identity(42)
    'r0000042'
    """
    return f"r{number:07}"


def make(folder: Path, records: int, questions: int = 60) -> Corpus:
    """Write a corpus, unless the folder has it already."""
    if not (folder / "about.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary = Vocabulary()
        text_bytes = _write_records(folder, records, vocabulary)
        _write_spare(folder, vocabulary)
        asked = {language: _questions(folder, records, vocabulary, language, questions) for language in ("en", "zh")}
        about = {"records": records, "text_bytes": text_bytes, "questions": asked}
        (folder / "about.json").write_text(json.dumps(about, ensure_ascii=False), "utf-8")
    return Corpus(folder)


class Vocabulary:
    """Words by number, English ones first, the most frequent first in each language."""

    def __init__(self) -> None:
        english = _english_words()
        self.words = [*english, *_chinese_words()]
        self.english = len(english)
        self._sums = [np.cumsum(1 / (np.arange(count) + 2.7)) for count in (_ENGLISH, len(self.words) - _ENGLISH)]

    def draw(self, rng: np.random.Generator, count: int, chinese: bool) -> np.ndarray:
        """`count` word numbers (int32) of one language by Zipf's law."""
        sums = self._sums[chinese]
        found = np.searchsorted(sums, rng.random(count) * sums[-1])
        return (found + self.english * chinese).astype(np.int32)

    def text(self, rng: np.random.Generator, numbers: Sequence[int], chinese: bool) -> str:
        """The words as sentences."""
        pauses = iter(rng.integers(8, 17, len(numbers) // 8 + 1).tolist())
        left, sentences = list(numbers), []
        while left:
            taken = next(pauses)
            said = ("" if chinese else " ").join(self.words[number] for number in left[:taken])
            sentences.append(said if chinese else said[0].upper() + said[1:])
            left = left[taken:]
        return "。".join(sentences) + "。" if chinese else ". ".join(sentences) + "."


@cache
def _english_words() -> list[str]:
    """Real words at the head; the tail is made of syllables, so that it is as long as a language's."""
    rng, onsets, vowels = np.random.default_rng(_SEED), _ONSETS.split(), _VOWELS.split()

    def one_of(
        parts: Sequence[str],
    ) -> str:  # `rng.choice` draws the same number, and makes an array of the parts each time
        return parts[int(rng.integers(len(parts)))]

    words = dict.fromkeys(_HEAD.split())
    while len(words) < _ENGLISH:
        syllables = [
            one_of(onsets) + one_of(vowels) + (one_of(_CODAS) if last else "")
            for last in ([False, True], [False, False, True], [True])[min(2, int(rng.random() * 3))]
        ]
        words.setdefault("".join(syllables))
    return list(words)


@cache
def _chinese_words() -> list[str]:
    """Words of jieba's dictionary, which has how often each was seen."""
    found = find_spec("jieba")
    assert found is not None and found.origin is not None
    lines = (line.split() for line in (Path(found.origin).parent / "dict.txt").read_text("utf-8").splitlines())
    counted = [(-int(count), word) for word, count, _ in lines if len(word) <= 4 and _is_han(word)]
    return [word for _, word in sorted(counted)[:_CHINESE]]


def _is_han(word: str) -> bool:
    return all("\u4e00" <= character <= "\u9fff" for character in word)


def _centres() -> np.ndarray:
    return _unit(np.random.default_rng(_SEED + 1).normal(size=(_CENTRES, DIMENSION)).astype(np.float32))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _near(rng: np.random.Generator, rows: np.ndarray, spread: float) -> np.ndarray:
    """Unit vectors around others; `spread` is the length of the noise."""
    noise = rng.normal(scale=spread / DIMENSION**0.5, size=rows.shape)
    return _unit(rows + noise.astype(np.float32))


def _vectors(rng: np.random.Generator, count: int, centres: np.ndarray) -> np.ndarray:
    crowding = np.cumsum(1 / (np.arange(len(centres)) + 20))
    chosen = np.searchsorted(crowding, rng.random(count) * crowding[-1])
    return _near(rng, centres[chosen], 0.8)


def _texts(rng: np.random.Generator, count: int, vocabulary: Vocabulary) -> Iterator[tuple[str, np.ndarray]]:
    lengths = np.clip(np.exp(rng.normal(np.log(80), 0.4, count)), _SHORTEST, _LONGEST).astype(int)
    chinese = rng.random(count) < 0.2
    for length, is_chinese in zip(lengths.tolist(), chinese.tolist(), strict=True):
        numbers = vocabulary.draw(rng, length, is_chinese)
        yield vocabulary.text(rng, numbers.tolist(), is_chinese), numbers


def _write_records(folder: Path, records: int, vocabulary: Vocabulary) -> int:
    """Rows, words, scalars and vectors, block by block; returns the bytes of the texts."""
    centres, words, lengths, scalars, text_bytes = _centres(), [], [], [], 0
    shape = (records, DIMENSION)
    matrix = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=np.float32, shape=shape)
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for start in range(0, records, BLOCK):
            rng = np.random.default_rng([_SEED, start])
            count = min(BLOCK, records - start)
            chosen = np.stack([rng.integers(0, TOPICS, BLOCK), rng.integers(0, 2, BLOCK)], axis=1)[:count]
            matrix[start : start + count] = _vectors(rng, BLOCK, centres)[:count]
            scalars.append(chosen.astype(np.int32))
            texts = itertools.islice(_texts(rng, BLOCK, vocabulary), count)
            for place, (text, numbers) in enumerate(texts):
                topic, side = _scalars(chosen[place])
                row = {"id": identity(start + place), "topic": topic, "side": side, "text": text}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                text_bytes += len(text.encode())
                words.append(numbers)
                lengths.append(len(numbers))
    matrix.flush()
    np.save(folder / "words.npy", np.concatenate(words))
    np.save(folder / "ends.npy", np.cumsum(lengths, dtype=np.int64))
    np.save(folder / "scalars.npy", np.concatenate(scalars))
    return text_bytes


def _scalars(numbers: np.ndarray) -> tuple[str, str]:
    return f"t{numbers[0]:02}", SIDES[numbers[1]]


def _write_spare(folder: Path, vocabulary: Vocabulary) -> None:
    rng = np.random.default_rng([_SEED, 1])
    texts = list(_texts(rng, SPARE, vocabulary))
    with (folder / "spare.jsonl").open("w", encoding="utf-8") as file:
        for number, (text, _) in enumerate(texts):
            mark = "zzyx" + "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")
            file.write(json.dumps({"mark": mark, "text": f"{mark} {text}"}, ensure_ascii=False) + "\n")
    np.save(folder / "spare_vectors.npy", _vectors(rng, SPARE, _centres()))


def _questions(
    folder: Path, records: int, vocabulary: Vocabulary, language: str, count: int
) -> list[dict[str, object]]:
    """Words of a record that are neither the commonest nor the rarest; the vectors go to a file of their own."""
    chinese = language == "zh"
    rng = np.random.default_rng([_SEED, 2, records, chinese])
    words, ends, scalars = (np.load(folder / f"{name}.npy") for name in ("words", "ends", "scalars"))
    first = vocabulary.english + 100 if chinese else 100
    asked, near = [], []
    while len(asked) < count:
        record = int(rng.integers(CHANGING, records))
        own = words[ends[record - 1] : ends[record]]
        usable = np.unique(own[(own >= first) & (own < first + 8_000)])
        if chinese != bool(own[0] >= vocabulary.english) or len(usable) < 3:
            continue
        numbers = rng.permutation(usable)[:3].tolist()
        topic, side = _scalars(scalars[record])
        text = ("" if chinese else " ").join(vocabulary.words[number] for number in numbers)
        asked.append({"text": text, "words": numbers, "topic": topic, "side": side})
        near.append(record)
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")[near]
    np.save(folder / f"questions_{language}.npy", _near(rng, vectors, 0.6))
    return asked


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open("rb") as file:
        yield from map(json.loads, file)
