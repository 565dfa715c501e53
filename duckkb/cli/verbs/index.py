"""index: what is derived of the texts, and the jobs that make it."""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from duckkb.cli import options, out, printed
from duckkb.cli.options import chosen, lock_timeout
from duckkb.cli.verb import base_verb, end, group, opened, unopened, verb

if TYPE_CHECKING:
    from duckkb.actions.models.migrating import MigratedModel
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.engine.index.jobs import Built, Event
    from duckkb.engine.index.plan import IndexPlan

_BAR = 24
_MOST_TOKENS = 10**15
_MOST_MINUTES = 525_600.0


@group("index")
def index_command() -> None:
    """Tokens and vectors of what is stored: in the user's cache folder, in data/indices/ for the team."""


@base_verb("status", group=index_command, tells=False)
def index_status_command(kb: "KnowledgeBase") -> None:
    """Say how many chunks there are, how many lack a vector, what the caches hold, and how far a job is. Exit 0 fresh, 1 not."""
    status = kb.index_status()
    out.emit(status)
    out.tell(kb.notices)
    if not status["fresh"]:
        end()


@base_verb("plan", group=index_command, tells=False)
def index_plan_command(kb: "KnowledgeBase") -> None:
    """Say what a job would do and what that would take, by type and model; nothing is embedded and nothing is asked.

    `missing` texts would be embedded; of `unverified` ones, which a cache from elsewhere holds, a sample. `minutes` goes
    by the last job on this machine, `price` by `global.embedding.price_per_million_tokens`; null where that is not known.
    Exit 0 nothing to do, 1 there is.
    """
    plan = kb.index_plan()
    out.emit(_plan_object(plan))
    out.tell(kb.notices)
    if not plan.fresh:
        end()


_job_options = options.several(
    click.option("--budget-tokens", type=click.IntRange(0, _MOST_TOKENS), metavar="N", help="Stop before more than N tokens are embedded."),
    click.option("--budget-minutes", type=options.Seconds(0, _MOST_MINUTES), metavar="M", help="Begin no batch after M minutes."),
    click.option("--if-stale", is_flag=True, help="Do nothing where nothing is missing."),
    click.option("--resume", is_flag=True, expose_value=False, help="Go on where a job was broken off; a job always does."),
    click.option("--wait", is_flag=True, help="Wait for a job that runs, instead of exit 1 (E_LOCKED)."),
    click.option("--progress", type=click.Choice(["bar", "json", "none"]), help="On stderr: a bar (default on a terminal), an event a line, or nothing."),
)  # fmt: skip


@base_verb("refresh", group=index_command, tells=False)
@_job_options
def index_refresh_command(kb: "KnowledgeBase", progress: str | None, **budget: Any) -> None:
    """Compute what is missing into the user's cache. Safe to kill: what was made is kept, the next run does the rest.

    `changed`: texts of chunks that lacked a vector, of `total` chunks. Exit 0 fresh; 1 partial, with `code` and `reason`.
    """
    built = kb.index_refresh(**budget, listen=_listener(progress))
    _say(kb, built, _built_object(built), progress)


@verb("build", group=index_command)
@click.option(
    "-f", "--force", is_flag=True, help="Drop all that is derived of this base first (`duckkb repair --all`)."
)
@_job_options
def index_build_command(progress: str | None, force: bool, **budget: Any) -> None:
    """As `refresh`, then write the team's cache, data/indices/, so that a fresh clone computes nothing.

    `changed`: texts of chunks that lacked a vector, of `total` chunks. Exit 0 fresh; 1 partial, with `code` and `reason`.
    """
    if force:
        from duckkb import app

        app.repair(chosen().get("kb"), everything=True, lock_timeout=lock_timeout())
    with opened() as kb:
        built = kb.index_build(**budget, listen=_listener(progress))
        _say(kb, built, {"files": list(built.files)} | _built_object(built), progress)


