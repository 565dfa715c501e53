"""The verb index: the derived state of texts, and the jobs that make it.

The verb vector: the vector store actions. Unlike other verbs they print one value: a key, a value, an array."""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from duckkb import config
from duckkb.cli import options, output, terminal
from duckkb.cli.command import base_verb, end, group, open_named_base, prepare_unopened, verb
from duckkb.cli.options import lock_timeout, read_front_options, wants_json
from duckkb.storage import path_guard

if TYPE_CHECKING:
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.engine.index_jobs import Built, Event
    from duckkb.engine.index_status import IndexPlan
    from duckkb.engine.shard_jobs import ShardBuilt
    from duckkb.operations.embedding_models import MigratedModel

_BAR = 24
_MOST_TOKENS = 10**15
_MOST_MINUTES = 525_600.0


@group("index")
def index_command() -> None:
    """They are in the user's cache folder, and for the team in data/indices/."""


@base_verb("status", group=index_command, tells=False)
def index_status_command(kb: "KnowledgeBase") -> None:
    """Print the number of chunks, missing vectors, the contents of the caches, and the progress of a job. Exit 0 if
    fresh, else 1."""
    status = kb.index_status()
    output.emit(status)
    output.tell(kb.notices)
    if not status["fresh"]:
        end()


_everything = click.option(
    "--all", "everything", is_flag=True, help="For shards: include texts whose vectors the team's cache has."
)


@base_verb("plan", group=index_command, tells=False)
@click.option(
    "--shards",
    "count",
    type=click.IntRange(1, 10_000),
    metavar="K",
    help="Divide the texts into K shards, and print the size of each.",
)
@_everything
def index_plan_command(kb: "KnowledgeBase", count: int | None, *, everything: bool) -> None:
    """Print what a job would do and cost, by type and model; embeds nothing and calls no model.

    `verified` texts have their vector; `missing` ones would be embedded; of `unverified` ones, from the cache
    of another machine, only a sample. `minutes` is estimated from the last job on this machine, `price` from
    `global.embedding.price_per_million_tokens`; null if unknown. With --shards the `plan` is a digest, the same
    on every machine with this commit, ontology and models. Vectors of the team's cache are left out, those only
    on this machine are not. Exit 0 if nothing is to do, else 1."""
    if count is not None:
        shard_plan = kb.index_shards(count, everything=everything)
        whole = _plan_object(shard_plan.whole)
        facts = {name: whole[name] for name in ("missing", "tokens", "tokens_are", "minutes", "price", "types")}
        output.emit({"plan": shard_plan.digest} | facts | {"shards": [asdict(share) for share in shard_plan.shares]})
        output.tell(kb.notices)
        if shard_plan.whole.missing:
            end()
        return
    if everything:
        raise click.UsageError("--all goes with --shards K")
    plan = kb.index_plan()
    output.emit(_plan_object(plan))
    output.tell(kb.notices)
    if not plan.fresh:
        end()


_job_options = options.several(
    click.option("--budget-tokens", type=click.IntRange(0, _MOST_TOKENS), metavar="N", help="Stop before embedding more than N tokens."),
    click.option("--budget-minutes", type=options.Seconds(0, _MOST_MINUTES), metavar="M", help="Start no batch after M minutes."),
    click.option("--if-stale", is_flag=True, help="Do nothing if nothing is missing."),
    click.option("--resume", is_flag=True, expose_value=False, help="Continue an interrupted job; this is always so."),
    click.option("--wait", is_flag=True, help="Wait for a running job, instead of exit 1 (E_LOCKED)."),
    click.option("--progress", type=click.Choice(["bar", "json", "none"]), help="Progress on stderr: a bar (default on a terminal), one event per line, or nothing."),
)  # fmt: skip


@base_verb("refresh", group=index_command, tells=False)
@_job_options
def index_refresh_command(kb: "KnowledgeBase", progress: str | None, **budget: Any) -> None:
    """Compute missing vectors into the user's cache. Safe to interrupt: the next run continues.

    `changed` counts texts that lacked a vector, `total` all texts compared by meaning. Exit 0 if fresh; 1 if
    partial, with `code` (E_BUDGET, E_MODEL, E_UNTRUSTED) and `reason`, or on an error (E_LOCKED)."""
    built = kb.index_refresh(**budget, listen=_choose_listener(progress))
    _print_build(kb, built, _describe_build(built), progress)


