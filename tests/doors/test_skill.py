"""The skill: the page for coding agents is installed and printed, and every command on it is one."""

import re
import shlex
from pathlib import Path

import click
import pytest

from duckkb.cli.main import duckkb
from tests.conftest import run_in


def test_kx_01_the_skill_is_installed_once_and_another_file_stays(tmp_path: Path) -> None:
    printed = run_in(tmp_path, ["--skill"])
    assert printed.code == 0 and printed.out.startswith("---\nname: duckkb\ndescription: ")
    assert len(printed.out.splitlines()) < 120
    file = tmp_path / "skills/duckkb/SKILL.md"
    command = ["skill", "install", "--to", str(tmp_path / "skills")]
    assert run_in(tmp_path, command).line == {"file": str(file), "written": True}
    assert file.read_text("utf-8") == printed.out
    assert run_in(tmp_path, command).line["written"] is False
    file.write_text("mine\n", "utf-8")
    refused = run_in(tmp_path, [*command, "--json"])
    assert (refused.code, refused.error["code"]) == (2, "E_PATH") and file.read_text("utf-8") == "mine\n"
    assert run_in(tmp_path, [*command, "--force"]).line["written"] is True
    assert file.read_text("utf-8") == printed.out
    home = {"HOME": str(tmp_path / "home")}
    assert run_in(tmp_path, ["skill", "install"], env=home).line["written"] is True
    assert (tmp_path / "home/.claude/skills/duckkb/SKILL.md").read_text("utf-8") == printed.out


def test_kx_01_a_file_in_the_way_of_a_folder_is_answered_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "duckkb").write_text("mine\n", "utf-8")
    places = {"skill install --to": ("duckkb", "duckkb/a/b", "."), "init": ("duckkb/a", "duckkb/a/b")}
    for command, place in ((command, place) for command, given in places.items() for place in given):
        refused = run_in(tmp_path, [*command.split(), str(tmp_path / place), "--json"])
        assert (refused.code, refused.error["code"]) == (1, "E_IO"), refused
        assert refused.error["suggestion"].startswith("Give another path"), (command, place, refused.error)
    assert [path.name for path in tmp_path.rglob("*")] == ["duckkb"] and (tmp_path / "duckkb").read_text() == "mine\n"


def test_kx_01_every_command_of_the_skill_exists_and_parses(tmp_path: Path) -> None:
    page = run_in(tmp_path, ["--skill"]).out
    commands = [line for block in re.findall(r"```bash\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    assert len(commands) > 20 and all(command.startswith("duckkb ") for command in commands)
    for command in commands:
        _parse(shlex.split(command))
    for verb in re.findall(r"`duckkb ([a-z-]+)", page):
        assert duckkb.get_command(click.Context(duckkb), verb) is not None, verb
    with pytest.raises(click.UsageError):
        _parse(["duckkb", "find", "notes", "--nope"])


def _parse(words: list[str]) -> None:
    """Parse a command line down to its last command, without running any; raises `click.UsageError`."""
    command: click.Command = duckkb
    ctx = command.make_context(words[0], words[1:])
    while isinstance(command, click.Group):
        name, inner, rest = command.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert inner is not None and name is not None
        command, ctx = inner, inner.make_context(name, rest, parent=ctx)
