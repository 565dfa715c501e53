"""The action `index migrate`: the vectors of another model beside the present ones."""

from contextlib import closing

from msgspec import Struct

from duckkb.actions.folder import OpenOptions, Unopened
from duckkb.actions.models.side import fingerprints, require_trust, side
from duckkb.engine.boot import boot
from duckkb.engine.index import migrate as migrating
from duckkb.engine.index.jobs import Listen
from duckkb.engine.index.migrate import Migration, MigrationBudget
from duckkb.errors import UsageError


class MigratedModel(Struct, frozen=True):
    """The result of a migration to `model`.

    `switch` is the line of config.yaml that activates the model, empty while texts are left. `left_alone` are
    types with vectors whose policies name another model, or none.
    """

    model: str
    done: Migration
    left_alone: tuple[str, ...]
    switch: str


def migrate(
    unopened: Unopened,
    to: str,
    opening: OpenOptions,
    budget: MigrationBudget,
    *,
    dry_run: bool = False,
    listen: Listen = lambda _: None,
) -> MigratedModel:
    """Embed all texts with the model `to`, each once, beside the present vectors.

    `to` is as `config.other_model` takes it.

    Neither the configuration nor the answers of searches change. `dry_run` reports the work and asks nobody.

    Raises `errors.UsageError` where `to` is invalid, or makes the vectors that the base has,
    `errors.Unavailable` (E_UNTRUSTED; E_LOCKED while another job runs), and as `open`.
    """
    sides = [side(unopened, model, opening) for model in ("", to)]
    new_side = sides[1]
    vector_kinds = [kind for kind in new_side.wiring.ontology if kind.has_text_vectors]
    kinds = [kind for kind in vector_kinds if len(fingerprints(sides, kind)) > 1]
    if not kinds:
        message = f"no type would get other vectors: {new_side.settings.embedding.model} makes those that the base has"
        raise UsageError(message, suggestion="duckkb index build makes the missing ones")
    if not dry_run:
        require_trust(new_side)
    with closing(boot(new_side.wiring)) as base:
        result = migrating.look(base, kinds) if dry_run else migrating.migrate(base, kinds, budget, listen)
    left_alone = tuple(kind.name for kind in vector_kinds if kind not in kinds)
    return MigratedModel(
        new_side.settings.embedding.model, result, left_alone, switch="" if result.built.pending else new_side.switch
    )
