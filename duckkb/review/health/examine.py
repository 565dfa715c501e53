"""`doctor`: runs every check in a fixed order.

A check that raises is an error of that check; the others continue.
"""

from collections.abc import Callable

from msgspec import Struct

from duckkb.review.health import base, machine, repository
from duckkb.review.health.check import Check, Look, Surroundings, join_problems

CHECKS: dict[str, Look] = {
    "python": machine.python,
    "libraries": machine.libraries,
    "extra_local": machine.local_extra,
    "extra_ann": machine.ann_extra,
    "limits": machine.limits,
    "configuration": base.configuration,
    "trust": base.trust,
    "git": repository.git,
    "repository": repository.check_history,
    "git_settings": repository.git_settings,
    "checkout": repository.checkout,
    "attributes": repository.attributes,
    "tracked_state": repository.check_tracked_state,
    "file_system": machine.file_system,
    "disk": machine.disk,
    "derived_state": machine.check_derived_state,
    "writable": base.writable,
    "lock": base.lock_file,
    "journal": base.check_journal,
    "local_state": base.local_state,
    "rescued": base.check_rescued,
    "format": base.data_format,
    "data": base.data_present,
    "readable": base.readable,
    "canonical": base.none_of(base.FORM, "every line is in canonical form"),
    "records": base.none_of(base.BAD_FIT, "every record fits its type and its place"),
    "identities": base.none_of(base.IDENTITIES, "every identity and every __id is unique"),
    "edges": base.none_of(base.EDGES, "every edge has its ends"),
    "strangers": base.none_of(base.STRANGERS, "data/ has no other files"),
    "documents": base.none_of(base.DOCUMENTS, "every folder and file of documents can be read"),
    "lfs": repository.lfs,
    "clock": machine.clock,
    "team_cache": base.team_cache,
    "local_cache": base.local_cache,
    "coverage": base.coverage,
    "meaning": base.check_meaning,
    "fingerprint": base.fingerprint,
    "duckdb": machine.self_test("duckdb", "pip install --force-reinstall 'duckdb>=2.0.1,<3'"),
    "tantivy": machine.self_test("tantivy", "pip install --force-reinstall tantivy"),
    "segmenters": machine.segmenters,
    "model": machine.model,
}


class Health(Struct, frozen=True):
    """The verdicts of all checks, in a fixed order."""

    checks: tuple[Check, ...]

    @property
    def errors(self) -> int:
        return sum(check.status == "error" for check in self.checks)

    @property
    def warnings(self) -> int:
        return sum(check.status == "warning" for check in self.checks)


def examine(ground: Surroundings, on_check: Callable[[Check], None]) -> Health:
    """Run every check. Changes nothing, and gives the same result for the same state.

    `on_check` gets each verdict as it is done: a native library that ends the process loses no earlier verdict.
    """
    checks = []
    for name, look in CHECKS.items():
        checks.append(join_problems(name, look, ground))
        on_check(checks[-1])
    return Health(tuple(checks))
