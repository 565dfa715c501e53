"""Local segments that cannot be used as they are, and what is still good in them: vectors cost time or money to make."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from duckkb.indexing.cache_files import CacheFile, Damaged, digest, is_behind_link, local_files, write_local
from duckkb.indexing.sample import Trust
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.indexing.cache_rows import CacheRow


@dataclass(frozen=True)
class Salvage:
    """A local segment with something wrong in it. `rows` are those whose checksums hold; `trusted` tells whether this
    machine made or checked the very bytes that they come from."""

    file: CacheFile
    reason: str
    rows: "tuple[CacheRow, ...]" = ()
    trusted: bool = False


def damaged(root: Path, trust: Trust) -> Iterator[Salvage]:
    """Look at every local segment, changing nothing."""
    for file in local_files(root):
        found = _look_at(file, trust)
        if found is not None:
            yield found


def rescue(file: CacheFile, trust: Trust) -> None:
    """Let a local segment that cannot be used give way to the good rows in it. Raises OSError."""
    carry_over(_salvaged(file, "", trust), trust)


def carry_over(found: Salvage, trust: Trust) -> None:
    """Write what is good to a segment of its own and remove the damaged one. Raises OSError.

    Rows from bytes that this machine does not vouch for stay untrusted: a search recomputes a sample of them first.
    """
    from duckkb.indexing.cache_format import encode_local

    kind = found.file.kind
    if found.rows and kind is not None:
        data, _ = encode_local(kind, found.rows)
        written = write_local(found.file.root, kind, data)
        if found.trusted:
            trust.remember(digest(data), [kind])
        if written.path == found.file.path:
            return
    remove(found.file, trust)


def remove(file: CacheFile, trust: Trust) -> None:
    """Remove a local segment, or whatever has its name, and what this machine remembers of it. What lies behind a link is
    somebody else's and stays."""
    if is_behind_link(file.root, file.root / file.path):
        return
    trust.forget(file.path.rsplit("-", 1)[-1].removesuffix(".parquet"))
    path = file.root / file.path
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _look_at(file: CacheFile, trust: Trust) -> Salvage | None:
    from duckkb.indexing.cache_format import decode

    assert file.kind is not None, "a local segment holds one kind of row"
    try:
        segment = decode(file.read(), file.kind)
    except FileNotFoundError:
        return None
    except Damaged as problem:
        return _salvaged(file, str(problem), trust)
    if not segment.left_out:
        return None
    reasons = ", ".join(f"{count} rows: {reason}" for reason, count in sorted(segment.left_out.items()))
    return _salvaged(file, reasons, trust)


def _salvaged(file: CacheFile, reason: str, trust: Trust) -> Salvage:
    from duckkb.indexing.cache_format import salvage

    assert file.kind is not None, "a local segment holds one kind of row"
    try:
        data = file.raw()
        segment = salvage(data, file.kind)
    except (Damaged, FileNotFoundError):
        return Salvage(file, reason)
    rows = tuple(segment.rows(list(segment.index)))
    return Salvage(file, reason, rows, trust.knows(digest(data), file.kind))
