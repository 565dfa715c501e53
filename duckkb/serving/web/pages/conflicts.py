"""The page on which a stopped merge is settled, field by field."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from markupsafe import Markup, escape
from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from duckkb.errors import DuckkbError, NotFound, UsageError
from duckkb.review.merging.conflicts import is_edited_as_text
from duckkb.rules.invisible import visible
from duckkb.serving.statuses import status_of
from duckkb.serving.web.differing import mark_changes
from duckkb.serving.web.forms import Mistyped, json_value
from duckkb.serving.web.visit import Visit

SIDES = ("base", "ours", "theirs")
_AT_ONCE = 25
_LONGEST = 20_000
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


async def page(visit: Visit) -> Response:
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
    """Return the conflicts of this page, and their number.

    A submitted form is shown again, even where the conflict before it is settled by now.
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
    return mark_changes(base, value) if base is not None else escape(visible(value[:_LONGEST]))


def _choose_start(conflict: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the initial value of an edit, and whether it is plain text.

    It is plain text where a browser's field keeps all sides unchanged.
    """
    begin = conflict["ours"] if conflict["ours"] is not None else conflict["theirs"] or "null"
    if not conflict["field"] or len(begin) > _LONGEST:
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
