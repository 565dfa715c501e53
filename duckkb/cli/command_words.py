"""Operations on the words of a command line: find, replace, remove.

Facts about the base for the correction of command lines: folder, types, policies, and types that a filter fits."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from duckkb.types.errors import DuckkbError, FilterError, shell_word

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.ontology.model import Ontology, RecordType

_TYPE_AND_IDENTITY = re.compile(r"([^./:][^/:]*)[/:](?!//)(.+)", re.DOTALL)
MANY = "1000000"  # limits are lowered to the number of records
_ALL = {"all", "none", "unlimited", "inf", "infinity", "max", "*", "-1"}
Line = list[str]
_SEARCHES = ("find", "search", "vsearch", "query")
_OF_WRITES = r"\b(put|delete|import|rename)\b"
_LOOKUP = re.compile(r"duckkb (--kb \S+ )?(schema|branches|status|policy list|col list|collection list)\b")
_COMPARISON = re.compile(r"[=<>]|\b(in|like|is|between)\b", re.IGNORECASE)
ORDERS = ("--sort", "--order-by", "--order", "--sort-by", "--orderby", "--desc")
GROUPS = ("--group-by", "--by", "--group", "--groupby")
CONDITIONS = ("-w", "--where", "--filter")
LIMITS = ("-l", "-n", "--limit")
PAGING = ("--offset", "--skip", "--page")


def drop_flag(option: str, args: Line) -> Line:
    """Return the line without an option that takes no value."""
    *_, line = [args, *drop_option(option, args)]
    return line


def drop_option(option: str, args: Line) -> Iterator[Line]:
    """Yield the line without an option, and without the word behind it where that may be its value."""
    at = next((at for at, word in enumerate(args) if word.partition("=")[0] == option), None)
    if at is None:
        return
    has_value = "=" not in args[at] and args[at + 1 : at + 2] and not args[at + 1].startswith("-")
    if has_value:
        yield [*args[:at], *args[at + 2 :]]
    yield [*args[:at], *args[at + 1 :]]


def drop_words(args: Line, extra: Sequence[str]) -> Line:
    """Return the line without the last occurrence of each of these words."""
    line = list(args)
    for word in reversed(extra):
        at = len(line) - 1 - line[::-1].index(word) if word in line else None
        if at is not None:
            del line[at]
    return line


def select_arguments(ctx: click.Context, args: Line) -> Line:
    """Return the words of a line that are neither options nor values of the verb's options."""
    options = [param for param in ctx.command.params if isinstance(param, click.Option) and not param.is_flag]
    with_value = {spelled for option in options for spelled in option.opts}
    return [
        word for before, word in zip(["", *args], args, strict=False) if word[:1] != "-" and before not in with_value
    ]


def find_option_value(args: Sequence[str], option: str) -> str:
    """Return the value of an option, behind it or behind a `=`; empty without one."""
    for word, after in zip(args, [*args[1:], ""], strict=False):
        if word == option:
            return "" if after.startswith("--") else after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def find_option_word(option: str, args: Line) -> str:
    """Return the whole word that holds an option: of an unknown `-files` click names only the letter."""
    words = [word.partition("=")[0] for word in args]
    groups = (word for word in words if word[:1] == "-" and word[1:2] != "-" and option[1:] in word)
    return option if option in words else next(groups, option)


def replace_word(args: Sequence[str], word: str, better: str) -> Line:
    """Return the line with the first `word`, alone or before a `=`, replaced."""
    line = list(args)
    at = next(at for at, argument in enumerate(line) if argument.partition("=")[0] == word)
    line[at] = better + "".join(line[at].partition("=")[1:])
    return line


def lift_limit(args: Line) -> Iterator[Line]:
    """Yield the line with "no limit" written as a limit larger than any base."""
    names = ("-l", "-n", "--limit", "--top-k")
    line = list(args)
    for at, word in enumerate(line):
        name, equals, value = word.partition("=")
        if equals and name in names and value.lower() in _ALL:
            line[at] = f"{name}={MANY}"
        elif at and line[at - 1] in names and word.lower() in _ALL:
            line[at] = MANY
    if line != args:
        yield line


def is_query(text: str) -> bool:
    """Return whether a text is an SQL statement."""
    words = text.lower().split()
    return words[:1] == ["select"] and "from" in words


