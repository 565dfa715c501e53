"""The words of a command line: found, replaced and taken out."""

from collections.abc import Iterator, Sequence

import click

from duckkb.errors import shell_word

Line = list[str]


def drop_flag(option: str, args: Line) -> Line:
    """The line without an option that takes no value."""
    *_, line = [args, *drop_option(option, args)]
    return line


def drop_option(option: str, args: Line) -> Iterator[Line]:
    """The line without an option, and without the word behind it where that may be its value."""
    at = next((at for at, word in enumerate(args) if word.partition("=")[0] == option), None)
    if at is None:
        return
    has_value = "=" not in args[at] and args[at + 1 : at + 2] and not args[at + 1].startswith("-")
    if has_value:
        yield [*args[:at], *args[at + 2 :]]
    yield [*args[:at], *args[at + 1 :]]


def drop_words(args: Line, extra: Sequence[str]) -> Line:
    """The line without the last of each of these words."""
    line = list(args)
    for word in reversed(extra):
        at = len(line) - 1 - line[::-1].index(word) if word in line else None
        if at is not None:
            del line[at]
    return line


def select_arguments(ctx: click.Context, args: Line) -> Line:
    """The words of a line that are no options and not the values of those that the verb has."""
    options = [param for param in ctx.command.params if isinstance(param, click.Option) and not param.is_flag]
    with_value = {spelled for option in options for spelled in option.opts}
    return [
        word for before, word in zip(["", *args], args, strict=False) if word[:1] != "-" and before not in with_value
    ]


def find_option_value(args: Sequence[str], option: str) -> str:
    """The value of an option, behind it or behind a `=`; the empty string without one."""
    for word, after in zip(args, [*args[1:], ""], strict=True):
        if word == option:
            return "" if after.startswith("--") else after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def find_option_word(option: str, args: Line) -> str:
    """The word that an option stands in: click names the letter alone that it does not know of `-files`."""
    words = [word.partition("=")[0] for word in args]
    groups = (word for word in words if word[:1] == "-" and word[1:2] != "-" and option[1:] in word)
    return option if option in words else next(groups, option)


def replace_word(args: Sequence[str], word: str, better: str) -> Line:
    """The line with the first `word`, alone or before a `=`, replaced."""
    line = list(args)
    at = next(at for at, argument in enumerate(line) if argument.partition("=")[0] == word)
    line[at] = better + "".join(line[at].partition("=")[1:])
    return line


def format_command(words: Sequence[str]) -> str:
    return " ".join(["duckkb", *map(shell_word, words)])
