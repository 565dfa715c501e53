"""The actions check, status, doctor and repair: maintenance, also of a base too damaged to open."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from duckkb import config
from duckkb.config import Loaded
from duckkb.engine import index_status
from duckkb.engine import repair as cleaning
from duckkb.engine import repair as repairing
from duckkb.engine.base import Base, Wiring
from duckkb.engine.index_jobs import fingerprint
from duckkb.engine.index_status import job_report
from duckkb.engine.meaning import unsearchable
from duckkb.engine.repair import Cleaned, Repaired, RepairOptions
from duckkb.merge import merge_check
from duckkb.ontology.model import Ontology
from duckkb.operations.lifecycle import OpenOptions, Unopened, find
from duckkb.operations.record_origins import history_of, sample_line
from duckkb.ports import Clock, Embedder
from duckkb.review import change_findings, health_checks
from duckkb.review.base_health import Check, Surroundings
from duckkb.review.change_findings import CheckReport, iter_lost_answers
from duckkb.review.health_checks import Health
from duckkb.storage import base_lock, repository
from duckkb.storage.merge_rules import rules_of
from duckkb.store.cache_dirs import Place, open_all, size
from duckkb.store.cache_dirs import iter_kept_folders as kept_places
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import DuckkbError, Finding, StateError, Unavailable, UsageError, shell_word
from duckkb.types.settings import Settings


def check(base: Base, *, since: str | None = None, branch: str | None = None) -> CheckReport:
    """Check the files, the team's cache, and the merge that made HEAD, if any.

    For callers who see a part, checks the files of their records. With `since` (a revision or a range) or a
    `branch`, checks only that change, as `diffing.check_since`.
    """
    if since is not None or branch is not None:
        from duckkb.operations.version_diff import check_since

        return check_since(base, since, branch)
    if base.is_narrowed:
        return change_findings.check_records_alone(base)
    index_status.sample_caches(base)
    report = change_findings.check(base)
    merge_findings = merge_check.findings(base.root, rules_of(base.ontology, base.settings.merge_granularity))
    search_findings = [
        Finding(notice.code, notice.message, remedy=notice.remedy, type=kind.name)
        for kind in base.ontology
        for notice in unsearchable(base, [kind])
    ]
    lost_findings = (
        iter_lost_answers(base, config.load(base.root, base.wiring.env).documents) if base.wiring.questions else ()
    )
    return replace(report, findings=(*report.findings, *merge_findings, *search_findings, *lost_findings))


def status(base: Base) -> dict[str, Any]:
    """Return the base's status, always with the same keys.

    `missing`, `unverified` and `team_cache` (as in `index plan`) are None where they would take long. Callers
    who see a part get only its records and the model.
    """
    records = {kind.name: base.tree.count(kind) for kind in base.ontology}
    if base.is_narrowed:
        unknown = dict.fromkeys(("missing", "unverified", "team_cache"))
        return {"records": records, **unknown, "model": base.settings.embedding.model}
    index_state, holder = index_status.glance(base), base_lock.holder(base.root)
    facts = _describe_base(base.root, base.notes, base.settings, base.ontology, str(holder) if holder else None)
    return facts | {
        "records": records,
        "missing": index_state.missing,
        "unverified": index_state.unverified,
        "team_cache": index_state.team,
        "read_only": base.read_only,
        "warnings": [notice.message for notice in unsearchable(base, base.ontology)],
    }


def growth(base: Base, *, limit: int = 50, timeout: float = 60.0) -> dict[str, Any]:
    """Return the size of each type now, and at up to `limit` commits of the history (`commits`, the oldest first).

    `left` commits did not fit into `timeout` seconds, and follow at the next call. `commits` is None for a
    published base and for callers who see a part, whose types may have differed then; empty outside git.
    """
    report: dict[str, Any] = {
        "types": health_checks.now(base),
        "commits": None,
        "total": 0,
        "left": 0,
        "shallow": False,
    }
    history = history_of(base, health_checks.places, limit)
    if history is None:
        return report
    history_sizes = health_checks.count_commits(base, history, timeout)
    commits = [
        sample_line(sample)
        | {"types": {name: {"records": both[0], "bytes": both[1]} for name, both in sorted(sizes.items())}}
        for sample, sizes in history_sizes.commits
    ]
    return report | {
        "commits": commits,
        "total": history.total,
        "left": history_sizes.left,
        "shallow": history.is_shallow,
    }


def status_unread(path: "str | Path | None" = None) -> dict[str, Any]:
    """Return the status, as `KnowledgeBase.status`, without opening a base that another process is writing.

    `locked_by` names that process, and what needs records is None.
    """
    root = find(path)
    env = config.read_environment(root)
    configuration, holder = config.load(root, env), base_lock.holder(root)
    notes, name = BaseStore(Place.locate(env.cache_home, root)), str(holder or "an unknown process")
    return _describe_base(root, notes, configuration.settings, configuration.ontology, name)


def _describe_base(
    root: Path, notes: BaseStore, settings: Settings, ontology: Ontology, locked_by: str | None
) -> dict[str, Any]:
    demands = config.demands(settings, ontology)
    return {
        "root": str(root),
        "revision": repository.head_commit(root),
        "branch": repository.branch(root) or None,
        "records": None,
        "missing": None,
        "unverified": None,
        "team_cache": None,
        "model": settings.embedding.model,
        "trust": config.is_trusted(root, settings, config.read_environment(root), ontology),
        "endpoints": {name: value for name, value in demands.items() if name.endswith("base_url")},
        "locked_by": locked_by,
        "read_only": None,
        "warnings": None,
        "job": job_report(root, notes),
        "store": {"path": str(notes.place.own), "bytes": size(notes.place.own)},
        "cache": {"path": str(notes.place.shared), "bytes": size(notes.place.shared)},
        "sealed": None
        if notes.place.sealed is None
        else {"path": str(notes.place.sealed), "bytes": size(notes.place.sealed)},
    }


def background(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the background work from a `status`: the index job, how to continue it, and the lock's holder."""
    job = known["job"]
    goes_on = job is not None and job["ended"] in ("interrupted", "partial", "failed")
    fields = {"running": job is not None and job["running"], "job": job}
    fields |= {"next": "duckkb index refresh" if goes_on else None}
    names = ("locked_by", "missing", "unverified", "team_cache", "model", "read_only")
    return fields | {name: known[name] for name in names}


