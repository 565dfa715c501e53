"""`check`: everything that is wrong in data/, each finding with a rule id, its place and a remedy."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from duckkb.codes import CODES
from duckkb.engine.base import Base
from duckkb.engine.guard import limited_sides
from duckkb.engine.observed import keyed_text
from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ontology.names import reserved
from duckkb.ontology.validate import Validator
from duckkb.records import FROM, TO, identity_text
from duckkb.review.homoglyphs import hidden_in, may_hide, mixed_identity
from duckkb.truth import layout
from duckkb.truth.files.tree import Ambiguous, Part, StoredRow, Tree
from duckkb.truth.git import places, repository, skipped
from duckkb.values import dataclass


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings, in the order of path, line and rule; `records` were looked at. `prefix` is the folder of the base inside
    its repository, with a final `/`, or empty."""

    findings: tuple[Finding, ...]
    records: int
    prefix: str = ""

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


@dataclass(frozen=True, slots=True)
class Rules:
    """What records are held against: by type its validator, and how long its given vectors are, by field."""

    validator: Callable[[RecordType], Validator]
    lengths: Callable[[RecordType], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What to look at: types, and the parts whose lines are looked at one by one; None for all. Records that stand twice,
    ids and edges are looked at over all parts of the types."""

    kinds: Sequence[RecordType] | None = None
    paths: Collection[str] | None = None


def check(base: Base) -> CheckReport:
    """Hold the whole tree against every rule, with what was found of the caches. Changes nothing."""
    findings = [*skipped.findings(base.root), *base.tree.findings, *base.tree.unreadable, *base.cache.findings]
    findings += _large_caches(base)
    findings += of_tree(base.tree, Rules(base.validator, base.lengths), Scope())
    found = places.find_repository(base.root)
    records = sum(base.tree.count(kind) for kind in base.ontology)
    return CheckReport(in_order(findings), records, found.prefix if found else "")


def _large_caches(base: Base) -> Iterator[Finding]:
    for path in base.cache.team_paths():
        size = (base.root / path).lstat().st_size
        if size > layout.LFS_BYTES and (repository.attributes(base.root, path) or {}).get("filter") != "lfs":
            said = f"{size / 1e6:,.0f} MB, which git keeps whole each time that it changes"
            yield Finding("W_CACHE_SIZE", said, path, remedy=CODES["W_CACHE_SIZE"].remedy)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each once, in the order of path, line and rule."""
    return tuple(sorted(set(findings), key=lambda one: (one.path, one.line, one.code, one.field, one.message)))


def of_tree(tree: Tree, rules: Rules, scope: Scope) -> Iterator[Finding]:
    """What is wrong in the lines that can be read, each by itself and together."""
    for kind in tree.ontology if scope.kinds is None else scope.kinds:
        yield from _name(kind)
        for part in tree.parts_of(kind):
            if scope.paths is None or part.path in scope.paths:
                yield from _part(part)
        rows = [row for row in tree.rows(kind) if scope.paths is None or row.path in scope.paths]
        yield from schema(rows, rules.validator(kind))
        yield from lengths(rows, kind, rules.lengths(kind) if kind.given_vectors else {})
        yield from duplicates(tree, kind)
        yield from same_texts(tree, kind)
        if isinstance(kind, EdgeType):
            yield from edges(tree, kind, tree.rows(kind))


def _name(kind: RecordType) -> Iterator[Finding]:
    """A name that was free when the base was made, or that nobody asked us about."""
    path, _, line = kind.place.rpartition(":")
    if kind.is_collection and (why := reserved(kind.name)):
        remedy = f"duckkb col rename {kind.name} NEW"
        yield Finding("E_RESERVED", f"{kind.name!r} {why}", path, int(line), remedy=remedy, type=kind.name)
    elif why := reserved(kind.table):
        key, folder = ("label", "edges") if kind.kind == "edge" else ("table", "nodes")
        remedy = f"git mv data/{folder}/{kind.table} data/{folder}/NEW, and {key}: NEW"
        yield Finding("E_RESERVED", f"the {key} {kind.table!r} {why}", path, int(line), remedy=remedy, type=kind.name)


def _part(part: Part) -> Iterator[Finding]:
    address = layout.parse_part(part.path)
    if not part.sorted:
        yield Finding("E_NOT_CANONICAL", "the lines are not sorted by identity", part.path, remedy="duckkb fmt")
    if len(part.rows) > layout.PART_RECORDS or part.stamp.size > layout.PART_BYTES:
        yield Finding(
            "W_PART_SIZE", f"{len(part.rows)} records, {part.stamp.size} bytes", part.path, remedy="none needed"
        )
    if not part.canonical and all(row.as_stored for row in part.rows) and not part.findings:
        said = "blank lines, or no LF at the end" if part.rows else "no record is in it"
        yield Finding("E_NOT_CANONICAL", said, part.path, remedy="duckkb fmt")
    for row in part.rows:
        if not row.complete:
            yield _at(row, "E_INCOMPLETE", "the line lacks __id or times", "duckkb fmt")
        elif not row.canonical:
            yield _at(row, "E_NOT_CANONICAL", "the line is not in canonical form", "duckkb fmt")
        yield from _hidden(row)
        day = row.record.created_at[:10].replace("-", "")
        if address is not None and day != address.day:
            said = f"created on {day}, but stands in the folder of {address.day}"
            yield _at(row, "E_MISPLACED", said, "restore __created_at from git")


def _hidden(row: StoredRow) -> Iterator[Finding]:
    remedy = CODES["W_INVISIBLE"].remedy
    if may_hide(row.line):
        for field, said in hidden_in(row.record.fields):
            yield _at(row, "W_INVISIBLE", said, remedy, field)
    if said := mixed_identity(row.record.identity):
        yield _at(row, "W_INVISIBLE", said, remedy)


def _at(row: StoredRow, code: str, message: str, remedy: str, field: str = "") -> Finding:
    record = row.record
    return Finding(code, message, row.path, row.line_no, field, remedy, record.type, identity_text(record.identity))


def schema(rows: Iterable[StoredRow], validator: Validator) -> Iterator[Finding]:
    """What of these records does not fit their type."""
    for row in rows:
        if not validator.is_valid(row.record.fields):
            for finding in validator.findings(row.record.fields):
                yield replace(
                    _at(row, "E_SCHEMA", finding.message, "change the record or the schema"), field=finding.field
                )


def lengths(rows: Iterable[StoredRow], kind: RecordType, expected: Mapping[str, int]) -> Iterator[Finding]:
    """Vectors that are not as long as the others are not searched; the schema does not see that."""
    for row in rows if expected else ():
        for name, length in expected.items():
            value = row.record.fields.get(name)
            if isinstance(value, list) and len(value) != length and not kind.given_vectors[name].dimension:
                said = f"{name} has {len(value)} numbers, most others have {length}; it is not searched"
                yield _at(row, "E_SCHEMA", said, "change the record", f"/{name}")


def duplicates(tree: Tree, kind: RecordType) -> Iterator[Finding]:
    """Records that stand twice, and ids that several claim."""
    for identity, rows in tree.duplicates(kind).items():
        places = ", ".join(f"{row.path}:{row.line_no}" for row in rows)
        said = f"{kind.name} {identity_text(identity)} stands {len(rows)} times: {places}"
        for row in rows[1:]:
            yield _at(row, "E_DUP_IDENTITY", said, "duckkb dedupe")
    for number, rows in tree.id_clashes(kind).items():
        named = " and ".join(identity_text(row.record.identity) for row in rows)
        for row in rows[1:]:
            yield _at(row, "E_DUP_ID", f"__id {number} is that of {named}", "duckkb dedupe --reassign")


def same_texts(tree: Tree, kind: RecordType) -> Iterator[Finding]:
    """Records beside the first one that hold its text, of which their type makes keys."""
    first: dict[str, str] = {}
    for row in tree.rows(kind) if kind.generated is not None and kind.generated.of else ():
        name, text = identity_text(row.record.identity), keyed_text(kind, row.record)
        if text is not None and (other := first.setdefault(text, name)) != name:
            field = kind.generated.of if kind.generated is not None else ""
            said = f"{kind.name} {other} holds the same {field}"
            yield _at(row, "W_SAME_TEXT", said, f"duckkb delete {kind.name} {name}", f"/{field}")


def edges(tree: Tree, kind: EdgeType, rows: Iterable[StoredRow]) -> Iterator[Finding]:
    """Ends of these edges that lead nowhere or to several; and of all edges of a type those that are one too many."""
    counts: dict[int, Counter[object]] = {side: Counter() for side in limited_sides(kind)}
    for row in rows:
        refs = tree.ends(kind, row.record.identity)
        for name, ref in zip((FROM, TO), refs, strict=True):
            if ref is None or isinstance(ref, Ambiguous):
                yield _lost_end(kind, row, name, ref)
        for side, count in counts.items():
            if refs[side] is not None:
                count[refs[side]] += 1
                if count[refs[side]] > 1:
                    said = f"{kind.name} is {kind.cardinality}, but this `{(FROM, TO)[side]}` has another edge already"
                    yield _at(row, "E_CARDINALITY", said, "delete one of them, or change `cardinality`")


def _lost_end(kind: EdgeType, row: StoredRow, name: str, end: Ambiguous | None) -> Finding:
    allowed = kind.from_types if name == FROM else kind.to_types
    shown = row.record.fields[name]
    if end is not None:
        said = f"`{name}` {shown} exists as {' and '.join(end.types)}"
        return _at(row, "E_AMBIGUOUS_END", said, 'write it as {"type": TYPE, "id": IDENTITY}', f"/{name}")
    said = f"no {' or '.join(allowed)} {shown}"
    return _at(row, "E_DANGLING_EDGE", said, "add the node, or delete the edge", f"/{name}")
