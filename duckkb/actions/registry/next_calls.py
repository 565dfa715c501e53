"""The next step after an error for callers of actions: suggested commands, as calls of the same actions."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from duckkb.actions.registry.action import Action
from duckkb.actions.registry.offered import ACTIONS

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