def join_words(words: Sequence[str]) -> str:
    """Return the text that a shell split into words.

    In a statement, restores the `*` that the shell expanded to the files of the current folder, and the call of
    `count`.
    """
    lowered = [word.lower() for word in words]
    if is_query(" ".join(words)) and "from" in lowered:
        at = lowered.index("from")
        columns = [*words[1:at]]
        if columns and {*columns} == {path.name for path in Path().glob("[!.]*")}:
            columns = ["*"]
        words = [words[0], *(["count(*)"] if columns == ["count"] else columns), *words[at:]]
    return " ".join(words)


def split_statement(statement: str) -> Line:
    """Return the words of an SQL statement, its keywords in small letters, with comparisons and texts each as a word."""
    words = re.findall(r"(?:'[^']*'|[^\s'])+", re.sub(r"\s*=\s*", "=", statement.rstrip("; \n")))
    return [word.lower() if word.isupper() and word.isalpha() else word for word in words]


def find_first_value(args: Sequence[str], options: Sequence[str]) -> str:
    """Return the value of the first of these options that has one; empty without one."""
    return next((value for option in options if (value := find_option_value(args, option))), "")


def split_proposal(args: Sequence[str]) -> tuple[Line, Line]:
    """Return `propose` with its options, and the line behind them; nothing and the line where it proposes nothing."""
    if args[:1] != ["propose"]:
        return [], [*args]
    valued = ("--branch", "--base", "-m", "--message", "-b")
    at = 1
    while at < len(args) and args[at][:1] == "-":
        at += 2 if args[at] in valued else 1
    return [*args[:at]], [*args[at:]]


def drops_words(args: Sequence[str], command: str) -> bool:
    """Return whether a command lacks what a line asks for: filter, limit, order, groups, revision, format, or how it writes.

    A command that lists names, such as `schema`, does not stand for the line and lacks nothing.
    """
    words = {word.partition("=")[0] for word in args}
    names = (LIMITS, ("--format",), ("--at",), ("--branch",))
    limit, form, revision, branch = (find_first_value(args, options) for options in names)
    demands = [
        (_COMPARISON.search(find_first_value(args, CONDITIONS)), r" (-w|--where|--filter)\b|\bWHERE\b|select\("),
        (re.fullmatch(r"[1-9]\d*", limit), rf"\b({limit}|{MANY})\b|tail -n|results\[|records\["),
        ({"export", "--fields"} <= words, "--fields"),
        (words.intersection(PAGING), r"tail -n|OFFSET|results\[|records\["),
        (words.intersection(ORDERS), r"ORDER BY|sort_by"),
        (words.intersection(GROUPS), r"GROUP BY|group_by"),
        (revision, re.escape(revision)),
        (form in ("csv", "json", "md", "table"), rf"--format[ =]{form}\b"),
        ("propose" in args and (branch), re.escape(branch)),
        ("propose" in args and re.search(rf"^duckkb .*?{_OF_WRITES}", command), r"\bpropose\b"),
    ]
    if re.search(_OF_WRITES, command):
        demands += [(flag in words, rf"{flag}\b") for flag in ("--merge", "--dry-run")]
    if words.intersection(_SEARCHES):
        pairs = (("-m", "--match"), ("-s", "--similar"), ("-H", "--hybrid"))
        demands += [(words.intersection(pair), rf" ({'|'.join(pair)})\b") for pair in pairs]
    return not _LOOKUP.match(command) and any(wish and not re.search(pattern, command) for wish, pattern in demands)


def parse_fields(words: Sequence[str]) -> dict[str, object]:
    """Parse `FIELD=VALUE` words, or `FIELD:VALUE`, as shells expand an object without quotes; values as JSON where they
    are JSON. Raises ValueError for other words.
    """
    fields: dict[str, object] = {}
    for word in words:
        if not (parts := re.fullmatch(r"([A-Za-z_][\w.]*)[=:](.*)", word, re.DOTALL)):
            raise ValueError(word)
        name, value = parts.groups()
        fields[name] = value
        with suppress(ValueError):
            fields[name] = json.loads(value)
    return fields


def split_identities(words: Sequence[str], args: Line) -> Iterator[Line]:
    """Yield the line with TYPE/IDENTITY or TYPE:IDENTITY as two words; a citation stays a single word."""
    parts = {word: match.groups() for word in words if (match := _TYPE_AND_IDENTITY.fullmatch(word))}
    kinds = {kind for kind, _ in parts.values()}
    if len(parts) > 1 and len(kinds) == 1:  # `rename T/A T/B` takes the type once
        plain = [parts[word][1] if word in parts else word for word in args]
        at = next(at for at, word in enumerate(args) if word in parts)
        yield [*plain[:at], *kinds, *plain[at:]]
    if parts:
        yield [word for arg in args for word in parts.get(arg, (arg,))]


