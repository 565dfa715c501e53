"""What a mistyped command line should have been: verbs and options of other tools, by the names that they have here."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import click

from duckkb.errors import shell_word


def _by_word(meant: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Each word of a table of words by what they mean, with what it means: of several the one that there is."""
    return {word: tuple(here.split(" or ")) for here, words in meant.items() for word in words.split()}


VERBS = _by_word({
    "find": "search query ask grep lookup vsearch retrieve select where filter",
    "put": "add upsert insert set update save store create write edit",
    "get": "show read fetch cat view",
    "delete": "rm remove del drop unset",
    "list": "ls all dir scan",
    "col": "collection collections cols",
    "import": "load ingest restore",
    "export": "dump",
    "rename": "mv move",
    "sql": "exec count length",
    "status": "stats info",
    "schema": "types describe",
    "embed": "embedding",
    "log": "history",
    "check": "validate",
    "fmt": "format",
    "graph neighbors": "neighbors",
    "policy list": "policies",
    "index build": "rebuild",
})  # fmt: skip
_OF_GROUPS = _by_word({
    "show": "info describe view cat status fields",
    "show or retrieve": "get",
    "rm or delete": "delete remove drop del",
    "init or store": "create new add make",
    "list": "ls all",
    "rename": "mv",
    "snapshot": "export backup",
    "restore or import-file": "import",
    "store": "put",
    "search": "find",
    "check": "validate",
    "build": "update",
})  # fmt: skip
_OPTIONS = _by_word({
    "--limit or --top-k": "--top-k --topk --top_k -k -n --max --max-results --count --size --num --first --k",
    "--where": "--filter --filters --condition -f",
    "--fields": "--select --columns --cols --project --include --field --only",
    "--format": "--output --out --fmt --output-format --type",
    "--after": "--cursor --start-after --from --since",
    "--yes or --allow-shrink or --force": "--force --confirm -y --assume-yes",
    "--similar": "--semantic",
    "--match": "--keyword --text --fts",
    "--merge": "--upsert --patch --partial",
    "--dry-run": "--dry",
    "--kb": "--base --db --database --path --index",
    "--at": "--ref",
    "--if-match": "--etag",
    "--policy": "--template",
    "--params": "--config",
    "--top-k": "--limit -l",
})  # fmt: skip
_MODES = _by_word({
    "--similar": "similar semantic vector dense embedding meaning s",
    "--match": "match keyword fts lexical bm25 text words m",
    "--hybrid": "hybrid both h",
})  # fmt: skip
_OF_FIND = {"-m", "--match", "-s", "--similar", "-H", "--hybrid", "-w", "--where", "-l", "--limit", "--fields"}
_ALL = {"all", "none", "unlimited", "inf", "infinity", "max", "*", "-1"}
_MANY = "1000000"  # a limit is never more than there are records


def advice(problem: click.ClickException, args: Sequence[str]) -> str:
    """The command line as it should be, where its only slip is one of these; else the empty string."""
    if (of_documents := _of_documents(problem, args)) or (merged := _merged(args)):
        return of_documents or merged
    if isinstance(problem, click.NoSuchOption):
        return _option(problem, args)
    if isinstance(problem, NoSuchVerb):
        if problem.word in ("count", "length"):
            return _counted(args)
        return _command(args, problem.word, problem.better) if problem.better else ""
    if (
        isinstance(problem, click.BadParameter)
        and problem.param is not None
        and problem.param.name in ("limit", "top_k")
    ):
        return _limit(args)
    if isinstance(problem, click.BadParameter) and problem.param is not None and problem.param.name == "vector":
        text = _behind(args, "--vector")
        return f"echo {shell_word(text)} | {_typed([one.replace(text, '-') for one in args])}" if text else ""
    if isinstance(problem, click.BadOptionUsage) and any(one.startswith(f"{problem.option_name}=") for one in args):
        return _typed([problem.option_name if one.startswith(f"{problem.option_name}=") else one for one in args])
    return ""


def _of_documents(problem: click.ClickException, args: Sequence[str]) -> str:
    """`search TYPE QUESTION -m` is a `find`; `search several words` one question."""
    path = problem.ctx.command_path.split() if isinstance(problem, click.UsageError) and problem.ctx else []
    verb = path[-1] if len(path) == 2 else ""
    if verb not in ("search", "vsearch", "query") or verb not in args:
        return ""
    if isinstance(problem, click.NoSuchOption) and problem.option_name in _OF_FIND:
        return _command(args, verb, "find")
    at = args.index(verb) + 1
    words = list(takewhile(lambda word: not word.startswith("-"), args[at:]))
    return _typed([*args[:at], " ".join(words), *args[at + len(words) :]]) if len(words) > 1 else ""


def _merged(args: Sequence[str]) -> str:
    """`update TYPE ID JSON`: a record says its identity itself, so it is read, changed and put."""
    import json

    words = [word for word in args if not word.startswith("-")]
    if len(words) != 4 or words[0] not in ("update", "edit", "patch", "set"):
        return ""
    try:
        given = json.loads(words[3])
    except ValueError:
        return ""
    if not isinstance(given, dict):
        return ""
    change = shell_word(f". + {json.dumps(given, ensure_ascii=False)}")
    return f"{_typed(['get', *words[1:3]])} | jq -c {change} | {_typed(['put', words[1]])}"


def _counted(args: Sequence[str]) -> str:
    table = args[1].lower().replace("-", "_") if len(args) > 1 else ""
    return _typed(["sql", f"SELECT count(*) AS n FROM {table}"]) if table.isidentifier() else ""


