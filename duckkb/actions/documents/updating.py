"""The action update: fetch folders, read them again, and make what a search needs."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.actions.documents import commands
from duckkb.actions.documents.collections import documents_of, list_left_out, source_of
from duckkb.actions.documents.naming import list_refused
from duckkb.documents.source import find_inner_path, place_path
from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.index import jobs
from duckkb.engine.index.jobs import Built
from duckkb.engine.index.plan import glance
from duckkb.engine.vectors import count_missing_vectors, fill_each
from duckkb.errors import Finding, Refused
from duckkb.ontology.model import NodeType
from duckkb.queries import Notice
from duckkb.review.reports.markup import many
from duckkb.truth.git import run

_COMMAND_SECONDS = 600
_STATE = "documents/"
_FEW, _FEW_TEXTS = 20, 500
"""The numbers of changed files, and of texts without vectors, up to which an update begins no job."""
_EMBED_SECONDS = 3_600


class Updated(Struct, frozen=True):
    """The result of an update, by collection.

    It has name, documents, and the numbers added, changed and removed since the last update; omitted files and
    folders by reason; embedded texts, of how many (None: unknown), and texts that wait for a vector. `refused`
    are files that could not be read completely and are no documents, missing folders, and what could not be
    fetched."""

    collections: tuple[dict[str, Any], ...]
    embedded: int
    texts: int | None
    pending: int
    notices: tuple[Notice, ...]
    refused: tuple[Finding, ...] = ()


def update(base: Base, names: Sequence[str] = (), *, pull: bool = False) -> Updated:
    """Fetch, read and index document collections, all or those named.

    With `pull`, first runs `git pull --ff-only` in folders that are git work trees; commands of collections run
    once trusted. A failure does not keep the others from being fetched. Raises `errors.NotFound`.
    """
    kinds = documents_of(base, names)
    notices: list[Notice] = []
    fetch_findings = [*(_pull(base, kinds, notices) if pull else ()), *_run_commands(base, kinds, notices)]
    if pull or base.ontology.update_commands:  # else the base was opened or refreshed just now
        boot.refresh(base)
    result = take_collections_in(base, kinds, notices)
    return replace(result, refused=(*fetch_findings, *result.refused))


def take_collections_in(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Updated:
    """Update collections from files as they are now; `notices` are reported with the result."""
    lines = tuple(_compare_collection(base, kind, notices) for kind in kinds)
    is_small = all(line["unchanged"] and line["added"] + line["changed"] <= _FEW for line in lines)
    built = (_update_lanes(base) if is_small else None) or jobs.refresh(base, wait=True)
    unread = [
        Finding(
            "E_EXTRACT",
            f"could not be read completely ({', '.join(warnings)}), so it is no record",
            place_path(source_of(item.kind), item.path),
        )
        for item, warnings in list_refused(base, kinds)
    ]
    names = {kind.name for kind in kinds}
    missing = [item for item in base.tree.not_served if item.code == "E_SOURCE_MISSING" and item.type in names]
    return Updated(lines, built.embedded, built.total, built.pending, (*notices, *built.notices), (*missing, *unread))


@boot.retry_if_stale
def _update_lanes(base: Base) -> Built | None:
    """Apply a change of few files to the lanes, with missing vectors.

    Returns None where many vectors are missing: a job computes these, since that reads all records.
    """
    kinds = [kind for kind in base.ontology if kind.has_text_vectors and base.fingerprint(kind) is not None]
    if count_missing_vectors(base, kinds) > _FEW_TEXTS:
        return None
    new_keys = set[bytes]()
    why = fill_each(base, kinds, time.monotonic() + _EMBED_SECONDS, new_keys)
    for kind in base.ontology:
        if kind.full_text:
            base.lanes(kind).words.complete()
    pending_count = count_missing_vectors(base, kinds)
    notices = (
        (Notice("W_PENDING", f"{pending_count} texts have no vector yet{why}", "duckkb index build"),)
        if pending_count
        else ()
    )
    return Built(
        pending=pending_count,
        embedded=len(new_keys),
        changed=len(new_keys) + pending_count,
        total=glance(base).texts,
        notices=notices,
    )


def _pull(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Pull each work tree once, and yield failures. Folders without a remote become a notice."""
    seen_trees: set[Path] = set()
    without: dict[str, list[str]] = {"no git work tree": [], "without an upstream branch": []}
    for kind in kinds:
        folder = base.root / source_of(kind).path
        checkout = run.find_repository(folder) if folder.is_dir() else None
        named = f"{kind.name} ({source_of(kind).path})"
        if checkout is None:
            without["no git work tree"].append(named)
        elif checkout.work_tree not in seen_trees:
            seen_trees.add(checkout.work_tree)
            if run.text(folder, ["rev-parse", "--quiet", "--verify", "@{upstream}"]):
                yield from _run(kind, folder, ["git", "pull", "--ff-only", "--quiet"], "git pull")
            else:
                without["without an upstream branch"].append(named)
    message = "; ".join(f"{', '.join(named)}: {why}" for why, named in without.items() if named)
    if message:
        remedy = "clone a repository there, or in it: git branch --set-upstream-to=origin/BRANCH"
        notices.append(Notice("W_UPDATE", f"nothing was pulled in {message}", remedy))


