"""Checks of what is cached: damage, rows that are withheld or forged, how much of the base they cover."""

import random
from collections.abc import Iterator, Mapping

from duckkb.errors import DuckkbError
from duckkb.indexing.cache_files import KINDS
from duckkb.indexing.cache_rows import same_direction
from duckkb.indexing.loaded import Loaded
from duckkb.indexing.salvage import damaged
from duckkb.indexing.sample import SAMPLE, Trust, is_memory_damaged
from duckkb.ports import Embedder
from duckkb.review.health.check import Skipped, Surroundings, Verdict, ok, warning, worst
from duckkb.review.reports.markup import many

Texts = Mapping[bytes, str]


def team_cache(ground: Surroundings) -> Verdict:
    cache = ground.base.cache
    loaded = [file for kind in KINDS for file in cache.loaded(kind) if not file.file.is_local]
    found = [
        warning(f"{finding.path}: {finding.message}", finding.remedy)
        for finding in cache.findings
        if not finding.path.startswith(".duckkb")
    ]
    found += [
        warning(
            f"{path}: rows of it do not agree with what was recomputed",
            "find out who changed it, then duckkb index build",
        )
        for path in _forged(ground, loaded)
    ]
    if not cache.team_paths():
        return ok("none, which costs a fresh clone the time to compute tokens and vectors")
    believed = all(file.trusted for file in loaded)
    return worst(found, "sound" if believed else "sound; a search believes it once a sample has been recomputed")


def local_cache(ground: Surroundings) -> Verdict:
    ground.need_state()
    found = [
        warning(f"{one.file.path}: {one.reason}; {many(len(one.rows), 'row')} of it can be kept", "duckkb repair")
        for one in damaged(ground.root, Trust(ground.env.state_home))
    ]
    return worst(found, "sound")


def cache_memory(ground: Surroundings) -> Verdict:
    if is_memory_damaged(ground.env.state_home):
        return warning("what this machine remembers of checked caches cannot be read", "duckkb repair")
    return ok("sound")


def coverage(ground: Surroundings) -> Verdict:
    """How many chunks have tokens and vectors in the caches. Tokens are made when they are missed, vectors are not."""
    tokens, vectors = _wanted(ground)
    cached = {kind: {key for file in ground.base.cache.loaded(kind) for key in file.segment.index} for kind in KINDS}
    have_tokens, have_vectors = len(tokens.keys() & cached["tokens"]), len(vectors.keys() & cached["vector"])
    said = f"tokens for {have_tokens} of {len(tokens)} texts, vectors for {have_vectors} of {len(vectors)}"
    if have_vectors < len(vectors):
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
    counted = [(file, file.segment.fingerprints) for file in ground.base.cache.loaded("vector")]
    team = sum(
        count
        for file, names in counted
        if not file.file.is_local
        for name, count in names.items()
        if name not in wanted
    )
    models = " and ".join(sorted(wanted))
    if team:
        return warning(
            f"{many(team, 'vector')} in the team's cache are of another model than {models}", "duckkb index build"
        )
    return ok(f"vectors of {models}" if any(names for _, names in counted) else "no vectors cached yet")


def _wanted(ground: Surroundings) -> tuple[dict[bytes, str], dict[bytes, str]]:
    """The texts that need token rows and vector rows, by key."""
    tokens: dict[bytes, str] = {}
    vectors: dict[bytes, str] = {}
    for some, others, _ in _by_kind(ground):
        tokens |= some
        vectors |= others
    return tokens, vectors


def _by_kind(ground: Surroundings) -> Iterator[tuple[dict[bytes, str], dict[bytes, str], Embedder]]:
    """For each type that is searched the texts that need token rows and vector rows, by key, and its model."""
    base = ground.base
    for kind in base.ontology:
        if kind.full_text or kind.vectors:
            yield *base.builder.wanted(kind, [row.record for row in base.tree.rows(kind)]), base.embedder(kind)


def _forged(ground: Surroundings, loaded: list[Loaded]) -> list[str]:
    """Files that this machine has neither made nor checked and that do not agree with what is recomputed now: all
    tokens, and as many vectors as a search would take, where there is a model."""
    texts = dict(zip(KINDS, _wanted(ground), strict=True))
    found = []
    for file in loaded:
        kind = file.segment.kind
        if file.trusted:
            continue
        keys = sorted(file.segment.index.keys() & texts[kind].keys())
        if kind == "vector" and len(keys) > SAMPLE:
            # The same for one file on one machine, so that two looks agree; what a search takes nobody can foresee.
            keys = random.Random(f"{ground.root}\0{file.hash}").sample(keys, SAMPLE)
        if keys and not _agree(ground, file, {key: texts[kind][key] for key in keys}):
            found.append(file.file.path)
    return list(dict.fromkeys(found))


def _agree(ground: Surroundings, file: Loaded, texts: Texts) -> bool:
    """Whether the rows of these texts are what is recomputed now."""
    from duckkb.indexing.cache_rows import tokens_of

    stored = dict(zip(texts, file.segment.payloads(list(texts)), strict=True))
    if file.segment.kind == "tokens":
        made = ground.wiring.tokenizer.tokenize(list(texts.values()))
        return all(tokens_of(row) == one for row, one in zip(stored.values(), made, strict=True))
    try:
        for _, vectors, model in _by_kind(ground):
            keys = [key for key in texts if key in vectors]
            fresh = model.embed_passages([texts[key] for key in keys]) if keys else ()
            if not all(same_direction(stored[key], one) for key, one in zip(keys, fresh, strict=True)):
                return False
    except DuckkbError:  # no model to recompute with: what a search cannot check it does not use either
        pass
    return True
