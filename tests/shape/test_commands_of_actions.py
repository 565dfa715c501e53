"""A verb is declared once: what a command of an action takes is what the action takes, in the same words."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from duckkb.cli.command import ActionCommand, verb
from duckkb.cli.main import VERBS, duckkb
from duckkb.operations.action import describe_parameter
from duckkb.operations.catalog import ACTIONS

OF_THE_TERMINAL = {
    ("search", "limit"): "5, or 20 where an object is printed",
    ("query", "limit"): "5, or 20 where an object is printed",
    ("diff", "budget"): "another one for each format",
    ("find", "vector"): "a file, or stdin",
}
"""Options whose default, and words, depend on what is printed or read."""
WITHIN_ANOTHER = {
    "settings": "schema --settings",
    "types": "schema",
    "schema": "schema",
    "conflicts": "resolve --list",
}
"""Actions that one command gives beside others, by an option or an argument."""


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(inner, (*path, name))


def every_command() -> list[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(duckkb)
    return [
        found
        for one in VERBS
        if (command := duckkb.get_command(ctx, one.name))
        for found in commands(command, (one.name,))
    ]


def declared(rule: Mapping[str, Any]) -> dict[str, Any]:
    """What the schema of a parameter says, as click would have it."""
    every = rule.get("anyOf", (rule,))
    value = next((one["items"] for one in every if one.get("type") == "array"), every[0])
    return {
        "is_flag": rule.get("type") == "boolean",
        "choices": value.get("enum"),
        "least": value.get("minimum", value.get("exclusiveMinimum")),
        "is_open": "exclusiveMinimum" in value,
        "most": value.get("maximum"),
        "default": rule.get("default") or None,
    }


def taken(option: click.Option) -> dict[str, Any]:
    """What an option takes, as click has it."""
    choices = [*option.type.choices] if isinstance(option.type, click.Choice) else None
    default = option.default if isinstance(option.default, str | int | float | list) and option.default else None
    return {
        "is_flag": option.is_flag,
        "choices": choices,
        "least": getattr(option.type, "min", None),
        "is_open": getattr(option.type, "min_open", False),
        "most": getattr(option.type, "max", None),
        "default": True if option.opts[0].startswith("--no-") else default,
    }


def differences(path: tuple[str, ...], command: ActionCommand) -> Iterator[str]:
    """What of a command is not as its action says."""
    rules = ACTIONS[command.action].input["properties"]
    for option in command.params:
        name = option.name or ""
        if not isinstance(option, click.Option) or name not in rules:
            continue
        wanted, found = declared(rules[name]), taken(option)
        if (command.action, name) in OF_THE_TERMINAL:
            wanted["default"] = found["default"]
        elif not str(option.help).startswith(describe_parameter(command.action, name)):
            yield f"{' '.join(path)} {name}: {option.help!r}"
        yield from (
            f"{' '.join(path)} {name}: {key} {found[key]} is not {wanted[key]}"
            for key in wanted
            if wanted[key] != found[key]
        )


def test_what_a_command_takes_is_what_its_action_takes() -> None:
    own = [
        (path, command) for path, command in every_command() if isinstance(command, ActionCommand) and command.action
    ]
    assert [problem for path, command in own for problem in differences(path, command)] == []
    assert {command.action for _, command in own} == {*ACTIONS} - {*WITHIN_ANOTHER}


def test_a_command_with_the_name_of_an_action_is_its_command() -> None:
    """Named as it is, or below a group that the action's name begins with."""
    for path, command in every_command():
        for name in ("_".join(path).replace("-", "_"), path[-1].replace("-", "_") if path[0] == "graph" else ""):
            if name in ACTIONS and name not in WITHIN_ANOTHER and not isinstance(command, click.Group):
                assert isinstance(command, ActionCommand) and command.action == name, path


def test_what_is_said_twice_is_seen() -> None:
    @verb("near", action="near")
    @click.option("-l", "--limit", type=click.IntRange(1, 7), default=3, help="So many.")
    @click.option("--full", is_flag=True, help="Whole texts instead of matching lines.")
    def planted(**_: Any) -> None:
        """A command as somebody could write it by hand."""

    assert isinstance(planted, ActionCommand)
    assert [*differences(("near",), planted)] == [
        "near limit: 'So many.'",
        "near limit: most 7 is not 1000000000",
        "near limit: default 3 is not 10",
    ]