@verb("migrate", group=index_command)
@click.option(
    "--to",
    "to",
    required=True,
    metavar="MODEL",
    help="NAME, or '{embedding_model: NAME, embedding: {base_url: URL}}', as below `global:` in config.yaml.",
)
@click.option("--limit", type=click.IntRange(0, _MOST_TOKENS), metavar="N", help="Give the model at most N texts.")
@click.option(
    "--max-seconds", type=options.Seconds(0, 60 * _MOST_MINUTES), metavar="S", help="Begin no batch after S seconds."
)
@click.option("--dry-run", is_flag=True, help="Embed nothing; say what it would take.")
def index_migrate_command(to: str, limit: int | None, max_seconds: float | None, *, dry_run: bool) -> None:
    """Embed everything with another model, beside the vectors that there are: what searches answer stays as it is.

    \b
    duckkb index migrate --to text-embedding-3-large --dry-run
    duckkb trust --model text-embedding-3-large
    duckkb index migrate --to text-embedding-3-large
    duckkb impact --model ...text-embedding-3-large

    NAME alone is asked where the configured model is asked. Safe to kill: what was made is kept, and the next run does the rest.
    `switch` is the line of config.yaml that puts the model to use, `left_alone` are types whose policies name a model of their
    own. Exit 0 done, 1 texts are left (`pending`), with `code` and `reason`.
    """
    from duckkb.actions.folder import OpenOptions
    from duckkb.actions.models.migrating import migrate
    from duckkb.engine.index.migrate import MigrationBudget

    opening = OpenOptions(lenient=bool(chosen().get("lenient")), lock_timeout=lock_timeout())
    budget = MigrationBudget(limit, max_seconds)
    found = migrate(unopened(), to, opening, budget, dry_run=dry_run, listen=_listener(None))
    out.emit(_planned_object(found) if dry_run else _migrated_object(found))
    if found.switch:
        printed.note(
            f"to switch, in config.yaml{'' if found.switch.startswith('global') else ', below global'}: {found.switch}"
        )
    if not dry_run and found.done.built.pending:
        end()


def _planned_object(found: "MigratedModel") -> dict[str, Any]:
    line: dict[str, Any] = {"dry_run": True, "model": found.model, "texts": found.done.texts}
    told = _plan_object(found.done.plan)
    line |= {name: told[name] for name in ("missing", "tokens", "tokens_are", "minutes", "price", "types")}
    return line | _ending(found)


def _migrated_object(found: "MigratedModel") -> dict[str, Any]:
    done = found.done
    line: dict[str, Any] = {"model": found.model, "texts": done.texts, "dimensions": done.dimensions}
    line |= {name: value for name, value in _built_object(done.built).items() if name not in ("changed", "total")}
    return line | _ending(found)


def _ending(found: "MigratedModel") -> dict[str, Any]:
    return {"left_alone": list(found.left_alone)} | ({"switch": found.switch} if found.switch else {})


def _plan_object(plan: "IndexPlan") -> dict[str, Any]:
    whole: dict[str, Any] = {
        "fresh": plan.fresh,
        "missing": plan.missing,
        "tokens": plan.tokens,
        "tokens_are": plan.tokens_are,
    }
    whole |= {"minutes": plan.minutes, "price": plan.price, "team_cache": plan.team_cache}
    return whole | {"types": [asdict(one) for one in plan.types]}


def _say(kb: "KnowledgeBase", built: "Built", line: Mapping[str, Any], progress: str | None) -> None:
    out.emit(line)
    if progress in (None, "bar"):
        printed.note(f"{built.changed:,} changed / {built.total:,} total chunks")
    out.tell((*kb.notices, *built.notices))
    if built.pending:
        end()


def _built_object(built: "Built") -> dict[str, Any]:
    line: dict[str, Any] = {"pending": built.pending, "embedded": built.embedded, "tokens": built.tokens}
    line |= {"changed": built.changed, "total": built.total}
    return line | ({"code": built.code, "reason": built.reason} if built.code else {})


def _listener(progress: str | None) -> "Callable[[Event], None]":
    form = progress or ("bar" if sys.stderr.isatty() else "none")
    return {"bar": _draw, "json": _tell_event, "none": lambda _: None}[form]


def _tell_event(event: "Event") -> None:
    printed.data(_event_object(event))


def _event_object(event: "Event") -> Mapping[str, Any]:
    from duckkb.engine.index.jobs import BatchFailed, Ended, Progressed, Started

    match event:
        case Started():
            return {"event": "start", "verb": event.verb, "plan": _plan_object(event.plan)}
        case Progressed():
            return {"event": "progress"} | asdict(event)
        case BatchFailed():
            return {"event": "failed"} | asdict(event)
        case Ended():
            return {"event": "end"} | _built_object(event.result) | {"files": list(event.result.files)}


def _draw(event: "Event") -> None:
    """A bar that rewrites its own line."""
    from duckkb.engine.index.jobs import BatchFailed, Progressed

    if isinstance(event, BatchFailed):
        printed.text("")
        printed.note(f"{event.code}: {event.texts} texts were not embedded: {event.message}")
    elif isinstance(event, Progressed):
        full = _BAR * event.done // max(event.total, event.done, 1)
        left = "" if event.eta_s is None else f", {_span(event.eta_s)} left"
        line = f"\r[{'#' * full}{'.' * (_BAR - full)}] {event.done}/{event.total}, {event.rate:.1f}/s{left}    "
        with suppress(OSError):
            click.echo(line, nl=event.done >= event.total, err=True)


def _span(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> _span(8), _span(75), _span(7260)
    ('8 s', '1:15 min', '2:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"
