"""Messages, help texts and pages are plain: short sentences, no riddles, summaries that fit a terminal."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckkb.cli.verb_list import VERBS
from duckkb.operations.catalog import ACTIONS
from duckkb.types.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
RULES = tomllib.loads((Path(__file__).parent / "prose.toml").read_text("utf-8"))
# Calls whose texts a user reads, and the keywords that hold a text for one wherever they stand.
CALLS = re.compile(r"(Error|Unavailable|Finding|Notice|make_warning|make_error|note|Exception)$")
KEYWORDS = frozenset(["help", "suggestion", "remedy", "message", "short_help", "description", "summary"])
COMMAND = re.compile(r"`[^`]*`")


def test_no_message_or_page_has_a_banned_phrase() -> None:
    everywhere, in_messages = list(RULES["banned"]), [*RULES["banned"], *RULES["banned_in_messages"]]
    wrong = [f"{place}: {phrase}" for place, text in read_pages() for phrase in find_phrases(text, everywhere)]
    wrong += [f"{place}: {phrase}" for place, text in read_messages() for phrase in find_phrases(text, in_messages)]
    assert wrong == []


def test_no_sentence_of_a_message_is_longer_than_the_limit() -> None:
    long = {f"{place}: {sentence}" for place, text in read_messages() for sentence in find_long_sentences(text)}
    assert sorted(long) == []


def test_the_summaries_of_commands_fit_a_terminal_of_80_columns() -> None:
    width = max(len(verb.name) for verb in VERBS)
    assert [verb.name for verb in VERBS if verb.module and not fits_a_terminal(verb.summary, width)] == []


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("the form says not what it wants", ["says not"]),
        ("a list\nof which one is none\nof them", ["is none of"]),
        ("`duckkb why` explains why a record is missing", []),
    ],
)
def test_the_search_for_banned_phrases_finds_them_across_lines(text: str, phrases: list[str]) -> None:
    assert find_phrases(text, list(RULES["banned"])) == phrases


def test_the_search_for_long_sentences_counts_words_between_full_stops() -> None:
    limit = RULES["longest_sentence"]
    assert find_long_sentences(" ".join(["word"] * limit) + ". " + " ".join(["word"] * limit) + ".") == []
    assert len(find_long_sentences(" ".join(["word"] * (limit + 1)) + ". Short.")) == 1
    assert find_long_sentences("Run `" + "word " * 2 * limit + "`.") == [], "a command is one word"


def test_the_reader_of_messages_sees_raised_texts_help_and_docstrings_of_commands() -> None:
    source = '''
@verb("list")
@click.option("--all", help="Print all.")
def list_command(name):
    """Print records."""
    note(f"{name} has records")
    raise errors.StateError("no " "records", suggestion="add some")

def load():
    """Not for users."""
    return "not a message"
'''
    assert sorted(text for _, text in read_texts(ast.parse(source), "x.py")) == [
        "Print all.",
        "Print records.",
        "add some",
        "no records",
        "{} has records",
    ]


def test_a_summary_of_67_characters_does_not_fit_behind_the_longest_name() -> None:
    assert fits_a_terminal("x" * 66, 10)
    assert not fits_a_terminal("x" * 67, 10)


def read_messages() -> Iterator[tuple[str, str]]:
    """Yield the place and text of each message in the package, the catalogue and the actions."""
    for path in sorted((ROOT / "duckkb").rglob("*.py")):
        yield from read_texts(ast.parse(path.read_text("utf-8")), str(path.relative_to(ROOT)))
    for code in CODES.values():
        yield code.name, code.meaning
        yield code.name, code.remedy
    for action in ACTIONS.values():
        yield action.name, action.description


def read_texts(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    """Yield the place and text of each message in a module, with {} for placeholders."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(ast.unparse(one) for one in node.decorator_list)
            if re.search(r"\b(verb|base_verb|group)\(", decorators) and (text := ast.get_docstring(node)):
                # The lines of examples begin with \b, and are no prose.
                prose = [part for part in text.split("\n\n") if not part.lstrip().startswith("\b")]
                yield f"{name}:{node.lineno}", "\n\n".join(prose)
        if isinstance(node, ast.Call):
            is_message = CALLS.search(ast.unparse(node.func)) is not None
            values = [*(node.args if is_message else ())]
            values += [keyword.value for keyword in node.keywords if keyword.arg in KEYWORDS]
            for value in values:
                if (text := join_text(value)) is not None and " " in text:
                    yield f"{name}:{value.lineno}", text


def join_text(node: ast.expr) -> str | None:
    """Return the text of a literal, with {} for placeholders; None for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def read_pages() -> Iterator[tuple[str, str]]:
    """Yield the path and prose of each guide, without its code; decisions and the changelog stay as written."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield str(path.relative_to(ROOT)), re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)


def find_phrases(text: str, phrases: list[str]) -> list[str]:
    """Return the phrases that a text has outside of commands between backticks, also across lines."""
    flat = " ".join(COMMAND.sub("``", text).split())
    return [phrase for phrase in phrases if re.search(rf"\b{re.escape(phrase)}\b", flat)]


def find_long_sentences(text: str) -> list[str]:
    """Return the sentences with more words than the limit; a command between backticks is one word."""
    paragraphs = re.split(r"\n\s*\n", COMMAND.sub("``", text))
    sentences = [sentence for part in paragraphs for sentence in re.split(r"(?<=[.;:?!])\s+", " ".join(part.split()))]
    return [sentence for sentence in sentences if len(sentence.split()) > RULES["longest_sentence"]]


def fits_a_terminal(summary: str, width: int) -> bool:
    """Whether click prints a summary on one line: two columns before the name and two after it."""
    return 2 + width + 2 + len(summary) <= 80
