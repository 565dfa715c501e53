"""Suggestions after a mistyped command: corrected lines, each checked against the verbs until it parses."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import click

from duckkb.cli.command_words import (
    CONDITIONS,
    LIMITS,
    base_root,
    base_types,
    drop_flag,
    drop_option,
    drop_words,
    drops_words,
    find_fitting_type,
    find_near_names,
    find_option_value,
    find_option_word,
    first_of_records,
    format_command,
    is_query,
    is_revision,
    join_words,
    lift_limit,
    name_restored,
    parse_fields,
    replace_word,
    select_arguments,
    split_identities,
    split_proposal,
    split_statement,
    type_names,
)
from duckkb.cli.options import split_front, split_record_name
from duckkb.cli.other_tools import rewrite
from duckkb.cli.suggestions import (
    CHOICES,
    OF_DOCUMENTS,
    OF_GIT,
    OPTIONS,
    PROPOSED,
    UNDOING,
    VERBS,
    NoSuchVerb,
    UsageSlip,
    convert_to_find,
    move_to_front,
    suggest_alternative,
    suggest_filter,
    suggest_format,
    suggest_import,
)
from duckkb.ontology.names import looks_secret
from duckkb.operations.catalog import ACTIONS
from duckkb.types.errors import shell_word

_MOST_SLIPS = 5
_NEAR_HELP = 0.8
_OF_FIND = {"-m", "--match", "-s", "--similar", "-H", "--hybrid", *CONDITIONS, "--fields", "--provenance"}
_USUAL = ("list", "show", "status", "stats", "neighbors", "create", "config", "search")
"""What a group is asked for where nobody says what: the first of these that it has, none of which changes anything."""
_READING = {
    *(
        name
        for action in ACTIONS.values()
        if not action.writes
        for name in (action.name.replace("_", "-"), action.name.rpartition("_")[2])
    ),
    *[
        "ls",
        "embed",
        "config",
        "review",
        "doctor",
        "show",
        "plan",
        "test",
        "verify",
        "export",
        "update",
        "refresh",
        "build",
    ],
    *OF_DOCUMENTS,
}
"""Verbs of which an option can be left out and nothing comes to harm."""
_FOR_GROUPS: dict[str, list[list[str] | str]] = {"skill": ["duckkb --skill"], "propose": [["branches"]]}
"""What groups lead to that have no verb which changes nothing."""
_TEXTS = {"query": "a question", "question": "a question", "text": "some text", "statement": "SHOW TABLES"}
"""Arguments that are texts, with one that can stand there."""
_OF_STATEMENTS = ("-e", "--sql", "--execute", "--command", "--statement")
_OF_TEXTS = ("--query", "-q", "--q", *_OF_STATEMENTS)
_OF_TYPES = ("--table", "--type", "-t", "--collection", "-c", "--in", "--from")
_OF_IDENTITIES = ("--id", "--key", "--identity", "--pk")
_OF_FORCE = ("--force", "-f", "-rf", "--yes", "-y", "--confirm", "--accept", "--approve")
_OF_GREP = ("-i", "--ignore-case", "-r", "--recursive", "--verbose")
"""Options of other tools in front of a text or of a type, and flags of theirs that need not be said here."""
_NEEDED = {"policy": "knowledge-base"}
_TOKEN = re.compile(r"[\w-]{43}|://[^/\s]*:[^/\s]*@")
"""A token of a tenant, and whatever is as long, or a URL with a password."""
_WRITING_STATEMENT = re.compile(
    r"\s*(delete|insert|update|replace|merge|truncate|drop|create|alter|show|use|vacuum|analyze)\b", re.IGNORECASE
)
_Line = list[str]


def advise(duckkb: click.Command, problem: click.ClickException, args: Sequence[str]) -> str:
    """Return the corrected line for a shell, checked to parse; else, or if it may hold a secret, the verb's help."""
    ctx = getattr(problem, "ctx", None)
    front, words = split_front(args)
    args = [*front, *words]
    slip = examine(duckkb, args) or (UsageSlip(ctx, problem) if ctx is not None else None)
    if slip is None:
        return "duckkb --help"
    keeps_help = {"-h", "--help"} & {*args} or any(map(_can_hold_secret, args))
    better = getattr(problem, "better", "")
    advice = "" if keeps_help else _mend(duckkb, slip, front, words, _MOST_SLIPS)
    return advice or f"{slip.ctx.command_path} {better}".strip() + " --help"


