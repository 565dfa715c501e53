"""What every verb takes, also one that is added later."""

from collections.abc import Iterator

import click

from duckkb.cli.main import VERBS, duckkb


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _commands(inner, f"{path} {name}")


def test_every_verb_takes_the_options_of_all() -> None:
    ctx = click.Context(duckkb)
    found = [pair for verb in VERBS for pair in _commands(duckkb.resolve_command(ctx, [verb.name])[1], verb.name)]
    assert len(found) > len(VERBS)
    wanted = {"--kb", "--format", "--json"}
    lacking = {path: wanted - {name for one in command.params for name in one.opts} for path, command in found}
    assert {path: names for path, names in lacking.items() if names} == {}