@verb("build", group=index_command)
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="First drop all derived state of this base (`duckkb repair --all`), and recompute the team's cache.",
)
@click.option("--shard", metavar="I/K", help="Make only shard I of K, on one of several machines.")
@click.option("--out", "folder", type=options.PathName(written=True), metavar="DIR", help="The folder for shards.")
@click.option(
    "--executor",
    metavar="ray[:ADDRESS]",
    help="Make all shards on a Ray cluster, or on this machine if no address is given.",
)
@click.option(
    "--shards", "count", type=click.IntRange(1, 10_000), metavar="K", help="Number of shards that the executor makes."
)
@_everything
@_job_options
def index_build_command(progress: str | None, force: bool, shard: str | None, folder: str | None, **given: Any) -> None:
    """Do what `refresh` does, then write the team's cache, data/indices/, so that new clones compute nothing.

    \b
    duckkb index build --shard 3/8 --out DIR
    duckkb index build --executor ray --shards 8 --out DIR
    duckkb index adopt DIR

    `changed` counts texts that lacked a vector, `total` all texts compared by meaning. --shard writes only a
    file in DIR; `kept` counts vectors of an interrupted run. Exit 0 if fresh, or the shard exists; 1 if
    partial, with `code` (E_BUDGET, E_MODEL, E_UNTRUSTED) and `reason`, or on an error (E_LOCKED)."""
    executor, count, everything = given.pop("executor"), given.pop("count"), given.pop("everything")
    if folder is not None:
        path_guard.writable(folder, prepare_unopened().root, config.read_environment(prepare_unopened().root))
    if shard or executor:
        _check_shard_options(shard, folder, executor, count, force or given["if_stale"])
        assert folder is not None, "refused above"
        if shard:
            _build_shard(shard, folder, progress, everything=everything, **given)
        else:
            _build_on_ray(executor, count, folder, everything=everything)
        return
    if folder or count or everything:
        raise click.UsageError("--out, --shards and --all go with --shard I/K or --executor")
    budget = given
    if force:
        from duckkb import app

        if budget.pop("if_stale"):
            raise click.UsageError("--force recomputes everything; leave out --if-stale")
        app.repair(read_front_options().get("kb"), everything=True, lock_timeout=lock_timeout())
    with open_named_base() as kb:
        build = kb.index_rebuild if force else kb.index_build
        built = build(**budget, listen=_choose_listener(progress))
        _print_build(kb, built, {"files": list(built.files)} | _describe_build(built), progress)


def _check_shard_options(
    shard: str | None, folder: str | None, executor: str | None, count: int | None, has_other_options: bool
) -> None:
    if folder is None:
        raise click.UsageError("give --out DIR, the folder for shards")
    if (shard is None) == (executor is None) or (executor is None) != (count is None):
        raise click.UsageError("give --shard I/K, or --executor with --shards K")
    if has_other_options:
        raise click.UsageError("--force and --if-stale are for the whole index, not for shards")


def _build_shard(name: str, folder: str, progress: str | None, *, everything: bool, **how: Any) -> None:
    from duckkb.engine.index_jobs import JobOptions
    from duckkb.index.team_cache import shard

    share, options = shard(name), JobOptions(**how)
    with open_named_base() as kb:
        result = kb.index_build_shard(
            share, Path(folder), everything=everything, options=options, listen=_choose_listener(progress)
        )
        output.emit(_shard_object(result))
        output.tell(kb.notices)
        if result.built.pending:
            end()


def _shard_object(result: "ShardBuilt") -> dict[str, Any]:
    line: dict[str, Any] = {
        "shard": result.shard,
        "plan": result.plan,
        "file": result.file,
        "texts": result.texts,
        "kept": result.kept,
    }
    facts = _describe_build(result.built)
    return line | {name: facts[name] for name in ("embedded", "tokens", "pending", "code", "reason") if name in facts}


