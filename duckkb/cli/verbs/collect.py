"""The verbs col, policy and migrate: collections, their policies, and imports from other programs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.options import PathName
from duckkb.cli.verb import base_verb, group, open_named_base, verb

if TYPE_CHECKING:
    from duckkb.actions.agents.migrating import MigratedCollection
    from duckkb.actions.collecting import Changed
    from duckkb.app import KnowledgeBase

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
    from duckkb.errors import UsageError
    from duckkb.truth.files.line import Limits, LineError, parse_json

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
        out.lines(_print_migrations(kb.migrate.each_of_chroma(file, **how)), under="collections")
        if how["dry_run"]:
            printed.note("dry run: nothing was written")
        out.tell(kb.notices)


def _print_migrations(collections: "Iterable[MigratedCollection]") -> Iterator[Mapping[str, Any]]:
    for collection in collections:
        out.tell(collection.notices)
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
        printed.note(f"{collection['folder']} is already the collection {collection['name']}")
    return collection
