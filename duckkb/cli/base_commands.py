"""The verbs init, status, config and trust for the base as a whole, and skill, which needs no base.

The verbs check, fmt, dedupe, recover and backup: maintenance of truth, and its backups.

The verbs doctor, repair, cleanup and models: the health of a base, derived state, the cache folder, and models."""

from collections.abc import Iterator
from contextlib import nullcontext
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from duckkb.cli import options, output, terminal
from duckkb.cli.command import (
    base_verb,
    end,
    group,
    open_named_base,
    parameters,
    prepare_unopened,
    report_missing_verdict,
    verb,
)
from duckkb.cli.options import choose_format, lock_timeout, read_front_options, wants_json
from duckkb.review.report_formats import CHECK

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.review.change_findings import CheckReport
    from duckkb.types.queries import Notice


@verb("init")
@click.argument("path", required=False, default=".", type=options.PathName(written=True))
@click.option("--github", is_flag=True, help="Also write workflows and hooks; an existing base gets only those.")
@click.option(
    "--lfs", is_flag=True, help="Keep the team's cache (data/indices/) in Git LFS; also for an existing base."
)
@click.option(
    "--install",
    metavar="URL",
    help="What the workflows install: git+https://HOST/OWNER/duckkb@COMMIT, or the https URL of a wheel; in "
    "existing files it replaces that line. Default: the address that this duckkb was installed from. In "
    "duckkb's own repository: . (what is checked out).",
)
def init_command(path: str, *, github: bool, install: str | None, lfs: bool) -> None:
    """PATH is the current folder by default. Writes config.yaml, .gitattributes and data/FORMAT.json; runs no git.

    Prints each file it made as a `file` line. With --github also .github/workflows/duckkb-*.yml at the top of
    the repository (every record checked, pull requests reviewed, the index built at night) and
    .pre-commit-config.yaml; existing files stay unchanged."""
    from duckkb.operations import lifecycle

    result = lifecycle.init(path, github=github, install=install, lfs=lfs)
    for file in result.kept:
        terminal.note(f"left unchanged: {file}")
    for note in result.notes:
        terminal.note(note)
    if wants_json():
        output.emit({"path": str(result.root), "files": list(result.files)})
    else:
        output.lines({"file": file} for file in result.files)
    if "config.yaml" in result.files and (outer := lifecycle.find_outer_base(result.root)) is not None:
        terminal.note(
            f"this base is inside another base, {outer}, which does not include its records: duckkb --kb "
            f"{quote(str(outer))} status"
        )
    if not wants_json() and "config.yaml" in result.files:
        base = "" if result.root.samefile(".") else f" --kb {quote(str(result.root))}"
        first = '{"id": "first", "text": "hello"}'
        terminal.note(
            f"next: duckkb{base} import faq faq.csv, and duckkb{base} find faq QUESTION; faq.csv is your own file"
        )
        terminal.note(f"  or: duckkb{base} put Note '{first}', and git add and commit")


@verb("status", action="status")
def status_command() -> None:
    """Prints revision, records, pending vectors, model, trust, endpoints of models, lock, the last index job and
    the place of derived files. `server` has the process and URL of its background server.

    `team_cache` is the state of data/indices/: absent, stale or current (`duckkb index build` brings it up to
    date). `team_cache` and `missing` are null if a large base changed since the last count (`duckkb index
    status` counts). While another process writes, `locked_by` names it, and fields that need the records are
    null (--lock-timeout waits)."""
    status, notices = _read_status()
    output.emit(status | {"server": _describe_server()})
    output.tell(notices)


def _read_status() -> tuple[dict[str, Any], tuple["Notice", ...]]:
    """Return the status of the named base and its notices; waits for nobody."""
    from duckkb.operations.maintenance import status_unread
    from duckkb.types.errors import Unavailable

    read_front_options().setdefault("lock_timeout", 0.0)
    try:
        with open_named_base(reads=True) as kb:
            return kb.status(), kb.notices
    except Unavailable as problem:
        if problem.code != "E_LOCKED":
            raise
        return status_unread(read_front_options().get("kb")), ()


def _describe_server() -> dict[str, Any] | None:
    """Return the background server's `pid` and `url`, neither while it starts; None without a server.

    `serve --daemon` and `mcp --http --daemon` start it.
    """
    from duckkb.operations.lifecycle import find
    from duckkb.server.server_daemon import Daemon

    return Daemon.describe(find(read_front_options().get("kb")))


@group("scheduler")
def scheduler_command() -> None: ...


