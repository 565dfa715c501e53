"""The verbs collection, context, ls, update and watch for folders of files, and arch for graphs of code."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed, stop
from duckkb.cli.commands import parameters
from duckkb.cli.options import PathName
from duckkb.cli.verb import action_verb, base_verb, group, open_named_base, verb

if TYPE_CHECKING:
    from duckkb.actions.collecting import Changed
    from duckkb.actions.documents.arch.building import ArchImport
    from duckkb.actions.documents.updating import Updated
    from duckkb.app import KnowledgeBase

_name = click.argument("name")
_MOST_NAMED = 3
_REASONS = {
    "hidden": "the name begins with a dot (`hidden: true` reads it)",
    "gitignore": "a .gitignore names it (`gitignore: false` reads it)",
    "repository": "a separate git repository (`gitignore: false` reads it)",
    "reserved": "folders of this name are never read",
    "pattern": "the pattern does not match it",
    "ignore": "`ignore` names it",
    "link": "a link, or not a regular file",
    "name": "the name cannot be a record's name",
    "unreadable": "it cannot be read",
}
"""Explanations of the reasons in `WalkNotes`."""


@group("collection")
def collection_command() -> None:
    """Documents are searched, compared and cited like any record."""


@base_verb("add", group=collection_command)
@click.argument("path", type=PathName())
@click.option("--name", metavar="NAME", help="Default: the name of the folder.")
@click.option(
    "--mask", "masks", multiple=True, metavar="GLOB", help="Pattern of files, as in .gitignore (**/*.md); repeatable."
)
def collection_add_command(
    kb: "KnowledgeBase", path: str, *, name: str | None, masks: tuple[str, ...]
) -> Mapping[str, Any]:
    """Make the files of a folder a document collection. The folder is recorded in ontology/collections/NAME.yaml;
    for a folder outside of the base only on this machine.

    \b
    duckkb collection add docs
    duckkb collection add ~/notes --name notes --mask "**/*.md" --mask "**/*.txt"
    """
    from duckkb.actions.documents.collections import readable_patterns

    collection = kb.documents.add(path, name=name, masks=masks)
    if not collection.records:
        printed.note(f"no file in {path} matches {', '.join(masks) or '**/*.md'}; later files will be read")
    if not collection.records and (patterns := readable_patterns(collection.left_out, masks)):
        name_options = ["--name", name] if name is not None else []
        again = ["duckkb", "collection", "add", path, *name_options, *(f"--mask={pattern}" for pattern in patterns)]
        remove = ["duckkb", "collection", "remove", collection.name]
        printed.note(f"to read the existing files: {shlex.join(remove)} && {shlex.join(again)}")
    if not collection.files:
        _note_outside(kb, path, collection.name, masks)
    for reason, count in _count_reasons(collection.left_out).items():
        paths = [path for path, why in collection.left_out if why == reason]
        more = ", ..." if count > _MOST_NAMED else ""
        printed.note(f"left out, {_REASONS[reason]}: {count} ({', '.join(paths[:_MOST_NAMED])}{more})")
    return {**_describe_change(collection), "left_out": _count_reasons(collection.left_out)}


def _note_outside(kb: "KnowledgeBase", path: str, name: str, masks: tuple[str, ...]) -> None:
    """Print how other clones can get a folder that only this machine knows."""
    printed.note(f"{path} is outside of the base: only this machine reads it, and clones do not have {name}")
    place = kb.root / Path(path).resolve().name
    inside = place.name if kb.root.samefile(".") else str(place)
    if not place.exists():
        again = ["duckkb", "collection", "add", inside, "--name", name, *(f"--mask={pattern}" for pattern in masks)]
        steps = [["duckkb", "collection", "remove", name], ["cp", "-r", path, inside], again]
        printed.note(f"to move it into the base: {' && '.join(map(shlex.join, steps))}")


@base_verb("list", group=collection_command, reads=True, under="collections")
def collection_list_command(kb: "KnowledgeBase") -> Any:
    """Print each collection: name, folder, documents, bytes, and whether searches include it."""
    return kb.documents.list()


@base_verb("show", group=collection_command, reads=True)
@_name
def collection_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print one collection with its patterns, contexts and update command."""
    return kb.documents.show(name)


