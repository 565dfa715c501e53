"""The pages of changes: the branches to review, and one change by records, with its findings and its effect on
search.

The page on which a stopped merge is settled, field by field.

The page that proposes a change of a record: a form, then its patch, then a commit on a branch.

Truth itself is never written from here."""

import asyncio
import json
import shlex
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from duckkb.merge.merge_conflicts import is_edited_as_text
from duckkb.review.diff_model import OPS
from duckkb.server.http_statuses import status_of
from duckkb.server.web.diff_view import ABSENT, ValueDifference, build_changed_record, difference, mark_changes
from duckkb.server.web.form_fields import BEGAN, Input, Kind, Mistyped, inputs, json_value, kinds, values
from duckkb.server.web.page_request import Visit
from duckkb.server.web.templates import identity_of
from duckkb.types.errors import Conflict, DuckkbError, InvalidRecord, NotFound, Refused, UsageError
from duckkb.types.invisible_characters import visible

VIEWS = ("joined", "beside")
_BUDGET = 80_000
"""Bytes of changes on a page, as the action gives them; at least one record."""
_MOST_FINDINGS, _MOST_QUESTIONS = 200, 50
_LEAST = 2_000


async def branches(visit: Visit) -> Response:
    """Show what is to be reviewed: the changes of the files since the last commit, and those of branches."""
    answer = await visit.ask("branches", limit=20, after=visit.get_parameter("after"))
    is_ready = answer["operation"] is None  # while records are in conflict, types are unknown
    record_types = await kinds(visit) if visit.edits and is_ready and visit.caller.may("editor") else {}
    return visit.render_page("changes.html", found=answer, kinds=record_types, totals=_sum_counts)


async def change_page(visit: Visit) -> Response:
    """Show one change from a cursor on, as many records as fit."""
    target, op, type = _read_target(visit), visit.get_parameter("op"), visit.get_parameter("type")
    ops = [op] if op in OPS else list(OPS)
    answer = await visit.ask(
        "diff", **target, ops=ops, only=[type] if type else None, budget=_BUDGET, after=visit.get_parameter("after")
    )
    tip = await _find_tip(visit, target)
    has_filter = bool(type) or len(ops) == 1
    counts = tip["records"] if tip else (await visit.ask("diff", **target, ops=list(OPS), budget=_LEAST))["types"]
    changes = await asyncio.to_thread(lambda: list(map(build_changed_record, answer["changes"])))
    return visit.render_page(
        "change.html",
        what=target,
        name=target.get("branch") or target.get("range", ""),
        answer=answer,
        tip=tip,
        changes=changes,
        counts=counts or answer["types"],
        total=sum(answer["summary"][name] for name in OPS),
        is_filtered=has_filter,
        op=op,
        type=type,
        view=visit.get_parameter("view") if visit.get_parameter("view") in VIEWS else VIEWS[0],
        ops=OPS,
        views=VIEWS,
        command=_command("diff", target),
        sees_all=visit.caller.types is None,
    )


async def findings(visit: Visit) -> Response:
    """Show the findings of a change: all of them, or for callers without that right, those of the touched files."""
    target = _read_target(visit)
    command = ["check", "--since", _build_range(target) or "HEAD"]
    if "branch" in target:
        report = await visit.ask("check", branch=target["branch"])
    elif visit.caller.types is None and visit.caller.may("admin"):
        report = await visit.ask("check", since=target.get("range", "HEAD"))
    else:
        report, command = await visit.ask("diff", **target), ["diff"]
    blank = dict.fromkeys(("type", "identity", "field", "path", "line", "remedy"), "")
    entries = [
        blank | finding
        for finding in sorted(report["findings"], key=lambda finding: not finding["code"].startswith("E_"))
    ]
    return visit.render_page(
        "change_findings.html",
        findings=entries[:_MOST_FINDINGS],
        rest=max(0, len(entries) - _MOST_FINDINGS),
        errors=sum(finding["code"].startswith("E_") for finding in entries),
        total=len(entries),
        is_judged=report["outcome"] != "not_judged",
        command=shlex.join(["duckkb", *command]),
        back=visit.link("change", **target),
    )