class NoSuchVerb(click.UsageError):
    """A verb that there is not; `better` is the one that is meant, empty where nobody can tell."""

    def __init__(self, word: str, known: Sequence[str], ctx: click.Context, meant: Sequence[str] = ()) -> None:
        import difflib

        near = [one for one in meant if one.split()[0] in known] or difflib.get_close_matches(word, known, 1)
        self.word, self.better = word, near[0] if near else ""
        hint = f"Did you mean {self.better}?" if near else f"There are {', '.join(known)}."
        super().__init__(f"No such verb {word!r}. {hint}", ctx)


class Group(click.Group):
    """Verbs below a verb: an unknown one names the one that is meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise NoSuchVerb(args[0], self.list_commands(ctx), ctx, _OF_GROUPS.get(args[0], ()))
        return super().resolve_command(ctx, args)


def _option(problem: click.NoSuchOption, args: Sequence[str]) -> str:
    import difflib

    known = [spelled for param in problem.ctx.command.params for spelled in param.opts] if problem.ctx else []
    if problem.option_name in ("--query", "-q", "--q") and "query" in known:
        return _typed([word for word in args if word != problem.option_name])
    if in_front := _in_front(problem, args):
        return in_front
    if instead := _instead(problem.option_name, args, known):
        return instead
    meant = [one for one in _OPTIONS.get(problem.option_name, ()) if one in known]
    meant += difflib.get_close_matches(problem.option_name, known, 1, 0.8)
    return _command(args, problem.option_name, meant[0]) if meant else ""


def _in_front(problem: click.NoSuchOption, args: Sequence[str]) -> str:
    """An option of the verb above, as `propose --branch B put`, belongs in front of the verb below."""
    above = problem.ctx.parent if problem.ctx else None
    option = next((one for one in above.command.params if problem.option_name in one.opts), None) if above else None
    if above is None or above.parent is None or not isinstance(option, click.Option) or above.info_name not in args:
        return ""
    at = next(at for at, word in enumerate(args) if word.partition("=")[0] == problem.option_name)
    length = 1 if option.is_flag or "=" in args[at] else 2
    rest, start = [*args[:at], *args[at + length :]], args.index(above.info_name) + 1
    return _typed([*rest[:start], *args[at : at + length], *rest[start:]])


def _instead(option: str, args: Sequence[str], known: Sequence[str]) -> str:
    """What does another verb's or another tool's work of an option, by the options that the verb at hand knows."""
    named = next((one for one in args[1:] if not one.startswith("-")), "TYPE")
    if option in ("--offset", "--skip", "--page") and "--after" in known:
        return "pages go on behind an identity: --after ID, which the page before prints"
    if option in ("--offset", "--skip", "--page", "--after", "--cursor") and "--where" in known:
        return "a search has no pages: raise --limit; `duckkb list` has them"
    if option in ("--sort", "--order-by", "--order", "--sort-by", "--desc") and "--fields" in known:
        field = _behind(args, option) or "FIELD"
        return _typed(["sql", f"SELECT * FROM {named.lower()} ORDER BY {field} LIMIT 10"])
    if option in ("-w", "--where", "--filter") and "--after" in known:
        return _command(["find", *args[1:]], option, "--where")
    if option in ("-w", "--where", "--filter") and "--cascade" in known:
        found = _typed(["find", named, "-w", _behind(args, option), "--fields", "id", "-l", _MANY])
        return f"{found} | jq -r .id | xargs -d '\\n' duckkb delete {shell_word(named)}"
    if option in ("--mode", "--type", "--search-mode", "--method") and "--similar" in known:
        return _mode(args, option)
    if option in ("--file", "--input", "--input-file", "-f") and "--batch" in known:
        return f"duckkb put {shell_word(named)} --batch < {shell_word(_behind(args, option) or 'FILE')}"
    return ""


def _behind(args: Sequence[str], option: str) -> str:
    """The value of an option, behind it or behind a `=`; the empty string without one."""
    for word, after in zip(args, [*args[1:], ""], strict=True):
        if word == option:
            return "" if after.startswith("--") else after
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return ""


def _mode(args: Sequence[str], option: str) -> str:
    """`--mode semantic` is `--similar`."""
    said = _behind(args, option)
    flag = next(iter(_MODES.get(said.lower(), ())), "")
    at = next((at for at, word in enumerate(args) if word.partition("=")[0] == option), 0)
    length = 1 if "=" in args[at] else 2
    return _typed([*args[:at], flag, *args[at + length :]]) if flag else ""


def _limit(args: Sequence[str]) -> str:
    words = list(args)
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and name in ("--limit", "--top-k") and value.lower() in _ALL:
            words[at] = f"{name}={_MANY}"
        elif at and words[at - 1] in ("-l", "--limit", "--top-k") and word.lower() in _ALL:
            words[at] = _MANY
    return _typed(words) if words != list(args) else ""


def _command(args: Sequence[str], word: str, better: str) -> str:
    """The line with the first `word`, alone or before a `=`, replaced."""
    words = list(args)
    for at, one in enumerate(words):
        name, equals, value = one.partition("=")
        if name == word:
            words[at : at + 1] = [*better.split()[:-1], better.split()[-1] + equals + value]
            return _typed(words)
    return ""


def _typed(words: Sequence[str]) -> str:
    return " ".join(["duckkb", *map(shell_word, words)])
