"""The index as a whole: chunks, vectors, caches, and the job that cares for them."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from duckkb.engine.base import Base
from duckkb.engine.index import counted, job_state
from duckkb.engine.index.counted import Counts
from duckkb.engine.index.plan import survey
from duckkb.errors import Unavailable
from duckkb.ontology.model import RecordType

_DRAWN = 64  # records of a type


def status(base: Base) -> dict[str, Any]:
    """Chunks by type, how many lack a vector, whether the team's cache holds exactly what is needed, and the job that runs
    or ran last. What is not known from before is counted, and written down."""
    counts = _counts(base)
    return {
        "model": base.settings.embedding.model,
        "fingerprint": str(base.wiring.embedder.fingerprint),
        "fingerprints": sorted({str(model) for kind in base.ontology if (model := base.fingerprint(kind)) is not None}),
        "tokenizer": str(base.wiring.tokenizer.fingerprint),
        "chunks": {name: count.chunks for name, count in (counts.types or {}).items()},
        "pending": counts.pending,
        "team_cache": counts.team,
        "lanes": {kind.name: found for kind in base.ontology if (found := _lanes(base, kind))},
        "job": job_state.report(base.root, base.notes),
        "fresh": counts.is_fresh,
    }


def sample_caches(base: Base) -> None:
    """Have rows of the team's cache for some records recomputed, drawn so that no forger foresees them, as a search does for
    all: a file that does not agree is a finding of the cache and is not used. An endpoint, which wants money, is not asked."""
    from random import SystemRandom

    for kind in base.ontology if base.cache.team_paths() else ():
        rows = list(base.tree.rows(kind))
        drawn = SystemRandom().sample(rows, min(_DRAWN, len(rows)))
        needs = base.builder.needs(kind, [row.record for row in drawn])
        base.cache.verify_tokens(needs.tokens, base.wiring.tokenizer.tokenize)
        if kind.has_text_vectors and kind.settings(base.settings).embedding.base_url is None:
            with suppress(Unavailable):
                base.cache.verify_vectors(needs.vectors, base.embedder(kind).embed_passages)


def _lanes(base: Base, kind: RecordType) -> Mapping[str, Any]:
    return {"vectors": base.lanes(kind).vectors.account()} if kind.vectors else {}


def _counts(base: Base) -> Counts:
    known = counted.recall(base)
    if known.types is not None and known.team is not None:
        return known
    found = survey(base)
    found.write_down(base)
    return found.counts
