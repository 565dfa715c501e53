"""What somebody names to be written goes through one guard, also in a verb that is added later."""

import ast
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import duckkb
from duckkb.cli.main import VERBS
from duckkb.cli.main import duckkb as top_command
from duckkb.cli.options import PathName
from duckkb.storage import path_guard
from duckkb.types import errors
from duckkb.types.settings import Environment
from tests.conftest import NOTES, commit, git, make_base, run_in

SOURCE = Path(duckkb.__file__).parent
SAYS_PATH = re.compile(r"\b(file|files|path|folder|dir|directory|patch|output|out|dest)\b")
# Where doors and actions write themselves: to names that nobody gives them.
WRITERS = {
    "cli/git_driver.py": {"merge", "merge_bases"},  # the file that git names
    "operations/lifecycle.py": {
        "make",
        "_make_files",
        "_put_whole",
    },  # config.yaml and the like of a new base, whose folder the guard has seen
    "operations/agent_knowledge.py": {"install"},  # the folder of a file that the guard has seen
    "operations/github_setup.py": {"github"},  # workflows that are not there yet
    "operations/maintenance.py": {"_link_models"},  # a copy in the temporary folder
    "cli/main.py": {"_quiet_pipe"},  # the null device
}
WRITING = {
    "write_text",
    "write_bytes",
    "write_new",
    "write_atomic",
    "replace_file",
    "create_file",
    "take_place",
    "mkdir",
    "touch",
    "symlink_to",
    "hardlink_to",
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
        yield from commands(inner, (*path, name))


def every_command() -> list[tuple[tuple[str, ...], click.Command]]:
    ctx = click.Context(top_command)
    resolved = [(verb.name, top_command.resolve_command(ctx, [verb.name])[1]) for verb in VERBS]
    return [found for name, command in resolved if command for found in commands(command, (name,))]


def unsaid(found: Iterable[tuple[tuple[str, ...], click.Command]]) -> list[tuple[tuple[str, ...], str | None]]:
    """Parameters that look like paths and do not say whether they are read or written."""
    many = [(path, param) for path, command in found for param in command.params if "--kb" not in param.opts]
    return [
        (path, param.name)
        for path, param in many
        if isinstance(param.type, click.Path | click.File)
        or (
            not isinstance(param.type, PathName)
            and any(SAYS_PATH.search(str(said).lower().replace("_", " ")) for said in (param.name, param.metavar))
        )
    ]


def written(found: Iterable[tuple[tuple[str, ...], click.Command]]) -> list[tuple[tuple[str, ...], click.Command, str]]:
    return [
        (path, command, str(param.name))
        for path, command in found
        for param in command.params
        if isinstance(param.type, PathName) and param.type.written
    ]


@click.command("planted")
@click.option("--output")
@click.option("--spare", type=PathName(written=True))
def planted(output: str | None, spare: str | None) -> None:
    """A verb as somebody could add it without a thought: one path does not say that it is one, no one asks the guard."""
    if spare:
        Path(spare).write_text("taken", "utf-8")


def test_every_parameter_that_names_a_path_says_whether_it_is_read_or_written() -> None:
    assert unsaid(every_command()) == []
    assert unsaid([(("planted",), planted)]) == [(("planted",), "output")]


def writing_calls(code: str) -> list[str]:
    """The functions that write or make files, by a call whose name says so, or by opening one for more than reading."""
    found = []
    for function in ast.walk(ast.parse(code)):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(is_writing, calls)):
            found.append(function.name)
    return found


