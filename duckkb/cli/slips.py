"""What a mistyped command line should have been: verbs and options of other tools, by the names that they have here."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from duckkb.errors import shell_word

VERBS: Mapping[str, str] = {
    **dict.fromkeys(
        ("search", "query", "ask", "grep", "lookup", "vsearch", "retrieve", "select", "where", "filter"), "find"
    ),
    **dict.fromkeys(("add", "upsert", "insert", "set", "update", "save", "store", "create", "write", "edit"), "put"),
    **dict.fromkeys(("show", "read", "fetch", "cat", "view"), "get"),
    **dict.fromkeys(("rm", "remove", "del", "drop", "unset"), "delete"),
    **dict.fromkeys(("ls", "all", "dir", "scan"), "list"),
    **dict.fromkeys(("collection", "collections", "cols"), "col"),
    **dict.fromkeys(("load", "ingest", "restore"), "import"),
    "dump": "export",
    "mv": "rename",
    "move": "rename",
    "exec": "sql",
    "stats": "status",
    "info": "status",
    "types": "schema",
    "describe": "schema",
    "embedding": "embed",
    "history": "log",
    "validate": "check",
    "format": "fmt",
    "neighbors": "graph neighbors",
    "policies": "policy list",
    "rebuild": "index build",
}
_OF_GROUPS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("info", "describe", "get", "view", "cat", "status", "fields"), ("show",)),
    **dict.fromkeys(("delete", "remove", "drop", "del"), ("rm", "delete")),
    **dict.fromkeys(("create", "new", "add", "make"), ("init", "store")),
    **dict.fromkeys(("ls", "all"), ("list",)),
    "mv": ("rename",),
    "export": ("snapshot",),
    "import": ("restore", "import-file"),
    "backup": ("snapshot",),
    "get": ("show", "retrieve"),
    "put": ("store",),
    "find": ("search",),
    "validate": ("check",),
    "update": ("build",),
}
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("--top-k", "--topk", "--top_k", "-k", "-n", "--max", "--max-results", "--count", "--size", "--num", "--first"),
        ("--limit", "--top-k"),
    ),
    **dict.fromkeys(("--filter", "--filters", "--condition", "-f"), ("--where",)),
    **dict.fromkeys(("--select", "--columns", "--cols", "--project", "--include", "--field", "--only"), ("--fields",)),
    **dict.fromkeys(("--output", "--out", "--fmt", "--output-format", "--type"), ("--format",)),
    **dict.fromkeys(("--cursor", "--start-after", "--from", "--since"), ("--after",)),
    **dict.fromkeys(("--force", "--confirm", "-y", "--assume-yes"), ("--yes", "--allow-shrink", "--force")),
    "--semantic": ("--similar",),
    "--keyword": ("--match",),
    "--text": ("--match",),
    "--fts": ("--match",),
    "--upsert": ("--merge",),
    "--patch": ("--merge",),
    "--partial": ("--merge",),
    "--dry": ("--dry-run",),
    "--base": ("--kb",),
    "--db": ("--kb",),
    "--database": ("--kb",),
    "--path": ("--kb",),
    "--ref": ("--at",),
    "--etag": ("--if-match",),
    "--template": ("--policy",),
    "--config": ("--params",),
    "--k": ("--limit", "--top-k"),
    "--limit": ("--top-k",),
    "-l": ("--top-k",),
}
_ALL = {"all", "none", "unlimited", "inf", "infinity", "max", "*", "-1"}
_MANY = "1000000"  # a limit is never more than there are records


def advice(problem: click.ClickException, args: Sequence[str]) -> str:
    """The command line as it should be, where its only slip is one of these; else the empty string."""
    if isinstance(problem, click.NoSuchOption):
        return _option(problem, args)
    if isinstance(problem, NoSuchVerb):
        return _command(args, problem.word, problem.better) if problem.better else ""
    if (
        isinstance(problem, click.BadParameter)
        and problem.param is not None
        and problem.param.name in ("limit", "top_k")
    ):
        return _limit(args)
    if isinstance(problem, click.BadOptionUsage):  # --json=true
        return _typed([problem.option_name if one.startswith(f"{problem.option_name}=") else one for one in args])
    return ""


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
    if problem.option_name in ("--offset", "--skip", "--page") and "--after" in known:
        return "pages go on behind an identity: --after ID, which the page before prints"
    meant = [one for one in _OPTIONS.get(problem.option_name, ()) if one in known]
    meant += difflib.get_close_matches(problem.option_name, known, 1, 0.8)
    return _command(args, problem.option_name, meant[0]) if meant else ""


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