async def impact(visit: Visit) -> Response:
    """Show the effect of a change on the judged questions, largest losses first."""
    target = _read_target(visit)
    report = await visit.ask("impact", **target)
    rows = [row for row in report["results"] if _has_change(row)]
    rows.sort(key=lambda row: (row["ndcg"]["after"] or 0) - (row["ndcg"]["before"] or 0))
    return visit.render_page(
        "change_impact.html",
        report=report,
        rows=rows[:_MOST_QUESTIONS],
        rest=max(0, len(rows) - _MOST_QUESTIONS),
        command=_command("impact", target),
        back=visit.link("change", **target),
    )


def _read_target(visit: Visit) -> dict[str, str]:
    """Return what is compared, as actions take it: a branch, a range, or nothing for the files on disk."""
    return {name: value for name in ("branch", "range") if (value := visit.get_parameter(name))}


def _build_range(target: Mapping[str, str]) -> str:
    return f"HEAD...{target['branch']}" if "branch" in target else target.get("range", "")


def _command(verb: str, target: Mapping[str, str]) -> str:
    return shlex.join(["duckkb", verb, *filter(None, [_build_range(target)])])


async def _find_tip(visit: Visit, target: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "branch" not in target:
        return None
    return next(iter((await visit.ask("branches", branch=target["branch"]))["branches"]), None)


def _sum_counts(counts: Mapping[str, Mapping[str, int]] | None) -> dict[str, int] | None:
    """Return the number of records of each kind of change, over all types."""
    return None if counts is None else {op: sum(type_counts[op] for type_counts in counts.values()) for op in OPS}


def _has_change(row: Mapping[str, Any]) -> bool:
    return row["before"] != row["after"] or bool(row["faded"]) or "problem" in row


SIDES = ("base", "ours", "theirs")
_AT_ONCE = 25
_LONGEST_SIDE = 20_000
_TYPED = "value"


class Conflicting(Struct, frozen=True):
    """A conflict as the page shows it.

    `name` is its JSON for the answer, `sides` has the markup of each (None: the side lacks it). `typed` is the
    editable value, as text where it `is_text`, else as JSON; None where it is longer than a form holds.
    `began` is the initial value, from which an edit differs; `chosen` and `typed` keep what was sent before.
    """

    type: str
    identity: str
    field: str
    path: str
    name: str
    sides: Mapping[str, Markup | None]
    typed: str | None
    began: str
    is_text: bool
    chosen: str = ""


async def conflicts_page(visit: Visit) -> Response:
    """Show the conflicts, with a choice for each field; `resolve` carries out a submitted choice."""
    if visit.request.method == "GET":
        return await _render_page(visit)
    if unchosen := _find_loose_edits(visit.form):
        return await _render_page(visit, unchosen=unchosen)
    try:
        answers = _parse_answers(visit.form)
        if not answers:
            raise UsageError("nothing is chosen", "E_ARGUMENT", "choose a side for a field")
        remainder = await visit.ask("resolve", answers=answers, stage=True, limit=1)
    except DuckkbError as problem:
        return await _render_page(visit, problem)
    return RedirectResponse(visit.link("conflicts", settled=len(answers), left=remainder["total"]), 303)


async def _render_page(visit: Visit, problem: DuckkbError | None = None, unchosen: Collection[str] = ()) -> Response:
    """Render the page; a submitted form keeps its values.

    `unchosen` are the etags of values that were typed but not chosen: if submitted like this again, they are
    left out.
    """
    answer = await _open(visit)
    etags = {conflict["etag"] for conflict in answer["conflicts"]}
    return visit.render_page(
        "conflicts.html",
        status_of(problem) if problem else 400 if unchosen else 200,
        found=answer,
        conflicts=[_build_conflict(conflict, visit.form, unchosen) for conflict in answer["conflicts"]],
        open=[*_collect_edits(visit.form)],
        unchosen=[_build_title(visit.form, etag) for etag in unchosen],
        unplaced=[
            (_build_title(visit.form, etag), text)
            for etag, text in _collect_edits(visit.form).items()
            if etag not in etags
        ],
        sides=SIDES,
        may=visit.caller.may("editor"),
        problem=problem,
        settled=visit.get_parameter("settled"),
    )


async def _open(visit: Visit) -> dict[str, Any]:
    """Return one page of conflicts and their total.

    If the conflict in the `after` parameter was settled meanwhile, a submitted form falls back to the first page.
    """
    try:
        return await visit.ask("conflicts", limit=_AT_ONCE, after=visit.get_parameter("after"))
    except NotFound:
        if not visit.form:
            raise
        return await visit.ask("conflicts", limit=_AT_ONCE)


def _collect_edits(form: Mapping[str, str]) -> dict[str, str]:
    """Return the edited values by etag: those that differ from their initial values."""
    texts = {key.removeprefix("value."): _read_field(form, key) for key in form if key.startswith("value.")}
    return {etag: text for etag, text in texts.items() if text != _read_field(form, f"began.{etag}")}


def _find_loose_edits(form: Mapping[str, str]) -> list[str]:
    """Return the etags of values that were typed while a side, or nothing, was chosen."""
    return [etag for etag in _collect_edits(form) if form.get(f"choose.{etag}") != _TYPED]


def _read_field(form: Mapping[str, str], key: str) -> str:
    return form.get(key, "").replace("\r\n", "\n")


def _build_title(form: Mapping[str, str], etag: str) -> str:
    """Return the record and the field of a submitted conflict."""
    reference = _parse_name(form.get(f"name.{etag}", ""))
    return " ".join(str(reference[key]) for key in ("type", "identity", "field") if reference.get(key))


def _build_conflict(conflict: Mapping[str, Any], form: Mapping[str, str], unchosen: Collection[str]) -> Conflicting:
    name = json.dumps({key: conflict[key] for key in ("type", "identity", "field", "etag")})
    base = _format_value(conflict["base"])
    sides = {side: _render_side(None if side == "base" else base, _format_value(conflict[side])) for side in SIDES}
    text, is_text = _choose_start(conflict)
    began, etag = text or "", conflict["etag"]
    if text is not None and f"value.{etag}" in form:
        text = _read_field(form, f"value.{etag}")
        began = text if etag in unchosen else _read_field(form, f"began.{etag}")
    identity = conflict["name"].removeprefix(f"{conflict['type']}:").removesuffix(conflict["field"]).rstrip()
    return Conflicting(
        conflict["type"], identity, conflict["field"], conflict["path"], name, sides,
        text, began, is_text, form.get(f"choose.{etag}", ""),
    )  # fmt: skip


def _format_value(source: str | None) -> str | None:
    """Return a readable value: a text as it is, all else as JSON over several lines, without duckkb's own fields."""
    if source is None:
        return None
    value = json.loads(source)
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if not name.startswith("__")}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _render_side(base: str | None, value: str | None) -> Markup | None:
    if value is None:
        return None
    return mark_changes(base, value) if base is not None else escape(visible(value[:_LONGEST_SIDE]))


