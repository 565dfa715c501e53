"""Running an action by name for a caller: the one function behind MCP, HTTP and other servers.

The next step after an error for callers of actions: suggested commands, as calls of the same actions.

Answers of actions as plain objects: each function takes the base, the function's result, and the arguments."""

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from typing import Any

from msgspec.structs import replace

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.scoped_base import narrow_base, narrow_errors
from duckkb.ontology.names import suggest_known_names
from duckkb.ontology.validation import Parameters
from duckkb.operations.action import TIMES, Action
from duckkb.operations.catalog import ACTIONS
from duckkb.operations.record_lines import (
    OF_HITS,
    OF_LISTED,
    OF_RECORDS,
    OF_STEPS,
    FieldChoice,
    Projection,
    blame_lines,
    choose_fields,
    describe_changes,
    describe_documents,
    finding_line,
    format_lines,
    hit_lines,
    log_line,
    notice_object,
    project,
    receipt_line,
    report_object,
    result_object,
    say_cut,
    sql_object,
)
from duckkb.operations.record_lookup import document_types, field_names, identity_fields, list_caller_vectors
from duckkb.types import request_context
from duckkb.types.codes import CODES
from duckkb.types.errors import DuckkbError, Refused, UsageError
from duckkb.types.request_context import Caller

_ELSEWHERE = {
    "col show": "settings",
    "col list": "types",
    "resolve --list": "conflicts",
    "graph neighbors": "neighbors",
    "graph path": "path",
    "graph near": "near",
    "graph citing": "citing",
}
"""Verbs by the equivalent action of another name."""
_SHORT = {"-w": "where", "-l": "limit", "-n": "limit", "-t": "types", "-c": "collections"}
_MODES = {
    "-s": "similar",
    "-m": "match",
    "-H": "hybrid",
    "--similar": "similar",
    "--match": "match",
    "--hybrid": "hybrid",
}
_LONGEST = 4_000
"""The most characters of a call that is repeated to its caller; longer vectors and texts are not repeated."""
_IN_TICKS = re.compile(r"`(duckkb [^`]+)`")


def with_calls(suggestion: str) -> str:
    """Replace commands in a suggestion by equal calls of actions, where there are any.

    >>> with_calls("duckkb find notes -w 'year > 2019' -l 3")
    'find {"type": "notes", "where": "year > 2019", "limit": 3}'
    >>> with_calls("duckkb index build")
    'at a shell: duckkb index build'
    """
    if suggestion.startswith("duckkb "):
        return _call(suggestion) or f"at a shell: {suggestion}"
    return _IN_TICKS.sub(lambda match: f"`{_call(match[1]) or match[1]}`", suggestion)


def correct_call(action: Action, given: Mapping[str, Any], correction: tuple[str, str]) -> str:
    """Return a reading action's call with one argument, or one name in a list, corrected; empty unless unique."""
    word, better = correction
    better_arguments = {name: _replace_word(value, word, better) for name, value in given.items()}
    call = f"{action.name} {json.dumps(better_arguments, ensure_ascii=False)}"
    is_one = sum(better_arguments[name] != value for name, value in given.items()) == 1
    return call if is_one and not action.writes and len(call) <= _LONGEST else ""


def _replace_word(value: Any, word: str, better: str) -> Any:
    return (
        [_replace_word(item, word, better) for item in value]
        if isinstance(value, list)
        else better
        if value == word
        else value
    )


