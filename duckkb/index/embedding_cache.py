"""The cache of tokens and vectors that this machine made or the team shares. It is optional and never causes an
error.

Keys come from `duckkb.index.index_entries`. Rows made here lie in the user's cache folder (`cache_store`). Files
of the team are read into it once, and their rows stay unused until a sample of them has been recomputed: a
checksum does not stop a forger. A sample vouches only for the rows among which it was drawn. A file may be
honest about one type and lie about another, or about texts that a later commit brings. Unusable files and rows
are reported (`findings`) and count as missing.

Caches the answers of models: scores of texts for a question, and variants of questions. They lie in the user's
search cache, among tokens and vectors and within its size limit. Their keys are made of the model's
fingerprint, the question and the text, never of a path.

Each call opens the file anew, because answers may arrive late in threads of their own. Damaged answers count as
missing."""

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, suppress
from functools import wraps
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_args

from duckkb.index.cache_database import (
    KINDS,
    CacheRow,
    CacheStore,
    Kind,
    Stored,
    content_hash,
    digest,
    pack_value,
    same_direction,
    tokens_of,
    vector_of,
)
from duckkb.index.team_cache import TEAM_FOLDER, Standing, TeamFile, TeamReader, team_files, team_layout
from duckkb.store.cache_dirs import Unusable
from duckkb.types.errors import Finding
from duckkb.types.queries import Variant, VariantKind
from duckkb.types.records import Fingerprint, Tokens
from duckkb.types.settings import CACHE_LIMIT

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Vector = TypeVar("Vector", bound=Sized)
Given = ParamSpec("Given")
Found = TypeVar("Found")

SAMPLE = 32
"""The number of a file's rows that are recomputed before the rest is trusted."""

_ANY_MODEL = Fingerprint("", "")
_UNSAVED_BYTES = 24 * 1024 * 1024
"""About the most bytes of new payloads in memory; then they are written."""