def _build_on_ray(executor: str, count: int, folder: str, *, everything: bool) -> None:
    kind, _, address = executor.partition(":")
    if kind != "ray":
        raise click.UsageError(f"unknown executor {executor}; use ray[:ADDRESS]")
    from duckkb.integrations.ray_shards import build_shards

    root = prepare_unopened().root
    results = build_shards(
        root, count, Path(folder), address=address, everything=everything, lock_timeout=lock_timeout()
    )
    pending = False
    for result in results:
        output.emit(_shard_object(result))
        pending = pending or bool(result.built.pending)
    if pending:
        end()


@verb("adopt", group=index_command)
@click.argument("folder", metavar="DIR", type=options.PathName())
@click.option(
    "--to",
    type=click.Choice(["local", "team"]),
    default="local",
    show_default=True,
    help="Works for this base on this machine; `build` also writes the team's cache.",
)
@click.option("--partial", is_flag=True, help="Adopt the intact shards, instead of all or none.")
def index_adopt_command(folder: str, to: Any, *, partial: bool) -> None:
    """Adopt the shards that `index build --shard` wrote to a folder, if a recomputed sample of each matches. Adopts
    all or none, and names every faulty shard. `texts` counts texts in the shards, `pending` those of the base
    without a vector. You can repeat it. Exit 0 if done, 1 if texts are pending or nothing was adopted."""
    with open_named_base() as kb:
        result = kb.index_adopt(Path(folder), to=to, partial=partial)
        problems = [asdict(problem) for problem in result.problems]
        line = {"plan": result.plan, "shards": list(result.shards), "texts": result.texts, "pending": result.pending}
        output.emit(line | {"files": list(result.files)} | ({"problems": problems} if problems else {}))
        for problem in result.problems:
            terminal.note(str(problem))
        output.tell((*kb.notices, *result.notices))
        if result.pending or problems:
            end()


@verb("migrate", group=index_command)
@click.option(
    "--to",
    "to",
    required=True,
    metavar="MODEL",
    help="NAME, or '{embedding_model: NAME, embedding: {base_url: URL}}', as below `global:` in config.yaml.",
)
@click.option("--limit", type=click.IntRange(0, _MOST_TOKENS), metavar="N", help="Embed at most N texts.")
@click.option(
    "--max-seconds", type=options.Seconds(0, 60 * _MOST_MINUTES), metavar="S", help="Start no batch after S seconds."
)
@click.option("--dry-run", is_flag=True, help="Embed nothing; print the estimated work.")
def index_migrate_command(to: str, limit: int | None, max_seconds: float | None, *, dry_run: bool) -> None:
    """Embed everything with another model, in addition to the existing vectors. Search results do not change.

    \b
    duckkb index migrate --to text-embedding-3-large --dry-run
    duckkb trust --model text-embedding-3-large
    duckkb index migrate --to text-embedding-3-large
    duckkb impact --model ...text-embedding-3-large

    A NAME alone uses the endpoint of the configured model. Safe to interrupt: the next run continues. `switch`
    is the line of config.yaml that activates the model; `left_alone` are types whose policies name their own
    model. Exit 0 if done, 1 if texts are left (`pending`), with `code` and `reason`."""
    from duckkb.engine.index_jobs import MigrationBudget
    from duckkb.operations.embedding_models import migrate
    from duckkb.operations.lifecycle import OpenOptions

    opening = OpenOptions(lenient=bool(read_front_options().get("lenient")), lock_timeout=lock_timeout())
    budget = MigrationBudget(limit, max_seconds)
    migration = migrate(prepare_unopened(), to, opening, budget, dry_run=dry_run, listen=_choose_listener(None))
    output.emit(_describe_dry_run(migration) if dry_run else _describe_migration(migration))
    if migration.switch:
        terminal.note(
            f"to switch, in config.yaml{'' if migration.switch.startswith('global') else ', below global'}: {migration.switch}"
        )
    if not dry_run and migration.done.built.pending:
        end()