@base_verb("remove", group=collection_command)
@_name
@click.option("--yes", is_flag=True, help="Also remove a code graph that has records.")
def collection_remove_command(kb: "KnowledgeBase", name: str, *, yes: bool) -> Mapping[str, Any]:
    """Remove a collection. Its files stay; for a graph that `arch` imported its records are deleted."""
    return _describe_change(kb.documents.remove(name, confirmed=yes))


@base_verb("rename", group=collection_command)
@_name
@click.argument("new")
def collection_rename_command(kb: "KnowledgeBase", name: str, new: str) -> Mapping[str, Any]:
    """Rename a collection; its folder keeps its name."""
    return _describe_change(kb.documents.rename(name, new))


@base_verb("update-cmd", group=collection_command)
@_name
@click.argument("command", required=False)
def collection_update_cmd_command(kb: "KnowledgeBase", name: str, command: str | None) -> Mapping[str, Any]:
    """Set the command that `update` runs in the folder first; without a command, none. It runs once you have
    accepted it with `duckkb trust`."""
    return _describe_change(kb.documents.update_command(name, command))


@base_verb("include", group=collection_command)
@_name
def collection_include_command(kb: "KnowledgeBase", name: str) -> Mapping[str, Any]:
    """Include a collection in searches that name none."""
    return _describe_change(kb.documents.include(name))


@base_verb("exclude", group=collection_command)
@_name
def collection_exclude_command(kb: "KnowledgeBase", name: str) -> Mapping[str, Any]:
    """Exclude a collection from searches that do not name it with -c."""
    return _describe_change(kb.documents.include(name, False))


