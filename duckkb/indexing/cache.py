"""The cache of tokens and vectors: what this machine made, and what the team shares. Always optional, never an error.

Keys come from `duckkb.indexing.entries`. What is made here lies in the user's cache folder (`cache_store`). Files of the
team are read into it once, and their rows withheld until a sample of them has been recomputed: a checksum does not stop a
forger. A sample speaks for the rows among which it was drawn, as a file may be honest about one type and lie about another,
or about texts that a later commit brings. What cannot be used is a finding (`findings`) and a miss.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from duckkb.entries import Fingerprint, Tokens
from duckkb.errors import Finding
from duckkb.indexing.cache_rows import (
    KINDS,
    CacheRow,
    Kind,
    content_hash,
    digest,
    pack_value,
    same_direction,
    tokens_of,
    vector_of,
)
from duckkb.indexing.cache_store import CacheStore, Stored
from duckkb.indexing.team_files import TEAM_FOLDER, Standing, TeamFile, TeamReader, team_files, team_layout
from duckkb.settings import CACHE_LIMIT
from duckkb.store.place import Unusable

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Vector = TypeVar("Vector", bound=Sized)
Given = ParamSpec("Given")
Found = TypeVar("Found")

SAMPLE = 32
"""Rows of a file to recompute before the rest is believed."""

_ANY_MODEL = Fingerprint("", "")
_UNSAVED_BYTES = 24 * 1024 * 1024
"""Of payloads that are made and held in memory, about: then they are written."""


class Dimensions:
    """How long the vectors of each model are: as the model says, as is expected, or as most are that are seen."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, model: Fingerprint) -> int:
        """What was expected or seen last; 0 where that is unknown."""
        return self._known.get(str(model), 0)

    def expect(self, model: Fingerprint, dimension: int) -> None:
        """Others do not fit from now on."""
        self._known[str(model)] = dimension

    def fitting(self, model: Fingerprint, vectors: Sequence[Vector | None]) -> list[Vector | None]:
        """The vectors, None for those of another length."""
        dimension = model.dimension
        lengths = Counter(len(vector) for vector in vectors if vector is not None)
        if not dimension and lengths:
            dimension = self._known.setdefault(str(model), lengths.most_common(1)[0][0])
        return [vector if vector is not None and len(vector) == dimension else None for vector in vectors]


def alone(
    method: "Callable[Concatenate[SearchCache, Given], Found]",
) -> "Callable[Concatenate[SearchCache, Given], Found]":
    """For what one thread does at a time; no model is asked in it."""

    @wraps(method)
    def call_in_turn(cache: "SearchCache", /, *given: Given.args, **named: Given.kwargs) -> Found:
        with cache.turn:
            return method(cache, *given, **named)

    return call_in_turn


