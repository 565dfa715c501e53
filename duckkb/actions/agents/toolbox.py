"""Actions as tools of a model: the registry says what each takes and does, the caller's rights limit it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS
from duckkb.caller import Caller
from duckkb.llm.loop import Tool

Ask = Callable[[str, Mapping[str, Any], Caller], dict[str, Any]]
"""A function that takes an action's name, its arguments and a caller, and returns the plain object of the answer."""
READS = ("types", "schema", "find", "get", "neighbors", "path", "sql")
PROPOSE = "propose_put"
_PROPOSED = " Nothing is changed: it becomes a proposal on a branch, which somebody reviews."
_OF_WRITERS = frozenset({"dry_run", "embed"})  # a proposal is a dry run already, and is embedded after its merge
_TIMEOUT_S = 120.0


def toolbox(ask: Ask, propose: Ask, caller: Caller, longest: int) -> tuple[Tool, ...]:
    """Return the tools that a caller may use: `READS`, and `PROPOSE`, which puts records through `propose`.

    Reads may be repeated after an interruption. Results are cut at about `longest` characters.
    """

    def tool(name: str, action: Action, ask: Ask, more: str = "", without: frozenset[str] = frozenset()) -> Tool:
        return Tool(
            name,
            action.description + more,
            _build_parameters(action, without if caller.may("admin") else without | action.privileged),
            lambda args, context: shorten_answer(ask(action.name, args, caller), longest),
            timeout_s=_TIMEOUT_S,
            idempotent=not action.writes,
        )

    reads = [tool(name, ACTIONS[name], ask) for name in READS]
    put = tool(PROPOSE, ACTIONS["put"], propose, _PROPOSED, _OF_WRITERS)
    return (*reads, put) if caller.may(ACTIONS["put"].role) else tuple(reads)


def shorten_answer(answer: dict[str, Any], longest: int) -> dict[str, Any]:
    """Shorten an answer to about `longest` characters of JSON.

    Keeps the first entries of its longest list, or else its beginning as text; a `note` says what was left out.
    """
    text = _to_json(answer)
    if len(text) <= longest:
        return answer
    lists = {name: value for name, value in answer.items() if isinstance(value, list)}
    name = max(lists, key=lambda item: len(_to_json(lists[item])), default="")
    room = longest - len(text) + len(_to_json(lists.get(name, [])))
    entries: list[Any] = []
    for item in lists.get(name, []):
        room -= len(_to_json(item)) + 2
        if room < 0:
            break
        entries.append(item)
    if not entries:
        note = f"cut at {longest} of {len(text)} characters: ask for less"
        return {"beginning": text[:longest], "note": note}
    omitted_count = len(lists[name]) - len(entries)
    return answer | {
        name: entries,
        "note": f"{omitted_count} of {len(lists[name])} {name} left out: narrow the request",
    }


def _build_parameters(action: Action, without: frozenset[str]) -> dict[str, Any]:
    schema = action.input
    return schema | {"properties": {name: rule for name, rule in schema["properties"].items() if name not in without}}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