def _run_commands(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Run the commands of collections by the shell, in their folders, and yield failures."""
    commands_by_name = base.ontology.update_commands
    target_kinds = [kind for kind in kinds if kind.name in commands_by_name]
    if target_kinds and not commands.trusts_commands(base):
        message = (
            f"{', '.join(kind.name for kind in target_kinds)}: the update command did not run, since it is not trusted"
        )
        notices.append(Notice("W_UPDATE", message, "`duckkb trust --show`, then `duckkb trust`"))
        return
    for kind in target_kinds:
        yield from _run(kind, base.root / source_of(kind).path, commands_by_name[kind.name], "the update command")


def _run(kind: NodeType, folder: Path, command: str | list[str], label: str) -> Iterator[Finding]:
    """Run a command in a collection's folder, and yield its failure, if any."""
    command_text = command if isinstance(command, str) else shlex.join(command)
    remedy = f"run it by hand: cd {shlex.quote(str(folder))} && {command_text}"
    try:
        commands.run(command, folder, f"{kind.name}: {label}", _COMMAND_SECONDS, remedy)
    except Refused as problem:
        yield Finding(problem.code, problem.message, source_of(kind).path, remedy=problem.suggestion, type=kind.name)


def _compare_collection(base: Base, kind: NodeType, notices: list[Notice]) -> dict[str, Any]:
    """Compare a collection with its last update; add a notice where new files could not be read well."""
    now = {
        find_inner_path(source_of(kind), part.path) or part.path: part.digest[:16]
        for part in base.tree.parts_of(kind)
        if part.rows
    }
    name = f"{_STATE}{kind.name}"
    before = base.notes.note(name)
    before = before if isinstance(before, dict) else {}
    unseen = [finding.path for finding in base.tree.not_served if finding.type == kind.name]
    unseen_digests = {
        path: digest for path, digest in before.items() if _is_below(place_path(source_of(kind), path), unseen)
    }
    base.notes.keep(name, {**unseen_digests, **now})
    new_paths = now.keys() - before.keys()
    changed_paths = {path for path, digest in before.items() if now.get(path, digest) != digest}
    touched_paths = new_paths | changed_paths
    if len(touched_paths) > _FEW:
        records = (record for record in base.tree.records(kind) if record.identity[0] in touched_paths)
    else:
        records = (row.record for path in touched_paths if (row := base.tree.get(kind, (path,))) is not None)
    if warning_count := sum("warnings" in record.fields for record in records):
        notices.append(
            Notice(
                "W_DOCUMENT",
                f"{kind.name}: {many(warning_count, 'file')} read with warnings",
                f"duckkb ls {kind.name} --long",
            )
        )
    return {
        "name": kind.name,
        "documents": len(now),
        "added": len(new_paths),
        "changed": len(changed_paths),
        "removed": len(before.keys() - now.keys() - unseen_digests.keys()),
        "unchanged": len(now) - len(new_paths) - len(changed_paths),
        "left_out": dict(sorted(Counter(why for _, why in list_left_out(base, kind)).items())),
    }


def _is_below(path: str, unseen: Sequence[str]) -> bool:
    """Return whether a document could not be looked at, or lies in a folder that could not."""
    return any(place in (".", path) or path.startswith(f"{place}/") for place in unseen)
