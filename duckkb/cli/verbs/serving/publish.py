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
@click.option("--full", is_flag=True, help="Build anew whatever is there, and put it in its place.")
@click.option("--rewind", is_flag=True, help="Also where a newer commit is published.")
@click.option(
    "--pending",
    type=click.Choice(["refuse", "ok"]),
    default="refuse",
    show_default=True,
    help="Whether texts without a vector are published.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@click.option(
    "--grant",
    nargs=2,
    metavar="ROLE TYPES",
    help="Publish nothing; let a role of the database see these types (A,B; or none) alone.",
)
@click.option("--verify", is_flag=True, help="Change nothing; compare what is published with its commit.")
def publish_command(
    *, to: str, grant: tuple[str, str] | None, verify: bool, pending: Literal["refuse", "ok"], ref: str, **how: bool
) -> None:
    """It is PostgreSQL with pgvector (needs the extra `postgres`), or Lance tables in a folder or an object storage (`lance`): what a clone
    at that commit answers, --backend URL answers from there.

    \b
    duckkb publish --to postgresql://db.example.org/knowledge
    duckkb find Note "how do rivers flow" --backend postgresql://db.example.org/knowledge
    duckkb publish --to lance:/srv/knowledge
    duckkb find Note "how do rivers flow" --backend "lance:/srv/knowledge?at=550ab828"

    All of it is one transaction: what is published is always one whole commit. Only what changed since the commit that is published
    is sent, in proportion to the change; another ontology, tokenizer or model builds all of it beside what there is. Of two
    publishers at once one wins, and the other is told (E_BEHIND). A password is given by PGPASSWORD, a service file or ~/.pgpass; keys of
    an object storage by its environment (AWS_ACCESS_KEY_ID and the like).
    """
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
            printed.note(f"{len(comparison['faults'])} differences; `duckkb publish --full` builds it anew")
            end()
        return
    full, rewind, dry_run = (how[name] for name in ("full", "rewind", "dry_run"))
    result = app.publish(
        read_front_options().get("kb"), to=to, ref=ref, full=full, rewind=rewind, pending=pending, dry_run=dry_run
    )
    out.emit(result.line)
    out.tell(result.notices)
