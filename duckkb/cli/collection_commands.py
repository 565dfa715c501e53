"""The verbs col, policy and migrate: collections, their policies, and imports from other programs.

The verbs collection, context, ls, update and watch for folders of files, and arch for graphs of code."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, output, terminal
from duckkb.cli.command import action_verb, base_verb, group, open_named_base, parameters, verb
from duckkb.cli.options import PathName

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.operations.agent_knowledge import MigratedCollection
    from duckkb.operations.code_graph import ArchImport
    from duckkb.operations.collections import Changed
    from duckkb.operations.document_updates import Updated

_name = click.argument("name")


@group("col")
def col_command() -> None:
    """A collection holds records of one kind; its policy sets how they are indexed and searched."""


@base_verb("init", group=col_command)
@_name
@click.option(
    "--policy", required=True, metavar="POLICY", help="The policy for indexing and search; see `duckkb policy list`."
)
@click.option("--params", metavar="JSON", help="Parameters of the policy, as a JSON object.")
def col_init_command(kb: "KnowledgeBase", name: str, *, policy: str, params: str | None) -> Mapping[str, Any]:
    """Create a collection. Its current policy is written to ontology/collections/NAME.yaml.

    \b
    duckkb col init notes --policy knowledge-base
    duckkb col init vectors64 --policy feature-store --params '{"dimension": 64}'
    """
    return _describe_change(kb.collections.init(name, policy=policy, params=_parse_params(params)))


def _parse_params(text: str | None) -> Mapping[str, Any]:
    """Parse --params; raises `errors.UsageError` (E_PARAMS)."""
    from duckkb.storage.line import Limits, LineError, parse_json
    from duckkb.types.errors import UsageError

    if text is None:
        return {}
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"), Limits())
    except LineError as error:
        message = error.findings[0].message
        raise UsageError(f"--params is not JSON: {message}", "E_PARAMS", "--params '{\"dimension\": 64}'") from error
    if not isinstance(value, dict):
        raise UsageError("--params takes a JSON object", "E_PARAMS", "--params '{\"dimension\": 64}'")
    return value


@base_verb("list", group=col_command, reads=True, under="collections")
def col_list_command(kb: "KnowledgeBase") -> Any:
    """Print each collection: name, policy, records, bytes."""
    return kb.collections.list()


@base_verb("show", group=col_command, reads=True)
@_name
def col_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print one collection: policy, records, stored fields, and how they are searched."""
    return kb.collections.show(name)


@base_verb("rm", group=col_command)
@_name
@click.option("--yes", is_flag=True, help="Also delete a collection that holds records.")
def col_rm_command(kb: "KnowledgeBase", name: str, *, yes: bool) -> Mapping[str, Any]:
    """Delete a collection's files and its definition, in one write."""
    return _describe_change(kb.collections.remove(name, confirmed=yes))


@base_verb("rename", group=col_command)
@_name
@click.argument("new")
def col_rename_command(kb: "KnowledgeBase", name: str, new: str) -> Mapping[str, Any]:
    """Give a collection another name. Its records keep their ids, keys and times; git sees renamed files."""
    return _describe_change(kb.collections.rename(name, new))


@base_verb("snapshot", group=col_command)
@_name
@click.argument("file", type=PathName(written=True))
@options.force
def col_snapshot_command(kb: "KnowledgeBase", name: str, file: str, *, force: bool) -> Mapping[str, Any]:
    """Write a collection, definition and records, to one self-contained file."""
    return {"name": name, "file": file, "bytes": kb.collections.snapshot(name, file, force=force)}


@base_verb("restore", group=col_command)
@click.argument("file", type=PathName())
@click.option("--as", "name", metavar="NAME", help="Restore under another name.")
def col_restore_command(kb: "KnowledgeBase", file: str, *, name: str | None) -> Mapping[str, Any]:
    """Put a snapshot back, byte for byte; every line and checksum is verified first."""
    return _describe_change(kb.collections.restore(file, name=name))


def _describe_change(change: "Changed") -> Mapping[str, Any]:
    return {"name": change.name, "records": change.records, "files": list(change.files)}


@group("policy")
def policy_command() -> None:
    """Policies define how records are indexed and searched."""


