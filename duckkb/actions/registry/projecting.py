"""The fields of records in an answer of any door: the default form, or those that a caller names."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from duckkb.actions.registry.record_lines import OF_HITS, FieldChoice, Line, Projection
from duckkb.errors import UsageError, shell_word
from duckkb.queries import Notice

if TYPE_CHECKING:
    from duckkb.queries import FindResult

_OPTIONS = {"_explain": "--explain prints it", "_provenance": "--provenance prints it"}


def choose_fields(names: Sequence[str]) -> FieldChoice:
    """Return the choice that names make.

    It is only those fields, or, with a `+` before the first, additions to the default form.

    Raises `errors.UsageError` for a + at another name.
    """
    are_more = bool(names) and names[0].startswith("+")
    paths = tuple(dict.fromkeys(name.strip().removeprefix("+" if are_more else "") for name in names))
    if not all(paths) or not paths:
        raise UsageError("name fields: --fields id,author, or --fields +_chunk")
    if not are_more and any(path.startswith("+") for path in paths):
        every = ",".join(path.removeprefix("+") for path in paths)
        raise UsageError(f"put one + in front of all fields: --fields +{every}")
    return FieldChoice(paths, are_more)


def project(
    lines: Sequence[tuple[Line, Line]],
    wanted: Projection,
    field_names: Callable[[str], Iterable[str]],
) -> tuple[list[dict[str, Any]], list[Notice]]:
    """Project lines, given as (whole, default form), to the wanted fields; return them with notices.

    Notices concern names that no line has, and vectors that the default form left out. `field_names` returns a
    type's fields. Raises `errors.UsageError` for a name that no type has as a field.
    """
    wholes, notices = [whole for whole, _ in lines], list[Notice]()
    if lacking := wanted.find_missing_fields(wholes) if wholes else []:
        kinds = list(wanted.given or dict.fromkeys(whole["_type"] for whole in wholes))
        from duckkb.ontology.names import did_you_mean, paths_inside, paths_to, steps_through_lists

        known_names = [name for kind in kinds for name in field_names(kind)]
        for path in lacking:
            if not {path, path.partition(".")[0]} & {*known_names}:
                raise _make_field_error(path, kinds, (*known_names, *wanted.own), paths_to(wholes, path))
        near = [
            f"{path} is inside a list; --fields {steps[0]} has all of it"
            if len(steps := steps_through_lists(wholes, path)) > 1
            else did_you_mean(path, paths_inside(wholes, path))
            for path in lacking
        ]
        message = f"no printed record has {', '.join(lacking)}"
        notices.append(Notice("W_NO_VALUE", message, " ".join(filter(None, near))))
    if names := wanted.left_out(wholes):
        notices.append(Notice("W_OMITTED", f"vectors are not printed: {names}", f"--fields +{names}"))
    return [wanted.project(whole, form) for whole, form in lines], notices


def say_cut(
    result: "FindResult", lines: Sequence[Line], asked: FieldChoice | None, full: str = "`full`"
) -> "FindResult":
    """Add a notice where `lines`, the hits as given, have long texts in brief: how to get whole records.

    `full` is how the caller asks for whole texts.
    """
    if asked is not None and not asked.are_more:
        return result
    pairs = zip(result, lines, strict=True)
    cut = [hit for hit, line in pairs if any(line.get(name, value) != value for name, value in hit.record.items())]
    if not cut:
        return result
    identity = cut[0].identity
    name = str(identity) if isinstance(identity, str | int) else json.dumps(identity, ensure_ascii=False)
    message = "a long text is shortened" if len(cut) == 1 else f"long texts of {len(cut)} results are shortened"
    get = f"duckkb get {shell_word(cut[0].type)} {shell_word(name)}"
    return replace(
        result,
        notices=(*result.notices, Notice("W_OMITTED", message, f"`{get}` prints one in full, {full} prints all")),
    )


def _make_field_error(
    path: str, kinds: Sequence[str], known_names: Sequence[str], nested_paths: Sequence[str]
) -> UsageError:
    """Return the error for a field that no type has; `nested_paths` are paths in records that end with this name."""
    from duckkb.ontology.names import nearest, suggest_known_names

    head = path.partition(".")[0]
    if head in (*OF_HITS, *_OPTIONS):
        message = f"{head} is not printed here"
        return UsageError(message, suggestion=_OPTIONS.get(head, f"`duckkb find` prints {head}"))
    message = f"{kinds[0]} has no field {path!r}" if len(kinds) == 1 else f"no type has a field {path!r}"
    near = nested_paths[0] if nested_paths else nearest(path, known_names)
    advice = f"did you mean `{nested_paths[0]}`?" if nested_paths else suggest_known_names(path, known_names)
    error = UsageError(message, "E_FIELD", advice)
    error.correction = (path, near) if near else None
    return error