def advise_refused(duckkb: click.Command, args: Sequence[str]) -> str:
    """What a line that parses, and that the base has refused, means by the tables of other programs; empty where it is none."""
    front, words = split_front(args)
    if any(map(_can_hold_secret, args)):
        return ""
    ctx = click.Context(duckkb, info_name="duckkb")
    ctx.params["kb"] = front[1] if front[:1] == ["--kb"] else None
    for meaning in _iter_rewritings(ctx, words):
        better = _parse_meaning(duckkb, front, meaning, _MOST_SLIPS + 1)
        if better and meaning != words and not drops_words(args, better):
            return better
    return ""


def complete(args: Sequence[str], suggestion: str) -> str:
    """Add to a command what the line says of how it writes, in a proposal, merged, tried, or of how it reads."""
    proposal, words = split_proposal(split_front(args)[1])
    if re.match(r"duckkb (find|list) [^`|]*$", suggestion) and not any(map(_can_hold_secret, args)):
        missing = [option for option in (*LIMITS, "--at", "--format", "--fields") if f" {option} " not in suggestion]
        pairs = [(option, value) for option in missing if (value := find_option_value(words, option))]
        return " ".join([suggestion, *(shell_word(word) for pair in pairs for word in pair)])
    match = re.match(r"((?:echo .* \| )?duckkb )(?:propose )?(?=(?:put|delete|import|rename) )", suggestion)
    if match is None or any(map(_can_hold_secret, args)):
        return suggestion
    flags = [flag for flag in ("--merge", "--dry-run") if flag in words and flag not in suggestion]
    front = "".join(f"{shell_word(word)} " for word in proposal)
    return " ".join([f"{match[1]}{front}{suggestion[match.end() :]}", *flags])


def _iter_rewritings(ctx: click.Context, args: _Line) -> Iterator[_Line | str]:
    """Yield what a line of another program means here, of the line behind `propose` in a proposal too."""
    proposal, words = split_proposal(args)
    is_writing = len(words) == 2 and words[0] == "sql" and _WRITING_STATEMENT.match(words[1])
    for meaning in rewrite(ctx, split_statement(words[1]) if is_writing else words):
        if not proposal:
            yield meaning
        elif isinstance(meaning, list) and meaning[0] in PROPOSED:
            yield [*proposal, *meaning]
    find = ctx.find_root().command
    words = [word for word in words if word]
    verb = find.get_command(ctx, "find") if isinstance(find, click.Group) and words[:1] in (["find"], ["get"]) else None
    if verb is not None and (line := _name_type(click.Context(verb, parent=ctx), words)) != words:
        yield line


def correct(args: Sequence[str], word: str, better: str) -> str:
    """Return the line of a reading verb with one argument corrected; empty where the word is not unique in it."""
    places = [at for at, arg in enumerate(args) if word in (arg, arg.partition("=")[2], *arg.lstrip("+").split(","))]
    if len(places) != 1 or not _READING & {*args[: places[0]]} or "all" in args or any(map(_can_hold_secret, args)):
        return ""
    at = places[0]
    head, match, tail = args[at].rpartition(word)
    return format_command([*args[:at], f"{head}{better}{tail}", *args[at + 1 :]]) if match else ""


def _can_hold_secret(word: str) -> bool:
    return looks_secret(word) or _TOKEN.search(word) is not None


def _mend(root: click.Command, slip: UsageSlip, front: _Line, line: _Line, most: int) -> str:
    """Return the first correction behind the options `front` that parses, after up to `most` more corrections."""
    for meaning in _iter_meanings(slip, line):
        better = _parse_meaning(root, front, meaning, most)
        if better and not drops_words(line, better):
            return better
    return ""


def _parse_meaning(root: click.Command, front: _Line, meaning: _Line | str, most: int) -> str:
    """Return the command of a meaning that parses, after up to `most` corrections; empty where none does."""
    if isinstance(meaning, str):
        return meaning
    if (slip := examine(root, [*front, *meaning])) is None:
        return format_command([*front, *meaning])
    return _mend(root, slip, front, meaning, most - 1) if most else ""