@verb("status", group=scheduler_command)
def scheduler_status_command() -> None:
    """Print the background work for this base. Shows the current or last index job, its progress, its last error
    and the command that continues it (`next`). Also who holds the lock, how many vectors are pending, and which
    `server` answers. Exit 0."""
    from duckkb.operations.maintenance import background

    status, notices = _read_status()
    output.emit(background(status) | {"server": _describe_server()})
    output.tell(notices)


@group("config")
def config_command() -> None: ...


@verb("show", group=config_command)
def config_show_command() -> None:
    """Print every setting and type with its origin: `name`, `value`, `origin`; with --json as one nested object."""
    from duckkb.operations import lifecycle

    settings = lifecycle.config_show(read_front_options().get("kb"))
    if wants_json():
        output.emit(settings)
    else:
        output.lines({"name": name, **entry} for name, entry in _iter_leaves(settings, ""))


def _iter_leaves(value: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every `{"value", "origin"}` with the dotted name of its place."""
    if isinstance(value, dict) and value.keys() == {"value", "origin"}:
        yield name, value
        return
    for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _iter_leaves(inside, f"{name}.{key}" if name else str(key))


@verb("trust")
@click.option("--show", is_flag=True, help="Print what you would accept; change nothing.")
@click.option(
    "--model",
    metavar="MODEL",
    help="Also accept the hosts and keys of another embedding model, given as for `index migrate --to`.",
)
def trust_command(show: bool, model: str | None) -> None:
    """Applies to this base on this machine."""
    from duckkb.operations import lifecycle

    output.emit(lifecycle.trust(read_front_options().get("kb"), accept=not show, model=model))


@group("skill")
def skill_command() -> None:
    """The skill is a page that teaches agents to use duckkb; `duckkb --skill` prints it."""


@verb("install", group=skill_command)
@click.option(
    "--to", metavar="DIR", type=options.PathName(written=True), help="The folder of skills (~/.claude/skills)."
)
@options.force
def skill_install_command(to: str | None, force: bool) -> None:
    """Write DIR/duckkb/SKILL.md, which agents read. A different file there stays, unless you give --force."""
    from duckkb.operations import agent_knowledge

    path, is_new = agent_knowledge.install(*([to] if to else []), force=force)
    output.emit({"file": str(path), "written": is_new})


@verb("check", formats=tuple(CHECK), action="check")
@parameters("since")
@click.option("--staged", is_flag=True, help="Report only findings of the staged change.")
@options.fail_on
@options.allow_shrink
@options.allow_weaker
def check_command(since: str | None, fail_on: Literal["error", "warning"], **given: bool) -> None:
    """Checks bytes, JSON, order, schemas, identities, ids, edges, days and sizes. Exit 1 on errors (or on warnings
    with --fail-on warning). With --since or --staged reports only records that the change touches, and the
    change itself: mass deletions (an error unless --allow-shrink), removed or weakened rules for changes
    (E_GUARD), mass edits, renames, invisible characters, near duplicates. The default is --format text: lines
    for people, where equal findings are one line with a count and the first places. --format jsonl has each
    finding, json both."""
    from duckkb import app

    with report_missing_verdict():
        report = app.check(read_front_options().get("kb"), lock_timeout=lock_timeout(), since=since, **given)
    form = choose_format("text")
    if form in CHECK:
        for line in CHECK[form].lines(report.findings, report.prefix):
            terminal.result(terminal.one_line(line) if form == "text" else line)
    else:
        _print_findings(report, form, fail_on)
    if form != "json":
        noun = "changed record" if since is not None or given["staged"] else "record"
        counts = ((report.records, noun), (report.errors, "error"), (report.warnings, "warning"))
        terminal.note(", ".join(f"{count} {label}{'' if count == 1 else 's'}" for count, label in counts))
    if report.errors or (fail_on == "warning" and report.warnings):
        end()


def _print_findings(report: "CheckReport", form: str, fail_on: str) -> None:
    from duckkb.operations.record_lines import finding_line, report_object
    from duckkb.review.report_formats import summarize_groups

    # A Markdown table is a report for people on a forge.
    is_page = form == "md"
    if form == "json":
        output.emit(report_object(report, fail_on))
    else:
        findings = (
            [finding.prefix_path(report.prefix) for finding in summarize_groups(report.findings, report.prefix)]
            if is_page
            else report.findings
        )
        output.lines(map(finding_line, findings))


@verb("fmt")
@click.option("--check", "check_only", is_flag=True, help="Change nothing; exit 1 if any file would change.")
def fmt_command(check_only: bool) -> None:
    """Rewrites parts that are not canonical or not sorted, and completes hand-written lines. Prints each as a
    `file` line."""
    with report_missing_verdict() if check_only else nullcontext(), open_named_base() as kb:
        receipt = kb.fmt(check=check_only)
        output.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        output.tell(receipt.notices)
        if check_only and receipt.files:
            end()


@base_verb("dedupe", tells=False)
@click.option("--reassign", is_flag=True, help="Give a free id to the later of two records with the same __id.")
@options.dry_run
def dedupe_command(kb: "KnowledgeBase", reassign: bool, dry_run: bool) -> None:
    """Joins them field by field; where both changed a field, the later __updated_at wins."""
    receipt = kb.dedupe(reassign=reassign, dry_run=dry_run)
    if dry_run:
        output.patch(receipt)
    else:
        output.files(receipt, updated=receipt.updated, deleted=receipt.deleted)
        output.tell(receipt.notices)


@verb("recover")
@options.one_of(
    "action",
    (("--show",), "show", "Print the remains of an interrupted write; change nothing."),
    (("--forward",), "forward", "Finish the write; move a file in an unexpected state aside."),
    (("--abort",), "abort", "Undo it."),
)
def recover_command(action: Literal["show", "forward", "abort"] | None) -> None:
    """Commands recover by themselves where they can; use this where they cannot. A merge that was killed together
    with its git is undone: its files return to HEAD, and you can run `duckkb merge` again."""
    from duckkb.operations import lifecycle

    output.emit(lifecycle.recover(read_front_options().get("kb"), action=action, lock_timeout=lock_timeout()))


@group("backup")
def backup_command() -> None:
    """The backup contains the history and all uncommitted work."""


@verb("create", group=backup_command)
@click.argument("file", required=False, type=options.PathName(written=True))
@options.force
def backup_create_command(file: str | None, *, force: bool) -> None:
    """Save the base, its repository's history and its documents in FILE.

    The default FILE is NAME-TIME.duckkb.zip in the current folder; inside the repository it goes beside the
    repository.

    Saves all branches, tags and stashes, the index, and each file that differs from HEAD. New files are saved
    from the base's own folder; files that git ignores only if they are records or documents. Git settings,
    hooks and remotes are not saved, nor derived files. Prints one line; `left_out` names everything else that
    is missing, and why."""
    from duckkb.operations.backup_files import create

    line = create(prepare_unopened().root, file, force=force, lock_timeout=lock_timeout())
    output.emit(line)
    for entry in line["left_out"]:
        terminal.note(f"left out: {entry}")


@verb("verify", group=backup_command)
@click.argument("file", type=options.PathName())
def backup_verify_command(file: str) -> None:
    """Verify FILE: its digest, each file, its history, and that its base loads. Exits 1 with the problems. The test
    restores it to a temporary folder. `errors` and `warnings` are what `check` finds in the base, not faults of
    the backup."""
    from duckkb import app

    output.emit(app.verify_backup(file))


@verb("restore", group=backup_command)
@click.argument("file", type=options.PathName())
@click.argument("folder", required=False, type=options.PathName(written=True))
@click.option("--force", is_flag=True, help="Replace an existing folder, which is kept as FOLDER.before-TIME.")
def backup_restore_command(file: str, folder: str | None, *, force: bool) -> None:
    """Restore a backup to FOLDER (by default a folder of the saved name in the current one). A base inside a larger
    repository is restored with that repository. FOLDER appears only when it is complete."""
    from duckkb import app

    line = app.restore_backup(file, folder, force=force, lock_timeout=lock_timeout())
    output.emit(line)
    if line["before"]:
        terminal.note(f"the previous folder is now {line['before']}")
    if line["repair"]:
        terminal.note(f"linked work trees still refer to its old name: {line['repair']}")
    if line["commit"] or line["branch"]:
        terminal.note("backups do not contain git settings, hooks and remotes: set them up again")


@verb("doctor")
@options.fail_on
def doctor_command(fail_on: Literal["error", "warning"]) -> None:
    """Changes nothing. Prints one line per check: `check`, `status` (ok, warning, error, skipped), `message`,
    `remedy`. It also tries the embedding model, DuckDB and Tantivy. Exit 1 on errors (or on warnings with
    --fail-on warning)."""
    from duckkb import app

    root, form = read_front_options().get("kb"), choose_format()
    if form == "jsonl":
        health = app.doctor(root, on_check=lambda check: output.emit(asdict(check)))
    else:
        health = app.doctor(root)
        checks = [asdict(check) for check in health.checks]
        if form == "json":
            output.emit({"errors": health.errors, "warnings": health.warnings, "checks": checks})
        else:
            output.lines(checks)
    if health.errors or (fail_on == "warning" and health.warnings):
        end()


@base_verb("growth", action="growth")
@parameters("limit", "timeout", "at")
def growth_command(kb: "KnowledgeBase", **how: Any) -> Any:
    """`types` are the current sizes; `commits` start with the oldest. Covers commits on the first-parent line that
    changed records, at most --limit of them. Commits that do not fit into the time are counted (`left`), and
    the next call continues. Prints one object, as jsonl or json."""
    output.only_json("an account of growth")
    return kb.growth(**how)


@verb("repair")
@click.option("--check-only", is_flag=True, help="Change nothing; exit 1 if something needs repair.")
@click.option("--all", "everything", is_flag=True, help="Drop all derived state of this base, even if intact.")
def repair_command(check_only: bool, everything: bool) -> None:
    """Keeps cached rows with valid checksums. Refuses while another process writes (--lock-timeout waits), or a
    write is unfinished (`duckkb recover` ends it). Prints one line with the problems and the repairs."""
    from duckkb import app

    read_front_options().setdefault("lock_timeout", 0.0)
    result = app.repair(
        read_front_options().get("kb"), everything=everything, check_only=check_only, lock_timeout=lock_timeout()
    )
    line: dict[str, Any] = {"needs": [asdict(need) for need in result.needs], "check_only": check_only}
    if not check_only:
        line |= {"kept": result.kept, "tokens": result.tokens, "pending": result.pending}
    output.emit(line | ({"reason": result.reason} if result.reason else {}))
    output.tell(result.notices)
    if check_only and result.needs:
        end()


@verb("cleanup")
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be removed.")
@click.option("--now", is_flag=True, help="Also remove files of bases deleted within the last week.")
@click.option("--limit", metavar="SIZE", help="Use this limit instead of the machine's: bytes, or 500 MB, 20 GB.")
@click.option(
    "--unused-vectors",
    is_flag=True,
    help="Also remove vectors of models that no known base uses; making them again has a cost.",
)
@click.option(
    "--cache", is_flag=True, help="Remove all tokens, vectors and answers of models, of all bases; they are made again."
)
@click.option("--sealed", is_flag=True, help="Remove everything encrypted with any key (docs/encryption.md).")
def cleanup_command(
    dry_run: bool, now: bool, limit: str | None, unused_vectors: bool, cache: bool, sealed: bool
) -> None:
    """Removes files of bases deleted a week ago, of other versions of models, and, above the limit, the tokens and
    vectors unused for longest. Derived state of existing bases stays (`duckkb repair --all` drops it), and
    data/ is never changed. Removed files are made again when needed. Needs no base. The limit is 16 GB, or
    `cache_limit` in XDG_STATE_HOME/duckkb/settings.json. Prints one line: `home`, `limit`, `bytes` in use,
    `freed`, `removed`, and the `bases` whose files are kept. After a switch to another model,
    `--unused-vectors` removes the vectors of the old one; `--dry-run` names the models. Known bases are those
    with a folder below `home`, and the current one. If one of them cannot be read, no vector is removed."""
    from duckkb import app

    if sealed:
        if dry_run or now or limit is not None or unused_vectors or cache:
            raise click.UsageError("--sealed drops all of it; give it alone")
        output.emit(app.drop_sealed(read_front_options().get("kb")))
        return
    if cache and limit is not None:
        raise click.UsageError("--cache and --limit contradict each other; give one of them")
    limit = "1" if cache else limit  # one byte, into which nothing fits
    result = to_builtins(
        app.cleanup(
            read_front_options().get("kb"), dry_run=dry_run, now=now, limit=limit, unused_vectors=unused_vectors
        )
    )
    output.emit({key: value for key, value in result.items() if key != "reason" or value})


@group("models")
def models_command() -> None:
    """Models for vectors, reranking, rewriting questions, and chat."""


@verb("list", group=models_command)
def models_list_command() -> None:
    """Print each model: `kind`, `name`, `providers` (host, key variable and whether it is set, never its value),
    and whether you `trusted` them. For chat models also their features, and which one `answers`. Calls no
    model."""
    from duckkb import app

    output.lines(app.models(read_front_options().get("kb")), under="models")


@verb("test", group=models_command)
@click.argument("name", required=False)
def models_test_command(name: str | None) -> None:
    """Send one tiny question to each provider of a chat model, or of all chat models. Prints one line per provider:
    `ok`, `ms` to the end of its answer, `usage`, or `reason` and `error`. Costs a few tokens each. Exit 1 if
    one of them does not answer, 2 if the model does not exist. Needs `duckkb trust` first."""
    from duckkb import app

    failures: list[str] = []

    def note_failures() -> Iterator[dict[str, Any]]:
        for answer in app.try_models(read_front_options().get("kb"), name):
            if not answer["ok"]:
                failures.append(answer["provider"])
            yield answer

    output.lines(note_failures(), under="tried")
    if failures:
        end()
