"""A difference for people at a terminal: a block a record, with what changed inside its fields."""

from collections.abc import Iterator

from duckkb.review.diff import stat
from duckkb.review.diff.model import Diff, FieldChange, Options, RecordChange

_WORDS = {"insert": "added", "update": "changed", "rename": "renamed", "delete": "removed"}


def render(diff: Diff, options: Options) -> Iterator[str]:
    """The configuration, the records, the findings, then all of it in numbers."""
    for one in diff.ontology:
        yield f"configuration {one.what}: [-{one.before or ''}-]{{+{one.after or ''}+}}"
    for change in diff.changes:
        yield from _record(change)
    for finding in diff.findings:
        yield str(finding)
    yield stat.total(diff)


def _record(change: RecordChange) -> Iterator[str]:
    was = f" (was {change.was})" if change.was is not None else ""
    yield f"{_WORDS[change.op]} {change.type} {change.identity}{was}  {change.place.path}:{change.place.line_no}"
    for field in change.fields:
        yield f"  {field.name}: {_field(field)}"


def _field(field: FieldChange) -> str:
    gone = f"[-{field.before}-]" if field.before is not None else ""
    come = f"{{+{field.after}+}}" if field.after is not None else ""
    return gone + come
