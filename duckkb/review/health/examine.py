"""`doctor`: every check in one order, each on its own. One that fails is an error of that check; the others go on."""

from collections.abc import Callable

from duckkb.errors import DuckkbError
from duckkb.review.health import caches, engines, machine, repository, state, truth
from duckkb.review.health.check import Check, Look, Skipped, Surroundings, Verdict, error
from duckkb.values import dataclass

CHECKS: dict[str, Look] = {
    "python": machine.python,
    "libraries": machine.libraries,
    "extra_local": machine.local_extra,
    "extra_ann": machine.ann_extra,
    "limits": machine.limits,
    "configuration": truth.configuration,
    "trust": truth.trust,
    "git": repository.git,
    "repository": repository.history_kept,
    "git_settings": repository.git_settings,
    "checkout": repository.checkout,
    "attributes": repository.attributes,
    "tracked_state": repository.tracked_state,
    "file_system": state.file_system,
    "disk": state.disk,
    "writable": state.writable,
    "lock": state.lock_file,
    "journal": state.unfinished,
    "local_state": state.local_state,
    "rescued": state.rescued,
    "format": truth.data_format,
    "data": truth.data_present,
    "readable": truth.readable,
    "canonical": truth.none_of(truth.FORM, "every line is in canonical form"),
    "records": truth.none_of(truth.BAD_FIT, "every record fits its type and its place"),
    "identities": truth.none_of(truth.IDENTITIES, "every identity and every __id stands once"),
    "edges": truth.none_of(truth.EDGES, "every edge has its ends"),
    "strangers": truth.none_of(truth.STRANGERS, "nothing else lies in data/"),
    "lfs": repository.lfs,
    "clock": machine.clock,
    "team_cache": caches.team_cache,
    "local_cache": caches.local_cache,
    "coverage": caches.coverage,
    "fingerprint": caches.fingerprint,
    "duckdb": engines.self_test("duckdb", "pip install --force-reinstall 'duckdb>=1.5.5,<2'"),
    "tantivy": engines.self_test("tantivy", "pip install --force-reinstall tantivy"),
    "segmenters": engines.segmenters,
    "model": engines.model,
}


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict of every check, in one order always."""

    checks: tuple[Check, ...]

    @property
    def errors(self) -> int:
        return sum(check.status == "error" for check in self.checks)

    @property
    def warnings(self) -> int:
        return sum(check.status == "warning" for check in self.checks)


def examine(ground: Surroundings, on_check: Callable[[Check], None]) -> Health:
    """Run every check. Changes nothing, and says the same of the same state. `on_check` is told each as it is done: a
    native library that ends the process takes no earlier verdict with it."""
    checks = []
    for name, look in CHECKS.items():
        found = _verdict(look, ground)
        checks.append(Check(name, found.status, found.message, found.remedy))
        on_check(checks[-1])
    return Health(tuple(checks))


def _verdict(look: Look, ground: Surroundings) -> Verdict:
    try:
        return look(ground)
    except Skipped as reason:
        return Verdict("skipped", str(reason))
    except DuckkbError as problem:
        return error(problem.message, problem.suggestion or "mend what the message names, then look again")
    except OSError as problem:
        return error(f"the system refused: {problem.strerror or problem}", "mend the disk or its permissions")
    except Exception as problem:  # a defect of one check must not hide what the others see
        return error(f"the check itself failed: {type(problem).__name__}: {problem}", "report it")
