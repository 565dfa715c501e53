"""The page that proposes a change of a record: a form, then its patch, then a commit on a branch.

Truth itself is never written from here.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from duckkb.errors import Conflict, DuckkbError, InvalidRecord, NotFound, Refused, UsageError
from duckkb.serving.statuses import status_of
from duckkb.serving.web.differing import ABSENT, ValueDifference, difference
from duckkb.serving.web.forms import BEGAN, Input, inputs, values
from duckkb.serving.web.kinds import Kind, kinds
from duckkb.serving.web.naming import identity_of
from duckkb.serving.web.visit import Visit

_STEPS = ("preview", "propose", "delete", "propose-delete")
_LONGEST = 200_000


class _Wish(Struct, frozen=True):
    """A requested write: an action with its arguments, and a digest of both, which ties the proposal to what was
    shown.
    """

    action: str
    given: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return sha256(json.dumps([self.action, self.given], sort_keys=True).encode()).hexdigest()[:32]


class _Form(Struct, frozen=True):
    """A form as it was submitted, or is first shown: of a record in the proposal (empty for a new one), with its
    fields.
    """

    visit: Visit
    kind: Kind
    record: Mapping[str, Any]
    fields: list[Input]


async def page(visit: Visit) -> Response:
    """Edit the record of the address, or a new one of a type.

    Raises `errors.Refused` (E_FORBIDDEN) for readers.
    """
    if not visit.caller.may("editor"):
        raise Refused("proposing changes needs the role editor", "E_FORBIDDEN", "ask an admin of this server")
    record_types = await kinds(visit)
    kind = record_types.get(visit.get_parameter("type"))
    if kind is None:
        raise NotFound(
            f"no type {visit.get_parameter('type')!r}", "E_UNKNOWN_TYPE", "choose a type on the page of changes"
        )
    visit, record = await _read(visit, kind)
    form, schema = visit.form, await visit.ask("schema", type=kind.name)
    fields = inputs(schema, record, form, tuple(kind.identity) if record else ())
    if not form:
        return _render_form(_Form(visit, kind, record, fields))
    if form.get("step") not in _STEPS:
        raise UsageError("the form is missing its action", "E_ARGUMENT", "reload the page")
    return await _perform_step(_Form(visit, kind, record, fields))


async def _read(visit: Visit, kind: Kind) -> tuple[Visit, Mapping[str, Any]]:
    """Return the record to edit, empty for a new one. Raises `errors.NotFound`.

    A record that was deleted since the form was loaded counts as a new one, with everything that the form has.
    """
    if not (identity := visit.get_parameter("id")):
        return visit, {}
    try:
        return visit, await visit.propose("get", type=kind.name, identity=identity)
    except NotFound:
        if not visit.form:
            raise
        return replace(
            visit, form={name: value for name, value in visit.form.items() if not name.startswith(BEGAN)}
        ), {}


async def _perform_step(form: _Form) -> Response:
    visit, kind, record = form.visit, form.kind, form.record
    step, message = visit.form["step"], visit.form.get("message", "").replace("\r\n", "\n").strip()
    changes, wrong = values(form.fields)
    wish = _build_wish(visit, kind, record, changes, step)
    is_stale = bool(record) and visit.form.get("etag") != record["_etag"]
    try:
        await _refuse_duplicate(visit, kind, record, changes)
        if "delete" not in step and not changes and not wrong:
            raise UsageError("nothing was changed", "E_ARGUMENT", "change a field first")
        trial = await visit.propose(wish.action, **wish.given, dry_run=True)
    except DuckkbError as problem:
        return _render_form(_attach_problems(form, wrong, problem), problem=problem, is_stale=is_stale)
    is_shown = visit.form.get("shown") == wish.digest
    if wrong or is_stale or not step.startswith("propose") or not is_shown:
        preview = ("", "") if wrong else (trial["patch"], wish.digest)
        return _render_form(_attach_problems(form, wrong, None), is_stale=is_stale, preview=preview)
    try:
        receipt = await visit.propose(wish.action, message, **wish.given)
    except DuckkbError as problem:
        return _render_form(
            _attach_problems(form, wrong, problem),
            problem=problem,
            is_stale=isinstance(problem, Conflict),
        )
    return visit.render_page("proposed.html", receipt=receipt, kind=kind, sees_all=visit.caller.types is None)


def _build_wish(visit: Visit, kind: Kind, record: Mapping[str, Any], changes: Mapping[str, Any], step: str) -> _Wish:
    """Return the write that the form asks for, at the record's version that this page has read."""
    if "delete" in step:
        identity_values = [record.get(name) for name in kind.identity]
        identity = identity_values[0] if len(identity_values) == 1 else identity_values
        is_cascade = visit.form.get("cascade") == "on"
        return _Wish(
            "delete",
            {"type": kind.name, "identities": [identity], "cascade": is_cascade, "if_match": record.get("_etag")},
        )
    if not record:
        return _Wish(
            "put", {"type": kind.name, "records": {name: value for name, value in changes.items() if value is not None}}
        )
    key_fields = {name: record[name] for name in kind.identity}
    return _Wish(
        "put", {"type": kind.name, "records": {**changes, **key_fields}, "merge": True, "if_match": record["_etag"]}
    )