@base_verb("list", group=policy_command, reads=True, under="policies")
def policy_list_command(kb: "KnowledgeBase") -> Any:
    """Print every policy: name, description, parameters and file."""
    return kb.collections.policies()


@base_verb("show", group=policy_command, reads=True)
@_name
def policy_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print the source of one policy."""
    return kb.collections.policy(name)


@base_verb("check", group=policy_command, under="policies")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PathName())
def policy_check_command(kb: "KnowledgeBase", files: tuple[str, ...]) -> Any:
    """Check policies in YAML files, or those of the base; print each valid one."""
    return kb.collections.check_policies(*files)


@group("migrate")
def migrate_command() -> None:
    """The source is never changed, and a second run adds nothing."""


@verb("chroma", group=migrate_command)
@click.argument("file", type=PathName())
@click.option(
    "--collection", "names", multiple=True, metavar="NAME", help="Only this collection of Chroma; repeatable."
)
@click.option("--update", is_flag=True, help="Also change records that differ, in the fields that Chroma has.")
@click.option("--dry-run", is_flag=True, help="Write nothing; print what would be done.")
def migrate_chroma_command(file: str, **how: Any) -> None:
    """Import each collection of a local Chroma: FILE is its chroma.sqlite3, or the folder of that file.

    Ids, documents (`content`) and metadata become records under the policy knowledge-base. The base's own model
    makes new vectors; metadata of whole collections is not imported. Each collection is written completely or
    not at all.

    \b
    duckkb migrate chroma ./chroma
    duckkb migrate chroma ./chroma --collection articles --dry-run
    """
    with open_named_base() as kb:
        output.lines(_print_migrations(kb.migrate.each_of_chroma(file, **how)), under="collections")
        if how["dry_run"]:
            terminal.note("dry run: nothing was written")
        output.tell(kb.notices)


def _print_migrations(collections: "Iterable[MigratedCollection]") -> Iterator[Mapping[str, Any]]:
    for collection in collections:
        output.tell(collection.notices)
        counts = {
            "inserted": collection.inserted,
            "updated": collection.updated,
            "unchanged": collection.unchanged,
            "skipped": collection.skipped,
        }
        yield {"collection": collection.collection, "from": collection.source, **counts}


@base_verb("openclaw", group=migrate_command)
@click.argument("folder", type=PathName())
@click.option("--name", metavar="NAME", help="Default: the name of the folder.")
def migrate_openclaw_command(kb: "KnowledgeBase", folder: str, *, name: str | None) -> Mapping[str, Any]:
    """Use the memory of an OpenClaw workspace (MEMORY.md and memory/**/*.md) as a document collection. Nothing is
    copied. Its sessions and indices (~/.openclaw/agents/ID/sessions and qmd) are not part of a workspace and
    stay unchanged. Add transcripts exported as Markdown with `duckkb collection add
    ~/.openclaw/agents/ID/qmd/sessions`.

    \b
    duckkb migrate openclaw ~/.openclaw/workspace --name memory
    """
    collection = kb.migrate.openclaw(folder, name=name)
    if not collection["added"]:
        terminal.note(f"{collection['folder']} is already the collection {collection['name']}")
    return collection


_name_document = click.argument("name")
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
    from duckkb.operations.document_collections import readable_patterns

    collection = kb.documents.add(path, name=name, masks=masks)
    if not collection.records:
        terminal.note(f"no file in {path} matches {', '.join(masks) or '**/*.md'}; later files will be read")
    if not collection.records and (patterns := readable_patterns(collection.left_out, masks)):
        name_options = ["--name", name] if name is not None else []
        again = ["duckkb", "collection", "add", path, *name_options, *(f"--mask={pattern}" for pattern in patterns)]
        remove = ["duckkb", "collection", "remove", collection.name]
        terminal.note(f"to read the existing files: {shlex.join(remove)} && {shlex.join(again)}")
    if not collection.files:
        _note_outside(kb, path, collection.name, masks)
    for reason, count in _count_reasons(collection.left_out).items():
        paths = [path for path, why in collection.left_out if why == reason]
        more = ", ..." if count > _MOST_NAMED else ""
        terminal.note(f"left out, {_REASONS[reason]}: {count} ({', '.join(paths[:_MOST_NAMED])}{more})")
    return {**_describe_documents(collection), "left_out": _count_reasons(collection.left_out)}


def _note_outside(kb: "KnowledgeBase", path: str, name: str, masks: tuple[str, ...]) -> None:
    """Print how other clones can get a folder that only this machine knows."""
    terminal.note(f"{path} is outside of the base: only this machine reads it, and clones do not have {name}")
    place = kb.root / Path(path).resolve().name
    inside = place.name if kb.root.samefile(".") else str(place)
    if not place.exists():
        again = ["duckkb", "collection", "add", inside, "--name", name, *(f"--mask={pattern}" for pattern in masks)]
        steps = [["duckkb", "collection", "remove", name], ["cp", "-r", path, inside], again]
        terminal.note(f"to move it into the base: {' && '.join(map(shlex.join, steps))}")


@base_verb("list", group=collection_command, reads=True, under="collections")
def collection_list_command(kb: "KnowledgeBase") -> Any:
    """Print each collection: name, folder, documents, bytes, and whether searches include it."""
    return kb.documents.list()


@base_verb("show", group=collection_command, reads=True)
@_name_document
def collection_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print one collection with its patterns, contexts and update command."""
    return kb.documents.show(name)


