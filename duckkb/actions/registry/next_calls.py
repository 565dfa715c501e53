"""The next step after an error, for who calls actions: a command that is suggested, as the call of an action that does it."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS

_CALLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "find": ("find", ("type", "query")),
    "get": ("get", ("type", "identity")),
    "list": ("list", ("type",)),
    "schema": ("schema", ("type",)),
    "col show": ("settings", ("type",)),
    "col list": ("types", ()),
    "search": ("search", ("question",)),
    "query": ("query", ("question",)),
    "pack": ("pack", ("question",)),
    "ask": ("ask", ("question",)),
    "sql": ("sql", ("statement",)),
    "why": ("why", ("type", "identity", "query")),
    "blame": ("blame", ("type", "identity")),
    "log": ("log", ("type", "identity")),
    "graph neighbors": ("neighbors", ("type", "identity")),
    "check": ("check", ()),
    "diff": ("diff", ("range",)),
    "branches": ("branches", ()),
    "status": ("status", ()),
    "resolve --list": ("conflicts", ()),
    "put": ("put", ("type", "records")),
    "delete": ("delete", ("type", "identities")),
    "rename": ("rename", ("type", "old", "new")),
    "memory stats": ("memory_stats", ()),
    "memory search": ("memory_search", ("query",)),
    "memory history": ("memory_history", ("key",)),
}
"""Verbs, by the action that does the same and what stands behind them."""
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
"""Characters of a call that is repeated to its caller; vectors and texts that are longer are not."""
_IN_TICKS = re.compile(r"`(duckkb [^`]+)`")


def with_calls(suggestion: str) -> str:
    """A suggestion in which commands are calls of actions, where there are any that do the same.

    >>> with_calls("duckkb find notes -w 'year > 2019' -l 3")
    'find {"type": "notes", "where": "year > 2019", "limit": 3}'
    >>> with_calls("duckkb index build")
    'at a shell: duckkb index build'
    """
    if suggestion.startswith("duckkb "):
        return _call(suggestion) or f"at a shell: {suggestion}"
    return _IN_TICKS.sub(lambda match: f"`{_call(match[1]) or match[1]}`", suggestion)


def correct_call(action: Action, given: Mapping[str, Any], correction: tuple[str, str]) -> str:
    """Return a call of an action that reads, with one argument, or one name in a list, corrected; empty where it stands in no or several places."""
    word, better = correction
    better_arguments = {name: _correct(value, word, better) for name, value in given.items()}
    call = f"{action.name} {json.dumps(better_arguments, ensure_ascii=False)}"
    is_one = sum(better_arguments[name] != value for name, value in given.items()) == 1
    return call if is_one and not action.writes and len(call) <= _LONGEST else ""


def _correct(value: Any, word: str, better: str) -> Any:
    return (
        [_correct(one, word, better) for one in value]
        if isinstance(value, list)
        else better
        if value == word
        else value
    )


def with_calls_in_notices(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer whose notices suggest calls in place of commands."""
    key = "_notices" if "_type" in answer else "notices"
    notices = answer.get(key)
    if not isinstance(notices, list):
        return dict(answer)
    return {
        **answer,
        key: [
            one | {"remedy": with_calls(one["remedy"])} if isinstance(one, dict) and "remedy" in one else one
            for one in notices
        ],
    }


def _call(command: str) -> str:
    """The call that does what a command does; the empty string where none does, or not with these options."""
    try:
        words = shlex.split(command)[1:]
    except ValueError:
        return ""
    verb = next((verb for verb in (" ".join(words[:2]), *words[:1]) if verb in _CALLS), "")
    if not verb:
        return ""
    name, places = _CALLS[verb]
    rest = words[len(verb.split()) :]
    if name == "schema" and not rest:
        name = "types"
    if name == "get" and len(rest) == 1:
        places = ("citation" if "@" in rest[0] and rest[0].startswith("duckkb://") else "document",)
    try:
        arguments = _arguments(ACTIONS[name].input["properties"], [*places], rest)
    except (KeyError, IndexError, ValueError):
        return ""
    return f"{name} {json.dumps(arguments, ensure_ascii=False)}"


def _arguments(rules: Mapping[str, Any], places: list[str], words: list[str]) -> dict[str, Any]:
    """What the words behind a verb say, by the names of parameters. Raises KeyError, IndexError or ValueError for others."""
    found: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if word in _MODES and "mode" in rules:
            found["mode"] = _MODES[word]
        elif word.startswith("-") and word != "-":
            name, _, value = word.partition("=")
            name = _SHORT.get(name) or name.removeprefix("--").replace("-", "_")
            is_flag = rules[name].get("type") == "boolean"
            found[name] = True if is_flag else _value(rules[name], value or words.pop(0))
        elif places[0] == "identities":
            found.setdefault("identities", []).append(word)
        else:
            name = places.pop(0)
            found[name] = _value(rules[name], word)
    return found


def _value(rule: Mapping[str, Any], word: str) -> Any:
    kinds = {rule.get("type"), *(one.get("type") for one in rule.get("anyOf", ()))}
    if word[:1] in ("[", "{") and kinds & {"array", "object"}:
        return json.loads(word)
    if kinds & {"integer", "number"} and "string" not in kinds:
        return int(word) if "integer" in kinds else float(word)
    if kinds == {"array"}:
        return word.split(",")
    if "string" not in kinds:
        raise ValueError("it has another form")
    return word