def format_command(words: Sequence[str]) -> str:
    return " ".join(["duckkb", *map(shell_word, words)])


_NEAR_TYPES = 0.8
"""The similarity (0 to 1) from which a word counts as a misspelt name."""


def first_of_records(ctx: click.Context, words: Sequence[str]) -> str:
    """Return the first of the words that is a type of records, not of documents; empty without one."""
    kinds = {*type_names(ctx)} - {*type_names(ctx, documents=True)}
    return next((word for word in words if word in kinds), "")


def type_names(ctx: click.Context, *, documents: bool = False) -> list[str]:
    """Return the names of the base's types; with `documents`, only those of document types."""
    return [kind.name for kind in base_types(ctx) if not documents or (kind.kind == "node" and kind.source)]


def base_types(ctx: click.Context) -> "list[RecordType]":
    """Return the types of the base that the line is about; empty where they cannot be read."""
    return [*(base_ontology(ctx) or ())]


def base_ontology(ctx: click.Context) -> "Ontology | None":
    """Read types and policies of the base that the line is about from its files; None where they cannot be read."""
    from duckkb import config

    root = base_root(ctx)
    with suppress(DuckkbError, OSError):
        return config.load(root, config.read_environment(root)).ontology if root else None
    return None


def base_root(ctx: click.Context) -> Path | None:
    """Return the folder of the base that the line is about; None without one."""
    from duckkb import config

    with suppress(DuckkbError, OSError):
        return config.find_root(Path.cwd(), read_base_name(ctx), config.environment())
    return None


def find_record_types(ctx: click.Context, identity: str) -> list[str]:
    """The types of the base that have a node with this identity; none where it cannot be read."""
    from duckkb import app

    names = []
    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        for kind in base_types(ctx):
            with suppress(DuckkbError):
                if kind.kind == "node" and len(kind.identity_fields) == 1:
                    names.append(kb.get(kind.name, identity)["_type"])
    return names


def find_first_identity(ctx: click.Context, kind: str) -> str:
    """The identity of the first record of a type; `...` without one."""
    from duckkb import app

    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        return next((str(hit.identity) for hit in kb.find(kind, where="true", limit=1)), "...")
    return "..."


def is_revision(root: Path, name: str) -> bool:
    """Whether git knows a commit, branch or tag by this name."""
    from duckkb.storage.revisions import revision

    with suppress(DuckkbError, OSError):
        return bool(revision(root, name).commit)
    return False


def name_restored(file: str) -> str:
    """Return a new folder beside a backup, to restore it to."""
    from duckkb.storage.backup import SUFFIX

    folder = file.removesuffix(SUFFIX)
    return f"{folder}-restored" if Path(folder).exists() else folder


def read_base_name(ctx: click.Context) -> str | None:
    """Return the base that the line names."""
    base_path: str | None = ctx.find_root().params.get("kb") or (ctx.find_object(dict) or {}).get("kb")
    return base_path


def find_near_names(ctx: click.Context, group: str, word: str) -> list[str]:
    """Return the names nearest to a word: policies for the group `policy`, collections for other groups.

    They are collections of records for `col`, else document collections.

    Returns the word itself where no file of the base has the names.
    """
    import difflib

    from duckkb.ontology.presets import presets

    ontology = base_ontology(ctx)
    if group == "tenant" or ontology is None:
        return [word]
    if group == "policy":
        names = [*ontology.policies, *presets()]
    else:
        names = [kind.name for kind in ontology if (kind.source if group == "collection" else kind.is_collection)]
    by_case = {name.lower(): name for name in names}
    return [by_case[near] for near in difflib.get_close_matches(word.lower(), by_case, 1, _NEAR_TYPES)]


def find_fitting_type(ctx: click.Context, names: Sequence[str], condition: str) -> tuple[str, str] | None:
    """Return the first type that fits a filter, and the filter in the form that it takes; None without one.

    A fitting type has the filter's fields; types with matching records come first.
    """
    from duckkb import app

    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        fitting = [(name, better) for name in names if (better := _fit_filter(kb, name, condition))]
        fitting.sort(key=lambda line: not [*kb.find(line[0], where=line[1], limit=1)])
        return next(iter(fitting), None)
    return None


def _fit_filter(kb: "KnowledgeBase", kind: str, condition: str) -> str:
    """Return the filter as the records of a type take it; empty where they do not have its fields."""
    try:
        kb.find(kind, where=condition, limit=1)
    except FilterError as error:
        better = error.correction[1] if error.correction is not None else condition
        return _fit_filter(kb, kind, better) if better != condition else ""
    return condition
