"""Cleanup of the user's cache folder: unneeded files go, and of tokens and vectors those unused for longest.

Nothing else is removed: neither the store of an existing base, nor files that are not duckkb's, whatever folder
the user has named.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from duckkb.documents.extract.remembered import surplus
from duckkb.errors import Unavailable
from duckkb.indexing.cache_store import CacheStore
from duckkb.llm import LOCAL_FOLDER
from duckkb.settings import Environment
from duckkb.store import place
from duckkb.store.place import Unusable

_MODEL = re.compile(r"[0-9a-f]{12}")
_LEAST = 1 << 20
"""Bytes to free that make rewriting a file worthwhile."""
_SHARE = 0.1
_TEXTS = 0.25
"""Share of the limit that the texts of files may take."""


class Removed(Struct, frozen=True):
    """A thing to remove, why, and its bytes on disk; for rows and unused pages of a file an estimate until it is
    done.
    """

    path: str
    what: str
    bytes: int


class StoreOf(Struct, frozen=True):
    """The store of one base: the base's path, bytes on disk, and whether the base is gone."""

    base: str | None
    bytes: int
    gone: bool


class Cleaned(Struct, frozen=True):
    """The result of a cleanup: what was removed, and what stays.

    `bytes` is the size of the folder `home` afterwards, or the present size where nothing is changed. `bases`
    are those whose stores stay, largest first. `reason` says why a part could not be done.
    """

    home: str
    limit: int
    bytes: int
    freed: int
    removed: tuple[Removed, ...]
    bases: tuple[StoreOf, ...]
    dry_run: bool
    reason: str = ""


def cleanup(
    env: Environment, *, dry_run: bool = False, now: bool = False, used: Collection[str] | None = None
) -> Cleaned:
    """Clean the user's cache folder, or with `dry_run` list what would be removed.

    With `now`, bases that have been gone for less than a week count too. Where `used` gives fingerprints of
    models, vectors of any other model are removed.
    Safe while other processes work: they keep the files that they have open. Raises `errors.Unavailable` (E_IO)
    where the folder of that name is not the user's own.
    """
    home = env.cache_home.expanduser()
    try:
        _refuse_foreign(home)
    except (Unusable, OSError) as problem:
        message, remedy = f"The cache folder cannot be cleaned: {problem}.", "remove that, or set DUCKKB_CACHE_HOME"
        raise Unavailable(message, code="E_IO", suggestion=remedy) from problem
    before, left_over = _measure_folders(home), [*_find_orphan_stores(home, now=now), *_find_unused_models(home)]
    if not dry_run:
        for removal in left_over:
            place.remove(Path(removal.path))
    texts = surplus(home / place.SHARED / place.DOCUMENTS, int(_TEXTS * env.cache_limit))
    for path, _ in () if dry_run else texts:
        path.unlink(missing_ok=True)
    cache = CacheStore(home / place.SHARED)
    most = place.room(home, env.cache_limit, sum(entry.bytes for entry in left_over) if dry_run else 0)
    unused_models = (
        {}
        if used is None
        else {model: rows for model, rows in cache.count_rows_by_model().items() if model not in used}
    )
    in_cache = [
        *_report_unused_vectors(cache, unused_models),
        *_find_cache_surplus(cache, most, sum(sum(rows.values()) for rows in unused_models.values())),
    ]
    reason = "" if dry_run or not in_cache else _shrink_cache(cache, most, unused_models)
    cache.close()
    removals = (*left_over, *in_cache, *_report_texts(home, texts))
    after = before if dry_run else _measure_folders(home)
    freed_bytes = sum(entry.bytes for entry in removals) if dry_run else before - after
    removed_paths = {removal.path for removal in left_over}
    stores = [entry for entry in place.iter_kept_folders(home) if str(entry.folder) not in removed_paths]
    bases = [StoreOf(entry.root, place.size(entry.folder), not entry.is_alive) for entry in stores]
    bases.sort(key=lambda entry: (-entry.bytes, entry.base or ""))
    return Cleaned(str(home), env.cache_limit, after, max(0, freed_bytes), removals, tuple(bases), dry_run, reason)


def _refuse_foreign(home: Path) -> None:
    for folder in (home / place.BASES, home / place.SHARED):
        if os.path.lexists(folder):
            place.refuse_foreign(folder)


def _measure_folders(home: Path) -> int:
    return sum(place.size(home / name) for name in (place.BASES, place.SHARED, place.MODELS))


def _find_orphan_stores(home: Path, *, now: bool) -> Iterator[Removed]:
    for store in place.iter_kept_folders(home):
        if store.is_left_over(0) if now else store.is_left_over():
            reason = f"the base {store.root} was deleted or replaced" if store.root else "of deleted bases"
            yield Removed(str(store.folder), reason, place.size(store.folder))


def _find_unused_models(home: Path) -> Iterator[Removed]:
    """Yield the models that this version does not use; another version can make them again from the installed
    weights.
    """
    folder = home / place.MODELS
    if folder.is_symlink() or not folder.is_dir():  # a link means that the user stores them elsewhere
        return
    for model in sorted(folder.iterdir()):
        if _MODEL.fullmatch(model.name) and model.name != LOCAL_FOLDER and not model.is_symlink():
            yield Removed(str(model), "a model that this version does not use", place.size(model))


def _report_texts(home: Path, texts: list[tuple[Path, int]]) -> Iterator[Removed]:
    if texts:
        reason = f"the texts of {len(texts)} files that were not used for longest"
        yield Removed(str(home / place.SHARED / place.DOCUMENTS), reason, sum(size for _, size in texts))


def _report_unused_vectors(cache: CacheStore, unused_models: Mapping[str, Mapping[int, int]]) -> Iterator[Removed]:
    for model, rows in sorted(unused_models.items()):
        reason = f"{len(rows):,} vectors of {model}, a model that no base known here uses"
        yield Removed(str(cache.path), reason, sum(rows.values()))


def _find_cache_surplus(cache: CacheStore, most: int, going: int) -> Iterator[Removed]:
    """Yield the tokens and vectors to remove so that the rest takes at most `most` bytes, counting `going` as
    gone.
    """
    rows, unused_bytes = cache.surplus(most + going), cache.unused
    if rows:
        yield Removed(str(cache.path), f"{len(rows)} rows that were not used for longest", sum(rows.values()))
    if unused_bytes >= max(_LEAST, int(_SHARE * cache.size)):
        yield Removed(str(cache.path), "empty pages", unused_bytes)


def _shrink_cache(cache: CacheStore, most: int, unused_models: Mapping[str, Collection[int]]) -> str:
    """Remove the surplus from the cache; return the reason where that is not possible."""
    try:
        cache.let_go([row for rows in unused_models.values() for row in rows])
        cache.let_go(cache.surplus(most))
        cache.database.shrink()
    except Unusable as problem:
        return f"{cache.path} is used by another process, or cannot be written ({problem}); repeat it"
    return ""
