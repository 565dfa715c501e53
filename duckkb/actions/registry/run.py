"""Running an action by name for a caller: the one function behind MCP, HTTP and other servers."""

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from typing import Any

from duckkb import deadline
from duckkb.actions.registry.action import Action
from duckkb.actions.registry.answers import plain, with_notices
from duckkb.actions.registry.next_calls import correct_call, with_calls
from duckkb.actions.registry.offered import ACTIONS
from duckkb.actions.registry.parameters import TIMES
from duckkb.actions.registry.record_lines import finding_line
from duckkb.caller import Caller
from duckkb.codes import CODES
from duckkb.engine.base import Base
from duckkb.engine.boot import refuse_unreadable
from duckkb.engine.narrowed import narrow_base, narrow_errors
from duckkb.errors import DuckkbError, Refused, UsageError
from duckkb.ontology.arguments import Parameters
from duckkb.ontology.names import suggest_known_names

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
    if (remaining_seconds := deadline.current().left) < math.inf:
        deadline.refuse_late()
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
