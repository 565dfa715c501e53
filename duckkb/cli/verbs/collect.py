"""col, policy: collections and what they are made by."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli.common import PathName, base_options, emit, emit_lines, opened, tell, wants_json
from duckkb.cli.slips import Group

if TYPE_CHECKING:
    from duckkb.engine.collections import Changed


@click.group("col", cls=Group)
@base_options
def col_command() -> None:
    """Collections: records of one kind under a policy that says how they are indexed and searched."""


@col_command.command("init")
@click.argument("name")
@click.option("--policy", required=True, metavar="POLICY", help="How it is indexed; `duckkb policy list`.")
@click.option("--params", metavar="JSON", help="Parameters of the policy, as a JSON object.")
@base_options
@click.pass_context
def col_init_command(ctx: click.Context, name: str, *, policy: str, params: str | None) -> None:
    """Make a collection. The policy as it is now is written to ontology/collections/NAME.yaml.

    \b
    duckkb col init notes --policy knowledge-base
    duckkb col init vectors64 --policy feature-store --params '{"dimension": 64}'
    """
    given = _params(params)
    with opened(ctx) as kb:
        _changed(kb.collections.init(name, policy=policy, params=given))
        tell(kb.notices)


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


@col_command.command("list")
@base_options
@click.pass_context
def col_list_command(ctx: click.Context) -> None:
    """Print each collection: name, policy, records, bytes."""
    with opened(ctx) as kb:
        lines = kb.collections.list()
        if wants_json(ctx):
            emit({"collections": lines})
        else:
            emit_lines(lines)
        tell(kb.notices)


@col_command.command("show")
@click.argument("name")
@base_options
@click.pass_context
def col_show_command(ctx: click.Context, name: str) -> None:
    """Print one collection: policy, records, fields as they are stored, and how they are searched."""
    with opened(ctx) as kb:
        emit(kb.collections.show(name))
        tell(kb.notices)


@col_command.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Also where it holds records.")
@base_options
@click.pass_context
def col_rm_command(ctx: click.Context, name: str, *, yes: bool) -> None:
    """Delete a collection's files and its definition, in one write."""
    with opened(ctx) as kb:
        _changed(kb.collections.remove(name, confirmed=yes))
        tell(kb.notices)


@col_command.command("rename")
@click.argument("name")
@click.argument("new")
@base_options
@click.pass_context
def col_rename_command(ctx: click.Context, name: str, new: str) -> None:
    """Give a collection another name. Its records keep their ids, keys and times; git sees renamed files."""
    with opened(ctx) as kb:
        _changed(kb.collections.rename(name, new))
        tell(kb.notices)


@col_command.command("snapshot")
@click.argument("name")
@click.argument("file", type=PathName(written=True))
@click.option("--force", is_flag=True, help="Overwrite the file.")
@base_options
@click.pass_context
def col_snapshot_command(ctx: click.Context, name: str, file: str, *, force: bool) -> None:
    """Write a collection, definition and records, to one self-contained file."""
    with opened(ctx) as kb:
        size = kb.collections.snapshot(name, file, force=force)
        emit({"name": name, "file": file, "bytes": size})
        tell(kb.notices)


@col_command.command("restore")
@click.argument("file", type=PathName())
@click.option("--as", "name", metavar="NAME", help="Under another name.")
@base_options
@click.pass_context
def col_restore_command(ctx: click.Context, file: str, *, name: str | None) -> None:
    """Put a snapshot back, byte for byte; every line and checksum is verified first."""
    with opened(ctx) as kb:
        _changed(kb.collections.restore(file, name=name))
        tell(kb.notices)


def _changed(changed: "Changed") -> None:
    emit({"name": changed.name, "records": changed.records, "files": list(changed.files)})


@click.group("policy", cls=Group)
@base_options
def policy_command() -> None:
    """Policies: how records are indexed and searched, as data."""


@policy_command.command("list")
@base_options
@click.pass_context
def policy_list_command(ctx: click.Context) -> None:
    """Print every policy: name, description, parameters, and the file it stands in."""
    with opened(ctx) as kb:
        lines = kb.collections.policies()
        if wants_json(ctx):
            emit({"policies": lines})
        else:
            emit_lines(lines)
        tell(kb.notices)


@policy_command.command("show")
@click.argument("name")
@base_options
@click.pass_context
def policy_show_command(ctx: click.Context, name: str) -> None:
    """Print one policy as it is written."""
    with opened(ctx) as kb:
        emit(kb.collections.policy(name))
        tell(kb.notices)


@policy_command.command("check")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PathName())
@base_options
@click.pass_context
def policy_check_command(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Check policies in YAML files before they go to ontology/, or those of the base; print each that is sound."""
    with opened(ctx) as kb:
        lines = kb.collections.check_policies(*files)
        if wants_json(ctx):
            emit({"policies": list(lines)})
        else:
            emit_lines(lines)
        tell(kb.notices)
