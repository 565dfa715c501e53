"""merge, resolve, compact, git: two histories of records become one."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click

from duckkb.cli import printed
from duckkb.cli.common import (
    PathName,
    allow_shrink,
    base_options,
    base_options_and,
    chosen_format,
    emit,
    emit_files,
    emit_lines,
    emit_patch,
    lock_timeout,
    one_of,
    unopened,
)
from duckkb.cli.slips import Group

if TYPE_CHECKING:
    from pathlib import Path

    from duckkb.actions.merging import Merge, Resolution
    from duckkb.errors import Finding
    from duckkb.review.merging.conflicts import OpenConflict

_AT_ONCE = 100
"""Conflicts, or violations, that are printed where nothing else is said."""


@click.command("merge")
@click.argument("revision", required=False, metavar="REF")
@one_of(
    "fast_forward",
    (("--ff-only",), "only", "Only where HEAD can simply move ahead."),
    (("--no-ff",), "never", "Make a merge commit even where HEAD could move ahead."),
)
@click.option("--no-commit", is_flag=True, help="Stop before committing; `git commit` concludes it.")
@click.option("-m", "message", metavar="MESSAGE", help="The message of the merge commit.")
@click.option("--abort", "is_abort", is_flag=True, help="Take an unfinished merge back.")
@allow_shrink
@base_options
@click.pass_context
def merge_command(
    ctx: click.Context,
    *,
    revision: str | None,
    fast_forward: Literal["only", "never"] | None,
    no_commit: bool,
    message: str | None,
    is_abort: bool,
    allow_shrink: bool,
) -> None:
    """Merge a branch as git does, with records merged by key and field over all parts, driver or not.

    A conflict stops it as git's stops: files and index hold both sides, `duckkb resolve` settles it, `git commit` concludes
    it. Runs no hook, filter, signing program or merge driver of the repository. Prints a line with what was done, and one
    for each of the first 100 conflicts and violations. Exit 1 while something is in conflict, or where the merged records
    break a rule (a violation).
    """
    if is_abort == (revision is not None):
        raise click.UsageError("give a REF to merge, or --abort")
    from duckkb.actions import merging
    from duckkb.review.merging.merge import MergeOptions

    base, wait = unopened(ctx), lock_timeout(ctx)
    if is_abort:
        done = merging.abort(base, wait)
    else:
        options = MergeOptions(fast_forward, not no_commit, message, wait)
        done = merging.merge(base, revision or "", options, allow_shrink=allow_shrink)
    _tell_merge(ctx, done)
    if not done.is_whole:
        ctx.exit(1)


def _tell_merge(ctx: click.Context, done: "Merge") -> None:
    outcome, most = done.outcome, _AT_ONCE
    line: dict[str, Any] = {"action": outcome.action, "commit": outcome.commit, "files": list(outcome.files)}
    line |= {"others": list(outcome.others)}
    line |= {"counts": {"conflicts": len(outcome.conflicts), "violations": len(done.violations)}}
    conflicts, violations = list(map(_conflict, outcome.conflicts[:most])), _findings(done.violations[:most])
    if chosen_format(ctx) == "json":
        emit(line | {"conflicts": conflicts, "violations": violations})
    else:
        emit(line)
        if chosen_format(ctx) == "jsonl":
            emit_lines(conflicts + violations)
    for path in outcome.others:
        printed.note(f"in conflict as lines: {path}")
    if outcome.conflicts:
        shown = f" (the first {most} are shown)" if len(outcome.conflicts) > most else ""
        printed.note(f"both sides changed {len(outcome.conflicts):,} records or fields{shown}")
        printed.note("next: duckkb resolve --list, then duckkb resolve --ours|--theirs|--base|--newest NAME --stage")
    _tell_violations(done.violations)


def _conflict(one: "OpenConflict") -> dict[str, Any]:
    return {"name": one.name} | asdict(one) | {"etag": one.etag}


def _sides(name: str, help: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}", name, multiple=True, is_flag=False, flag_value="", metavar="[TYPE[:ID[:FIELD]]]", help=help
    )


@click.command("resolve")
@_sides("ours", "Take our side of these conflicts (without a name: of all).")
@_sides("theirs", "Take their side.")
@_sides("base", "Take what both sides came from.")
@_sides("newest", "Take the side whose record was changed last; what was changed at one time stays open.")
@click.option("--with-file", type=PathName(), metavar="FILE", help="Answers as JSON lines; - reads stdin.")
@click.option("--list", "only_list", is_flag=True, help="Only name what is open; change nothing.")
@click.option("--stage", is_flag=True, help="Give parts without open conflicts to git's index, as `git add` does.")
@click.option(
    "-l",
    "--limit",
    type=click.IntRange(min=1),
    default=_AT_ONCE,
    show_default=True,
    help="How many open conflicts to print.",
)
@click.option("--after", metavar="NAME", help="Start behind this conflict.")
@allow_shrink
@click.option("-o", "--output", metavar="FILE", type=PathName(written=True), help="Write the page (html) to this file.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@base_options_and("text", "html")
@click.pass_context
def resolve_command(
    ctx: click.Context,
    *,
    ours: Sequence[str],
    theirs: Sequence[str],
    base: Sequence[str],
    newest: Sequence[str],
    with_file: str | None,
    only_list: bool,
    stage: bool,
    limit: int,
    after: str | None,
    allow_shrink: bool,
    output: str | None,
    force: bool,
) -> None:
    """Settle records in conflict after a merge, rebase, cherry-pick, revert or stash pop, and name what is open.

    Needs no driver: it merges the three versions anew, by key and field, and writes only parts. Each open conflict is a line,
    `TYPE:ID FIELD`; with --format jsonl with its values. FILE has such lines with one more key: `choose` (ours, theirs,
    base, newest), `value`, `record`, or `"delete": true`. --format html is one page on which all of them are chosen in a
    browser; it prints the command, or FILE, that carries the choices out. Exit 1 while any is open.
    """
    from duckkb.actions import merging
    from duckkb.review.merging.conflicts import SideChoice
    from duckkb.review.merging.resolve import ResolveOptions

    around = unopened(ctx)
    choices = [SideChoice("ours", name) for name in ours] + [SideChoice("theirs", name) for name in theirs]
    choices += [SideChoice("base", name) for name in base] + [SideChoice("newest", name) for name in newest]
    if only_list and (choices or with_file or stage):
        raise click.UsageError("--list changes nothing; leave the choices or --list out")
    to_file = output is not None and output != "-"
    is_page = chosen_format(ctx, "html" if to_file else "text") == "html"
    if output is not None and to_file:
        merging.refuse_place(around.root, output)
    if to_file and not is_page:
        raise click.UsageError("-o is for the page: leave the other --format out")
    answers = _answers(around.root, with_file)
    options = ResolveOptions(choices, (), only_list, stage, lock_timeout(ctx))
    done = merging.resolve(around, options, answers, judged=is_page, allow_shrink=allow_shrink)
    if is_page:
        _draw(around.root, done, output, force=force)
    else:
        _tell_resolution(ctx, done, *_page(done.left.conflicts, limit, after))
    if not done.left.is_done or done.violations:
        ctx.exit(1)


def _answers(root: "Path", file: str | None) -> bytes:
    from duckkb.actions import merging

    if file is None:
        return b""
    return sys.stdin.buffer.read() if file == "-" else merging.answers_file(root, file)


def _draw(root: "Path", done: "Resolution", output: str | None, *, force: bool) -> None:
    from duckkb.actions import merging

    if output is None or output == "-":
        for piece in merging.page(done):
            printed.result(piece, end="")
        return
    merging.save_page(root, output, done, force=force)
    printed.note(f"{len(done.left.conflicts):,} conflicts to {output}; open it in a browser")


def _page(held: "Sequence[OpenConflict]", limit: int, after: str | None) -> "tuple[Sequence[OpenConflict], str | None]":
    """The conflicts to print, and the name to go on behind where there are more. Raises `errors.NotFound`."""
    names = [one.name for one in held]
    if after is not None and after not in names:
        from duckkb.errors import NotFound

        raise NotFound(f"no open conflict is named {after}", suggestion="duckkb resolve --list")
    start = names.index(after) + 1 if after is not None else 0
    end = start + limit
    return held[start:end], names[end - 1] if end < len(names) else None


def _tell_resolution(
    ctx: click.Context, done: "Resolution", shown: "Sequence[OpenConflict]", following: str | None
) -> None:
    left, form = done.left, chosen_format(ctx, "text")
    lines = list(map(_conflict, shown))
    if form == "json":
        told = {name: list(getattr(left, name)) for name in ("unreadable", "unstaged", "others", "files", "rescued")}
        page = {"conflicts": lines, "total": len(left.conflicts), "next": following}
        emit({"operation": left.operation, **page, **told, "violations": _findings(done.violations)})
    elif form == "text":
        for one in shown:
            printed.result(printed.one_line(one.name))
    else:
        emit_lines(lines)
    if following is not None:
        printed.note(f"stopped at {len(shown)} of {len(left.conflicts)}; go on with --after {following!r}")
    for path in left.unreadable:
        printed.note(f"{path} cannot be merged by records as it stands: mend it by hand, then git add")
    for path in left.rescued:
        printed.note(f"what {path} held, with what was done in it by hand, is kept in .duckkb/rescued/")
    for path in left.others:
        printed.note(f"left to git: {path}")
    if left.unstaged:
        printed.note(f"{len(left.unstaged)} settled parts are not in the index yet: --stage, or git add")
    if left.is_done and not (left.files or left.unstaged):
        printed.note("no record is in conflict")
    _tell_violations(done.violations)


@click.command("compact")
@click.option(
    "--older-than",
    type=click.IntRange(1),
    required=True,
    metavar="DAYS",
    help="Days before today that stay as they are.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; print the patch that git would show.")
@base_options
@click.pass_context
def compact_command(ctx: click.Context, older_than: int, dry_run: bool) -> None:
    """Join the small parts of past days: one for each table and day, up to the size limits. No record changes.

    Refuses where another branch has changed such a part since it was branched off.
    """
    from duckkb.actions import merging

    receipt = merging.compact(unopened(ctx), older_than, dry_run, lock_timeout(ctx))
    if dry_run:
        emit_patch(receipt)
    else:
        emit_files(receipt)


@click.group("git", cls=Group)
@base_options
def git_command() -> None:
    """git's own merges and diffs by records, in this clone."""