def with_calls_in_notices(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer whose notices suggest calls in place of commands."""
    key = "_notices" if "_type" in answer else "notices"
    notices = answer.get(key)
    if not isinstance(notices, list):
        return dict(answer)
    return {
        **answer,
        key: [
            notice | {"remedy": with_calls(notice["remedy"])}
            if isinstance(notice, dict) and "remedy" in notice
            else notice
            for notice in notices
        ],
    }


def _call(command: str) -> str:
    """Return the call equal to a command; empty without one, or for options that no call has."""
    try:
        words = shlex.split(command)[1:]
    except ValueError:
        return ""
    action, argument_words = _find_action(words)
    if action is None:
        return ""
    name, places = action.name, action.positional
    if name == "schema" and not argument_words:
        name = "types"
    if name == "get" and len(argument_words) == 1:
        places = ("citation" if "@" in argument_words[0] and argument_words[0].startswith("duckkb://") else "document",)
    try:
        arguments = _parse_arguments(ACTIONS[name].input["properties"], [*places], argument_words)
    except (KeyError, IndexError, ValueError):
        return ""
    return f"{name} {json.dumps(arguments, ensure_ascii=False)}"


def _find_action(words: list[str]) -> tuple[Action | None, list[str]]:
    """Return the action of a verb, and the words behind the verb."""
    for count in (2, 1):
        verb = " ".join(words[:count])
        action = ACTIONS.get(_ELSEWHERE.get(verb) or verb.replace(" ", "_").replace("-", "_"))
        if action is not None:
            return action, words[count:]
    return None, words


def _parse_arguments(rules: Mapping[str, Any], places: list[str], words: list[str]) -> dict[str, Any]:
    """Parse the words behind a verb into parameters. Raises KeyError, IndexError or ValueError for other words."""
    arguments: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if word in _MODES and "mode" in rules:
            arguments["mode"] = _MODES[word]
        elif word.startswith("-") and word != "-":
            name, _, value = word.partition("=")
            name = _SHORT.get(name) or name.removeprefix("--").replace("-", "_")
            is_flag = rules[name].get("type") == "boolean"
            arguments[name] = True if is_flag else _parse_value(rules[name], value or words.pop(0))
        elif places[0] == "identities":
            arguments.setdefault("identities", []).append(word)
        else:
            name = places.pop(0)
            arguments[name] = _parse_value(rules[name], word)
    return arguments


def _parse_value(rule: Mapping[str, Any], word: str) -> Any:
    kinds = {rule.get("type"), *(alternative.get("type") for alternative in rule.get("anyOf", ()))}
    if word[:1] in ("[", "{") and kinds & {"array", "object"}:
        return json.loads(word)
    if kinds & {"integer", "number"} and "string" not in kinds:
        return int(word) if "integer" in kinds else float(word)
    if kinds == {"array"}:
        return word.split(",")
    if "string" not in kinds:
        raise ValueError("it has another form")
    return word


Given = Mapping[str, Any]


def as_is(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return a result that is a plain object already."""
    return dict(value)


def types(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"types": value}


def format_hits(base: Base, value: Any, given: Given) -> dict[str, Any]:
    choice, origins = _read_choice(given), list[Any]()
    if given.get("provenance"):
        from duckkb.operations.record_origins import origins_of  # few ask for them, and it brings what reads git

        origins = origins_of(base, value)
    lines = hit_lines(value, origins, full=given.get("full", False))
    records, notices = project(
        lines, _make_projection(base, choice, OF_HITS, given["type"]), partial(field_names, base)
    )
    result = say_cut(value, records, choice)
    more = [notice for notice in notices if choice is not None]
    return result_object(replace(result, notices=(*result.notices, *more)), records)


def gotten(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return a record with the chosen fields, or a document, which has no such choice."""
    if (choice := _read_choice(given)) is None or "_type" not in value:
        return dict(value)
    projection = Projection(choice, OF_RECORDS, identity=identity_fields(base, value["_type"]))
    (line,), _ = project([(value, value)], projection, partial(field_names, base))
    return line


def _read_choice(arguments: Given) -> FieldChoice | None:
    return choose_fields(arguments["fields"]) if "fields" in arguments else None


def count(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"type": value.type, "count": value.count}


def page(base: Base, value: Any, given: Given) -> dict[str, Any]:
    records = _project_listed(base, value.records, given["type"], OF_LISTED, given)
    return {"records": records, "total": value.total, "next": value.next}


def neighbors(base: Base, value: Any, given: Given) -> dict[str, Any]:
    records = _project_listed(base, value.records, "all", OF_STEPS, given)
    return {"records": records, "truncated": value.truncated, "next": value.next}


def project_citing_records(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"records": _project_listed(base, value.records, "all", OF_STEPS, given), "truncated": value.truncated}


def near(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"records": _project_listed(base, value.records, given["type"], (*OF_STEPS, "_score"), given)}


def blame(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"fields": blame_lines(value, given.get("field"))}


def log(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"changes": list(map(log_line, value))}


def path(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"path": _project_listed(base, value, "all", OF_STEPS, given)}


def rows(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return sql_object(value)


def documents(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return the documents of a search."""
    return describe_documents(value, value)


def several(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return the requested documents, and the names that match none."""
    present_documents, lacking = value
    return {"documents": present_documents, "lacking": lacking}


def why(base: Base, value: Any, given: Given) -> dict[str, Any]:
    from duckkb.review.explanation import convert_why_to_object

    of_base = [notice.message for notice in boot.notices(base)]
    return convert_why_to_object(value) | {"notices": [*value.notices, *of_base]}


def report(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return report_object(value)


def receipt(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """What was written; of a dry run what would be, as git would show it, and by the first records."""
    if not value.dry_run:
        return {**receipt_line(value)}
    return {**receipt_line(value), "dry_run": True, "patch": value.patch, **describe_changes(value.changes)}


def _project_listed(
    base: Base, records: Sequence[Mapping[str, Any]], of: str, own_fields: Sequence[str], arguments: Given
) -> list[dict[str, Any]]:
    """Return the records of a page or walk without given vectors, or with only the requested `fields`."""
    lines = format_lines(records, document_types(base, of), full=arguments.get("full", False))
    projection = _make_projection(base, _read_choice(arguments), own_fields, of)
    return project(lines, projection, partial(field_names, base))[0]


def _make_projection(base: Base, choice: FieldChoice | None, own_fields: Sequence[str], of: str) -> Projection:
    identity = identity_fields(base, of) if choice is not None else {}
    return Projection(choice, own_fields, list_caller_vectors(base, of), identity=identity)


def with_notices(base: Base, value: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Add notices on the answer, or else on the base, if there are any.

    In a record, which may have a field of that name, they are under `_notices`.
    """
    is_record = "_type" in answer
    if "notices" in answer and not is_record:
        return answer
    notices = [*dict.fromkeys((*boot.notices(base), *getattr(value, "notices", ())))]
    key = "_notices" if is_record else "notices"
    return answer | ({key: [notice_object(notice) for notice in notices]} if notices else {})


def notices_of(answer: Mapping[str, Any]) -> Sequence[Any]:
    """Return the notices that `with_notices` added, objects or texts; never a record's own field."""
    notices: Sequence[Any] = answer.get("_notices" if "_type" in answer else "notices") or ()
    return notices


def plain(value: Any) -> Any:
    """Convert a value to JSON; other values become text, as on the command line."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item) for item in value]
    return str(value)


_EVERYTHING = Caller()


def run(
    base: Base, name: str, given: Mapping[str, object], caller: Caller = _EVERYTHING, *, strict: bool = False
) -> dict[str, Any]:
    """Run the action `name`, and return its plain object as far as the caller may see the base.

    `strict`: refuse, even of a lenient base, while records that the caller sees cannot be read. Raises
    `errors.UsageError` (E_ARGUMENT: no such action; or all problems of the arguments, as findings),
    `errors.Refused` (E_FORBIDDEN), and what the action raises.
    """
    action, arguments = accept_call(name, given, caller)
    with (
        narrow_errors(caller.types, asked_again=base.is_generation),
        _open_past(base, action, arguments, caller) as base,
    ):
        view = narrow_base(base, caller.types, tenant=caller.tenant, lenient=action.lenient)
        if strict and not action.lenient:
            refuse_unreadable(view.tree)
        try:
            value = action.call(view, arguments)
            answer: dict[str, Any] = plain(with_notices(view, value, action.object_of(view, value, arguments)))
        except DuckkbError as problem:
            problem.call = correct_call(action, given, problem.correction) if problem.correction else ""
            raise
    if base.wiring.published and caller.types is None:  # a commit changes with records that others see
        answer["_commit"] = base.wiring.published
    return answer


def prepare(base: Base, name: str, given: Mapping[str, object], caller: Caller) -> bool:
    """Make what an action needs and the configuration lacks; return whether that changed it. Raises as `run`."""
    if name not in ACTIONS or not ACTIONS[name].prepare:
        return False
    action, arguments = accept_call(name, given, caller)
    with narrow_errors(caller.types, asked_again=base.is_generation):
        return action.run_preparation(base, caller, arguments)


@contextmanager
def _open_past(base: Base, action: Action, arguments: Mapping[str, Any], caller: Caller) -> Iterator[Base]:
    """Open the base as of the commit that the arguments name, if any.

    Raises `errors.Refused` (E_FORBIDDEN) for callers who see a part, whose types may have differed then;
    `errors.StateError` (E_REVISION, E_GIT).
    """
    if "at" not in action.form or "at" not in arguments:
        yield base
        return
    if caller.types is not None:
        raise Refused("the history needs access to the whole base", "E_FORBIDDEN", "leave `at` out")
    if base.wiring.published:
        raise UsageError("a published base has one commit", suggestion="leave `at` out")
    with closing(base.wiring.beside(arguments["at"])) as past:
        yield past


def accept_call(name: str, given: Mapping[str, object], caller: Caller) -> tuple[Action, dict[str, Any]]:
    """Return the action of a name and its arguments, if the caller may use it and they fit. Raises as `run`."""
    action = ACTIONS.get(name)
    if action is None:
        raise UsageError("unknown action", code="E_ARGUMENT", suggestion=suggest_known_names(str(name), ACTIONS))
    _refuse_forbidden(action, given, caller)
    return action, _check_arguments(action, given)


def _refuse_forbidden(action: Action, arguments: Mapping[str, object], caller: Caller) -> None:
    if not caller.may(action.role):
        message = f"{action.name} needs the role {action.role}; your role is {caller.role}"
        raise Refused(message, code="E_FORBIDDEN", suggestion="ask an admin of this server for the role")
    if not action.is_for(caller):
        message = f"{action.name} needs access to the whole base"
        raise Refused(message, code="E_FORBIDDEN", suggestion="ask an admin of this server for all types")
    names = sorted(action.privileged.intersection(arguments))
    if names and not caller.may("admin"):
        message = f"{', '.join(names)} of {action.name} needs the role admin; your role is {caller.role}"
        raise Refused(message, code="E_FORBIDDEN", suggestion=f"leave {', '.join(names)} out")


def _check_arguments(action: Action, arguments: Mapping[str, object]) -> dict[str, Any]:
    parameters = _build_parameters(action.name)
    if findings := parameters.findings(arguments):
        first, more = findings[0], f", and {len(findings) - 1} more" if len(findings) > 1 else ""
        raise UsageError(
            f"{action.name}: {first.field.removeprefix('/') or 'the arguments'}: {first.message}{more}",
            code="E_ARGUMENT",
            suggestion=first.remedy,
            findings=findings,
        )
    return _shorten_times(action.name, parameters.whole_numbers(arguments))


def _shorten_times(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Limit timeouts in the arguments to the time left for this call."""
    if (remaining_seconds := request_context.current().left) < math.inf:
        request_context.refuse_late()
        for time, rule in _find_time_rules(name).items():
            if (value := arguments.get(time, rule.get("default"))) is not None:
                most = remaining_seconds * TIMES[time]
                arguments[time] = min(value, max(1, int(most)) if rule["type"] == "integer" else most)
    return arguments


@cache
def _find_time_rules(name: str) -> dict[str, dict[str, Any]]:
    return {time: rule for time, rule in ACTIONS[name].input["properties"].items() if time in TIMES}


@cache
def _build_parameters(name: str) -> Parameters:
    """Return an action's parameters, derived from its signature once per process."""
    return Parameters(ACTIONS[name].input)


def failure(problem: Exception, *, for_calls: bool = False) -> dict[str, Any]:
    """Return an error as a plain object: code, message, next step, and findings as `details`.

    The next step is a command, or a call of an action with `for_calls`. An unexpected error is reported without
    its text, which may hold anything.
    """
    if not isinstance(problem, DuckkbError):
        error = {"code": "E_INTERNAL", "message": "a bug in duckkb", "suggestion": "see the log of the server"}
        return {"error": error}
    suggestion = problem.suggestion or (CODES[problem.code].remedy if problem.code in CODES else "")
    details = dict(problem.details) | (
        {"findings": [finding_line(finding) for finding in problem.findings]} if problem.findings else {}
    )
    error = {
        "code": problem.code,
        "message": problem.message,
        "suggestion": problem.call or with_calls(suggestion) if for_calls else suggestion,
    }
    return {"error": error | ({"details": plain(details)} if details else {})}
