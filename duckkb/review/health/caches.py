"""Checks of what is cached: damage, rows that are withheld or forged, how much of the base they cover."""

import random
from collections.abc import Iterator, Mapping, Sequence

from duckkb.errors import DuckkbError
from duckkb.indexing.cache import SAMPLE
from duckkb.indexing.cache_rows import KINDS, Kind, same_direction, tokens_of, vector_of
from duckkb.indexing.cache_store import Stored
from duckkb.indexing.entries import Needs
from duckkb.ports import Embedder
from duckkb.review.health.check import Skipped, Surroundings, Verdict, ok, warning, worst

Texts = Mapping[bytes, str]


def team_cache(ground: Surroundings) -> Verdict:
    cache = ground.base.cache
    if not cache.team_paths():
        return ok("none, which costs a fresh clone the time to compute tokens and vectors")
    forged, withheld = _forged(ground)
    found = [warning(f"{finding.path}: {finding.message}", finding.remedy) for finding in cache.findings]
    found += [
        warning(
            f"{path}: rows of it do not agree with what was recomputed",
            "find out who changed it, then duckkb index build",
        )
        for path in forged
    ]
    return worst(found, "sound; a search believes it once a sample has been recomputed" if withheld else "sound")


def local_cache(ground: Surroundings) -> Verdict:
    """The tokens and vectors that this machine keeps for all bases."""
    store = ground.base.cache.store
    if (problem := store.problem()) is not None:
        return warning(f"{store.path}: {problem}", "duckkb repair")
    return ok("sound")


def coverage(ground: Surroundings) -> Verdict:
    """How many chunks have tokens and vectors in the caches. Tokens are made when they are missed, vectors are not."""
    store, wanted = ground.base.cache.store, _wanted(ground)
    tokens, vectors = (
        len(store.lengths(kind, wanted[kind]).keys() | {one.row[0] for one in store.withheld(kind, wanted[kind])})
        for kind in KINDS
    )
    said = f"tokens for {tokens} of {len(wanted['tokens'])} texts, vectors for {vectors} of {len(wanted['vector'])}"
    if vectors < len(wanted["vector"]):
        return warning(said, "duckkb index build")
    return ok(said)


def fingerprint(ground: Surroundings) -> Verdict:
    """Whether the cached vectors are of the models that the configuration names, its own and those of policies."""
    settings = ground.wiring.settings
    kinds = [kind for kind in ground.base.ontology if kind.has_text_vectors]
    wanted = {str(model) for kind in kinds if (model := ground.base.fingerprint(kind)) is not None}
    if settings.embedding.model == "none" and not wanted:
        raise Skipped("there is no embedding model (embedding_model: none)")
    wanted = wanted or {str(ground.wiring.embedder.fingerprint)}
    store = ground.base.cache.store
    team = store.fingerprints(store.present)
    others = sum(count for name, count in team.items() if name not in wanted)
    models = " and ".join(sorted(wanted))
    if others:
        vectors = "1 vector" if others == 1 else f"{others} vectors"
        return warning(f"{vectors} in the team's cache are of another model than {models}", "duckkb index build")
    has_some = team or store.lengths("vector", _wanted(ground)["vector"])
    return ok(f"vectors of {models}" if has_some else "no vectors cached yet")


def _wanted(ground: Surroundings) -> dict[Kind, dict[bytes, str]]:
    """The texts that need token rows and vector rows, by key."""
    found: dict[Kind, dict[bytes, str]] = {kind: {} for kind in KINDS}
    for needs, _ in _by_kind(ground):
        found["tokens"] |= needs.tokens
        found["vector"] |= needs.vectors
    return found


def _by_kind(ground: Surroundings) -> Iterator[tuple[Needs, Embedder]]:
    """For each type that is searched what its entries take, and its model."""
    base = ground.base
    for kind in base.ontology:
        if kind.full_text or kind.vectors:
            yield base.builder.needs(kind, [row.record for row in base.tree.rows(kind)]), base.embedder(kind)


def _forged(ground: Surroundings) -> tuple[list[str], bool]:
    """Files that this machine has neither made nor checked and that do not agree with what is recomputed now: all
    tokens, and as many vectors as a search would take, where there is a model. And whether some rows are withheld."""
    cache, texts = ground.base.cache, _wanted(ground)
    found, withheld = [], False
    for file, number in cache.team_numbers().items():
        for kind in KINDS:
            rows = sorted(cache.store.withheld(kind, texts[kind], number), key=lambda stored: stored.row[0])
            withheld = withheld or bool(rows)
            if kind == "vector" and len(rows) > SAMPLE:
                # The same for one file on one machine, so that two looks agree; what a search takes nobody can foresee.
                rows = random.Random(f"{ground.root}\0{file.path}\0{file.stamp}").sample(rows, SAMPLE)
            if rows and not _agree(ground, kind, rows, texts[kind]):
                found.append(file.path)
    return list(dict.fromkeys(found)), withheld


def _agree(ground: Surroundings, kind: Kind, rows: Sequence[Stored], texts: Texts) -> bool:
    """Whether the rows of these texts are what is recomputed now."""
    stored = {one.row[0]: one.row[3] for one in rows}
    if kind == "tokens":
        made = ground.wiring.tokenizer.tokenize([texts[key] for key in stored])
        return all(tokens_of(row) == one for row, one in zip(stored.values(), made, strict=True))
    try:
        for needs, model in _by_kind(ground):
            keys = [key for key in stored if key in needs.vectors]
            fresh = model.embed_passages([texts[key] for key in keys]) if keys else ()
            if not all(same_direction(vector_of(stored[key]), one) for key, one in zip(keys, fresh, strict=True)):
                return False
    except DuckkbError:  # no model to recompute with: what a search cannot check it does not use either
        pass
    return True