class SearchCache:
    """Both stores as one base, or several generations of it, see them. Threads and processes may share it."""

    def __init__(self, root: Path, store: CacheStore, listed: Callable[[Path], list[TeamFile]] = team_files) -> None:
        self._root, self._store, self.turn = root, store, RLock()
        self.dimensions = Dimensions()
        """Vectors of other lengths count as missing."""
        self.dropped = 0
        """Files that were given up after rows of them may have been handed out."""
        self._made: dict[Kind, dict[bytes, CacheRow]] = {kind: {} for kind in KINDS}
        self._weight = 0  # bytes of what was made and is not written
        self._team = TeamReader(root, store, listed)

    @classmethod
    def open(
        cls, root: Path, folder: Path | None = None, *, limit: int = CACHE_LIMIT, looks: bool = False
    ) -> "SearchCache":
        """The caches of a base. `folder` is what all bases of the user share; None: nothing outlives this process. `limit`
        is in bytes, of all that is derived. Who only `looks` changes nothing in it."""
        return cls(root, CacheStore(folder, limit=limit, looks=looks))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Files and rows of the team that cannot be used, as far as they were looked at."""
        with self.turn:
            return self._team.findings

    @property
    def unsaved(self) -> int:
        """Rows that `save` would write."""
        return sum(map(len, self._made.values()))

    @property
    def store(self) -> CacheStore:
        """What this machine keeps, with the team's files of the base taken in."""
        with self.turn:
            self._team.numbers()
        return self._store

    @alone
    def tokens(self, keys: Sequence[bytes]) -> list[Tokens | None]:
        """The tokens of each key; None where they are missing or untrusted (see `verify_tokens`)."""
        return [None if payload is None else tokens_of(payload) for payload in self._load_payloads("tokens", keys)]

    @alone
    def vectors(self, keys: Sequence[bytes], model: Fingerprint = _ANY_MODEL) -> "list[np.ndarray | None]":
        """The vector of each key, float32 of unit length; None where it is missing or untrusted (see `verify_vectors`), or
        not of the model's dimension: that of most, where the model does not say."""
        payloads = self._load_payloads("vector", keys)
        return self.dimensions.fitting(model, [None if payload is None else vector_of(payload) for payload in payloads])

    @alone
    def lacking(self, kind: Kind, keys: Iterable[bytes], model: Fingerprint = _ANY_MODEL) -> list[bytes]:
        """Those of the keys that `tokens` or `vectors` has nothing for. No row is read for that."""
        wanted_keys, own_rows = list(keys), self._made[kind]
        lengths = {key: len(own_rows[key][3]) for key in wanted_keys if key in own_rows}
        lengths |= self.store.lengths(kind, (key for key in wanted_keys if key not in lengths))
        ranges = [range(lengths[key] // 4) if key in lengths else None for key in wanted_keys]
        fitting = self.dimensions.fitting(model, ranges) if kind == "vector" else ranges
        return [key for key, row in zip(wanted_keys, fitting, strict=True) if row is None]

    @alone
    def withheld(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of the keys whose vectors stand in a file that was not made here, and were not vouched for yet."""
        return {stored_row.row[0] for stored_row in self.store.withheld("vector", keys)}

    @alone
    def look_again(self) -> None:
        """Take in the team's files as they are now."""
        self._team.look_again()

    @alone
    def ignore_team(self, *, ignored: bool) -> None:
        """Use nothing of what others made from now on, the team's files and adopted shards; or use it again."""
        self._team.is_ignored = ignored
        self._team.look_again()
        self._team.numbers()

    @alone
    def stamp(self) -> dict[str, Any]:
        """Names the team's files as they lie here now (`team`), and tells whether rows were `added`, of whatever base, or
        have `gone`: each stays the same only while none of them does."""
        team = repr([(file.path, file.stamp) for file in team_files(self._root)])
        return {"team": digest(team.encode()), **self._store.counters()}

    @property
    def team_bytes_on_disk(self) -> int:
        """Bytes of the team's files."""
        return sum(file.stamp[0] for file in team_files(self._root) if file.stamp)

    @alone
    def add_tokens(self, rows: Mapping[bytes, tuple[str, Tokens]], fingerprint: Fingerprint) -> None:
        """Take tokens made here: key -> (text, tokens)."""
        self._add("tokens", rows, fingerprint)

    @alone
    def add_vectors(self, rows: "Mapping[bytes, tuple[str, np.ndarray]]", fingerprint: Fingerprint) -> None:
        """Take vectors made here: key -> (text, float32 vector of unit length)."""
        self._add("vector", rows, fingerprint)
        for _, vector in rows.values():
            self.dimensions.expect(fingerprint, len(vector))
            break

    def verify_tokens(self, texts: Mapping[bytes, str], tokenize: Callable[[list[str]], list[Tokens]]) -> None:
        """Recompute a sample of the rows for these texts that come from files not made here: use them or drop the files."""
        self._verify("tokens", texts, tokenize, lambda payload, tokens: tokens_of(payload) == tokens)

    def verify_vectors(
        self,
        texts: Mapping[bytes, str],
        embed: "Callable[[list[str]], np.ndarray]",
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """As `verify_tokens`, for vectors: key -> text, and the model. Embeds at most 32 texts for each file with rows for
        these texts that this machine has neither made nor checked, file by file while `goes_on`; False where a file was
        dropped. Until then `vectors` withholds its rows. Raises what `embed` raises."""
        return self._verify("vector", texts, embed, _is_same_vector, goes_on)

    @alone
    def save(self) -> bool:
        """Write what was made; True where nothing is left to write, False where it cannot be written now."""
        self._weight = 0
        for kind, rows in self._made.items():
            with suppress(Unusable):
                if rows:
                    self._store.add(kind, rows.values())
                    rows.clear()
        self._store.flush()
        if self.unsaved:
            return False
        self._store.trim()
        return True

    @alone
    def team_bytes(self, live_keys: Collection[bytes]) -> dict[str, bytes]:
        """Every file that the team's cache should consist of, path -> bytes, for the rows of these keys. The caller writes
        them and removes the other paths of `team_paths`. A function of rows and present segments, see `team`."""
        live = dict.fromkeys(live_keys)
        rows = {kind: list(self.rows(kind, live.keys())) for kind in KINDS}
        files = team_layout(rows, list(self._iter_segments()))
        for data in files.values():  # each was made just now, or was trusted whole before
            self._team.trust(digest(data))
        return files

    def team_paths(self) -> tuple[str, ...]:
        """The files that the team's cache consists of now, usable or not."""
        return tuple(file.path for file in team_files(self._root))

    @alone
    def team_numbers(self) -> dict[TeamFile, int]:
        """The team's files that can be read, with their numbers in the store."""
        return dict(self._team.numbers())

    def team_keys(self) -> set[bytes]:
        """The keys that the team's files hold, trusted or not."""
        return self.store.list_keys(tuple(self.team_numbers().values()))

    def keys_of(self, file: TeamFile) -> set[bytes]:
        """The keys that one of the team's files holds, trusted or not."""
        return self.store.list_keys((self.team_numbers()[file],))

    @alone
    def adopt(self, files: Collection[int]) -> None:
        """Have this base use, from now on, what is vouched for in some files by their numbers in the store, wherever they
        lie. All or nothing; raises `Unusable`."""
        self._store.adopt(self._root, files)
        self._team.look_again()

    def rows(self, kind: Kind, keys: Collection[bytes]) -> Iterator[CacheRow]:
        """Usable rows of these keys, each once. The team's come first, so that they stay as they are."""
        stored_rows: dict[bytes, Stored] = {}
        for stored_row in self.store.rows(kind, keys):
            key = stored_row.row[0]
            if key not in stored_rows or stored_row.is_shared > stored_rows[key].is_shared:
                stored_rows[key] = stored_row
        own_rows = self._made[kind]
        yield from (stored_row.row for stored_row in stored_rows.values())
        yield from (own_rows[key] for key in dict.fromkeys(keys) if key in own_rows and key not in stored_rows)

    @alone
    def table(self, keys: Collection[bytes]) -> "pa.Table":
        """The rows of these keys that may be used, with the columns of `cache_format.SCHEMA`, by kind and key."""
        from duckkb.indexing.cache_format import table_of

        return table_of({kind: list(self.rows(kind, keys)) for kind in KINDS})

    @alone
    def close(self) -> None:
        self.save()
        self._store.close()

    def _load_payloads(self, kind: Kind, keys: Sequence[bytes]) -> list[bytes | None]:
        """What was made here comes first."""
        own_rows = self._made[kind]
        payloads = self.store.payloads(kind, (key for key in keys if key not in own_rows))
        return [own_rows[key][3] if key in own_rows else payloads.get(key) for key in keys]

    def _add(self, kind: Kind, rows: Mapping[bytes, tuple[str, Any]], fingerprint: Fingerprint) -> None:
        name = str(fingerprint)
        new_rows = {
            key: (key, content_hash(text), name, pack_value(kind, value)) for key, (text, value) in rows.items()
        }
        self._made[kind] |= new_rows
        self._weight += sum(len(row[3]) for row in new_rows.values())
        if self._weight > _UNSAVED_BYTES:
            self.save()

    def _verify(
        self,
        kind: Kind,
        texts: Mapping[bytes, str],
        recompute: Callable[[list[str]], Any],
        agree: Callable[[Any, Any], bool],
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        fresh: dict[bytes, Any] = {}
        honest = True
        for file, number in self.team_numbers().items():
            with self.turn:
                unknown = list(self._store.withheld(kind, texts, number))
            if not unknown:
                continue
            if not goes_on():
                break
            sample = draw(unknown)
            sample_keys = [stored_row.row[0] for stored_row in sample if stored_row.row[0] not in fresh]
            fresh |= zip(sample_keys, recompute([texts[key] for key in sample_keys]), strict=True)
            with self.turn:  # which nobody held while the model worked
                if all(agree(stored_row.row[3], fresh[stored_row.row[0]]) for stored_row in sample):
                    self._store.vouch(number, (stored_row.id for stored_row in unknown))
                else:
                    self._team.drop(file)
                    self.dropped += 1
                    honest = False
        return honest

    def _iter_segments(self) -> Iterator[Standing]:
        """The team's segments of which every row may be used."""
        for file, number in self._team.numbers().items():
            keys = self._store.list_keys([number])
            is_whole = keys == self._store.list_keys([number], vouched=True) and file not in self._team.imperfect
            if is_whole and file.path.startswith(f"{TEAM_FOLDER}/"):
                with file.opened() as stream:
                    data = stream.read()
                yield Standing(file.path, "tokens" if "/tokens-" in file.path else "vector", data, keys)


def _is_same_vector(payload: bytes, vector: "np.ndarray") -> bool:
    return same_direction(vector_of(payload), vector)


def draw(rows: Sequence[Stored], count: int = SAMPLE) -> list[Stored]:
    """Rows that a forger cannot foresee; all of them where there are no more than `count`."""
    from random import SystemRandom

    return SystemRandom().sample(rows, min(count, len(rows)))