def examine(root: click.Command, args: Sequence[str]) -> UsageSlip | None:
    """Return what is wrong with a line, as far as can be told without running it; None where nothing is."""
    ctx = click.Context(root, info_name="duckkb")
    try:
        ctx = root.make_context("duckkb", [*args], obj={})
        while isinstance(ctx.command, click.Group):
            words = [*getattr(ctx, "_protected_args", ()), *ctx.args]
            if not words:
                return None
            name, command, arguments = ctx.command.resolve_command(ctx, words)
            above, ctx = ctx, click.Context(command or ctx.command, parent=ctx, info_name=name)
            ctx = ctx.command.make_context(name, arguments, parent=above, allow_extra_args=True)
    except click.ClickException as problem:
        return UsageSlip(getattr(problem, "ctx", None) or ctx, problem)
    except click.exceptions.Exit:
        return None
    lacks = any(name in _TEXTS and name != "query" and value is None for name, value in ctx.params.items())
    return UsageSlip(ctx, extra=(*ctx.args,)) if ctx.args or lacks else None


def _iter_meanings(slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    """Yield what a mistyped line may have meant, the likeliest first: lines, or shell commands as text."""
    problem = slip.problem
    proposal, words = split_proposal(args)
    if merge_command := _merge_fields(slip.ctx, words):
        yield [*proposal, *merge_command]
    yield from _iter_rewritings(slip.ctx, args)
    if isinstance(problem, NoSuchVerb):
        yield from _suggest_verb(problem, args)
    elif isinstance(problem, click.exceptions.NoArgsIsHelpError):
        yield from _suggest_usual_verb(slip, args)
    elif isinstance(problem, click.NoSuchOption):
        yield from _suggest_option(problem, slip, args)
    elif isinstance(problem, click.BadParameter) and not isinstance(problem, click.MissingParameter):
        yield from _suggest_value(problem, slip, args)
    elif isinstance(problem, click.BadOptionUsage):
        if any(word.startswith(f"{problem.option_name}=") for word in args):
            yield [problem.option_name if word.startswith(f"{problem.option_name}=") else word for word in args]
        elif args == [problem.option_name]:
            yield ["status"]
        elif problem.option_name == "--branch":
            yield ["branches"]
        elif slip.path[-1:] and slip.path[-1] in _READING and args[-1] == problem.option_name:
            yield args[:-1]
    elif slip.extra:
        yield from _drop_extra_words(slip, args)
    else:
        yield from _add_missing_word(slip, args)


def _merge_fields(ctx: click.Context, args: _Line) -> _Line:
    """Return `put --merge` for `update TYPE ID JSON` and its other spellings; empty for other lines."""
    words = select_arguments(ctx, args)
    pair = split_record_name(words[1]) if words[:1] == ["put"] and words[1:] else None
    words = [words[0], *pair, *words[2:]] if pair else words
    if (
        words[:1] not in (["update"], ["edit"], ["patch"], ["set"], ["put"])
        or len(words) < (3 if pair or words[0] != "put" else 4)
        or re.search("[={]", words[2])
    ):
        return []
    kind = next((kind for kind in base_types(ctx) if kind.name == words[1]), None)
    if kind is None and pair:
        return ["col", "init", words[1], "--policy", "knowledge-base"]
    if kind is None or len(kind.identity_fields) != 1:
        return []
    with suppress(ValueError):
        fields = (
            json.loads(words[3]) if len(words) == 4 and "=" not in words[3].split("{")[0] else parse_fields(words[3:])
        )
        if isinstance(fields, dict):
            record = json.dumps({kind.identity_fields[0]: words[2], **fields}, ensure_ascii=False)
            return ["put", words[1], record, "--merge", *(["--dry-run"] if "--dry-run" in args else [])]
    return []


def _suggest_verb(problem: NoSuchVerb, args: _Line) -> Iterator[_Line | str]:
    at = args.index(problem.word)
    is_below = problem.ctx is not None and problem.ctx.parent is not None
    before, after = args[:at] if is_below else [], args[at + 1 :]
    if problem.word in UNDOING and not is_below:
        words = [word for word in after if not word.startswith("-")]
        yield [*before, "log", *words] if len(words) == 2 else [*before, "diff"]
    if problem.word in OF_GIT and not is_below:
        yield _format_git(problem.ctx, args[at:])
    if problem.better:
        yield _name_type(problem.ctx, [*before, *_replace_verb(problem, args[at:])])
    kinds = [kind.name for kind in base_types(problem.ctx) if kind.is_collection] if problem.ctx else []
    if is_below and " " in problem.word and before == ["propose"] and kinds:
        yield ["propose", "-m", problem.word, "put", kinds[0], '{"id": "..."}', "--dry-run"]
    if is_below and problem.ctx is not None:
        if problem.word not in _USUAL:  # else it is no word for another verb
            yield from _suggest_usual_verb(UsageSlip(problem.ctx), [*before, *args[at:]])
        yield from _suggest_usual_verb(UsageSlip(problem.ctx), before)
        yield before
    elif not problem.better:
        yield [*before, "find", "all", " ".join(args[at:])]


def _replace_verb(problem: NoSuchVerb, words: _Line) -> _Line:
    """Replace an unknown verb by the command that is meant, with the words behind it."""
    command, after = shlex.split(problem.better), words[1:]
    plain = [*takewhile(lambda word: word[:1] != "-", words)]
    if command == ["sql"] and is_query(" ".join(plain)):
        return ["sql", join_words(plain), *words[len(plain) :]]
    if command == ["backup", "restore"] and len(plain) == 2 and problem.ctx and base_root(problem.ctx):
        return [*command, plain[1], name_restored(plain[1]), *after[1:]]
    return command if command[0] == "sql" and len(command) > 1 else [*command, *after]


def _format_git(ctx: click.Context | None, words: _Line) -> str:
    """Return a git command for the base that the line names."""
    base = ctx.find_root().params.get("kb") if ctx else None
    return f"git {shlex.join([*(['-C', base] if base else []), *words])}"


def _name_type(ctx: click.Context | None, line: _Line) -> _Line:
    """Return a `find` without a type with `all`, a `get` and a `find` of a whole type as `list`; other lines as they are."""
    import difflib

    words = select_arguments(ctx, line) if ctx else []
    kinds = ("all", *type_names(ctx)) if ctx else ()
    has_condition = not {*CONDITIONS, "--vector"}.isdisjoint(word.partition("=")[0] for word in line)
    is_whole = words[:1] == ["get"] or (words[:1] == ["find"] and words[1:] != ["all"] and not has_condition)
    if len(words) == 2 and words[1] in kinds and is_whole:
        return replace_word(line, words[0], "list")
    if words[:1] != ["find"] or words[1:2] == [] or words[1] in kinds or len(words) > 3:
        return line
    if len(words) == 3 and words[2] in kinds:
        return ["find", words[2], *[word for word in line[1:] if word != words[2]]]
    at = line.index(words[1])
    if len(words) == 3 and difflib.get_close_matches(words[1], kinds, 1):
        return line
    return [*line[:at], "all", *line[at + len(words) - 2 :]]


def _suggest_usual_verb(slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    """Yield the most usual verb of a group, with the words that were given to the group."""
    command = slip.ctx.command
    yield from _FOR_GROUPS.get("".join(slip.path[:1]), ())
    if isinstance(command, click.Group) and slip.path:
        at = args.index(slip.path[-1]) + 1
        verb = next((name for name in _USUAL if name in command.list_commands(slip.ctx)), None)
        if verb is not None and verb not in args[at:]:
            yield [*args[:at], verb, *args[at:]]


def _suggest_option(problem: click.NoSuchOption, slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    import difflib

    option = find_option_word(problem.option_name, args)
    yield from _suggest_help_or_force(option, slip, args)
    params_by_name = {spelling: param for param in slip.ctx.command.params for spelling in param.opts}
    if option == "--branch" and slip.path and slip.path[0] in PROPOSED:
        plain = next(drop_option(option, args))
        yield ["propose", "--branch", find_option_value(args, option) or "topic", *plain]
    value, plain = find_option_value(args, option), [word for word in args if word != option]
    is_statement = slip.path in ([], ["sql"]) and option in ("-c", *_OF_STATEMENTS)
    is_statement |= slip.path == ["apply"] and option in ("-f", "--file", "--input")
    if value and (is_statement or value[:1] == "{" or (option in _OF_TEXTS and _TEXTS.keys() & params_by_name.keys())):
        yield plain if slip.path else ["sql", *plain]
    is_loose = option in _OF_TYPES or (option not in OPTIONS and slip.path[-1:] and slip.path[-1] in _READING)
    words, kinds = [word for word in args if word not in (option, value)], type_names(slip.ctx)
    takes_type = any(
        param.name in ("type", "type_name") and param.opts == [param.name] for param in params_by_name.values()
    )
    if is_loose and takes_type and value in kinds and not {*words} & {*kinds}:
        behind = words[len(slip.path) :]
        yield [*words[: len(slip.path)], value, *(behind[1:] if behind[:1] == ["all"] else behind)]
    if option in _OF_IDENTITIES and "IDENTITY" in slip.ctx.command.get_usage(slip.ctx):
        yield plain
    if option in _OF_GREP:
        yield _name_type(slip.ctx, drop_flag(option, args))
    yield from move_to_front(option, slip, args)
    yield from suggest_alternative(option, slip, args, [*params_by_name])
    near = difflib.get_close_matches(option, [name for name in params_by_name if name.startswith("--")], 2, 0.8)
    is_search = slip.path[:1] and slip.path[0] in OF_DOCUMENTS
    if (
        option in ("--type", "-t")
        and is_search
        and find_option_value(args, option) not in type_names(slip.ctx, documents=True)
    ):
        yield from convert_to_find(slip.path[0], slip.ctx, args)
    if is_search and option in _OF_FIND:
        yield from convert_to_find(slip.path[0], slip.ctx, args)
    yield from (replace_word(args, option, name) for name in OPTIONS.get(option, ()) if name in params_by_name)
    yield from suggest_filter(option, slip, args)
    yield from (replace_word(args, option, name) for name in near)
    if slip.path == ["ls"] and first_of_records(slip.ctx, args[1:]):
        yield replace_word(args, "ls", "list")
    if slip.path and slip.path[-1] in _READING:
        yield from suggest_format(option, args)
        yield from _convert_to_verb(option, slip, args)
        yield from (_name_type(slip.ctx, plain) for plain in drop_option(option, args))
    elif "--dry-run" in params_by_name:
        yield from ([*plain, "--dry-run"] for plain in drop_option(option, args))
    elif slip.path == ["watch"]:
        yield [*replace_word(next(drop_option(option, args)), "watch", "update")]
    if "TYPE" in slip.ctx.command.get_usage(slip.ctx) and (
        kinds := [word for word in args if word in type_names(slip.ctx)]
    ):
        yield ["list", kinds[0]]
    elif isinstance(slip.ctx.command, click.Group):
        yield from _suggest_usual_verb(slip, drop_flag(option, args))
    elif slip.path[1:]:
        yield from _suggest_usual_verb(UsageSlip(slip.ctx.parent or slip.ctx), args[: args.index(slip.path[-1])])


def _convert_to_verb(option: str, slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    """Yield the reading verb that an option is named after; for a search, on its first result."""
    name, root = option.removeprefix("--"), slip.ctx.find_root()
    words = select_arguments(slip.ctx, drop_flag(option, args))
    kinds = type_names(slip.ctx)
    kind = next((word for word in words if word in kinds), "")
    is_verb = isinstance(root.command, click.Group) and root.command.get_command(root, name) is not None
    verb = shlex.split((*((name,) if is_verb else VERBS.get(name, ())), "")[0])
    if not verb or verb[-1] not in _READING or not kind:
        return
    if slip.path == ["find"] and verb[0] in ("graph", "log", "blame", "get"):
        hits = format_command([*drop_flag(option, args), "--fields", "id", "-l", "1"])
        yield f"{hits} | jq -r .id | xargs -r -d '\\n' duckkb {' '.join(verb)} {shell_word(kind)}"
    else:
        yield [*verb, *words[len(slip.path) :]]


def _suggest_help_or_force(option: str, slip: UsageSlip, args: _Line) -> Iterator[_Line]:
    """The page that a mistyped `--help` asks for; of a delete that is to happen in any case, what would go."""
    import difflib

    if difflib.SequenceMatcher(None, option, "--help").ratio() > _NEAR_HELP:
        yield ["help", *slip.path]
    if option in _OF_FORCE and any("--cascade" in param.opts for param in slip.ctx.command.params):
        yield [*drop_flag(option, args), "--cascade", "--dry-run"]
    if option in _OF_FORCE and slip.path in (["repair"], ["trust"], ["recover"], ["git", "install"]):
        yield drop_flag(option, args)


def _suggest_value(problem: click.BadParameter, slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    import difflib

    param = problem.param
    if param is None:
        return
    if param.name in ("limit", "top_k"):
        yield from lift_limit(args)
    if param.name == "vector" and (text := find_option_value(args, "--vector")):
        yield f"echo {shell_word(text)} | {format_command([word.replace(text, '-') for word in args])}"
    value = next(
        (find_option_value(args, spelling) for spelling in param.opts if find_option_value(args, spelling)), ""
    )
    if isinstance(param.type, click.Choice) and isinstance(param, click.Argument):
        word = next((word for word in reversed(args) if not word.startswith("-")), "")
        near = difflib.get_close_matches(word.lower(), param.type.choices, 1, 0.5) or param.type.choices[:1]
        yield [*args[: args.index(word)], near[0], *args[args.index(word) + 1 :]]
    elif isinstance(param.type, click.Choice) and value:
        choices = [*map(str, param.type.choices)]
        near = difflib.get_close_matches(value.lower(), choices, 1)
        usual = str(param.default) if param.default in choices else choices[0]
        names = [*near, *(name for name in CHOICES.get(value.lower(), ()) if name in choices), usual]
        yield from ([word.replace(value, name) if value in word else word for word in args] for name in names)
    if slip.path and slip.path[-1] in _READING and param.opts[0].startswith("-"):
        groups = [word for word in args if re.match("-[a-z]{2}", word) and word[:2] in param.opts]
        yield from ([word for word in args if word != group] for group in groups)
        for plain in (plain for spelling in param.opts for plain in drop_option(spelling, args)):
            asks_all = slip.path == ["find"] and len(select_arguments(slip.ctx, plain)) == 2
            yield replace_word(plain, "find", "list") if asks_all else plain


def _drop_extra_words(slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    """Yield lines without surplus words: quoted, as JSON or as a range where they fit, else left out."""
    extra = slip.extra
    arguments = [parameter for parameter in slip.ctx.command.params if isinstance(parameter, click.Argument)]
    kept_words = drop_words(args, extra)
    last = arguments[-1].name if arguments else None
    if slip.path[:1] and slip.path[0] in OF_DOCUMENTS and (kind := first_of_records(slip.ctx, extra)):
        yield ["find", kind, *[word for word in args if word not in (slip.path[0], kind)]]
    if slip.path == ["memory", "put"]:
        scope, key = (str(slip.ctx.params[name]) for name in ("key", "text"))
        yield ["memory", "put", key, " ".join(extra), "--scope", scope]
    if last in _TEXTS and (before := slip.ctx.params.get(last or "")):
        at = kept_words.index(before) if before in kept_words else len(kept_words) - 1
        yield [*kept_words[:at], join_words([before, *extra]), *kept_words[at + 1 :]]
    pair = str(slip.ctx.params.get("json_text"))
    if last == "json_text":
        with suppress(ValueError):
            fields = json.dumps(parse_fields((pair, *extra)), ensure_ascii=False)
            line = [fields if word == pair else word for word in kept_words]
            yield line if "--merge" in line or "=" not in pair else [*line, "--merge"]
        from duckkb.operations.record_writes import repair_json

        json_text = repair_json(" ".join((pair, *extra)).encode("utf-8", "replace"))  # a shell split it
        line = [word if word != pair else json_text or '{"id": "..."}' for word in kept_words]
        yield line if json_text or "--dry-run" in line else [*line, "--dry-run"]
    if slip.path == ["collection", "add"] and len(extra) == 1 and Path(extra[0]).is_dir():
        yield ["collection", "add", extra[0], "--name", str(slip.ctx.params["path"])]
    root = base_root(slip.ctx)
    sides = extra[0].replace("...", "..").split("..") if extra else []
    if slip.path == ["check"] and len(extra) == 1 and root and all(is_revision(root, side) for side in sides if side):
        yield [*kept_words, "--since", extra[0]]
    if last in ("range_text", "range") and len(extra) == 1:
        version = str(slip.ctx.params[last])
        yield [f"{version}...{extra[0]}" if word == version else word for word in kept_words]
    group = slip.ctx.parent.command if slip.ctx.parent else None
    if isinstance(group, click.Group) and slip.path[-1:] == ["list"] and "show" in group.commands:
        names = find_near_names(slip.ctx, slip.path[0], extra[0])
        yield from (replace_word(replace_word(args, extra[0], name), "list", "show") for name in names)
    changes = any("--dry-run" in param.opts for param in slip.ctx.command.params)
    yield [*kept_words, *(["--dry-run"] if changes and "--dry-run" not in kept_words else [])]


def _add_missing_word(slip: UsageSlip, args: _Line) -> Iterator[_Line | str]:
    """Yield the line with an example of its missing argument, or the command that lists candidates."""
    params = slip.ctx.params
    missing = getattr(slip.problem, "param", None) or next(
        (
            parameter
            for parameter in slip.ctx.command.params
            if isinstance(parameter, click.Argument) and not params.get(parameter.name or "")
        ),
        None,
    )
    if not slip.path and args == []:
        yield ["status"]
    if missing is None:
        yield from _FOR_GROUPS.get("".join(slip.path), ())
    if missing is None or not slip.path:
        return
    words = select_arguments(slip.ctx, args)[len(slip.path) :]
    if slip.path == ["log"] and not words:
        yield _format_git(slip.ctx, ["log", "--oneline", "-n", "10"])
    if slip.path[0] == "backup" and missing.name == "file":
        yield _add_newest_backup(slip, args)
    if isinstance(missing, click.Option) and missing.name not in _NEEDED:
        if words:  # the value without its option
            yield [*args[: args.index(words[0])], missing.opts[0], *args[args.index(words[0]) :]]
        return
    if slip.path == ["why"] and missing.name == "query":
        yield f"say what was searched for behind `{format_command(args)}`"
    if missing.name in _NEEDED:
        yield [*args, missing.opts[0], _NEEDED[missing.name]]
    if isinstance(missing.type, click.Choice):
        yield [*args, missing.type.choices[0]]
    if slip.path == ["import"] and words:
        yield from suggest_import(slip.ctx, words[0], args)
    yield from split_identities(words, args)
    if missing.name in ("type", "type_name") and not words:
        yield from _add_type(missing, slip, args)
    if missing.name in _TEXTS:
        yield [*args, _TEXTS[missing.name]]
    yield from _suggest_list(missing, slip, words)


def _add_type(missing: click.Parameter, slip: UsageSlip, args: _Line) -> Iterator[_Line]:
    """Yield the line with a type that has the fields of its filter, types with matching records first."""
    option = next((option for option in ("-w", "--where") if find_option_value(args, option)), None)
    if option is None:
        return
    names = ["all"] if "all" in (missing.metavar or "") else type_names(slip.ctx)
    condition, at = find_option_value(args, option), args.index(slip.path[-1]) + 1
    if (fitting := find_fitting_type(slip.ctx, names, condition)) is not None:
        yield [*args[:at], fitting[0], *[word.replace(condition, fitting[1]) for word in args[at:]]]


def _add_newest_backup(slip: UsageSlip, args: _Line) -> _Line | str:
    """Return the line with the base's newest backup, and for `restore` a new folder. Where none is known, return FILE for
    `restore`, else the command that makes a backup."""
    from duckkb.operations.backup_files import find_newest_backup

    root = base_root(slip.ctx)
    file = find_newest_backup(root) if root else None
    if file is None and slip.path[-1] != "restore":
        return ["backup", "create"]
    if file is None:
        return f"{format_command(args)} FILE"
    return [*args, str(file), *([name_restored(str(file))] if slip.path[-1] == "restore" else ())]


def _suggest_list(missing: click.Parameter, slip: UsageSlip, words: Sequence[str]) -> Iterator[_Line]:
    """Yield the command that lists what an argument could be."""
    name, metavar = missing.name or "", missing.metavar or ""
    if "REF" in metavar or name in ("revision", "range_text"):
        yield ["branches"]
    if len(slip.path) > 1 and slip.path[0] not in ("graph", "propose"):
        yield from (
            line
            for line in _suggest_usual_verb(UsageSlip(slip.ctx.parent or slip.ctx), slip.path[:1])
            if isinstance(line, list)
        )
    kinds = type_names(slip.ctx)
    if words and words[0] in kinds:
        yield ["schema", words[0]] if name in ("json_text", "files") else ["list", words[0]]
    elif words and "TYPE" in slip.ctx.command.get_usage(slip.ctx) and kinds and slip.path != ["import"]:
        yield ["find", "all", " ".join(words)]
    yield ["schema"]