@base_verb("remove", group=collection_command)
@_name_document
@click.option("--yes", is_flag=True, help="Also remove a code graph that has records.")
def collection_remove_command(kb: "KnowledgeBase", name: str, *, yes: bool) -> Mapping[str, Any]:
    """Remove a collection. Its files stay; for a graph that `arch` imported its records are deleted."""
    return _describe_documents(kb.documents.remove(name, confirmed=yes))


@base_verb("rename", group=collection_command)
@_name_document
@click.argument("new")
def collection_rename_command(kb: "KnowledgeBase", name: str, new: str) -> Mapping[str, Any]:
    """Rename a collection; its folder keeps its name."""
    return _describe_documents(kb.documents.rename(name, new))


@base_verb("update-cmd", group=collection_command)
@_name_document
@click.argument("command", required=False)
def collection_update_cmd_command(kb: "KnowledgeBase", name: str, command: str | None) -> Mapping[str, Any]:
    """Set the command that `update` runs in the folder first; without a command, none. It runs once you have
    accepted it with `duckkb trust`."""
    return _describe_documents(kb.documents.update_command(name, command))


@base_verb("include", group=collection_command)
@_name_document
def collection_include_command(kb: "KnowledgeBase", name: str) -> Mapping[str, Any]:
    """Include a collection in searches that name none."""
    return _describe_documents(kb.documents.include(name))


@base_verb("exclude", group=collection_command)
@_name_document
def collection_exclude_command(kb: "KnowledgeBase", name: str) -> Mapping[str, Any]:
    """Exclude a collection from searches that do not name it with -c."""
    return _describe_documents(kb.documents.include(name, False))


def _count_reasons(left_out: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Count the omitted files and folders by reason."""
    return dict(sorted(Counter(why for _, why in left_out).items()))


def _describe_documents(change: "Changed") -> Mapping[str, Any]:
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
        output.tell(kb.notices)
        if not hints:
            message = "no name in the graph occurs in the question"
            output.raise_no_results({"hints": []}, message, "duckkb arch status")
        output.lines(hints, under="hints")


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
    output.tell(graph.notices)
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
    from duckkb.review.report_markup import many
    from duckkb.types.errors import Refused

    if any("=" in name or name.lstrip().startswith("{") for name in names):
        raise click.UsageError("`update` takes names of collections; `duckkb put` changes records")
    with open_named_base() as kb:
        result = kb.update(names, pull=pull)
        _tell(result)
        if arch_refresh and (built := kb.arch.refresh()) is not None:
            output.tell(built.notices)
            terminal.note(f"the code graph now has {built.nodes:,} nodes and {built.edges:,} edges")
        output.tell(entry for entry in kb.notices if entry.code != "E_SOURCE_MISSING")  # reported below
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
    with terminal.await_stop(), open_named_base() as kb:
        kb.watch(names, _tell)


def _tell(result: "Updated") -> None:
    output.lines(result.collections, under="collections", embedded=result.embedded, pending=result.pending)
    output.tell(result.notices)
    if result.collections:
        of_all = f" / {result.texts:,} texts" if result.texts else ""
        terminal.note(f"{result.embedded} embedded, {result.pending} pending{of_all}")
