"""blame, log: where a record comes from."""

import json
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options
from duckkb.cli.verb import base_verb

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.review.provenance.history import FieldOrigin, LogEntry
    from duckkb.truth.git.revisions import Signature


@base_verb("blame", under="fields")
@options.type_name
@click.argument("identity")
@click.argument("field", required=False, metavar="[FIELD[.KEY|[INDEX]]...]")
def blame_command(kb: "KnowledgeBase", type_name: str, identity: str, field: str | None) -> Any:
    """Print for each field of a record the commit that gave it its value, a field a line.

    Of a FIELD that holds a map or a list each value in it by itself: `names` or `names.fr`, `cities[0].size` by place, and of
    a list that merges as a set by value: `tags["red"]`.

    Records are followed by their __id: one that moved to another file has not changed. `commit` is null, and `uncommitted`
    true, where a value is in the working tree alone; `shallow` says that history ends at that commit, so that the value
    may be older.
    """
    return [_blame_line(one) for one in kb.provenance.blame(type_name, identity, field)]


@base_verb("log", under="changes")
@options.type_name
@click.argument("identity")
def log_command(kb: "KnowledgeBase", type_name: str, identity: str) -> Any:
    """Print the changes of a record, the newest first, a commit a line: op, and what each field was and became.

    Also of a record that was deleted. What is not committed comes first, with a null `commit`. `op` is insert, update,
    rename (with `was`) or delete.
    """
    return [_log_line(one) for one in kb.provenance.log(type_name, identity)]


def _blame_line(one: "FieldOrigin") -> dict[str, Any]:
    origin = one.origin
    line = {"field": one.name, "value": json.loads(one.text), **_by(origin.by, origin.is_boundary)}
    return line | {"path": origin.path, "line": origin.line_no, "uri": origin.uri}


def _log_line(one: "LogEntry") -> dict[str, Any]:
    change = one.change
    line = {**_by(one.by, one.is_boundary), "op": change.op, "type": change.type, "identity": change.identity}
    line |= {"was": change.was} if change.was is not None else {}
    line |= {"path": change.place.path, "line": change.place.line_no}
    fields = {}
    for field in change.fields:
        sides = {"before": field.before, "after": field.after}
        fields[field.name] = {side: json.loads(text) for side, text in sides.items() if text is not None}
    return line | {"fields": fields}


def _by(by: "Signature | None", is_boundary: bool) -> dict[str, Any]:
    if by is None:
        return {"commit": None, "uncommitted": True}
    line: dict[str, Any] = {"commit": by.commit, "author": by.author, "email": by.email, "date": by.date}
    return line | {"summary": by.summary} | ({"shallow": True} if is_boundary else {})
