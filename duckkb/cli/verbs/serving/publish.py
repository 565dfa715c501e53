"""The verb publish: a commit, to a database that answers in place of a clone."""

from typing import Literal

import click

from duckkb.cli import out, printed
from duckkb.cli.options import read_front_options
from duckkb.cli.verb import end, verb


@verb("publish")
@click.option(
    "--to",
    required=True,
    metavar="URL",
    help="postgresql://HOST/DATABASE#NAME, lance:FOLDER or lance+s3://BUCKET/PATH.",
)
@click.option("--ref", default="HEAD", show_default=True, metavar="REF", help="The commit, branch or tag to publish.")
@click.option("--full", is_flag=True, help="Build everything again, and replace what is published.")
@click.option("--rewind", is_flag=True, help="Publish even if a newer commit is published.")
@click.option(
    "--pending",
    type=click.Choice(["refuse", "ok"]),
    default="refuse",
    show_default=True,
    help="Whether to publish texts without a vector.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@click.option(
    "--grant",
    nargs=2,
    metavar="ROLE TYPES",
    help="Publish nothing; let a database role see only these types (A,B; or none).",
)
@click.option("--verify", is_flag=True, help="Change nothing; compare the published data with its commit.")
def publish_command(
    *, to: str, grant: tuple[str, str] | None, verify: bool, pending: Literal["refuse", "ok"], ref: str, **how: bool
) -> None:
    """The target is PostgreSQL with pgvector (extra `postgres`), or Lance tables in a folder or object storage
    (extra `lance`). With --backend URL it answers as a clone at that commit does.

    \b
    duckkb publish --to postgresql://db.example.org/knowledge
    duckkb find Note "how do rivers flow" --backend postgresql://db.example.org/knowledge
    duckkb publish --to lance:/srv/knowledge
    duckkb find Note "how do rivers flow" --backend "lance:/srv/knowledge?at=550ab828"

    Publishing is one transaction: the target always has one whole commit. It sends only the changes since the
    published commit; a new ontology, tokenizer or model rebuilds everything. If two publish at once, one wins
    and the other gets E_BEHIND. Give a password by PGPASSWORD, a service file or ~/.pgpass; keys of an object
    storage by its environment variables (such as AWS_ACCESS_KEY_ID)."""
    from duckkb import app

    if (verify or grant) and (any(how.values()) or (verify and grant)):
        raise click.UsageError(f"{'--verify' if verify else '--grant'} publishes nothing; give it alone")
    if grant:
        role, types = grant
        names = [] if types == "none" else types.split(",")
        out.emit(app.grant_published(read_front_options().get("kb"), to=to, role=role, types=names))
        return
    if verify:
        comparison = app.verify_published(read_front_options().get("kb"), to=to)
        out.emit(comparison)
        if comparison["faults"]:
            printed.note(f"{len(comparison['faults'])} differences; `duckkb publish --full` rebuilds it")
            end()
        return
    full, rewind, dry_run = (how[name] for name in ("full", "rewind", "dry_run"))
    result = app.publish(
        read_front_options().get("kb"), to=to, ref=ref, full=full, rewind=rewind, pending=pending, dry_run=dry_run
    )
    out.emit(result.line)
    out.tell(result.notices)