async def _refuse_duplicate(visit: Visit, kind: Kind, record: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Raise where a new record would replace another. Raises `errors.Conflict` (E_EXISTS)."""
    if record or any(changes.get(name) is None for name in kind.identity):
        return
    identity = identity_of(changes, kind.identity)
    try:
        await visit.propose("get", type=kind.name, identity=identity)
    except (NotFound, UsageError):
        return
    raise Conflict(
        f"the {kind.name} {identity} already exists",
        code="E_EXISTS",
        suggestion="edit that, or choose another identity",
    )


def _attach_problems(form: _Form, wrong: Mapping[str, str], problem: DuckkbError | None) -> _Form:
    """Return the form with the faults of each field."""
    messages: dict[str, list[str]] = {name: [text] for name, text in wrong.items()}
    findings = problem.findings if isinstance(problem, InvalidRecord) else ()
    for item in findings:
        messages.setdefault(
            item.field.removeprefix("/").partition("/")[0].replace("~1", "/").replace("~0", "~"), []
        ).append(item.message)
    return replace(form, fields=[replace(item, problems=tuple(messages.get(item.name, ()))) for item in form.fields])


def _list_differences(record: Mapping[str, Any], fields: list[Input]) -> list[ValueDifference]:
    """Return the edits, by field."""
    changes, _ = values(fields)
    return [
        difference(name, name, record.get(name, ABSENT), ABSENT if now is None else now)
        for name, now in changes.items()
    ]


def _render_form(
    form: _Form,
    *,
    problem: DuckkbError | None = None,
    is_stale: bool = False,
    preview: tuple[str, str] = ("", ""),
) -> Response:
    visit, kind, record, fields = form.visit, form.kind, form.record, form.fields
    patch, digest = preview
    is_deletion = "delete" in visit.form.get("step", "")
    names = {item.name for item in fields}
    loose = [
        item
        for item in (problem.findings if problem else ())
        if item.field.removeprefix("/").partition("/")[0] not in names
    ]
    return visit.render_page(
        "edit.html",
        status_of(problem) if problem else 409 if is_stale else 200,
        kind=kind,
        record=record,
        identity=identity_of(record, kind.identity) if record else "",
        fields=fields,
        problem=problem,
        loose=loose,
        is_stale=is_stale,
        is_gone=bool(visit.get_parameter("id")) and not record,
        patch=patch[:_LONGEST],
        rest=max(0, len(patch) - _LONGEST),
        digest=digest,
        is_deletion=is_deletion,
        differences=[] if is_deletion or not patch else _list_differences(record, fields),
        cascade=visit.form.get("cascade") == "on",
        message=visit.form.get("message", ""),
    )
