"""The words that other tools use for verbs and options here, and groups that suggest the intended verb.

Options that a verb does not have, by what does their work here."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from duckkb.cli.command_words import (
    CONDITIONS,
    GROUPS,
    LIMITS,
    MANY,
    ORDERS,
    PAGING,
    Line,
    base_types,
    drop_flag,
    drop_option,
    find_first_value,
    find_fitting_type,
    find_option_value,
    format_command,
    is_query,
    replace_word,
    select_arguments,
    type_names,
)
from duckkb.cli.record_formats import FORMATS
from duckkb.types.errors import shell_word


def _build_word_index(words_by_meaning: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Index a table of words by meaning: return the meanings of each word."""
    return {word: tuple(here.split(" or ")) for here, words in words_by_meaning.items() for word in words.split()}


VERBS = _build_word_index({
    "find": "grep rg lookup retrieve select where filter",
    "put": "add upsert insert set save store create write edit patch",
    "get": "show read fetch cat view open",
    "delete": "rm remove del drop unset",
    "list": "all dir scan rows records head",
    "col": "collections cols",
    "import": "load ingest",
    "export": "dump .dump",
    "rename": "mv move",
    "sql": "exec psql duckdb sqlite3 sqlite mysql",
    "count": "length",
    "sql 'SHOW TABLES'": "tables .tables",
    "status": "stats info",
    "schema": "types describe explain inspect",
    "embed": "embedding",
    "log": "history",
    "check": "validate lint fix verify fsck",
    "branches": "pr",
    "fmt": "format",
    "graph neighbors": "neighbors edges related links",
    "policy list": "policies",
    "index refresh": "reindex",
    "index build": "rebuild",
    "backup restore": "restore",
    "config show": "settings configuration",
    "update": "sync reload refresh",
    "doctor": "health",
    "serve": "browse web ui dashboard start run up",
})  # fmt: skip
"""A verb of another tool, by the command that does it here, written as a shell has it."""
OF_GROUPS = _build_word_index({
    "show or retrieve or history": "get info describe view cat fields",
    "list or stats or show": "ls all list status",
    "rm or remove or delete": "delete remove drop del rm",
    "init or store or add or create or put or config": "create new add make insert install setup",
    "rename": "mv move",
    "snapshot or create": "export backup",
    "restore or import-file": "import load",
    "store or put": "put",
    "search or query": "find query",
    "check or status": "validate",
    "build": "update rebuild embed",
})  # fmt: skip
"""The same of the verbs below a verb."""
OF_GIT = frozenset(
    _build_word_index({"git": "commit push pull fetch clone checkout switch branch stash reset rebase tag remote"})
)
"""Commands that are git's, in a base as in any repository."""
OPTIONS = _build_word_index({
    "--limit or --top-k": "--top-k --topk --top_k --top -k --max --max-results --count --size --num --first --k -n",
    "--where": "--filter --filters --condition -f",
    "--fields": "--select --columns --cols --project --include --field --only",
    "--mask": "--glob --globs --pattern",
    "--format": "--output --out --fmt --output-format",
    "--after": "--cursor --start-after --from --since",
    "--yes or --allow-shrink or --force": "--force --confirm -y --assume-yes",
    "--similar": "--semantic",
    "--match": "--keyword --text --fts --contains --like --words",
    "--merge": "--upsert --patch --partial",
    "--dry-run or --show or --check": "--dry --dry-run --preview --simulate",
    "--provenance": "--cite --citation --citations --source --sources",
    "--kb": "--base --db --database --path --index",
    "--at or --since": "--ref --version --revision --rev --commit --as-of",
    "--if-match": "--etag",
    "--policy": "--template",
    "--params": "--config",
    "--top-k": "--limit -l",
    "--type or --collection": "-c --collection --type -t --types --collections --in",
    "--depth": "--hops --max-depth --levels",
    "--branch": "-b",
    "--message": "--title --subject --msg --comment --description --body",
    "--label": "--edge --relation",
    "--budget": "--tokens --max-tokens",
    "--id": "--pk --primary-key --key --id-field --primary",
    "--port": "-p",
    "--scope": "--user --owner --agent --namespace",
    "--daemon": "--bg --background --detach -d",
    "--to": "--model",
})  # fmt: skip
MODES = _build_word_index({
    "--similar or vsearch": "similar semantic vector dense embedding meaning s",
    "--match or search": "match keyword fts lexical bm25 text words m",
    "--hybrid or query": "hybrid both h fuzzy auto default smart",
})  # fmt: skip
"""Words for how to search, by the flag and by the verb of documents that do so."""
CHOICES = _build_word_index({
    "viewer": "reader read readonly read-only ro guest",
    "editor": "writer write rw contributor member developer maintainer",
    "admin": "owner root superuser administrator",
})  # fmt: skip
"""Values of other tools, by the choice that is meant."""


