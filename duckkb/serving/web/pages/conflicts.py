"""The page on which a merge that stopped is settled, field by field."""

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
from duckkb.serving.web.differing import marked
from duckkb.serving.web.forms import Mistyped, json_value
from duckkb.serving.web.visit import Visit

SIDES = ("base", "ours", "theirs")
_AT_ONCE = 25
_LONGEST = 20_000
_TYPED = "value"


class Conflicting(Struct, frozen=True):
    """A conflict as the page shows it: `name` is its JSON for the answer, `sides` has the markup of each (None: that side has none).
    What may be typed instead is shown as `typed`, which is the text itself where it `is_text`, else JSON; it cannot be (None) where it
    is longer than a form holds. `began` is what that counts as typed against; `chosen` and `typed` are what was sent before."""

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
    """What is in conflict, and a choice for each field; what was chosen is carried out by `resolve`."""
    if visit.request.method == "GET":
        return await _shown(visit)
    if unchosen := _unchosen(visit.form):
        return await _shown(visit, unchosen=unchosen)
    try:
        answers = _answers(visit.form)
        if not answers:
            raise UsageError("nothing is chosen", "E_ARGUMENT", "choose a side for a field")
        left = await visit.ask("resolve", answers=answers, stage=True, limit=1)
    except DuckkbError as problem:
        return await _shown(visit, problem)
    return RedirectResponse(visit.link("conflicts", settled=len(answers), left=left["total"]), 303)


async def _shown(visit: Visit, problem: DuckkbError | None = None, unchosen: Collection[str] = ()) -> Response:
    """The page; of a form that was sent with what was sent. `unchosen` are the etags of values that were typed and not chosen: sent
    like this once more, they are left out."""
    found = await _open(visit)
    etags = {one["etag"] for one in found["conflicts"]}
    return visit.shown(
        "conflicts.html",
        status_of(problem) if problem else 400 if unchosen else 200,
        found=found,
        conflicts=[_conflicting(one, visit.form, unchosen) for one in found["conflicts"]],
        open=[*_typed(visit.form)],
        unchosen=[_title(visit.form, etag) for etag in unchosen],
        unplaced=[(_title(visit.form, etag), typed) for etag, typed in _typed(visit.form).items() if etag not in etags],
        sides=SIDES,
        may=visit.caller.may("editor"),
        problem=problem,
        settled=visit.given("settled"),
    )


async def _open(visit: Visit) -> dict[str, Any]:
    """The conflicts of this page, and how many there are. A form that was sent is shown again, also where what it came behind is
    settled by now."""
    try:
        return await visit.ask("conflicts", limit=_AT_ONCE, after=visit.given("after"))
    except NotFound:
        if not visit.form:
            raise
        return await visit.ask("conflicts", limit=_AT_ONCE)


def _typed(form: Mapping[str, str]) -> dict[str, str]:
    """The values that somebody typed, by etag: those that differ from what their fields began with."""
    texts = {key.removeprefix("value."): _sent(form, key) for key in form if key.startswith("value.")}
    return {etag: typed for etag, typed in texts.items() if typed != _sent(form, f"began.{etag}")}


def _unchosen(form: Mapping[str, str]) -> list[str]:
    """The etags of values that were typed, while a side was chosen, or nothing."""
    return [etag for etag in _typed(form) if form.get(f"choose.{etag}") != _TYPED]


def _sent(form: Mapping[str, str], key: str) -> str:
    return form.get(key, "").replace("\r\n", "\n")


def _title(form: Mapping[str, str], etag: str) -> str:
    """The record and the field of a conflict that was sent."""
    named = _named(form.get(f"name.{etag}", ""))
    return " ".join(str(named[key]) for key in ("type", "identity", "field") if named.get(key))


def _conflicting(one: Mapping[str, Any], form: Mapping[str, str], unchosen: Collection[str]) -> Conflicting:
    name = json.dumps({key: one[key] for key in ("type", "identity", "field", "etag")})
    base = _plain(one["base"])
    sides = {side: _side(None if side == "base" else base, _plain(one[side])) for side in SIDES}
    typed, is_text = _beginning(one)
    began, etag = typed or "", one["etag"]
    if typed is not None and f"value.{etag}" in form:
        typed = _sent(form, f"value.{etag}")
        began = typed if etag in unchosen else _sent(form, f"began.{etag}")
    identity = one["name"].removeprefix(f"{one['type']}:").removesuffix(one["field"]).rstrip()
    return Conflicting(
        one["type"], identity, one["field"], one["path"], name, sides,
        typed, began, is_text, form.get(f"choose.{etag}", ""),
    )  # fmt: skip


def _plain(source: str | None) -> str | None:
    """A value for people: a text as it is, all else as JSON over several lines, of a record without what duckkb itself writes."""
    if source is None:
        return None
    value = json.loads(source)
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if not name.startswith("__")}
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _side(base: str | None, value: str | None) -> Markup | None:
    if value is None:
        return None
    return marked(base, value) if base is not None else escape(visible(value[:_LONGEST]))


def _beginning(one: Mapping[str, Any]) -> tuple[str | None, bool]:
    """What an edit begins with, and whether it is the text itself: that is so where a browser's field keeps all sides as they are."""
    begin = one["ours"] if one["ours"] is not None else one["theirs"] or "null"
    if not one["field"] or len(begin) > _LONGEST:
        return None, False
    if is_edited_as_text(one[side] for side in SIDES):
        return json.loads(begin), True
    return json.dumps(json.loads(begin), ensure_ascii=False, indent=1), False


def _answers(form: Mapping[str, str]) -> list[dict[str, Any]]:
    """What was chosen, as `resolve` takes it. Raises `errors.UsageError` for a typed value that is no JSON."""
    answers = []
    for key, chosen in form.items():
        etag = key.removeprefix("choose.")
        if etag == key or not chosen:
            continue
        answer = _named(form.get(f"name.{etag}", ""))
        if chosen == _TYPED:
            typed = _sent(form, f"value.{etag}")
            try:
                answer["value"] = typed if form.get(f"as.{etag}") == "text" else json_value(typed)
            except Mistyped as error:
                said = f"what was typed for {answer.get('field', '')} {error}"
                raise UsageError(said, "E_JSON", 'write texts in quotes: "like this"') from error
        else:
            answer["choose"] = chosen
        answers.append(answer)
    return answers


def _named(name: str) -> dict[str, Any]:
    """Which conflict is meant. Raises `errors.UsageError` for what no page of ours has written."""
    try:
        found = json_value(name)
    except Mistyped:
        found = None
    if not isinstance(found, dict):
        raise UsageError("the form names no conflict", "E_ARGUMENT", "load the page anew")
    return found
