"""The caches as a whole: what they hold, and the team's file made anew."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from duckkb.engine.base import EMBED_BATCH, Base, batches
from duckkb.engine.write import settled
from duckkb.errors import Unavailable
from duckkb.indexing.entries import token_key
from duckkb.queries import Notice
from duckkb.truth import history, shadow


def status(base: Base) -> dict[str, Any]:
    """Chunks by type, how many lack a vector, and whether the team's cache holds exactly what is needed."""
    chunks = {kind.name: 0 for kind in base.ontology if kind.full_text or kind.vectors}
    pending = 0
    for kind in base.ontology:
        if kind.name not in chunks:
            continue
        base.ensure(kind)
        chunks[kind.name] = sum(len(row.entries) for rows in base.rows(kind).batches() for row in rows)
        pending += len(base.backend.pending(kind))
    missing = _live_keys(base) - base.cache.team_keys()
    absent = not base.cache.team_paths()
    return {
        "model": base.settings.embedding.model,
        "fingerprint": str(base.wiring.embedder.fingerprint),
        "fingerprints": sorted({str(model) for kind in base.ontology if (model := base.fingerprint(kind)) is not None}),
        "tokenizer": str(base.wiring.tokenizer.fingerprint),
        "chunks": chunks,
        "pending": pending,
        "team_cache": "absent" if absent else "stale" if missing else "current",
        "fresh": not pending and not missing,
    }


@dataclass(frozen=True, slots=True)
class Built:
    """What `build` did: the files it wrote, chunks still without a vector and why, what must be said."""

    files: tuple[str, ...]
    pending: int
    reason: str = ""
    notices: tuple[Notice, ...] = ()


def build(base: Base) -> Built:
    """Compute what is missing, batch by batch (each kept at once), then write the team's cache under the lock.

    A model that fails leaves a partial cache, the count that is pending, and the reason.
    """
    reason = _fill(base)
    on_main = history.is_main_branch(base.root)  # asked first: nothing that can fail comes behind the commit
    pending = sum(len(base.backend.pending(kind)) for kind in base.ontology if kind.vectors)
    with settled(base):
        changes = _team_changes(base)
        if changes:
            shadow.commit(base.root, changes)
    base.cache.compact(_live_keys(base))
    said = []
    if changes and not on_main:
        remedy = "leave it out of the pull request"
        said.append(Notice("W_NOT_ON_MAIN", "the team cache is meant to be built on the main branch", remedy))
    return Built(tuple(change.path for change in changes), pending, reason, tuple(said))


def _fill(base: Base) -> str:
    """Compute every vector that is missing; the reason where that had to stop."""
    _live_keys(base)  # makes the tokens: a forged file shows itself before its vectors are used
    try:
        for kind in base.ontology:
            base.ensure(kind)
            if not kind.has_text_vectors:
                continue
            base.adopt(kind)
            missing = sorted(base.backend.pending(kind), key=lambda item: len(item[1]))
            for batch in batches(missing, EMBED_BATCH * 32):
                base.backend.fill(kind, base.embed(kind, dict(batch), f"embedding {kind.name}"))
    except Unavailable as problem:
        return problem.message
    return ""


def _team_changes(base: Base) -> list[shadow.FileChange]:
    """The files of the team's cache that have to change to hold the rows that are needed, and no others."""
    wanted = base.cache.team_bytes(_live_keys(base))
    paths = sorted({*wanted, *base.cache.team_paths()})
    changes = []
    for path in paths:
        target = base.root / path
        old = sha256(target.read_bytes()).hexdigest() if target.exists() else None
        data = wanted.get(path)
        if data is None or sha256(data).hexdigest() != old:
            changes.append(shadow.FileChange(path, old, data))
    return changes


def _live_keys(base: Base) -> set[bytes]:
    """The keys of every token and vector row that the records as they are now have use for."""
    tokenizer = base.wiring.tokenizer.fingerprint
    keys: set[bytes] = set()
    for kind in base.ontology:
        if kind.full_text or kind.vectors:
            for rows in base.rows(kind).batches():
                entries = [entry for row in rows for entry in row.entries]
                keys |= {token_key(tokenizer, entry.content) for entry in entries if entry.tokens is not None}
                keys |= {entry.vector_key for entry in entries if entry.vector_key is not None}
    return keys