def find_meaning(args: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the unknown verb of a line, and the commands that it may mean.

    For `show`, the word behind it counts where that is a known word.
    """
    word = args[0]
    if VERBS.get(word) == ("get",) and args[1:2] and args[1] in VERBS and all(more[0:1] == "-" for more in args[2:]):
        word = args[1]
    return word, ("sql",) if is_query(" ".join(args)) else VERBS.get(word, ())


UNDOING = frozenset(["undo", "revert", "rollback", "unput", "undelete", "discard"])
UNDONE = (
    "`git stash push -u -- data` undoes uncommitted changes, and `duckkb diff HEAD..HEAD~1 --format patch | duckkb "
    "apply -` the last commit"
)
"""What other tools have a verb for: how a change is undone here, by what is committed of it."""
OF_DOCUMENTS = ("search", "vsearch", "query")
"""Verbs that search documents."""
PROPOSED = ("put", "import", "delete", "rename")
"""Verbs that `propose` takes, with the branch in front of them."""


_NEAR = 0.75
"""How alike an option is to one of ours (0 to 1) from which on it is taken for a slip of that."""


def near_options(problem: click.NoSuchOption) -> list[str]:
    """Return the options that an unknown option may have meant."""
    if problem.option_name == "--branch" and problem.ctx is not None and problem.ctx.info_name in PROPOSED:
        return ["propose --branch"]
    import difflib

    if problem.option_name in GROUPS:  # is like `--kb`, and no slip of that
        return []
    names = [name for name in problem.possibilities or () if name != "--help"]
    return difflib.get_close_matches(problem.option_name, names, 2, _NEAR)


class UsageSlip(Struct, frozen=True):
    """What the verbs say of a line: the context and the error, or the words that have no place."""

    ctx: click.Context
    problem: click.ClickException | None = None
    extra: tuple[str, ...] = ()

    @property
    def path(self) -> list[str]:
        """The verbs of the line."""
        return self.ctx.command_path.split()[1:]


class NoSuchVerb(click.UsageError):
    """An unknown verb; `better` is the intended verb, empty where none is clear."""

    def __init__(
        self, word: str, known: Sequence[str], ctx: click.Context, meant: Sequence[str] = (), command: str = ""
    ) -> None:
        import difflib

        near = (
            []
            if command
            else [verb for verb in meant if verb.split()[0] in known] or difflib.get_close_matches(word, known, 1, 0.7)
        )
        is_first = ctx.parent is None
        if is_first and word in UNDOING:
            near, hint = [], f"To undo: {UNDONE}."
        elif is_first and word in OF_GIT:
            near, hint = [], f"Did you mean git {word}?"
        elif command:
            hint = f"Did you mean {command}?"
        else:
            hint = f"Did you mean {near[0]}?" if near else f"Commands: {', '.join(known)}."
        self.word, self.better = word, near[0] if near else ""
        super().__init__(f"No such command: {word}. {hint}", ctx)


class Group(click.Group):
    """A group of verbs that suggests the intended verb for an unknown one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            of_proposals = VERBS.get(args[0], ()) if ctx.info_name == "propose" else ()
            raise NoSuchVerb(args[0], self.list_commands(ctx), ctx, (*of_proposals, *OF_GROUPS.get(args[0], ())))
        return super().resolve_command(ctx, args)


def move_to_front(option: str, slip: UsageSlip, args: Line) -> Iterator[Line]:
    """An option of the verb above, as `propose --branch B put`, belongs in front of the verb below."""
    above = slip.ctx.parent
    names = {option, *OPTIONS.get(option, ())}
    param = next((param for param in above.command.params if names & {*param.opts}), None) if above else None
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
    yield from _suggest_whole_line(option, value, slip, args)
    if option in (*ORDERS, *GROUPS):
        yield from _suggest_statement(option, slip, args, name)
    elif option in ("--all", "--force", "--rebuild") and slip.path == ["embed"]:
        yield ["index", "build"]
    elif option == "--fix" and slip.path == ["check"]:
        yield ["fmt"]
    elif (
        option in ("--base", "--against", "--target") and value and slip.path[:1] in (["review"], ["diff"], ["impact"])
    ):
        yield [*plain, f"{value}..HEAD"]
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


def _suggest_whole_line(option: str, value: str, slip: UsageSlip, args: Line) -> Iterator[Line | str]:
    """What another line does of an option: a page of results, a file of them, another model."""
    plain = next(drop_option(option, args), args)
    if option in PAGING and value.isdigit() and slip.path in ([verb] for verb in ("find", "list", *OF_DOCUMENTS)):
        yield from _suggest_page(option, int(value), slip, plain)
    elif option == "--model" and value and slip.path[:1] == ["index"]:
        yield ["index", "migrate", "--to", value, "--dry-run"]
    elif slip.path == ["export"] and {option, *OPTIONS.get(option, ())} & {*CONDITIONS, "--fields", "--at"}:
        yield _format_export(args)
    elif option in ("-f", "--file", "--input") and value and slip.path == ["sql"]:
        yield f"{format_command(plain)} < {shell_word(value)}"
    elif option in ("-o", "--output", "--out") and Path(value).suffix:
        yield f"{format_command(plain)} > {shell_word(value)}"


def _suggest_page(option: str, number: int, slip: UsageSlip, args: Line) -> Iterator[Line | str]:
    """The results from a page or a place on: those before it are counted in the limit, and cut off."""
    limit = find_first_value(args, LIMITS)
    size = int(limit) if limit.isdigit() else {"find": 10, "list": 100}.get(slip.path[0], 5)
    start = size * max(number - 1, 0) if "page" in option else number
    line = [*args]
    for spelling in LIMITS:
        line = next(drop_option(spelling, line), line)
    form = find_option_value(line, "--format")
    kind = next((kind for kind in base_types(slip.ctx) if kind.name in line), None)
    if form in ("csv", "md", "table"):  # has a header, which stays
        if slip.path == ["list"] and kind is not None and kind.kind == "node":
            condition = find_first_value(line, CONDITIONS)
            where = f" WHERE {condition}" if condition else ""
            head = f"SELECT {find_option_value(line, '--fields') or '*'} FROM {kind.name}{where}"
            order = f"ORDER BY {', '.join(kind.identity_fields)} LIMIT {size} OFFSET {start}"
            yield ["sql", f"{head} {order}", "--format", form]
        return
    is_json = form == "json" or "--json" in line
    members = "records" if slip.path == ["list"] else "results"
    cut = f"jq -c {shell_word(f'.{members}[{start}:]')}" if is_json else f"tail -n +{start + 1}"
    yield f"{format_command([*line, '-l', str(start + size)])} | {cut}"


def _format_export(args: Line) -> str:
    """The list of all records that fit, in the file that an export names."""
    line = replace_word(args, "export", "list")
    file = find_first_value(line, ("-o", "--output"))
    for spelling in ("-o", "--output"):
        line = next(drop_option(spelling, line), line)
    form = Path(file).suffix[1:]
    if form in FORMATS and not find_option_value(line, "--format"):
        line += ["--format", form]
    command = format_command([*drop_flag("--force", line), "-l", MANY])
    return f"{command} > {shell_word(file)}" if file else command


def _suggest_statement(option: str, slip: UsageSlip, args: Line, name: str) -> Iterator[Line | str]:
    """The order or the groups of records as a statement; as a pipe where the line searches, or asks for a revision."""
    at = next(at for at, word in enumerate(args) if word.partition("=")[0] == option)
    if args[at] == option and [word.lower() for word in args[at + 2 : at + 3]] in (["asc"], ["desc"]):
        args = [*args[: at + 1], " ".join(args[at + 1 : at + 3]), *args[at + 3 :]]
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
    members = text.replace(",", "','")
    conditions = [f"{name} IN ({members})"] if "," in value else [f"{name}={right}" for right in (text, value)]
    comparisons = (find_fitting_type(slip.ctx, [kind], condition) for condition in conditions if kind)
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


def suggest_import(ctx: click.Context, word: str, args: Line) -> Iterator[Line]:
    """Yield the import of a folder as documents, of a file as records of its name's type, or of a similar file."""
    import difflib

    place = Path(word)
    if place.is_dir():
        yield ["collection", "add", word]
    elif place.exists():
        name = next((kind for kind in type_names(ctx) if kind.lower() == place.stem.lower()), place.stem)
        at = args.index(word)
        yield [*args[:at], name, *args[at:]]
    elif near := difflib.get_close_matches(place.name, [path.name for path in place.parent.glob("*.*")], 1, 0.8):
        yield from suggest_import(
            ctx, str(place.with_name(near[0])), replace_word(args, word, str(place.with_name(near[0])))
        )
