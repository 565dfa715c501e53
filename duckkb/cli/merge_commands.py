"""The verbs merge, resolve, compact and git: two histories of records become one."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from duckkb.cli import options, terminal
from duckkb.cli import output as out
from duckkb.cli.command import end, group, parameters, prepare_unopened, verb
from duckkb.cli.options import choose_format, lock_timeout
from duckkb.operations.record_lines import finding_line
from duckkb.types.errors import shell_word

if TYPE_CHECKING:
    from pathlib import Path

    from duckkb.operations.git_branches import Merge, Resolution
    from duckkb.types.errors import Finding

_AT_ONCE = 100
"""The number of conflicts, or violations, printed by default."""


@verb("merge")
@click.argument("revision", required=False, metavar="REF")
@options.one_of(
    "fast_forward",
    (("--ff-only",), "only", "Merge only if HEAD can fast-forward."),
    (("--no-ff",), "never", "Make a merge commit even if HEAD could fast-forward."),
)
@click.option("--no-commit", is_flag=True, help="Stop before the commit; `git commit` concludes the merge.")
@click.option("-m", "message", metavar="MESSAGE", help="The message of the merge commit.")
@click.option("--abort", "is_abort", is_flag=True, help="Abort an unfinished merge.")
@options.allow_shrink
def merge_command(
    *,
    revision: str | None,
    fast_forward: Literal["only", "never"] | None,
    no_commit: bool,
    message: str | None,
    is_abort: bool,
    allow_shrink: bool,
) -> None:
    """Merges like git, but all parts by records, with or without the merge driver. A conflict stops it as in git:
    files and index hold both sides, `duckkb resolve` settles it, `git commit` concludes it. Merged records that
    break a rule (a violation) stop it too. Runs no hook, filter, signing program or merge driver of the
    repository. Prints one line with the result, and one for each of the first 100 conflicts and violations.
    Exit 1 while any is left."""
    if is_abort == (revision is not None):
        raise click.UsageError("give a REF to merge, or --abort")
    from duckkb.merge.git_merge import MergeOptions
    from duckkb.operations import git_branches

    base, wait = prepare_unopened(), lock_timeout()
    if is_abort:
        result = git_branches.abort(base, wait)
    else:
        how = MergeOptions(fast_forward, not no_commit, message, wait)
        result = git_branches.merge(base, revision or "", how, allow_shrink=allow_shrink)
    _tell_merge(result)
    if not result.is_whole:
        end()


def _tell_merge(result: "Merge") -> None:
    from duckkb.operations import git_branches

    outcome, most = result.outcome, _AT_ONCE
    line: dict[str, Any] = {"action": outcome.action, "commit": outcome.commit, "files": list(outcome.files)}
    line |= {"others": list(outcome.others)}
    line |= {"counts": {"conflicts": len(outcome.conflicts), "violations": len(result.violations)}}
    conflicts, violations = (
        list(map(git_branches.conflict_object, outcome.conflicts[:most])),
        list(map(finding_line, result.violations[:most])),
    )
    if choose_format() == "json":
        out.emit(line | {"conflicts": conflicts, "violations": violations})
    else:
        out.emit(line)
        if choose_format() == "jsonl":
            out.lines(conflicts + violations)
    for path in outcome.others:
        terminal.note(f"in conflict as lines: {path}")
    if outcome.conflicts:
        limit_note = f" (the first {most} are shown)" if len(outcome.conflicts) > most else ""
        terminal.note(
            f"both sides changed {len(outcome.conflicts):,} records or fields{limit_note}; keep --ours, --theirs, --base or --newest"
        )
        first = shell_word(outcome.conflicts[0].name)
        terminal.note("next: duckkb resolve --list")
        terminal.note(f"then: duckkb resolve --ours {first} --stage")
    _tell_violations(result.violations)
    if result.violations and outcome.can_conclude:
        terminal.note(
            "the merge is not committed: run `duckkb merge --abort` and correct a branch, or `git commit` "
            "to keep it as merged"
        )


def _make_side_option(name: str, help: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{name}", name, multiple=True, is_flag=False, flag_value="", metavar="[TYPE[:ID[:FIELD]]]", help=help
    )


@verb("resolve", formats=("text", "html"), action="resolve")
@_make_side_option("ours", "Take our side of these conflicts (default: of all).")
@_make_side_option("theirs", "Take their side.")
@_make_side_option("base", "Take the common ancestor.")
@_make_side_option("newest", "Take the side whose record was changed last; conflicts with equal times stay open.")
@click.option("--with-file", type=options.PathName(), metavar="FILE", help="Answers as JSON lines; - reads stdin.")
@click.option("--list", "only_list", is_flag=True, help="List open conflicts; change nothing.")
@parameters("stage", "limit")
@parameters("after", action="conflicts", metavar="NAME")
@parameters("allow_shrink")
@click.option(
    "-o", "--output", metavar="FILE", type=options.PathName(written=True), help="Write the page (html) to this file."
)
@options.force
def resolve_command(
    *,
    with_file: str | None,
    only_list: bool,
    stage: bool,
    limit: int,
    after: str | None,
    allow_shrink: bool,
    output: str | None,
    force: bool,
    **sides: Sequence[str],
) -> None:
    """Works in a merge, rebase, cherry-pick, revert or stash pop, and lists open conflicts. Needs no driver: it
    merges the three versions again by record and field, and writes only parts. Each open conflict is a line,
    `TYPE:ID FIELD`; with --format jsonl with its values. FILE has such lines with one more key: `choose` (ours,
    theirs, base, newest), `value`, `record`, or `"delete": true`. --format html is one page to choose all of
    them in a browser; it prints the command, or FILE, that applies the choices. Parts that --stage added to the
    index are a note, or with --format jsonl a line with `staged`. Exit 1 while any is open."""
    from duckkb.merge.conflict_choices import ResolveOptions
    from duckkb.merge.merge_conflicts import Side, SideChoice
    from duckkb.operations import git_branches

    around = prepare_unopened()
    choices = [SideChoice(side, name) for side in get_args(Side) for name in sides[side]]
    if only_list and (choices or with_file or stage):
        raise click.UsageError("--list changes nothing; leave the choices or --list out")
    to_file = output is not None and output != "-"
    is_page = choose_format("html" if to_file else "text") == "html"
    if output is not None and to_file:
        git_branches.refuse_place(around.root, output)
    if to_file and not is_page:
        raise click.UsageError("-o writes the page: leave out the other --format")
    answers = _read_answers(around.root, with_file)
    how = ResolveOptions(choices, (), only_list, stage, lock_timeout())
    resolution = git_branches.resolve(around, how, answers, judged=is_page, allow_shrink=allow_shrink)
    if is_page:
        _draw(around.root, resolution, output, force=force)
    else:
        _tell_resolution(resolution, limit, after or "")
    if not resolution.left.is_done or resolution.violations:
        end()


def _read_answers(root: "Path", file: str | None) -> bytes:
    from duckkb.operations import git_branches

    if file is None:
        return b""
    return sys.stdin.buffer.read() if file == "-" else git_branches.answers_file(root, file)


def _draw(root: "Path", resolution: "Resolution", output: str | None, *, force: bool) -> None:
    from duckkb.operations import git_branches

    if output is None or output == "-":
        for piece in git_branches.page(resolution):
            terminal.result(piece, end="")
        return
    git_branches.save_page(root, output, resolution, force=force)
    terminal.note(f"{len(resolution.left.conflicts):,} conflicts to {output}; open it in a browser")


def _tell_resolution(resolution: "Resolution", limit: int, after: str) -> None:
    from duckkb.operations import git_branches

    remainder, form = resolution.left, choose_format("text")
    answer = git_branches.resolution_object(resolution, limit, after)
    conflicts, following = answer["conflicts"], answer["next"]
    if form == "json":
        out.emit(answer)
    elif form == "text":
        for conflict in conflicts:
            terminal.result(terminal.one_line(conflict["name"]))
    else:
        out.lines([*conflicts, *({"staged": path} for path in remainder.staged)])
    if following is not None:
        terminal.note(f"stopped at {len(conflicts)} of {len(remainder.conflicts)}; continue with --after {following!r}")
    for path in remainder.unreadable:
        terminal.note(f"{path} cannot be merged by records: correct it by hand, then git add")
    for path in remainder.rescued:
        terminal.note(f"the previous {path}, with changes made by hand, is kept in .duckkb/rescued/")
    for path in remainder.others:
        terminal.note(f"left to git: {path}")
    for path in remainder.staged if form == "text" else ():
        terminal.note(f"staged: {path}")
    if remainder.unstaged:
        terminal.note(
            f"{len(remainder.unstaged)} settled parts are not in the index yet: duckkb resolve --stage, or git add"
        )
    if remainder.is_done and not (remainder.files or remainder.unstaged or remainder.staged):
        terminal.note("no record is in conflict")
    _tell_violations(resolution.violations)


@verb("branches", action="branches")
@parameters("limit")
@parameters("after", metavar="NAME")
def branches_command(*, limit: int, after: str) -> None:
    """Lists branches, the newest first, with the last commit and the number of changes; `duckkb diff HEAD...NAME`
    shows them. --format json prints one object, which also has uncommitted changes."""
    from duckkb.operations import version_diff

    answer = version_diff.to_review(prepare_unopened().root, limit=limit, after=after)
    is_empty = not answer["branches"]
    out.lines(answer.pop("branches"), under="branches", **answer)
    if is_empty:
        terminal.note("no branch has changes that HEAD lacks" + (f", behind {after!r}" if after else ""))
        end()
    if answer["next"] is not None:
        terminal.note(f"more follow; continue with --after {answer['next']!r}")


@verb("compact")
@click.option(
    "--older-than",
    type=click.IntRange(1),
    required=True,
    metavar="DAYS",
    help="Days before today to leave unchanged.",
)
@options.dry_run
def compact_command(older_than: int, dry_run: bool) -> None:
    """One part remains for each table and day, up to the size limits. No record changes. Refuses if another branch
    changed such a part."""
    from duckkb.operations import git_branches

    receipt = git_branches.compact(prepare_unopened(), older_than, dry_run, lock_timeout())
    if dry_run:
        out.patch(receipt)
    else:
        out.files(receipt)


@group("git")
def git_command() -> None:
    """With the drivers git merges and shows records in this clone."""


@verb("install", group=git_command)
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if something is missing.")
def git_install_command(check_only: bool) -> None:
    """Make git merge parts by records and show them field by field. Changes this clone's settings and
    .gitattributes. Prints each change as a `changed` line; --check prints one line per requirement. Run it
    again if the Python interpreter moves; without it git merges by lines."""
    from duckkb.operations import git_branches

    root = prepare_unopened().root
    if not check_only:
        out.lines({"changed": name} for name in git_branches.git_install(root))
        return
    facts = git_branches.git_check(root)
    out.lines(
        {"check": fact.check, "status": "ok" if fact.is_ok else "error", "message": fact.message, "remedy": fact.remedy}
        for fact in facts
    )
    if not all(fact.is_ok for fact in facts):
        end()


@verb("uninstall", group=git_command)
def git_uninstall_command() -> None:
    """Remove what `git install` wrote. Prints each change as a `changed` line."""
    from duckkb.merge import git_drivers

    out.lines({"changed": name} for name in git_drivers.uninstall(prepare_unopened().root))


def _tell_violations(findings: "Sequence[Finding]") -> None:
    for finding in findings[:_AT_ONCE]:
        terminal.note(terminal.brief(str(finding)))
    if len(findings) > _AT_ONCE:
        terminal.note(f"{len(findings) - _AT_ONCE:,} more: duckkb check")
