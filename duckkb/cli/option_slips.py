"""Options that a verb does not have, by what does their work here."""

import json
from collections.abc import Iterator, Sequence

import click

from duckkb.cli.base_types import find_fitting_type, type_names
from duckkb.cli.formats import FORMATS
from duckkb.cli.line_words import (
    GROUPS,
    LIMITS,
    MANY,
    ORDERS,
    Line,
    drop_flag,
    drop_option,
    find_option_value,
    format_command,
    replace_word,
    select_arguments,
)
from duckkb.cli.slips import MODES, OF_DOCUMENTS, UsageSlip
from duckkb.errors import shell_word


def move_to_front(option: str, slip: UsageSlip, args: Line) -> Iterator[Line]:
    """An option of the verb above, as `propose --branch B put`, belongs in front of the verb below."""
    above = slip.ctx.parent
    param = next((param for param in above.command.params if option in param.opts), None) if above else None
    if above is None or above.parent is None or not isinstance(param, click.Option) or above.info_name not in args:
        return
    at = next(at for at, word in enumerate(args) if word.partition("=")[0] == option)
    length = 1 if param.is_flag or "=" in args[at] else 2
    line, start = [*args[:at], *args[at + length :]], args.index(above.info_name) + 1
    yield [*line[:start], *args[at : at + length], *line[start:]]


def suggest_alternative(option: str, slip: UsageSlip, args: Line, known_options: Sequence[str]) -> Iterator[Line | str]:
    """What does another verb's or another tool's work of an option, by the options that the verb at hand knows."""
    name = next((word for word in args[1:] if not word.startswith("-")), "TYPE")
    value, plain = find_option_value(args, option), next(drop_option(option, args), args)
    if option in (*ORDERS, *GROUPS):
        yield from _suggest_statement(option, slip, args, name)
    elif option in ("--all", "--force", "--rebuild") and slip.path == ["embed"]:
        yield ["index", "build"]
    elif option == "--fix" and slip.path == ["check"]:
        yield ["fmt"]
    elif option in ("--count", "--total") and not value.isdigit():
        condition = find_option_value(args, "-w") or find_option_value(args, "--where")
        yield ["count", name, *(["-w", condition] if condition else [])]
    elif option in ("-w", "--where", "--filter") and "--cascade" in known_options:
        hits = format_command(["find", name, "-w", value, "--fields", "id", "-l", MANY])
        yield f"{hits} | jq -r .id | xargs -r -d '\\n' duckkb delete {shell_word(name)}"
    elif option in ("--mode", "--type", "--search-mode", "--method") and value.lower() in MODES:
        flag, verb = MODES[value.lower()]
        if flag in known_options:
            at = next(at for at, word in enumerate(args) if word.partition("=")[0] == option)
            yield [*plain[:at], flag, *plain[at:]]
        elif slip.path and slip.path[0] in OF_DOCUMENTS:
            yield replace_word(plain, slip.path[0], verb)
    elif option in (*LIMITS, "--max-count") and value.isdigit() and not {*LIMITS, "--top-k"} & {*known_options}:
        yield f"{format_command(plain)} | head -n {value}"
    elif option in ("--type", "--types", "-t") and "--label" in known_options and value:
        yield f"{format_command(plain)} | jq -c {shell_word(f'select(._type == {json.dumps(value)})')}"
    elif option in ("--file", "--input", "--input-file", "-f") and "--batch" in known_options:
        yield f"duckkb put {shell_word(name)} --batch < {shell_word(value or 'FILE')}"
    elif option in ("--file", "--input", "--from", "--source", "-f", "--type", "-t") and slip.path == ["import"]:
        yield [*plain, value] if option[2:4] not in ("ty", "") or option == "-f" else [plain[0], value, *plain[1:]]


def _suggest_statement(option: str, slip: UsageSlip, args: Line, name: str) -> Iterator[Line | str]:
    """The order or the groups of records as a statement; as a pipe where the line searches, or asks for a revision."""
    value, (plain, *_) = find_option_value(args, option), [*drop_option(option, args)]
    options = [word for word in plain[1:] if word != name]
    if option in GROUPS and value and slip.path in (["count"], ["list"], ["find"]):
        if "--at" in options and value.isidentifier():
            rows = format_command(["list", name, *options, "--fields", value, "-l", MANY])
            yield f"{rows} | jq -sc {shell_word(f'group_by(.{value})[] | {{{value}: .[0].{value}, count: length}}')}"
        yield ["count", name, "by", value, *options]
    elif option in ORDERS and any("--fields" in param.opts for param in slip.ctx.command.params):
        field, _, direction = value.lstrip("-").partition(" ")
        is_falling = option == "--desc" or value[:1] == "-" or direction.lower() == "desc"
        is_search = slip.path == ["find"] and len(select_arguments(slip.ctx, plain)) > 2
        if (is_search or "--at" in args) and field.isidentifier():
            order = f"sort_by(.{field}){' | reverse' * is_falling}[]"
            yield f"{format_command(drop_flag('--json', plain))} | jq -sc {shell_word(order)}"
        if not is_search:
            order = f"{field or '__updated_at'}{' DESC' if is_falling else ''}"
            yield ["sort", name, "by", order, *options]


def suggest_format(option: str, args: Line) -> Iterator[Line]:
    """`--table` is the format of this name."""
    if (name := option.removeprefix("--")) in (*FORMATS, "markdown"):
        at = args.index(option) if option in args else len(args)
        yield [*args[:at], "--format", name, *args[at + 1 :]]


def suggest_filter(option: str, slip: UsageSlip, args: Line) -> Iterator[Line]:
    """`--lang zh` is a filter, where the records have such a field."""
    value, kinds = find_option_value(args, option), type_names(slip.ctx)
    if slip.path not in (["find"], ["list"], ["count"]) or not value or not option.startswith("--"):
        return
    line = next(drop_option(option, args))
    kinds_by_fold = {kind.lower(): kind for kind in kinds}
    kind = next((kinds_by_fold[word.lower()] for word in line if word.lower() in kinds_by_fold), "")
    name, text = option[2:].replace("-", "_"), "'" + value.replace("'", "''") + "'"
    comparisons = (find_fitting_type(slip.ctx, [kind], f"{name}={right}") for right in (text, value) if kind)
    if (fitting := next(filter(None, comparisons), None)) is None:
        return
    condition = fitting[1]
    if spelling := next((name for name in ("-w", "--where") if find_option_value(line, name)), ""):
        before = find_option_value(line, spelling)
        yield [word.replace(before, f"({before}) AND {condition}") for word in line]
    else:
        yield [*line, "-w", condition]


def convert_to_find(verb: str, ctx: click.Context, args: Line) -> Iterator[Line]:
    """A search of documents with what only `find` has, in the collections that it names, else in the first that there is."""
    collection = (
        find_option_value(args, "-c") or find_option_value(args, "--collection") or find_option_value(args, "--type")
    )
    line = next((plain for option in ("-c", "--collection", "--type") for plain in drop_option(option, args)), args)
    at = line.index(verb)
    has_collection = line[at + 1 : at + 2] and line[at + 1] in type_names(ctx)
    kinds = [] if has_collection else [collection] if collection else type_names(ctx, documents=True)[:1] or ["all"]
    yield [*line[:at], "find", *kinds, *line[at + 1 :]]