def _describe_dry_run(migration: "MigratedModel") -> dict[str, Any]:
    line: dict[str, Any] = {"dry_run": True, "model": migration.model, "texts": migration.done.texts}
    facts = _plan_object(migration.done.plan)
    line |= {name: facts[name] for name in ("missing", "tokens", "tokens_are", "minutes", "price", "types")}
    return line | _describe_switch(migration)


def _describe_migration(migration: "MigratedModel") -> dict[str, Any]:
    outcome = migration.done
    line: dict[str, Any] = {"model": migration.model, "texts": outcome.texts, "dimensions": outcome.dimensions}
    line |= {name: value for name, value in _describe_build(outcome.built).items() if name not in ("changed", "total")}
    return line | _describe_switch(migration)


def _describe_switch(migration: "MigratedModel") -> dict[str, Any]:
    return {"left_alone": list(migration.left_alone)} | ({"switch": migration.switch} if migration.switch else {})


def _plan_object(plan: "IndexPlan") -> dict[str, Any]:
    whole: dict[str, Any] = {
        "fresh": plan.fresh,
        "missing": plan.missing,
        "tokens": plan.tokens,
        "tokens_are": plan.tokens_are,
    }
    whole |= {"minutes": plan.minutes, "price": plan.price, "team_cache": plan.team_cache}
    return whole | {"types": [asdict(type_plan) for type_plan in plan.types]}


def _print_build(kb: "KnowledgeBase", built: "Built", line: Mapping[str, Any], progress: str | None) -> None:
    output.emit(line)
    if progress in (None, "bar"):
        of_all = "" if built.total is None else f" / {built.total:,} total"
        terminal.note(f"{built.changed:,} changed{of_all} texts")
    output.tell((*kb.notices, *built.notices))
    if built.pending:
        end()


def _describe_build(built: "Built") -> dict[str, Any]:
    line: dict[str, Any] = {"pending": built.pending, "embedded": built.embedded, "tokens": built.tokens}
    line |= {"changed": built.changed, "total": built.total}
    return line | ({"code": built.code, "reason": built.reason} if built.code else {})


def _choose_listener(progress: str | None) -> "Callable[[Event], None]":
    form = progress or ("bar" if sys.stderr.isatty() else "none")
    return {"bar": _draw, "json": _tell_event, "none": lambda _: None}[form]


def _tell_event(event: "Event") -> None:
    terminal.data(_describe_event(event))


def _describe_event(event: "Event") -> Mapping[str, Any]:
    from duckkb.engine.index_jobs import BatchFailed, Ended, Progressed, Started

    match event:
        case Started():
            return {"event": "start", "verb": event.verb, "plan": _plan_object(event.plan)}
        case Progressed():
            return {"event": "progress"} | asdict(event)
        case BatchFailed():
            return {"event": "failed"} | asdict(event)
        case Ended():
            return {"event": "end"} | _describe_build(event.result) | {"files": list(event.result.files)}


def _draw(event: "Event") -> None:
    """Draw a progress bar that rewrites its own line."""
    from duckkb.engine.index_jobs import BatchFailed, Progressed

    if isinstance(event, BatchFailed):
        terminal.text("")
        terminal.note(f"{event.code}: {event.texts} texts were not embedded: {event.message}")
    elif isinstance(event, Progressed):
        full = _BAR * event.done // max(event.total, event.done, 1)
        remaining_time = "" if event.eta_s is None else f", {_format_span(event.eta_s)} left"
        line = (
            f"\r[{'#' * full}{'.' * (_BAR - full)}] {event.done}/{event.total}, {event.rate:.1f}/s{remaining_time}    "
        )
        with suppress(OSError):
            click.echo(line, nl=event.done >= event.total, err=True)


def _format_span(seconds: float) -> str:
    """Format seconds for people.

    >>> _format_span(8), _format_span(75), _format_span(7260)
    ('8 s', '1:15 min', '2:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, remainder = divmod(whole, 60)
    return f"{minutes}:{remainder:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"


_PRINTED = "the output of vector actions"
_collection = click.option("--collection", default="vectors", show_default=True, metavar="NAME", help="Created by the first store, with the policy vector-store.")  # fmt: skip


@group("vector")
def vector_command() -> None: ...


def _make_action_verb(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a verb for the vector store's method of this name; the callback only declares parameters and help."""

    def decorate(callback: Callable[..., None]) -> click.Command:
        @wraps(callback)
        def run(**given: Any) -> None:
            output.only_json(_PRINTED)
            with open_named_base() as kb:
                _print(kb, getattr(kb.vectors, name.replace("-", "_"))(**given), as_json=wants_json())

        return verb(name, group=vector_command)(run)

    return decorate


