"""The cache of tokens and vectors: what this machine made, and what the team shares. Always optional, never an error.

Keys come from `duckkb.indexing.entries`. Files are listed and looked at from both ends when the cache is opened, and read
when a row of their kind is first wanted. What cannot be used is a finding (`findings`) and a miss.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb.entries import Fingerprint, Tokens
from duckkb.errors import Finding
from duckkb.indexing.cache_files import KINDS, TEAM_FOLDER, CacheFile, Damaged, Kind, digest, local_files, team_files, write_local
from duckkb.indexing.sample import SAMPLE, Trust, draw

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from duckkb.indexing.cache_format import CacheRow, Segment

_MANY_SEGMENTS = 16
_SMALL = 16 * 1024 * 1024
_SAME_DIRECTION = 0.99
"""Cosine from which on a recomputed vector counts as the stored one: models differ a little between machines."""

_FORGED = "rows of it did not agree with what was recomputed, so none of it is used"


@dataclass
class _Loaded:
    """One kind of row of one file: what of it may be used. `checked` are the rows that were recomputed one by one."""

    file: CacheFile
    hash: str
    segment: "Segment"
    trusted: bool
    checked: set[bytes] = field(default_factory=set)

    def usable(self, key: bytes) -> bool:
        return key in self.segment.index and (self.trusted or key in self.checked)


class SearchCache:
    """Both stores, local first. Not safe for threads; processes may share a base."""

    def __init__(self, root: Path, trust: Trust, files: Sequence[CacheFile], local: bool) -> None:
        self._root, self._trust, self._local = root, trust, local
        self._findings: list[Finding] = []
        self._files = [file for file in files if self._is_sound(file)]
        self._loaded: dict[Kind, list[_Loaded]] = {}
        self._made: dict[Kind, dict[bytes, CacheRow]] = {kind: {} for kind in KINDS}
        self._unsaved: dict[Kind, set[bytes]] = {kind: set() for kind in KINDS}

    @classmethod
    def open(cls, root: Path, *, local: bool = True, state_home: Path | None = None) -> "SearchCache":
        """The caches of a base. Without `local`, `.duckkb/cache/` is neither read nor written. `state_home` is where this
        machine remembers which files it made or checked; None: for this process only."""
        files = [*(local_files(root) if local else []), *team_files(root)]
        return cls(root, Trust(state_home), files, local)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Files and rows that cannot be used, as far as they were looked at."""
        return tuple(self._findings)

    @property
    def unsaved(self) -> int:
        """Rows that `save` would write."""
        return sum(map(len, self._unsaved.values()))

    def tokens(self, keys: Sequence[bytes]) -> list[Tokens | None]:
        """The tokens of each key; None where they are missing or untrusted (see `verify_tokens`)."""
        from duckkb.indexing.cache_format import tokens_of

        return [None if content is None else tokens_of(content) for content in self._payloads("tokens", keys)]

    def vectors(self, keys: Sequence[bytes]) -> "list[np.ndarray | None]":
        """The vector of each key, float32 of unit length; None where it is missing or untrusted (see `verify_vectors`)."""
        return self._payloads("vector", keys)

    def add_tokens(self, rows: Mapping[bytes, tuple[str, Tokens]], fingerprint: Fingerprint) -> None:
        """Take tokens made here: key -> (text, tokens)."""
        from duckkb.indexing.cache_format import fts_content

        self._add("tokens", {key: (text, fts_content(tokens)) for key, (text, tokens) in rows.items()}, fingerprint)

    def add_vectors(self, rows: "Mapping[bytes, tuple[str, np.ndarray]]", fingerprint: Fingerprint) -> None:
        """Take vectors made here: key -> (text, float32 vector of unit length)."""
        self._add("vector", rows, fingerprint)

    def verify_tokens(self, texts: Mapping[bytes, str], tokenize: Callable[[list[str]], list[Tokens]]) -> None:
        """Recompute a sample of the rows for these texts that come from files not made here, and trust or drop the files."""
        from duckkb.indexing.cache_format import tokens_of

        self._verify("tokens", texts, tokenize, lambda stored, made: tokens_of(stored) == made)

    def verify_vectors(self, texts: Mapping[bytes, str], embed: "Callable[[list[str]], np.ndarray]") -> bool:
        """As `verify_tokens`, for vectors: key -> text, and the model. Embeds at most 32 texts for each file that this
        machine has neither made nor checked, mostly none; False where a file was dropped. Until then `vectors` withholds
        its rows. Raises what `embed` raises."""
        return self._verify("vector", texts, embed, lambda stored, made: _same_direction(stored, made))

    def save(self) -> bool:
        """Write what was added as new local segments; True where nothing is left to write, False where none can be."""
        if not self.unsaved:
            return True
        if not self._local:
            return False
        try:
            for kind in KINDS:
                self._save(kind)
        except OSError:
            return False
        return True

    def team_bytes(self, live_keys: Collection[bytes]) -> dict[str, bytes]:
        """Every file that the team's cache should consist of, path -> bytes, for the rows of these keys. The caller writes
        them and removes the other paths of `team_paths`. A function of rows and present segments, see `team`."""
        from duckkb.indexing.team import Standing, team_layout

        live = set(live_keys)
        rows = {kind: list(self._rows(kind, live)) for kind in KINDS}
        standing = [
            Standing(loaded.file.path, kind, loaded.file.read(), loaded.segment.index.keys())
            for kind in KINDS
            for loaded in self._segments(kind)
            if loaded.trusted and loaded.file.path.startswith(f"{TEAM_FOLDER}/") and not loaded.segment.left_out
        ]
        files = team_layout(rows, standing)
        for data in files.values():
            self._trust.remember(digest(data), KINDS)
        return files

    def team_paths(self) -> tuple[str, ...]:
        """The files that the team's cache consists of now, usable or not."""
        return tuple(file.path for file in team_files(self._root))

    def table(self) -> "pa.Table":
        """All rows that may be used, with the columns of `cache_format.SCHEMA`, by kind and key."""
        from duckkb.indexing.cache_format import table_of

        return table_of({kind: list(self._rows(kind, None)) for kind in KINDS})

    def _is_sound(self, file: CacheFile) -> bool:
        try:
            file.sniff()
        except FileNotFoundError:
            return False
        except Damaged as problem:
            self._findings.append(file.finding(str(problem), problem.remedy))
            if file.is_local:
                file.remove()
            return False
        return True
