"""col, policy: collections and what they are made by."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options
from duckkb.cli.options import PathName
from duckkb.cli.verb import base_verb, group

if TYPE_CHECKING:
    from duckkb.actions.collecting import Changed
    from duckkb.app import KnowledgeBase

_name = click.argument("name")


@group("col")
def col_command() -> None:
    """Collections: records of one kind under a policy that says how they are indexed and searched."""


@base_verb("init", group=col_command)
@_name
@click.option("--policy", required=True, metavar="POLICY", help="How it is indexed; `duckkb policy list`.")
@click.option("--params", metavar="JSON", help="Parameters of the policy, as a JSON object.")
def col_init_command(kb: "KnowledgeBase", name: str, *, policy: str, params: str | None) -> Mapping[str, Any]:
    """Make a collection. The policy as it is now is written to ontology/collections/NAME.yaml.

    \b
    duckkb col init notes --policy knowledge-base
    duckkb col init vectors64 --policy feature-store --params '{"dimension": 64}'
    """
    return _changed(kb.collections.init(name, policy=policy, params=_params(params)))


def _params(text: str | None) -> Mapping[str, Any]:
    """What --params says; raises `errors.UsageError` (E_PARAMS)."""
    from duckkb.errors import UsageError
    from duckkb.truth.files.line import Limits, LineError, parse_json

    if text is None:
        return {}
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"), Limits())
    except LineError as error:
        said = error.findings[0].message
        raise UsageError(f"--params is not JSON: {said}", "E_PARAMS", "--params '{\"dimension\": 64}'") from error
    if not isinstance(value, dict):
        raise UsageError("--params takes a JSON object", "E_PARAMS", "--params '{\"dimension\": 64}'")
    return value


@base_verb("list", group=col_command, under="collections")
def col_list_command(kb: "KnowledgeBase") -> Any:
    """Print each collection: name, policy, records, bytes."""
    return kb.collections.list()


@base_verb("show", group=col_command)
@_name
def col_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print one collection: policy, records, fields as they are stored, and how they are searched."""
    return kb.collections.show(name)


@base_verb("rm", group=col_command)
@_name
@click.option("--yes", is_flag=True, help="Also where it holds records.")
def col_rm_command(kb: "KnowledgeBase", name: str, *, yes: bool) -> Mapping[str, Any]:
    """Delete a collection's files and its definition, in one write."""
    return _changed(kb.collections.remove(name, confirmed=yes))


@base_verb("rename", group=col_command)
@_name
@click.argument("new")
def col_rename_command(kb: "KnowledgeBase", name: str, new: str) -> Mapping[str, Any]:
    """Give a collection another name. Its records keep their ids, keys and times; git sees renamed files."""
    return _changed(kb.collections.rename(name, new))


@base_verb("snapshot", group=col_command)
@_name
@click.argument("file", type=PathName(written=True))
@options.force
def col_snapshot_command(kb: "KnowledgeBase", name: str, file: str, *, force: bool) -> Mapping[str, Any]:
    """Write a collection, definition and records, to one self-contained file."""
    return {"name": name, "file": file, "bytes": kb.collections.snapshot(name, file, force=force)}


@base_verb("restore", group=col_command)
@click.argument("file", type=PathName())
@click.option("--as", "name", metavar="NAME", help="Under another name.")
def col_restore_command(kb: "KnowledgeBase", file: str, *, name: str | None) -> Mapping[str, Any]:
    """Put a snapshot back, byte for byte; every line and checksum is verified first."""
    return _changed(kb.collections.restore(file, name=name))


def _changed(changed: "Changed") -> Mapping[str, Any]:
    return {"name": changed.name, "records": changed.records, "files": list(changed.files)}


@group("policy")
def policy_command() -> None:
    """Policies: how records are indexed and searched, as data."""


@base_verb("list", group=policy_command, under="policies")
def policy_list_command(kb: "KnowledgeBase") -> Any:
    """Print every policy: name, description, parameters, and the file it stands in."""
    return kb.collections.policies()


@base_verb("show", group=policy_command)
@_name
def policy_show_command(kb: "KnowledgeBase", name: str) -> Any:
    """Print one policy as it is written."""
    return kb.collections.policy(name)


@base_verb("check", group=policy_command, under="policies")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PathName())
def policy_check_command(kb: "KnowledgeBase", files: tuple[str, ...]) -> Any:
    """Check policies in YAML files before they go to ontology/, or those of the base; print each that is sound."""
    return kb.collections.check_policies(*files)
