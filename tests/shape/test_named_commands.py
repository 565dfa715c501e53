"""Commands that messages, remedies and docs name exist: each verb and option of them is one that the command line takes."""

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest

from duckkb.cli import main
from duckkb.cli.advice import examine
from duckkb.cli.main import duckkb
from duckkb.cli.suggestions import NoSuchVerb

VERBS = {verb.name for verb in main.VERBS}
ROOT = Path(__file__).parents[2]
IN_TICKS = re.compile(r"`(duckkb [^`\n]+)`")
NO_VERBS = {"x", "VERB", "harness", "shards"}
"""What is put in, what stands for any verb, and the first words of two formats of files; a third has a number behind its name."""
OPERATORS = {"|", "&&", "<", ">"}


def commands_in(path: Path) -> Iterator[str]:
    """The commands between backticks of a page or of the strings of a module, with `x` for what a formatted one puts in, and
    the strings that are one as a whole."""
    if path.suffix != ".py":
        yield from IN_TICKS.findall(path.read_text("utf-8"))
        return
    tree = ast.parse(path.read_text("utf-8"))
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in pieces:
            continue
        match node:
            case ast.JoinedStr():
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
            case ast.Constant(value=str()):
                text = str(node.value)
            case _:
                continue
        yield from IN_TICKS.findall(text)
        if text.startswith("duckkb ") and {*text.split()[1:2]} & VERBS and "\n" not in text:
            yield text


def unknown_words(command: str) -> str:
    """What of a command no verb takes; the empty string where all of it is known, or no verb is named."""
    words = [*takewhile(lambda word: word not in OPERATORS, shlex.split(command))][1:]
    if not words or words[0] in NO_VERBS or words[1:2] == ["1"] or words[-1] in ("--help", "--skill", "x"):
        return ""
    slip = examine(duckkb, [word for word in words if word != "..."])
    problem = slip.problem if slip else None
    return str(problem.message) if isinstance(problem, NoSuchVerb | click.NoSuchOption) else ""


@pytest.mark.parametrize(("folder", "pattern"), [("duckkb", "*.py"), ("docs", "*.md")])
def test_each_command_that_is_named_has_verbs_and_options_that_exist(folder: str, pattern: str) -> None:
    paths = sorted((ROOT / folder).rglob(pattern))
    unknown = {
        (str(path.relative_to(ROOT)), command): message
        for path in paths
        for command in commands_in(path)
        if (message := unknown_words(command))
    }
    assert unknown == {}


def test_a_command_that_does_not_exist_is_seen() -> None:
    assert unknown_words("duckkb find x --nope y") and unknown_words("duckkb walk y")
    assert not unknown_words("duckkb find notes 'a question' | head -1")
