"""Checks of what is stored: configuration, trust, format, parts. The findings themselves belong to `duckkb check`."""

from collections.abc import Collection, Iterator

from duckkb.engine.boot import refuse_missing_truth
from duckkb.errors import DuckkbError, Finding
from duckkb.review.health.check import Look, Skipped, Surroundings, Verdict, error, ok, warning
from duckkb.review.reports.markup import many
from duckkb.truth import layout

BAD_FIT = frozenset({"E_SCHEMA", "E_MISPLACED", "E_TIME"})
FORM = frozenset({"E_NOT_CANONICAL", "E_INCOMPLETE"})
IDENTITIES = frozenset({"E_DUP_IDENTITY", "E_DUP_ID"})
EDGES = frozenset({"E_DANGLING_EDGE", "E_AMBIGUOUS_END", "E_CARDINALITY"})
STRANGERS = frozenset({"E_UNEXPECTED_FILE", "E_SYMLINK", "E_NOT_REGULAR"})
_SHOWN = 3


def configuration(ground: Surroundings) -> Verdict:
    try:
        wiring = ground.wire()
    except DuckkbError as problem:
        places = [_place(finding) for finding in problem.findings]
        return error("; ".join([problem.message, *places[:_SHOWN]]), problem.suggestion)
    ontology = wiring.ontology
    return ok(f"{many(len(ontology.nodes), 'node type')}, {many(len(ontology.edges), 'edge type')}")


def trust(ground: Surroundings) -> Verdict:
    try:
        demanded, trusted = ground.demands()
    except DuckkbError:
        raise Skipped("the configuration does not load") from None
    if not demanded:
        return ok("the configuration names no hosts and no key variables")
    named = ", ".join(f"{key} {value}" for key, value in sorted(demanded.items()))
    if not trusted:
        return warning(f"not accepted on this machine: {named}", "duckkb trust --show, then duckkb trust")
    return ok(f"accepted on this machine: {named}")


def data_format(ground: Surroundings) -> Verdict:
    number = layout.read_format(ground.root)
    present = (ground.root / layout.FORMAT_PATH).exists()
    return ok(f"format {number}" if present else "no FORMAT.json yet: format 1")


def data_present(ground: Surroundings) -> Verdict:
    tree = ground.base.tree
    refuse_missing_truth(ground.root, tree)
    if not tree.parts:
        return ok("no records yet")
    return ok(f"{many(ground.report.records, 'record')} in {many(len(tree.parts), 'part')}")


def readable(ground: Surroundings) -> Verdict:
    unreadable = ground.base.tree.unreadable
    return _summary(unreadable, f"{many(len(ground.base.tree.parts), 'part')} can be read")


def none_of(codes: Collection[str], otherwise: str) -> Look:
    """The check that `duckkb check` finds none of these in what can be read."""

    def look(ground: Surroundings) -> Verdict:
        unreadable = set(ground.base.tree.unreadable)
        return _summary(
            [one for one in ground.report.findings if one.code in codes and one not in unreadable], otherwise
        )

    return look


def pointers(ground: Surroundings) -> Iterator[Finding]:
    """Findings about files that git LFS left as pointers."""
    yield from (finding for finding in ground.report.findings if finding.code == "E_POINTER")
    yield from (finding for finding in ground.base.cache.findings if "LFS pointer" in finding.message)


def _summary(found: Collection[Finding], otherwise: str) -> Verdict:
    """How many, the first of them, and the remedies of all."""
    if not found:
        return ok(otherwise)
    first = next(iter(found))
    remedies = dict.fromkeys(finding.remedy for finding in found if finding.remedy)
    said = f"{many(len(found), 'finding')}, the first: {_place(first)} (`duckkb check` lists all)"
    return error(said, "; ".join(list(remedies)[:_SHOWN]) or "duckkb check")


def _place(finding: Finding) -> str:
    return f"{finding.place} {finding.code}: {finding.message}".strip()