@_make_action_verb("store")
@click.option("--embedding-text", required=True, metavar="TEXT", help="The text that questions are compared with.")
@click.option("--value", required=True, metavar="TEXT", help="The value: a text, kept as typed.")
@_collection
def store_command() -> None:
    """Store a value under a text. Prints only the key, a UUID. The same text keeps its key and gets the new value.
    Use `vector run` for JSON values. Without a usable model nothing is stored."""


@_make_action_verb("retrieve")
@click.argument("key")
@_collection
def retrieve_command() -> None:
    """Print the value of a key: text as it is, other values as JSON. A unique prefix of at least 4 characters is
    enough."""


@_make_action_verb("delete")
@click.argument("key")
@_collection
def delete_command() -> None:
    """Delete the value of a key, or of a unique prefix of at least 4 characters. Prints the whole key."""


@_make_action_verb("list")
@click.option("--limit", type=int, default=50, show_default=True, help="Maximum number of records.")
@click.option("--offset", type=int, default=0, show_default=True, help="Number of records to skip.")
@_collection
def list_command() -> None:
    """Print one JSON array of records in key order: key, embedding_text, value, embedding. Embeddings have unit
    length; a text longer than a chunk has the mean of its chunks."""


@_make_action_verb("search")
@click.argument("query")
@click.option("--top-k", type=int, default=5, show_default=True, help="Maximum number of records.")
@_collection
def search_command() -> None:
    """Print one JSON array of records, the nearest first: key, embedding_text, value, score. The score is a cosine
    distance, from 0 (same text) to 2; a long text counts with its best chunk. A question longer than a chunk is
    searched chunk by chunk, and its score is the mean. `find` ranks the same records by similarity, where
    higher is better."""


@_make_action_verb("import-file")
@click.argument("path", type=options.PathName())
@_collection
def import_file_command() -> None:
    """Store the path of a text file, as given, under its contents. Prints only the key."""


@_make_action_verb("set-database")
@click.argument("path", type=options.PathName(written=True))
def set_database_command() -> None:
    """Make the vector actions of this base use another knowledge base, which is created if missing. Prints its
    folder. Only vector actions in this clone change: the folder is recorded in .duckkb/. Give the path of this
    base to switch back."""


@verb("run", group=vector_command)
@click.argument("action", required=False, metavar="[JSON]")
def run_command(action: str | None) -> None:
    """Run one action given as a JSON object, as an argument or on stdin. Prints one JSON value.

    \b
    duckkb vector run '{"action": "store", "embeddingText": "cat", "value": {"says": "meow"}}'
    duckkb vector run '{"action": "search", "query": "kitten", "topK": 3}'

    `vector schema` prints the parameters of each action. Paths are relative to the base and must stay inside it.
    """
    output.only_json(_PRINTED)
    data = output.read_argument_or_stdin(action, "give the action as an argument or on stdin")
    with open_named_base() as kb:
        _print(kb, kb.vectors.run(data), as_json=True)


@verb("schema", group=vector_command)
@click.argument("action", required=False)
def schema_command(action: str | None) -> None:
    """Print the JSON Schema of the input of `vector run`, for all actions or one."""
    from duckkb.operations.vector_store import schema

    output.only_json("a schema")
    output.emit(schema(action))


def _print(kb: "KnowledgeBase", value: Any, *, as_json: bool) -> None:
    """Print a text as it is, or as JSON where that is asked for; anything else as JSON on one line."""
    from duckkb.operations.vector_store import VectorRows

    notices = kb.vectors.notices
    if isinstance(value, VectorRows):
        output.emit(list(value))
        notices += value.notices
    elif isinstance(value, str) and not as_json:
        terminal.result(value)
    else:
        output.emit(value)
    output.tell(notices)