def _choose_start(conflict: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the initial value of an edit, and whether it is plain text.

    It is plain text where a browser's field keeps all sides unchanged.
    """
    begin = conflict["ours"] if conflict["ours"] is not None else conflict["theirs"] or "null"
    if not conflict["field"] or len(begin) > _LONGEST_SIDE:
        return None, False
    if is_edited_as_text(conflict[side] for side in SIDES):
        return json.loads(begin), True
    return json.dumps(json.loads(begin), ensure_ascii=False, indent=1), False


def _parse_answers(form: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the choices as `resolve` takes them.

    Raises `errors.UsageError` for a typed value that is no JSON.
    """
    answers = []
    for key, choice in form.items():
        etag = key.removeprefix("choose.")
        if etag == key or not choice:
            continue
        answer = _parse_name(form.get(f"name.{etag}", ""))
        if choice == _TYPED:
            text = _read_field(form, f"value.{etag}")
            try:
                answer["value"] = text if form.get(f"as.{etag}") == "text" else json_value(text)
            except Mistyped as error:
                message = f"your value for {answer.get('field', '')} {error}"
                raise UsageError(message, "E_JSON", 'write texts in quotes: "like this"') from error
        else:
            answer["choose"] = choice
        answers.append(answer)
    return answers


def _parse_name(name: str) -> dict[str, Any]:
    """Return the conflict of a name. Raises `errors.UsageError` for a name that none of our pages has written."""
    try:
        value = json_value(name)
    except Mistyped:
        value = None
    if not isinstance(value, dict):
        raise UsageError("the form is missing its conflict", "E_ARGUMENT", "reload the page")
    return value


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


async def edit_page(visit: Visit) -> Response:
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