def is_writing(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    values = [
        one.value for one in (*call.args, *(item.value for item in call.keywords)) if isinstance(one, ast.Constant)
    ]
    modes = [value for value in values if isinstance(value, str) and re.fullmatch(r"[rwxabt+]{1,3}", value)]
    opens = name in ("open", "fdopen") and any(set(mode) & set("wxa+") for mode in modes)
    return opens or name in WRITING or ast.unparse(call.func) in ("os.open", "os.replace", "os.link", "os.symlink")


def test_doors_and_actions_write_no_file_but_through_the_guard() -> None:
    files = [file for layer in ("cli", "app", "operations") for file in (SOURCE / layer).rglob("*.py")]
    found = {file.relative_to(SOURCE).as_posix(): set(writing_calls(file.read_text("utf-8"))) for file in files}
    assert {file: names for file, names in found.items() if names} == WRITERS
    assert writing_calls("def planted(path): path.write_text(str())") == ["planted"]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a base in a subfolder `kb`, a linked work tree, a submodule, and a repository that keeps its own
    elsewhere; `way` is a link to the repository, `kb/data/away` one out of it."""
    top = tmp_path_factory.mktemp("ground")
    repo = top / "repo"
    kb = make_base(repo / "kb", NOTES)
    shutil.rmtree(kb / ".git")
    git(repo, "init", "-q", "-b", "main")
    with duckkb.open(kb) as opened:
        opened.put("Note", {"id": "a", "text": "words"})
        opened.collections.init("held", policy="simple-kv")
        opened.put("held", {"key": "k", "value": 1})
    commit(repo)
    git(repo, "worktree", "add", "-q", str(top / "tree"))
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo), "sub")
    git(top, "init", "-q", "--separate-git-dir", str(top / "store"), str(top / "apart"))
    (top / "way").symlink_to(repo)
    (top / "seen.txt").write_text("mine", "utf-8")
    (kb / "data" / "away").symlink_to(top / "seen.txt")
    (kb / "to-config").symlink_to(kb / "config.yaml")
    return top


KEPT = [
    "repo/.git/HEAD",
    "repo/kb/../.git/config",
    "repo/.git/hooks/pre-commit",
    "repo/.GIT/config",
    "repo/.git./config",
    "repo/.g\u200cit/config",
    "repo/GIT~1/config",
    "repo/.gitattributes",
    "repo/deep/.gitmodules",
    "repo/.github/workflows/x.yml",
    "repo/.pre-commit-config.yaml",
    "repo/.git/worktrees/tree/HEAD",
    "tree/.git",
    "tree/kb/config.yaml",
    "repo/.git/modules/sub/config",
    "repo/sub/.git",
    "store/HEAD",
    "store/hooks/x",
    "way/.git/HEAD",
    "repo/kb/config.yaml",
    "repo/kb/to-config",
    "repo/kb/CONFIG.yaml",
    "repo/kb/ontology",
    "repo/kb/ontology/x.yaml",
    "repo/kb/data",
    "repo/kb/data/new.jsonl",
    "repo/kb/Data/nodes/note/x.jsonl",
    "repo/kb/data/away",
    "repo/kb/.duckkb/lock",
    "repo/kb/.gitattributes",
    "tree/kb/data/x",
    "state/trust.json",
]


def test_no_spelling_of_a_kept_place_passes_the_guard(ground: Path) -> None:
    env = Environment(state_home=ground / "state")
    (ground / "state").mkdir()
    passed = []
    for name in KEPT:
        try:
            path_guard.refuse_protected_path(ground / name, env, ground / "repo" / "kb")
        except errors.UsageError:
            continue
        passed.append(name)
    assert passed == []
    for name in (
        "repo/out.jsonl",
        "repo/data/x",
        "repo/config.yaml",
        "repo/kb/out/data/x",
        "seen.txt",
        "x.git/y",
        "way/x",
    ):
        path_guard.refuse_protected_path(ground / name, env, ground / "repo" / "kb")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes; but for what any start writes: local state, and the index that git refreshes."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".duckkb" not in path.parts]
    return {str(path): path.read_bytes() for path in files if path.name != "index"}


def arguments(command: click.Command, hostile: str, target: Path) -> list[str]:
    """A command line that gives `target` as one parameter and what the others require. A new parameter: say here what it takes."""
    known = {"type_name": "Note", "name": "held"}
    options, positional = [], []
    for param in command.params:
        value = str(target) if param.name == hostile else known.get(str(param.name), "")
        if param.name == "force":
            options.append("--force")
        elif isinstance(param, click.Argument):
            positional.append(value)
        elif param.name == hostile:
            options += [param.opts[0], value]
    return [*positional, *options]


@pytest.mark.long
def test_every_verb_that_writes_a_named_path_refuses_kept_places_and_changes_nothing(ground: Path) -> None:
    kb, before = ground / "repo" / "kb", tree(ground)
    verbs = written(every_command())
    assert {path for path, _, _ in verbs} >= {("export",), ("col", "snapshot"), ("vector", "set-database"), ("init",)}
    for path, command, name in verbs:
        for place in ("../.git/HEAD", "../.git/new", "data/new", "../.gitattributes"):
            for env in ({}, {"DUCKKB_SANDBOX": "1"}):
                ran = run_in(kb, [*path, *arguments(command, name, Path(place)), "--json"], env=env)
                assert (ran.code, ran.error["code"]) == (2, "E_PATH"), (path, place, ran.err)
    assert tree(ground) == before


def test_a_verb_that_asks_no_guard_would_be_seen(ground: Path, tmp_path: Path) -> None:
    assert written([(("planted",), planted)]) == [(("planted",), planted, "spare")]
    copied = tmp_path / "copied"
    shutil.copytree(ground / "store", copied)
    before = tree(copied)
    planted.main(arguments(planted, "spare", copied / "HEAD"), standalone_mode=False)
    assert tree(copied) != before


PATHS_OF_THE_API: list[tuple[str, Any]] = [
    ("export_file", lambda kb, path: kb.export_file("Note", path, force=True)),
    ("collections.snapshot", lambda kb, path: kb.collections.snapshot("held", path, force=True)),
    ("vectors.set_database", lambda kb, path: kb.vectors.set_database(path)),
    (
        "vectors.run",
        lambda kb, path: kb.vectors.run({"action": "set_database", "path": os.path.relpath(path, kb.root)}),
    ),
    ("init", lambda _, path: duckkb.init(path)),
]


def test_the_python_interface_refuses_kept_places_too_and_a_hard_link_to_truth_keeps_its_bytes(ground: Path) -> None:
    kb, before = ground / "repo" / "kb", tree(ground)
    with duckkb.open(kb) as opened:
        for name, call in PATHS_OF_THE_API:
            for place in (ground / "repo/.git/HEAD", kb / "data" / "new"):
                with pytest.raises(errors.UsageError) as raised:
                    call(opened, place)
                assert raised.value.code == "E_PATH", name
        assert tree(ground) == before
        (part,) = (kb / "data/nodes/note").rglob("*.jsonl")
        alias = ground / "alias.jsonl"
        alias.hardlink_to(part)
        opened.export_file("Person", alias, force=True)
        assert alias.read_bytes() == b"" and part.read_bytes() == before[str(part)]
        alias.unlink()
