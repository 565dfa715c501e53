"""The verbs doctor, repair, cleanup and models: the health of a base, derived state, the cache folder, and models."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from duckkb.cli import options, out
from duckkb.cli.commands import parameters
from duckkb.cli.options import choose_format, lock_timeout, read_front_options
from duckkb.cli.verb import base_verb, end, group, verb

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase


@verb("doctor")
@options.fail_on
def doctor_command(fail_on: Literal["error", "warning"]) -> None:
    """It changes nothing.

    One line a check: `check`, `status` (ok, warning, error, skipped), `message`, `remedy`. It runs the embedding model
    and tries DuckDB and Tantivy. Exit 1 on errors (or on warnings with --fail-on warning).
    """
    from duckkb import app

    root, form = read_front_options().get("kb"), choose_format()
    if form == "jsonl":
        health = app.doctor(root, on_check=lambda check: out.emit(asdict(check)))
    else:
        health = app.doctor(root)
        checks = [asdict(check) for check in health.checks]
        if form == "json":
            out.emit({"errors": health.errors, "warnings": health.warnings, "checks": checks})
        else:
            out.lines(checks)
    if health.errors or (fail_on == "warning" and health.warnings):
        end()


@base_verb("growth", action="growth")
@parameters("limit", "timeout", "at")
def growth_command(kb: "KnowledgeBase", **how: Any) -> Any:
    """`types` are as they are now, `commits` come the oldest first.

    Commits are counted once, by what changed between them. Looked at are those on the line of first parents that touched records, at most
    --limit of them; what is not done in time is counted (`left`), and goes on with the next call. Prints one object, as jsonl or json alone.
    """
    out.only_json("an account of growth")
    return kb.growth(**how)


@verb("repair")
@click.option("--check-only", is_flag=True, help="Change nothing; exit 1 if something needs repair.")
@click.option("--all", "everything", is_flag=True, help="Drop all that is derived of this base, sound or not.")
def repair_command(check_only: bool, everything: bool) -> None:
    """Keeps cached rows whose checksums hold. Refuses while another process writes (--lock-timeout waits), and while a
    write is unfinished, which `duckkb recover` ends. Prints one line: what was wrong and what was done.
    """
    from duckkb import app

    read_front_options().setdefault("lock_timeout", 0.0)
    result = app.repair(
        read_front_options().get("kb"), everything=everything, check_only=check_only, lock_timeout=lock_timeout()
    )
    line: dict[str, Any] = {"needs": [asdict(need) for need in result.needs], "check_only": check_only}
    if not check_only:
        line |= {"kept": result.kept, "tokens": result.tokens, "pending": result.pending}
    out.emit(line | ({"reason": result.reason} if result.reason else {}))
    out.tell(result.notices)
    if check_only and result.needs:
        end()


@verb("cleanup")
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would go.")
@click.option("--now", is_flag=True, help="Also of bases that have been gone for less than a week.")
@click.option("--limit", metavar="SIZE", help="Instead of this machine's limit: bytes, or 500 MB, 20 GB.")
@click.option(
    "--unused-vectors",
    is_flag=True,
    help="Also vectors of models that no base known here uses; they cost what embedding them cost.",
)
@click.option(
    "--cache", is_flag=True, help="All tokens, vectors and models' answers, of all bases; they are made again."
)
@click.option("--sealed", is_flag=True, help="All that is sealed with a key (docs/encryption.md), whatever the key.")
def cleanup_command(
    dry_run: bool, now: bool, limit: str | None, unused_vectors: bool, cache: bool, sealed: bool
) -> None:
    """That is: of bases that have been gone for a week, of models of other versions, and tokens and vectors that were not used for
    longest where all of it is larger than its limit.

    What was derived of a base that is there stays (`duckkb repair --all` drops it), and data/ is never touched; what has
    gone is made again when it is missed. Needs no base. The limit is 16 GB unless `cache_limit` in
    XDG_STATE_HOME/duckkb/settings.json says otherwise. Prints one line: `home`, `limit`, `bytes` that it takes, `freed`,
    what was `removed`, and what is kept of which `bases`.

    After a switch to another model `--unused-vectors` lets those of the old one go; `--dry-run` names the models. Known are the
    bases that have a folder below `home` (`bases`), and the one that this is run in; while one of them cannot be read, no
    vector goes.
    """
    from duckkb import app

    if sealed:
        if dry_run or now or limit is not None or unused_vectors or cache:
            raise click.UsageError("--sealed drops all of it; give it alone")
        out.emit(app.drop_sealed(read_front_options().get("kb")))
        return
    if cache and limit is not None:
        raise click.UsageError("--cache and --limit contradict each other; give one of them")
    limit = "1" if cache else limit  # one byte, into which nothing fits
    result = to_builtins(
        app.cleanup(
            read_front_options().get("kb"), dry_run=dry_run, now=now, limit=limit, unused_vectors=unused_vectors
        )
    )
    out.emit({key: value for key, value in result.items() if key != "reason" or value})


@group("models")
def models_command() -> None:
    """Those for vectors, for judging, for writing questions anew, and those that chat."""


@verb("list", group=models_command)
def models_list_command() -> None:
    """Print each model: `kind`, `name`, `providers` (host, key variable and whether that is set, never its value), whether this
    machine has `trusted` them; of chat models what they can do, and which of them `answers`. Asks nobody."""
    from duckkb import app

    out.lines(app.models(read_front_options().get("kb")), under="models")


@verb("test", group=models_command)
@click.argument("name", required=False)
def models_test_command(name: str | None) -> None:
    """Ask each provider of a chat model, or of all of them, one tiny question, in their order.

    One line a provider: `ok`, `ms` to the end of its answer, `usage`, or `reason` and `error`. It costs a few tokens each. Exit 1
    where one of them does not answer, 2 where there is no such model. Nobody is asked before `duckkb trust`.
    """
    from duckkb import app

    failures: list[str] = []

    def note_failures() -> Iterator[dict[str, Any]]:
        for answer in app.try_models(read_front_options().get("kb"), name):
            if not answer["ok"]:
                failures.append(answer["provider"])
            yield answer

    out.lines(note_failures(), under="tried")
    if failures:
        end()