def _count_reasons(left_out: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Count the omitted files and folders by reason."""
    return dict(sorted(Counter(why for _, why in left_out).items()))


def _describe_change(change: "Changed") -> Mapping[str, Any]:
    return {"name": change.name, "documents": change.records, "files": list(change.files)}


@group("context")
def context_command() -> None:
    """The description appears with each document of the folder."""


@base_verb("add", group=context_command)
@click.argument("place", metavar="[PATH] TEXT", type=PathName())
@click.argument("text", required=False, metavar="")
def context_add_command(kb: "KnowledgeBase", place: str, text: str | None) -> Mapping[str, Any]:
    """Describe a folder. `/` means all collections; the default PATH is the working directory.

    \b
    duckkb context add docs/runbooks "What to do when something breaks"
    duckkb context add / "The payment platform"
    """
    arguments = (place, text) if text is not None else (".", place)
    return _describe_context(kb.documents.add_context(*arguments))


@base_verb("list", group=context_command, reads=True, under="contexts")
def context_list_command(kb: "KnowledgeBase") -> Any:
    """Print the description of each folder."""
    return kb.documents.contexts()


@base_verb("rm", group=context_command)
@click.argument("place", metavar="PATH", type=PathName())
def context_rm_command(kb: "KnowledgeBase", place: str) -> Mapping[str, Any]:
    """Remove the description of a folder."""
    return _describe_context(kb.documents.remove_context(place))


def _describe_context(change: "Changed") -> Mapping[str, Any]:
    return {"name": change.name, "files": list(change.files)}


_graph = parameters("graph", action="arch_status")


@group("arch")
def arch_command() -> None:
    """Its nodes and edges are records. The command `arch.command` in config.yaml writes the graph."""


action_verb("arch_status", "status", arch_command)


@verb("query", group=arch_command, action="arch_query")
@click.argument("question")
def arch_query_command(question: str) -> None:
    """\b
    duckkb arch query "what calls login"
    """
    with open_named_base() as kb:
        hints = kb.run("arch_query", {"question": question})["hints"]
        out.tell(kb.notices)
        if not hints:
            message = "no name in the graph occurs in the question"
            out.raise_no_results({"hints": []}, message, "duckkb arch status")
        out.lines(hints, under="hints")


@base_verb("build", group=arch_command)
@_graph
@options.allow_shrink
def arch_build_command(kb: "KnowledgeBase", graph: str, *, allow_shrink: bool) -> Mapping[str, Any]:
    """Run the command, once accepted with `duckkb trust`, and import the graph that it writes."""
    return _print_build(kb.arch.build(graph, allow_shrink=allow_shrink))


@base_verb("import", group=arch_command)
@click.argument("file", type=PathName())
@_graph
@options.allow_shrink
def arch_import_command(kb: "KnowledgeBase", file: str, graph: str, *, allow_shrink: bool) -> Mapping[str, Any]:
    """Import a graph from a file: node-link JSON, as networkx and graphify write it. Runs no command.

    \b
    duckkb arch import graphify-out/graph.json
    """
    return _print_build(kb.arch.import_file(file, graph, allow_shrink=allow_shrink))


@base_verb("refresh", group=arch_command)
@_graph
@options.allow_shrink
def arch_refresh_command(kb: "KnowledgeBase", graph: str, *, allow_shrink: bool) -> Mapping[str, Any]:
    """Build the graph if the code or its records changed since the last build on this machine."""
    built = kb.arch.refresh(graph, allow_shrink=allow_shrink)
    return {"name": graph, "built": False} if built is None else _print_build(built)


def _print_build(graph: "ArchImport") -> Mapping[str, Any]:
    out.tell(graph.notices)
    counts = {key: getattr(graph.receipt, key) for key in ("inserted", "updated", "unchanged", "deleted")}
    line = {"name": graph.name, "built": True, "commit": graph.commit, "nodes": graph.nodes, "edges": graph.edges}
    return {**line, **counts, "files": list(graph.receipt.files)}


@base_verb("ls", reads=True, under="documents")
@click.argument("place", required=False, default="", metavar="[COLLECTION[/PREFIX]]")
@click.option("--long", is_flag=True, help="Also print how each file was read.")
def ls_command(kb: "KnowledgeBase", place: str, *, long: bool) -> Any:
    """A PREFIX selects a folder of the collection."""
    return kb.ls(place, long=long) if place else kb.documents.list()


@verb("update")
@click.argument("names", metavar="[COLLECTION]...", nargs=-1)
@click.option(
    "--pull",
    is_flag=True,
    help="Run `git pull --ff-only` first in folders that are git work trees with an upstream branch.",
)
@click.option("--arch-refresh", is_flag=True, help="Run `duckkb arch refresh` afterwards.")
def update_command(names: tuple[str, ...], *, pull: bool, arch_refresh: bool) -> None:
    from duckkb.errors import Refused
    from duckkb.review.reports.markup import many

    if any("=" in name or name.lstrip().startswith("{") for name in names):
        raise click.UsageError("`update` takes names of collections; `duckkb put` changes records")
    with open_named_base() as kb:
        result = kb.update(names, pull=pull)
        _tell(result)
        if arch_refresh and (built := kb.arch.refresh()) is not None:
            out.tell(built.notices)
            printed.note(f"the code graph now has {built.nodes:,} nodes and {built.edges:,} edges")
        out.tell(entry for entry in kb.notices if entry.code != "E_SOURCE_MISSING")  # reported below
        if result.refused:
            missing = [entry for entry in result.refused if entry.code == "E_SOURCE_MISSING"]
            unread = [entry for entry in result.refused if entry.code == "E_EXTRACT"]
            failures = [entry for entry in result.refused if entry not in missing and entry not in unread]
            messages = [entry.message for entry in failures]
            messages += [f"the folder of {entry.type} is missing: {entry.path}" for entry in missing]
            messages += [f"{many(len(unread), 'file')} could not be read completely"] if unread else []
            remedy = next((entry.remedy for entry in (*failures, *missing)), "")
            raise Refused("; ".join(messages), code=result.refused[0].code, suggestion=remedy, findings=result.refused)


@verb("watch")
@click.argument("names", metavar="[COLLECTION]...", nargs=-1)
def watch_command(names: tuple[str, ...]) -> None:
    """Ctrl-C ends it with exit code 0. Needs the extra `documents`. Only one process watches a base; a second one
    waits. It does not run the commands of collections."""
    with stop.await_stop(), open_named_base() as kb:
        kb.watch(names, _tell)


def _tell(result: "Updated") -> None:
    out.lines(result.collections, under="collections", embedded=result.embedded, pending=result.pending)
    out.tell(result.notices)
    if result.collections:
        of_all = f" / {result.texts:,} texts" if result.texts else ""
        printed.note(f"{result.embedded} embedded, {result.pending} pending{of_all}")