def doctor(
    unopened: Unopened,
    clock: Clock,
    engines: Mapping[str, Callable[[], None]],
    embedder: Embedder | None,
    on_check: Callable[[Check], None],
) -> Health:
    """Check what a base needs here. As `app.doctor`; `engines` are the self tests."""
    root = unopened.root
    env = config.read_environment(root)
    with _link_models(env.cache_home.expanduser()) as cache_home:
        options = OpenOptions(lenient=True, embedder=embedder, clock=clock, cache_home=cache_home)

        def demands() -> tuple[dict[str, str], bool]:
            configuration = config.load(root, env)
            arguments = configuration.settings, configuration.ontology
            return config.demands(*arguments), config.is_trusted(root, arguments[0], env, arguments[1])

        ground = Surroundings(root, env, clock, lambda: unopened.wire(root, options)[1], demands, engines)
        return health_checks.examine(ground, on_check)


def repair(unopened: Unopened, options: RepairOptions) -> Repaired:
    """Repair derived state. As `app.repair`."""
    root = unopened.root
    open_options = OpenOptions(lenient=True, lock_timeout=options.timeout)
    place = Place.locate(config.read_environment(root).cache_home, root)
    return repairing.repair(place, options, lambda: unopened.wire(root, open_options)[1])


def cleanup(
    path: "str | Path | None" = None,
    *,
    dry_run: bool = False,
    now: bool = False,
    limit: "int | str | None" = None,
    wire: "Callable[[Path, OpenOptions], tuple[Loaded, Wiring]] | None" = None,
) -> Cleaned:
    """Remove what no base needs from the user's cache folder.

    That is the state of bases gone for a week (with `now`, gone at all) and models of other versions. Where the
    folder exceeds `limit` (bytes, or text such as "20 GB"; default: this machine's setting), the least recently
    used tokens and vectors go too. Works without a base; existing bases keep their store.

    With `wire`, which finds the models of a base, also removes vectors of models that neither the bases with a
    folder there nor the base at `path` use. It removes none where one of these cannot be read; `reason` then
    says which.

    Raises `errors.UsageError` for an invalid limit, `errors.StateError` (E_NO_KB) for a path that is not a
    base, `errors.Unavailable` (E_IO).
    """
    root: Path | None = None
    try:
        root = find(path)
    except StateError:
        if path is not None:
            raise
    env = config.read_environment(root)
    open_all(env.cache_home)
    if limit is not None:
        most = config.byte_count(limit)
        if most is None:
            raise UsageError(f"{limit!r} is not a size", suggestion="give bytes, or a unit: 500 MB, 20 GB")
        env = replace(env, cache_limit=most)
    if wire is None:
        return cleaning.cleanup(env, dry_run=dry_run, now=now)
    models, unread = _collect_models(env.cache_home.expanduser(), root, wire, now=now)
    result = cleaning.cleanup(env, dry_run=dry_run, now=now, used=None if unread else models)
    return replace(result, reason="; ".join(filter(None, (unread, result.reason))))


