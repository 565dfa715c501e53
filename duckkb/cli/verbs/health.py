"""doctor, repair and cleanup: is everything in order here, what is derived made again, what nobody needs removed."""

from typing import Any, Literal

import click

from duckkb.cli import options, out
from duckkb.cli.options import chosen, chosen_format, lock_timeout
from duckkb.cli.verb import end, verb


@verb("doctor")
@options.fail_on
def doctor_command(fail_on: Literal["error", "warning"]) -> None:
    """Check everything that this base needs on this machine; change nothing.

    One line a check: `check`, `status` (ok, warning, error, skipped), `message`, `remedy`. It runs the embedding model
    and tries DuckDB and Tantivy. Exit 1 on errors (or on warnings with --fail-on warning).
    """
    from dataclasses import asdict

    from duckkb import app

    root, form = chosen().get("kb"), chosen_format()
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


@verb("repair")
@click.option("--check-only", is_flag=True, help="Change nothing; exit 1 if something needs repair.")
@click.option("--all", "everything", is_flag=True, help="Drop all that is derived of this base, sound or not.")
def repair_command(check_only: bool, everything: bool) -> None:
    """Drop what is damaged of the derived state and make it again. Never touches data/.

    Keeps cached rows whose checksums hold. Refuses while another process writes (--lock-timeout waits), and while a
    write is unfinished, which `duckkb recover` ends. Prints one line: what was wrong and what was done.
    """
    from dataclasses import asdict

    from duckkb import app

    chosen().setdefault("lock_timeout", 0.0)
    done = app.repair(chosen().get("kb"), everything=everything, check_only=check_only, lock_timeout=lock_timeout())
    line: dict[str, Any] = {"needs": [asdict(need) for need in done.needs], "check_only": check_only}
    if not check_only:
        line |= {"kept": done.kept, "tokens": done.tokens, "pending": done.pending}
    out.emit(line | ({"reason": done.reason} if done.reason else {}))
    out.tell(done.notices)
    if check_only and done.needs:
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
def cleanup_command(dry_run: bool, now: bool, limit: str | None, unused_vectors: bool, cache: bool) -> None:
    """Remove what nobody needs from the user's cache folder: of bases that have been gone for a week, of models of other
    versions, and tokens and vectors that were not used for longest where all of it is larger than its limit.

    What was derived of a base that is there stays (`duckkb repair --all` drops it), and data/ is never touched; what has
    gone is made again when it is missed. Needs no base. The limit is 16 GB unless `cache_limit` in
    XDG_STATE_HOME/duckkb/settings.json says otherwise. Prints one line: `home`, `limit`, `bytes` that it takes, `freed`,
    what was `removed`, and what is kept of which `bases`.

    After a switch to another model `--unused-vectors` lets those of the old one go; `--dry-run` names the models. Known are the
    bases that have a folder below `home` (`bases`), and the one that this is run in; while one of them cannot be read, no
    vector goes.
    """
    from dataclasses import asdict

    from duckkb import app

    if cache and limit is not None:
        raise click.UsageError("--cache and --limit contradict each other; give one of them")
    limit = "1" if cache else limit  # a byte, into which nothing fits
    done = asdict(app.cleanup(chosen().get("kb"), dry_run=dry_run, now=now, limit=limit, unused_vectors=unused_vectors))
    out.emit({key: value for key, value in done.items() if key != "reason" or value})