@git_command.command("install")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 where something is missing.")
@base_options
@click.pass_context
def git_install_command(ctx: click.Context, check_only: bool) -> None:
    """Have git merge parts by records and show them field by field: this clone's settings, and .gitattributes.

    Prints what was changed, a `changed` a line; with --check a line for each thing that must hold. Run it again when the
    interpreter moves; where it is gone git merges by lines.
    """
    from duckkb.actions import merging

    root = unopened(ctx).root
    if not check_only:
        emit_lines({"changed": name} for name in merging.git_install(root))
        return
    facts = merging.git_check(root)
    emit_lines(
        {"check": one.check, "status": "ok" if one.is_ok else "error", "message": one.message, "remedy": one.remedy}
        for one in facts
    )
    if not all(one.is_ok for one in facts):
        ctx.exit(1)


@git_command.command("uninstall")
@base_options
@click.pass_context
def git_uninstall_command(ctx: click.Context) -> None:
    """Take away what `git install` wrote. Prints what was changed, a `changed` a line."""
    from duckkb.review.merging import install

    emit_lines({"changed": name} for name in install.uninstall(unopened(ctx).root))


def _findings(findings: "Iterable[Finding]") -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(one).items() if value} for one in findings]


def _tell_violations(findings: "Sequence[Finding]") -> None:
    for one in findings[:_AT_ONCE]:
        printed.note(printed.brief(str(one)))
    if len(findings) > _AT_ONCE:
        printed.note(f"{len(findings) - _AT_ONCE:,} more: duckkb check")
