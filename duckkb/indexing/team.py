"""The team's cache as files: one below 8 MB, else segments, of which a night's change adds a small one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from duckkb.indexing.cache_format import encode
from duckkb.indexing.cache_rows import KINDS, CacheRow, Kind
from duckkb.indexing.team_file import TEAM_FILE, TEAM_FOLDER, segment_name
from duckkb.values import dataclass

SINGLE_LIMIT = 8 * 1024 * 1024
"""Bytes from which on one file becomes a folder of segments; also what the rows of a new segment come to at most."""

_SMALL = 1024 * 1024
_MANY_SMALL = 16
_DEAD_SHARE = 0.25


@dataclass(frozen=True)
class Standing:
    """A segment that the team has and that may be kept: its bytes and the keys in it."""

    path: str
    kind: Kind
    data: bytes
    keys: Collection[bytes]


def team_layout(rows: Mapping[Kind, Sequence[CacheRow]], standing: Iterable[Standing]) -> dict[str, bytes]:
    """Path -> bytes of every file that the team's cache should consist of, a function of its arguments alone.

    One file holds exactly these rows. Among segments, one of which a quarter or less is dead stays as it is, so that a
    night's change does not rewrite the rest; its dead rows go with the next rewrite.
    """
    if not any(rows.values()):
        return {}
    if _raw_bytes(rows) < 8 * SINGLE_LIMIT:
        single = encode(rows["tokens"], rows["vector"])
        if len(single) < SINGLE_LIMIT:
            return {TEAM_FILE: single}
    files: dict[str, bytes] = {}
    for kind in KINDS:
        files |= _segments(kind, rows[kind], [segment for segment in standing if segment.kind == kind])
    return files


def _segments(kind: Kind, rows: Sequence[CacheRow], standing: Sequence[Standing]) -> dict[str, bytes]:
    kept = _kept({row[0] for row in rows}, standing)
    covered = {key for segment in kept for key in segment.keys}
    files = {segment.path: segment.data for segment in kept}
    for batch in _batches([row for row in rows if row[0] not in covered]):
        data = encode(batch, ()) if kind == "tokens" else encode((), batch)
        files[f"{TEAM_FOLDER}/{segment_name(kind, data)}"] = data
    return files


def _kept(live: set[bytes], standing: Sequence[Standing]) -> list[Standing]:
    kept = [segment for segment in standing if len(live & set(segment.keys)) >= (1 - _DEAD_SHARE) * len(segment.keys)]
    small = [segment for segment in kept if len(segment.data) < _SMALL]
    return [segment for segment in kept if segment not in small] if len(small) >= _MANY_SMALL else kept


def _batches(rows: Iterable[CacheRow]) -> Iterator[list[CacheRow]]:
    """Rows in the order of their keys, cut where their payloads come to the limit."""
    batch: list[CacheRow] = []
    size = 0
    for row in sorted(rows, key=lambda row: row[0]):
        batch.append(row)
        size += len(row[3])
        if size >= SINGLE_LIMIT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _raw_bytes(rows: Mapping[Kind, Sequence[CacheRow]]) -> int:
    return sum(len(row[3]) for kind in KINDS for row in rows[kind])