def drop_sealed(path: "str | Path | None" = None) -> dict[str, Any]:
    """Remove sealed state from the cache folder, without its key; return paths `removed` and bytes `freed`.

    Raises `errors.Unavailable` (E_IO), `errors.StateError` (E_NO_KB) for a path that is not a base.
    """
    from duckkb.store import sealed_files

    home = config.plain_around(find(path) if path is not None else None).cache_home
    try:
        paths, freed_bytes = sealed_files.drop(home)
    except OSError as error:
        message = f"encrypted files in {home} cannot be removed: {error.strerror or error}"
        raise Unavailable(message, "E_IO", f"ls -la {shell_word(str(home))}") from error
    return {"removed": paths, "freed": freed_bytes}


def _collect_models(
    home: Path, base_root: Path | None, wire: "Callable[[Path, OpenOptions], tuple[Loaded, Wiring]]", *, now: bool
) -> tuple[set[str], str]:
    """Return the fingerprints of the models of all known bases, or the reason why they cannot be told.

    A missing base counts as long as its folder is kept, since its disk may be mounted again.
    """
    models: set[str] = set()
    places = [place for place in kept_places(home) if not (place.is_left_over(0) if now else place.is_left_over())]
    for root in dict.fromkeys(
        [*([base_root] if base_root else []), *(Path(place.root) if place.root else place.folder for place in places)]
    ):
        try:
            wiring = wire(root, OpenOptions())[1]
        except (DuckkbError, OSError) as problem:
            return set(), f"no vector was removed, since the models of {root} are unknown: {problem}"
        models |= {fingerprint(wiring, kind) for kind in wiring.ontology if kind.has_text_vectors}
    return models, "" if models else "no vector was removed, since no known base has a model"


@contextmanager
def _link_models(cache_home: Path) -> Iterator[Path]:
    """Make a folder with links to the user's converted models; what a model would write goes beside the links."""
    try:
        folder = TemporaryDirectory(prefix="duckkb-doctor-")
    except OSError:  # the disk is full, which a check reports
        yield cache_home
        return
    with folder as name:
        with suppress(OSError):
            for file in sorted(cache_home.glob("models/*/*")):
                link = Path(name) / file.relative_to(cache_home)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        yield Path(name)
