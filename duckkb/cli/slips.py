"""The words that other tools use for verbs and options here, and groups that suggest the intended verb."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from duckkb.cli.line_words import GROUPS, is_query


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
    "--format": "--output --out --fmt --output-format",
    "--after": "--cursor --start-after --from --since",
    "--yes or --allow-shrink or --force": "--force --confirm -y --assume-yes",
    "--similar": "--semantic",
    "--match": "--keyword --text --fts --contains --like --words",
    "--merge": "--upsert --patch --partial",
    "--dry-run": "--dry",
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
    "--label": "--edge --relation",
    "--budget": "--tokens --max-tokens",
    "--id": "--pk --primary-key --key --id-field --primary",
    "--port": "-p",
})  # fmt: skip
MODES = _build_word_index({
    "--similar or vsearch": "similar semantic vector dense embedding meaning s",
    "--match or search": "match keyword fts lexical bm25 text words m",
    "--hybrid or query": "hybrid both h",
})  # fmt: skip
"""Words for how to search, by the flag and by the verb of documents that do so."""


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
