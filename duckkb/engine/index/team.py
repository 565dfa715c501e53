"""The team's cache, data/indices/: made anew of the rows that the records as they are now have use for."""

from hashlib import sha256

from duckkb.engine.base import Base
from duckkb.engine.index.counted import indexed, live_keys, slabs
from duckkb.engine.write import writable
from duckkb.queries import Notice
from duckkb.truth.commit import protocol
from duckkb.truth.git import repository


def publish(base: Base) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """Write the team's cache under the lock of writers; the files that changed, and what must be said."""
    on_main = repository.is_main_branch(base.root)  # asked first: nothing that can fail comes behind the commit
    with writable(base):
        _make_tokens(base)
        live = live_keys(base)
        changes = _changes(base, live)
        if changes:
            protocol.commit(base.root, changes)
    said = []
    if changes and not on_main:
        remedy = "leave it out of the pull request"
        said.append(Notice("W_NOT_ON_MAIN", "the team cache is meant to be built on the main branch", remedy))
    return tuple(change.path for change in changes), tuple(said)


def _changes(base: Base, live: set[bytes]) -> list[protocol.FileChange]:
    """The files of the team's cache that have to change to hold the rows that are needed, and no others."""
    wanted = base.cache.team_bytes(live)
    paths = sorted({*wanted, *base.cache.team_paths()})
    changes = []
    for path in paths:
        target = base.root / path
        old = sha256(target.read_bytes()).hexdigest() if target.exists() else None
        data = wanted.get(path)
        if data is None or sha256(data).hexdigest() != old:
            changes.append(protocol.FileChange(path, old, data))
    return changes


def _make_tokens(base: Base) -> None:
    """Those of records that came since the job made them; their vectors wait for the next one."""
    for kind in indexed(base):
        for records in slabs(base, kind):
            if base.cache.lacking("tokens", base.builder.needs(kind, records).tokens):
                base.builder.make_tokens(kind, records)