class Dimensions:
    """The length of each model's vectors: as the model says, as is expected, or as most of the vectors have."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def get_dimension(self, model: Fingerprint) -> int:
        """Return the dimension that was expected or seen last; 0 if it is unknown."""
        return self._known.get(str(model), 0)

    def expect(self, model: Fingerprint, dimension: int) -> None:
        """Set the dimension of a model; vectors of other lengths no longer fit."""
        self._known[str(model)] = dimension

    def filter_by_length(self, model: Fingerprint, vectors: Sequence[Vector | None]) -> list[Vector | None]:
        """Return the vectors, with None in place of those of another length."""
        dimension = model.dimension
        lengths = Counter(len(vector) for vector in vectors if vector is not None)
        if not dimension and lengths:
            dimension = self._known.setdefault(str(model), lengths.most_common(1)[0][0])
        return [vector if vector is not None and len(vector) == dimension else None for vector in vectors]


def alone(
    method: "Callable[Concatenate[SearchCache, Given], Found]",
) -> "Callable[Concatenate[SearchCache, Given], Found]":
    """Decorate a method so that one thread at a time runs it. Such a method calls no model."""

    @wraps(method)
    def call_in_turn(cache: "SearchCache", /, *given: Given.args, **named: Given.kwargs) -> Found:
        with cache.turn:
            return method(cache, *given, **named)

    return call_in_turn


class SearchCache:
    """The machine's store and the team's files, as a base or several snapshots of it use them. Safe for threads
    and processes.
    """

    def __init__(self, root: Path, store: CacheStore, listed: Callable[[Path], list[TeamFile]] = team_files) -> None:
        self._root, self._store, self.turn = root, store, RLock()
        self.dimensions = Dimensions()
        """Vectors of other lengths count as missing."""
        self.dropped = 0
        """Files that were given up after rows of them may have been handed out."""
        self._made: dict[Kind, dict[bytes, CacheRow]] = {kind: {} for kind in KINDS}
        self._weight = 0  # bytes of rows that are not written yet
        self._team = TeamReader(root, store, listed)

    @classmethod
    def open(
        cls, root: Path, folder: Path | None = None, *, limit: int = CACHE_LIMIT, looks: bool = False
    ) -> "SearchCache":
        """Open the caches of a base. All bases of the user share `folder`; with None nothing outlives this
        process. `limit` is in bytes, for all derived state. With `looks` nothing in the folder changes.
        """
        return cls(root, CacheStore(folder, limit=limit, looks=looks))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the unusable files and rows of the team, as far as they were examined."""
        with self.turn:
            return self._team.findings

    @property
    def unsaved(self) -> int:
        """Return the number of rows that `save` would write."""
        return sum(map(len, self._made.values()))

    @property
    def store(self) -> CacheStore:
        """Return the store of this machine, with the team's files of the base read into it."""
        with self.turn:
            self._team.numbers()
        return self._store

    @alone
    def tokens(self, keys: Sequence[bytes]) -> list[Tokens | None]:
        """Return the tokens of each key; None where they are missing or untrusted (see `verify_tokens`)."""
        return [None if payload is None else tokens_of(payload) for payload in self._load_payloads("tokens", keys)]

    @alone
    def vectors(self, keys: Sequence[bytes], model: Fingerprint = _ANY_MODEL) -> "list[np.ndarray | None]":
        """Return the vector of each key, float32 of unit length. It is None where it is missing, untrusted (see
        `verify_vectors`), or not of the model's dimension; if the model names none, the dimension of most
        vectors counts.
        """
        payloads = self._load_payloads("vector", keys)
        return self.dimensions.filter_by_length(
            model, [None if payload is None else vector_of(payload) for payload in payloads]
        )

    @alone
    def list_missing_keys(self, kind: Kind, keys: Iterable[bytes], model: Fingerprint = _ANY_MODEL) -> list[bytes]:
        """Return the keys for which `tokens` or `vectors` has nothing, without reading a row."""
        wanted_keys, own_rows = list(keys), self._made[kind]
        lengths = {key: len(own_rows[key][3]) for key in wanted_keys if key in own_rows}
        lengths |= self.store.lengths(kind, (key for key in wanted_keys if key not in lengths))
        ranges = [range(lengths[key] // 4) if key in lengths else None for key in wanted_keys]
        fitting = self.dimensions.filter_by_length(model, ranges) if kind == "vector" else ranges
        return [key for key, row in zip(wanted_keys, fitting, strict=True) if row is None]

    @alone
    def find_unverified_keys(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return the keys whose vectors are only in files from elsewhere and are not verified yet."""
        return {stored_row.row[0] for stored_row in self.store.iter_unverified_rows("vector", keys)}

    @alone
    def look_again(self) -> None:
        """Read the team's files as they are now."""
        self._team.look_again()

    @alone
    def ignore_team(self, *, ignored: bool) -> None:
        """Stop using rows that others made, from the team's files and from adopted shards; or use them again."""
        self._team.is_ignored = ignored
        self._team.look_again()
        self._team.numbers()

    @alone
    def stamp(self) -> dict[str, Any]:
        """Return a digest of the team's files as they are now (`team`), and counters of changes in any base: rows
        `added` and rows deleted (`gone`). Each value changes only with its subject.
        """
        team = repr([(file.path, file.stamp) for file in team_files(self._root)])
        return {"team": digest(team.encode()), **self._store.counters()}

    @property
    def team_bytes_on_disk(self) -> int:
        """Return the bytes of the team's files."""
        return sum(file.stamp[0] for file in team_files(self._root) if file.stamp)

    @alone
    def add_tokens(self, rows: Mapping[bytes, tuple[str, Tokens]], fingerprint: Fingerprint) -> None:
        """Add tokens made here: key -> (text, tokens)."""
        self._add("tokens", rows, fingerprint)

    @alone
    def add_vectors(self, rows: "Mapping[bytes, tuple[str, np.ndarray]]", fingerprint: Fingerprint) -> None:
        """Add vectors made here: key -> (text, float32 vector of unit length)."""
        self._add("vector", rows, fingerprint)
        for _, vector in rows.values():
            self.dimensions.expect(fingerprint, len(vector))
            break

    def verify_tokens(self, texts: Mapping[bytes, str], tokenize: Callable[[list[str]], list[Tokens]]) -> None:
        """Recompute a sample of these texts' rows from files of others; then use the rows, or drop the file if the
        sample differs.
        """
        self._verify("tokens", texts, tokenize, lambda payload, tokens: tokens_of(payload) == tokens)

    def verify_vectors(
        self,
        texts: Mapping[bytes, str],
        embed: "Callable[[list[str]], np.ndarray]",
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Verify vectors as `verify_tokens` does tokens; `texts` maps key -> text, `embed` is the model. Embeds at
        most 32 texts of each file that has unverified rows for these texts, file by file while `goes_on`. Until
        then `vectors` leaves these rows out. Returns False if a file was dropped. Raises what `embed` raises.
        """
        return self._verify("vector", texts, embed, _is_same_vector, goes_on)

    @alone
    def save(self) -> bool:
        """Write the rows made here. Returns True if nothing is left to write, False if writing is impossible now."""
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
        """Return all files that the team's cache should consist of for the rows of these keys, path -> bytes. The
        caller writes them and removes the other paths of `team_paths`. Depends only on the rows and the present
        segments, see `team_layout`.
        """
        live = dict.fromkeys(live_keys)
        rows = {kind: list(self.rows(kind, live.keys())) for kind in KINDS}
        files = team_layout(rows, list(self._iter_segments()))
        for data in files.values():  # each was made just now, or was fully trusted before
            self._team.trust(digest(data))
        return files

    def team_paths(self) -> tuple[str, ...]:
        """Return the files that the team's cache consists of now, usable or not."""
        return tuple(file.path for file in team_files(self._root))

    @alone
    def team_numbers(self) -> dict[TeamFile, int]:
        """Return the readable files of the team with their numbers in the store."""
        return dict(self._team.numbers())

    def team_keys(self) -> set[bytes]:
        """Return the keys in the team's files, trusted or not."""
        return self.store.list_keys(tuple(self.team_numbers().values()))

    def keys_of(self, file: TeamFile) -> set[bytes]:
        """Return the keys in a file of the team, trusted or not."""
        return self.store.list_keys((self.team_numbers()[file],))

    @alone
    def adopt(self, files: Collection[int]) -> None:
        """Let this base use the verified rows of files by their numbers in the store, wherever the files lie. All
        or nothing; raises `Unusable`.
        """
        self._store.adopt(self._root, files)
        self._team.look_again()

    def rows(self, kind: Kind, keys: Collection[bytes]) -> Iterator[CacheRow]:
        """Return the usable rows of these keys, each once. The team's rows take precedence, so that its files stay
        unchanged.
        """
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
        """Return the usable rows of these keys by kind and key, with the columns of `cache_format.SCHEMA`."""
        from duckkb.index.cache_parquet import table_of

        return table_of({kind: list(self.rows(kind, keys)) for kind in KINDS})

    @alone
    def close(self) -> None:
        self.save()
        self._store.close()

    def _load_payloads(self, kind: Kind, keys: Sequence[bytes]) -> list[bytes | None]:
        """Load the payload of each key; rows made here take precedence."""
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
                unknown = list(self._store.iter_unverified_rows(kind, texts, number))
            if not unknown:
                continue
            if not goes_on():
                break
            sample = draw(unknown)
            sample_keys = [stored_row.row[0] for stored_row in sample if stored_row.row[0] not in fresh]
            fresh |= zip(sample_keys, recompute([texts[key] for key in sample_keys]), strict=True)
            with self.turn:  # not held while the model worked
                if all(agree(stored_row.row[3], fresh[stored_row.row[0]]) for stored_row in sample):
                    self._store.vouch(number, (stored_row.id for stored_row in unknown))
                else:
                    self._team.drop(file)
                    self.dropped += 1
                    honest = False
        return honest

    def _iter_segments(self) -> Iterator[Standing]:
        """Yield the team's segments whose rows are all usable."""
        for file, number in self._team.numbers().items():
            keys = self._store.list_keys([number])
            is_whole = keys == self._store.list_keys([number], vouched=True) and file not in self._team.imperfect
            if is_whole and file.path.startswith(f"{TEAM_FOLDER}/"):
                with file.open_file() as stream:
                    data = stream.read()
                yield Standing(file.path, "tokens" if "/tokens-" in file.path else "vector", data, keys)


def _is_same_vector(payload: bytes, vector: "np.ndarray") -> bool:
    return same_direction(vector_of(payload), vector)


def draw(rows: Sequence[Stored], count: int = SAMPLE) -> list[Stored]:
    """Draw `count` rows that a forger cannot predict; all rows if there are no more."""
    from random import SystemRandom

    return SystemRandom().sample(rows, min(count, len(rows)))


_SCORE = struct.Struct("<d")


class AnswerCache:
    """The cached answers of models. All bases of the user share `folder`; `limit` is in bytes, for all derived
    state.
    """

    def __init__(self, folder: Path, limit: int = CACHE_LIMIT) -> None:
        self._folder, self._limit = folder, limit

    def scores(self, model: Fingerprint, question: str, texts: Iterable[str]) -> dict[str, float]:
        """Return the model's score of each text for this question; leave out texts that have no score yet."""
        keys = {_compute_key(model, "score", question, text): text for text in texts}
        scores_by_text = {keys[key]: _score(payload) for key, payload in self._load_payloads(keys)}
        return {text: score for text, score in scores_by_text.items() if score is not None}

    def keep_scores(self, model: Fingerprint, question: str, scores: Mapping[str, float]) -> None:
        """Store scores by text; do nothing if the file cannot be written."""
        rows = [
            (_compute_key(model, "score", question, text), content_hash(text), str(model), _SCORE.pack(score))
            for text, score in scores.items()
        ]
        self._keep(rows)

    def variants(self, model: Fingerprint, question: str) -> tuple[Variant, ...]:
        """Return the variants that the model made of the question; empty if there are none yet."""
        answers = [
            _parse_variants(payload)
            for _, payload in self._load_payloads([_compute_key(model, "variants", question, "")])
        ]
        return answers[0] if answers else ()

    def keep_variants(self, model: Fingerprint, question: str, variants: Sequence[Variant]) -> None:
        """Store variants of a question; do nothing if the file cannot be written."""
        payload = json.dumps([[variant.kind, variant.text] for variant in variants]).encode()
        self._keep([(_compute_key(model, "variants", question, ""), content_hash(question), str(model), payload)])

    def _load_payloads(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        with closing(CacheStore(self._folder, limit=self._limit)) as store:
            if store.is_there:
                yield from ((stored_row.row[0], stored_row.row[3]) for stored_row in store.rows("answer", keys))
                store.flush()

    def _keep(self, rows: Sequence[CacheRow]) -> None:
        if rows:
            with closing(CacheStore(self._folder, limit=self._limit)) as store, suppress(Unusable):
                store.add("answer", rows)
                store.trim()


def _compute_key(model: Fingerprint, answer_kind: str, question: str, text: str) -> bytes:
    """Compute a key of 16 bytes over all parts; the length of each part keeps different parts apart."""
    parts = (str(model), answer_kind, question, text)
    hasher = blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.digest()


def _score(payload: bytes) -> float | None:
    if len(payload) != _SCORE.size:
        return None
    score: float = _SCORE.unpack(payload)[0]
    return score if math.isfinite(score) else None


def _parse_variants(payload: bytes) -> tuple[Variant, ...]:
    try:
        variants = tuple(Variant(kind, text) for kind, text in json.loads(payload))
    except (ValueError, TypeError):
        return ()
    return (
        variants
        if all(variant.kind in get_args(VariantKind) and isinstance(variant.text, str) for variant in variants)
        else ()
    )
