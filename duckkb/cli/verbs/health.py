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
    """Changes nothing. Prints one line per check: `check`, `status` (ok, warning, error, skipped), `message`,
    `remedy`. It also tries the embedding model, DuckDB and Tantivy. Exit 1 on errors (or on warnings with
    --fail-on warning)."""
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
    """`types` are the current sizes; `commits` start with the oldest. Covers commits on the first-parent line that
    changed records, at most --limit of them. Commits that do not fit into the time are counted (`left`), and
    the next call continues. Prints one object, as jsonl or json."""
    out.only_json("an account of growth")
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
    out.emit(line | ({"reason": result.reason} if result.reason else {}))
    out.tell(result.notices)
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
    """Models for vectors, reranking, rewriting questions, and chat."""


@verb("list", group=models_command)
def models_list_command() -> None:
    """Print each model: `kind`, `name`, `providers` (host, key variable and whether it is set, never its value),
    and whether you `trusted` them. For chat models also their features, and which one `answers`. Calls no
    model."""
    from duckkb import app

    out.lines(app.models(read_front_options().get("kb")), under="models")


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

    out.lines(note_failures(), under="tried")
    if failures:
        end()
