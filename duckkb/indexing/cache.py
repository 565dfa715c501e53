"""The cache of tokens and vectors: what this machine made, and what the team shares. Always optional, never an error.

Keys come from `duckkb.indexing.entries`. Files are listed and looked at from both ends when the cache is opened, and read
when many rows of their kind are first wanted; a few rows are read without the rest (`cache_reader`). What cannot be used is
a finding (`findings`) and a miss.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb.entries import Fingerprint, Tokens
from duckkb.errors import Finding
from duckkb.indexing.cache_files import (
    KINDS,
    TEAM_FOLDER,
    CacheFile,
    Kind,
    crowded,
    digest,
    local_files,
    team_files,
    write_local,
)
from duckkb.indexing.cache_present import Present
from duckkb.indexing.cache_reader import Reader
from duckkb.indexing.cache_rows import CacheRow, content_hash, fts_content, same_direction, tokens_of
from duckkb.indexing.dimensions import Dimensions
from duckkb.indexing.loaded import Loaded
from duckkb.indexing.sample import Trust, draw

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


_ANY_MODEL = Fingerprint("", "")
_SPARED = 32
"""Rows of tokens that are sooner made again than written."""
_WIDTHS: dict[Kind, int] = {"tokens": 1, "vector": 4}
"""Bytes of a character, and of a number."""
_HELD = 24 * 1024 * 1024
"""Bytes of rows of a kind that are held in memory, about: then they are written, and read where they lie."""


class SearchCache:
    """Both stores, local first. Not safe for threads; processes may share a base."""

    def __init__(self, root: Path, trust: Trust, reader: Reader, files: Sequence[CacheFile], local: bool) -> None:
        self._root, self._trust, self._reader, self._local = root, trust, reader, local
        self._present = Present(root, trust, reader, files, local)
        self.dimensions = Dimensions()
        """Vectors of other lengths count as missing."""
        self._made: dict[Kind, dict[bytes, CacheRow]] = {kind: {} for kind in KINDS}
        self._unsaved: dict[Kind, set[bytes]] = {kind: set() for kind in KINDS}
        self._weights = dict.fromkeys(KINDS, 0)  # of what was made
        self._may_write = local

    @classmethod
    def open(cls, root: Path, *, local: bool = True, state_home: Path | None = None) -> "SearchCache":
        """The caches of a base. Without `local`, `.duckkb/cache/` is neither read nor written. `state_home` is where this
        machine remembers which files it made or checked; None: for this process only."""
        files = [*(local_files(root) if local else []), *team_files(root)]
        trust = Trust(state_home)
        return cls(root, trust, Reader(trust, state_home), files, local)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Files and rows that cannot be used, as far as they were looked at."""
        return tuple(self._present.findings)

    @property
    def dropped(self) -> int:
        """Files that were given up after rows of them may have been handed out."""
        return self._present.dropped

    @property
    def unsaved(self) -> int:
        """Rows that `save` would write."""
        return sum(map(len, self._unsaved.values()))

    def tokens(self, keys: Sequence[bytes]) -> list[Tokens | None]:
        """The tokens of each key; None where they are missing or untrusted (see `verify_tokens`)."""
        return [None if content is None else tokens_of(content) for content in self._payloads("tokens", keys)]

    def vectors(self, keys: Sequence[bytes], model: Fingerprint = _ANY_MODEL) -> "list[np.ndarray | None]":
        """The vector of each key, float32 of unit length; None where it is missing or untrusted (see `verify_vectors`), or
        not of the model's dimension: that of most, where the model does not say."""
        found = self.dimensions.fitting(model, self._payloads("vector", keys))
        if not any(vector is not None for vector in found):
            return found
        import numpy as np

        return [None if vector is None else np.asarray(vector) for vector in found]

    def lacking(self, kind: Kind, keys: Iterable[bytes], model: Fingerprint = _ANY_MODEL) -> list[bytes]:
        """Those of the keys that `tokens` or `vectors` has nothing for. No row is read for that where its length is known."""
        wanted, made = list(keys), self._made[kind]
        found = self._present.sized(kind, [made[key][3] if key in made else None for key in wanted], wanted)
        fitting = self.dimensions.fitting(model, found) if kind == "vector" else found
        return [key for key, row in zip(wanted, fitting, strict=True) if row is None]

    def withheld(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of the keys whose vectors stand in a file that was not made here, and were not vouched for yet."""
        found, unknown = set(keys), set()
        for file in self._present.of("vector"):
            loaded = None if self._present.may_use(file, "vector", found) else self._present.whole(file, "vector")
            if loaded is not None and not loaded.trusted:
                unknown |= found & loaded.segment.index.keys()
        return unknown

    def look_again(self) -> str:
        """Take in the files that others wrote since they were listed; returns what `stamp` was before that."""
        return self._present.look_again()

    def stamp(self, *, local: bool = True) -> str:
        """Names the files that lie here now, or the team's alone; the same only while none of them changes."""
        return self._present.stamp(local=local)

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all cache files."""
        return sum(file.size for file in self._present.files)

    def add_tokens(self, rows: Mapping[bytes, tuple[str, Tokens]], fingerprint: Fingerprint) -> None:
        """Take tokens made here: key -> (text, tokens)."""
        self._add("tokens", {key: (text, fts_content(tokens)) for key, (text, tokens) in rows.items()}, fingerprint)

    def add_vectors(self, rows: "Mapping[bytes, tuple[str, np.ndarray]]", fingerprint: Fingerprint) -> None:
        """Take vectors made here: key -> (text, float32 vector of unit length)."""
        self._add("vector", rows, fingerprint)
        for _, vector in rows.values():
            self.dimensions.expect(fingerprint, len(vector))
            break

    def verify_tokens(self, texts: Mapping[bytes, str], tokenize: Callable[[list[str]], list[Tokens]]) -> None:
        """Recompute a sample of the rows for these texts that come from files not made here: use them or drop the files.
        A sample speaks for the rows among which it was drawn, never for others that the file holds as well."""
        self._verify("tokens", texts, tokenize, lambda stored, made: tokens_of(stored) == made)

    def verify_vectors(
        self,
        texts: Mapping[bytes, str],
        embed: "Callable[[list[str]], np.ndarray]",
        goes_on: Callable[[], bool] = lambda: True,
    ) -> bool:
        """As `verify_tokens`, for vectors: key -> text, and the model. Embeds at most 32 texts for each file with rows for
        these texts that this machine has neither made nor checked, file by file while `goes_on`; False where a file was
        dropped. Until then `vectors` withholds its rows. Raises what `embed` raises."""
        return self._verify("vector", texts, embed, same_direction, goes_on)

    def spares(self, count: int) -> bool:
        """Whether a sparing `save` would not write tokens if there were so many rows more: there are some already."""
        is_few = count + len(self._unsaved["tokens"]) < _SPARED
        return is_few and any(file.kind == "tokens" for file in local_files(self._root))

    def save(self, *, sparing: bool = False) -> bool:
        """Write what was added as new local segments; True where nothing is left to write, False where none can be.
        `sparing` leaves a few rows of tokens beside those that are cached already: the next process makes them as fast."""
        if self._local:
            self._reader.keep()
        if not self.unsaved:
            return True
        if not self._local:
            return False
        from duckkb.indexing.salvage import rescue

        try:
            while self._present.broken:
                rescue(self._present.broken.pop(), self._trust)
            for kind in KINDS:
                self._save(kind, sparing)
        except OSError:
            return False
        return True

    def compact(self, live_keys: Collection[bytes]) -> None:
        """Write the local segments anew without the rows that nobody needs, once those are more than half of them."""
        for kind in KINDS:
            local = [loaded for loaded in self._present.segments(kind) if loaded.file.is_local and loaded.trusted]
            rows = {row[0]: row for loaded in local for row in loaded.segment.rows(list(loaded.segment.index))}
            live = [row for key, row in rows.items() if key in live_keys]
            if not self._local or 2 * len(live) >= sum(len(loaded.segment.index) for loaded in local):
                continue
            with suppress(OSError):
                written = self._write(kind, live) if live else None
                _remove(loaded.file for loaded in local if loaded.file != written)

    def team_bytes(self, live_keys: Collection[bytes]) -> dict[str, bytes]:
        """Every file that the team's cache should consist of, path -> bytes, for the rows of these keys. The caller writes
        them and removes the other paths of `team_paths`. A function of rows and present segments, see `team`."""
        from duckkb.indexing.team import Standing, team_layout

        live = set(live_keys)
        rows = {kind: list(self._rows(kind, live)) for kind in KINDS}
        standing = [
            Standing(loaded.file.path, kind, loaded.file.read(), loaded.segment.index.keys())
            for kind in KINDS
            for loaded in self._present.segments(kind)
            if loaded.trusted and loaded.file.path.startswith(f"{TEAM_FOLDER}/") and not loaded.segment.left_out
        ]
        files = team_layout(rows, standing)
        for data in files.values():  # each was made just now, or was trusted whole before
            self._trust.remember(digest(data), KINDS)
        return files

    @property
    def has_local_vectors(self) -> bool:
        """Whether this clone has computed vectors before."""
        return any(file.kind == "vector" for file in local_files(self._root))

    def team_paths(self) -> tuple[str, ...]:
        """The files that the team's cache consists of now, usable or not."""
        return tuple(file.path for file in team_files(self._root))

    def team_keys(self) -> set[bytes]:
        """The keys that the team's files hold, trusted or not."""
        own = ((file, kind) for kind in KINDS for file in self._present.of(kind) if not file.is_local)
        return {key for place in own if (loaded := self._present.whole(*place)) for key in loaded.segment.index}

    def loaded(self, kind: Kind) -> Sequence[Loaded]:
        """What each file that can be read holds of one kind, trusted or not; for looking, as `vectors` is for using."""
        return tuple(self._present.segments(kind))

    def table(self) -> "pa.Table":
        """All rows that may be used, with the columns of `cache_format.SCHEMA`, by kind and key."""
        from duckkb.indexing.cache_format import table_of

        return table_of({kind: list(self._rows(kind, None)) for kind in KINDS})

    def _payloads(self, kind: Kind, keys: Sequence[bytes]) -> list[Any]:
        made = self._made[kind]
        return self._present.payloads(kind, [made[key][3] if key in made else None for key in keys], keys)

    def _rows(self, kind: Kind, live: Collection[bytes] | None) -> "Iterator[CacheRow]":
        """Usable rows of these keys (None: all), each once. The team's come first, so that they stay as they are."""
        seen: set[bytes] = set()
        for loaded in sorted(self._present.segments(kind), key=lambda loaded: loaded.file.is_local):
            usable = [key for key in loaded.usable if key not in seen and (live is None or key in live)]
            seen.update(usable)
            yield from loaded.segment.rows(usable)
        yield from (row for key, row in self._made[kind].items() if key not in seen and (live is None or key in live))

    def _add(self, kind: Kind, rows: Mapping[bytes, tuple[str, Any]], fingerprint: Fingerprint) -> None:
        name = str(fingerprint)
        made = {key: (key, content_hash(text), name, payload) for key, (text, payload) in rows.items()}
        self._made[kind] |= made
        self._unsaved[kind] |= made.keys()
        self._weights[kind] += sum(_WIDTHS[kind] * len(payload) for _, payload in rows.values())
        if self._weights[kind] > _HELD and self._unsaved[kind] and self._may_write:
            self._may_write = False
            with suppress(OSError):
                self._save(kind, False)
                self._may_write = True

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
        for file in self._present.of(kind):
            loaded = None if self._present.may_use(file, kind, texts) else self._present.whole(file, kind)
            if loaded is None or loaded.trusted:
                continue
            unknown = loaded.segment.index.keys() & texts.keys() - loaded.vouched
            if not unknown:
                continue
            if not goes_on():
                break
            sample = draw(unknown)
            wanted = [key for key in sample if key not in fresh]
            fresh |= zip(wanted, recompute([texts[key] for key in wanted]), strict=True)
            stored = loaded.segment.payloads(sample)
            if all(agree(row, fresh[key]) for key, row in zip(sample, stored, strict=True)):
                loaded.vouched |= unknown
                self._trust.vouch(loaded.hash, kind, loaded.segment.index, loaded.vouched)
            else:
                self._present.drop(loaded)
                honest = False
        return honest

    def _save(self, kind: Kind, sparing: bool) -> None:
        fresh = [self._made[kind][key] for key in self._unsaved[kind]]
        if sparing and kind == "tokens" and self.spares(0):
            return
        local = [file for file in local_files(self._root) if file.kind == kind] if fresh else []
        merged = self._mergeable(crowded(local), kind)
        rows = {row[0]: row for loaded in merged for row in loaded.segment.rows(list(loaded.segment.index))}
        rows |= {row[0]: row for row in fresh}
        if fresh:
            written = self._write(kind, list(rows.values()))
            self._unsaved[kind].clear()
            gone = [loaded.file for loaded in merged if loaded.file != written]
            self._present.forget(gone)
            self._present.add(written)
            if self._weights[kind] > _HELD:
                self._made[kind].clear()
                self._weights[kind] = 0
            _remove(gone)

    def _mergeable(self, files: Sequence[CacheFile], kind: Kind) -> list[Loaded]:
        """Those that this machine made or checked: a merge must not make others look like its own."""
        return [loaded for file in files if (loaded := self._present.load(file, kind)) and loaded.trusted]

    def _write(self, kind: Kind, rows: "list[CacheRow]") -> CacheFile:
        from duckkb.indexing.cache_format import encode_local

        data, segment = encode_local(kind, rows)
        file, name = write_local(self._root, kind, data), digest(data)
        self._trust.remember(name, [kind])
        self._reader.place(file, segment, name)
        self._reader.keep()
        return file


def _remove(files: Iterable[CacheFile]) -> None:
    for file in files:
        file.remove()
