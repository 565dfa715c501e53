"""update: folders are fetched, read again, and what a search needs is made."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.actions.documents import commands
from duckkb.actions.documents.collections import documents_of, left_out, source_of
from duckkb.actions.documents.naming import refused
from duckkb.documents.source import placed, within
from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.index import jobs
from duckkb.engine.index.jobs import Built
from duckkb.engine.index.plan import glance
from duckkb.engine.vectors import count_lacking, fill_each
from duckkb.errors import Finding, Refused
from duckkb.ontology.model import NodeType
from duckkb.queries import Notice
from duckkb.review.reports.markup import many
from duckkb.truth.git import run

_COMMAND_SECONDS = 600
_STATE = "documents/"
_FEW, _FEW_TEXTS = 20, 500
"""Files that changed, and texts without vectors, up to which no job is begun for them."""
_EMBED_SECONDS = 3_600


class Updated(Struct, frozen=True):
    """What an update found, by collection: name, documents, and how many were added, changed and removed since the one before;
    and by reason how many files and folders are left out; texts embedded, of how many (None: not known), and those that wait for a vector. `refused`
    are files that could not be read whole and are no documents, folders of collections that are not there, and what could not
    be fetched."""

    collections: tuple[dict[str, Any], ...]
    embedded: int
    texts: int | None
    pending: int
    notices: tuple[Notice, ...]
    refused: tuple[Finding, ...] = ()


def update(base: Base, names: Sequence[str] = (), *, pull: bool = False) -> Updated:
    """Fetch, read and index document collections, all of them or those named. With `pull`, `git pull --ff-only` first in
    folders that are git work trees; commands that collections name run once they are trusted. Where one of them fails the others
    are fetched all the same. Raises `errors.NotFound`."""
    kinds = documents_of(base, names)
    notices: list[Notice] = []
    unfetched = [*(_pull(base, kinds, notices) if pull else ()), *_run_commands(base, kinds, notices)]
    if pull or base.ontology.update_commands:  # else the files are as this base was opened or refreshed just now
        boot.refresh(base)
    updated = taken_in(base, kinds, notices)
    return replace(updated, refused=(*unfetched, *updated.refused))


def taken_in(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Updated:
    """What an update that found its files as they lie does with some collections; `notices` are said with it."""
    lines = tuple(_compared(base, kind, notices) for kind in kinds)
    is_small = all(line["unchanged"] and line["added"] + line["changed"] <= _FEW for line in lines)
    built = (_followed(base) if is_small else None) or jobs.refresh(base, wait=True)
    unread = [
        Finding(
            "E_EXTRACT",
            f"could not be read whole ({', '.join(said)}), and is no record",
            placed(source_of(one.kind), one.path),
        )
        for one, said in refused(base, kinds)
    ]
    names = {kind.name for kind in kinds}
    missing = [one for one in base.tree.not_served if one.code == "E_SOURCE_MISSING" and one.type in names]
    return Updated(lines, built.embedded, built.total, built.pending, (*notices, *built.notices), (*missing, *unread))


@boot.answered
def _followed(base: Base) -> Built | None:
    """Have the lanes follow a change of few files, with the vectors that they lack; None where many are lacking, which is a job's
    to make: that goes over all records, as this does not."""
    kinds = [kind for kind in base.ontology if kind.has_text_vectors and base.fingerprint(kind) is not None]
    if count_lacking(base, kinds) > _FEW_TEXTS:
        return None
    made = set[bytes]()
    why = fill_each(base, kinds, time.monotonic() + _EMBED_SECONDS, made)
    for kind in base.ontology:
        if kind.full_text:
            base.lanes(kind).words.complete()
    left = count_lacking(base, kinds)
    said = (Notice("W_PENDING", f"{left} texts have no vector yet{why}", "duckkb index build"),) if left else ()
    return Built(pending=left, embedded=len(made), changed=len(made) + left, total=glance(base).texts, notices=said)


def _pull(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Pull in each work tree once; what failed. Folders that have nothing to pull from are a notice."""
    seen: set[Path] = set()
    without: dict[str, list[str]] = {"no git work tree": [], "without an upstream branch": []}
    for kind in kinds:
        folder = base.root / source_of(kind).path
        found = run.find_repository(folder) if folder.is_dir() else None
        named = f"{kind.name} ({source_of(kind).path})"
        if found is None:
            without["no git work tree"].append(named)
        elif found.work_tree not in seen:
            seen.add(found.work_tree)
            if run.text(folder, ["rev-parse", "--quiet", "--verify", "@{upstream}"]):
                yield from _run(kind, folder, ["git", "pull", "--ff-only", "--quiet"], "git pull")
            else:
                without["without an upstream branch"].append(named)
    said = "; ".join(f"{', '.join(named)}: {why}" for why, named in without.items() if named)
    if said:
        remedy = "clone a repository there, or in it: git branch --set-upstream-to=origin/BRANCH"
        notices.append(Notice("W_UPDATE", f"nothing was pulled in {said}", remedy))


def _run_commands(base: Base, kinds: Sequence[NodeType], notices: list[Notice]) -> Iterator[Finding]:
    """Run what collections name, by the shell, in their folders; what failed."""
    named = base.ontology.update_commands
    wanted = [kind for kind in kinds if kind.name in named]
    if wanted and not commands.are_trusted(base):
        said = f"{', '.join(kind.name for kind in wanted)}: the update command has not been trusted and did not run"
        notices.append(Notice("W_UPDATE", said, "`duckkb trust --show`, then `duckkb trust`"))
        return
    for kind in wanted:
        yield from _run(kind, base.root / source_of(kind).path, named[kind.name], "the update command")


def _run(kind: NodeType, folder: Path, command: str | list[str], what: str) -> Iterator[Finding]:
    """Run a command in a collection's folder; why it failed, if it did."""
    typed = command if isinstance(command, str) else shlex.join(command)
    remedy = f"run it by hand: cd {shlex.quote(str(folder))} && {typed}"
    try:
        commands.run(command, folder, f"{kind.name}: {what}", _COMMAND_SECONDS, remedy)
    except Refused as problem:
        yield Finding(problem.code, problem.message, source_of(kind).path, remedy=problem.suggestion, type=kind.name)


def _compared(base: Base, kind: NodeType, notices: list[Notice]) -> dict[str, Any]:
    """A collection beside what it was at the last update; a notice where files that are new since could not be read well."""
    now = {
        within(source_of(kind), part.path) or part.path: part.digest[:16]
        for part in base.tree.parts_of(kind)
        if part.rows
    }
    name = f"{_STATE}{kind.name}"
    before = base.notes.note(name)
    before = before if isinstance(before, dict) else {}
    unseen = [one.path for one in base.tree.not_served if one.type == kind.name]
    kept = {path: digest for path, digest in before.items() if _is_below(placed(source_of(kind), path), unseen)}
    base.notes.keep(name, {**kept, **now})
    added = now.keys() - before.keys()
    changed = {path for path, digest in before.items() if now.get(path, digest) != digest}
    touched = added | changed
    if len(touched) > _FEW:
        found = (record for record in base.tree.records(kind) if record.identity[0] in touched)
    else:
        found = (row.record for path in touched if (row := base.tree.get(kind, (path,))) is not None)
    if warned := sum("warnings" in record.fields for record in found):
        notices.append(
            Notice(
                "W_DOCUMENT", f"{kind.name}: {many(warned, 'file')} read with warnings", f"duckkb ls {kind.name} --long"
            )
        )
    return {
        "name": kind.name,
        "documents": len(now),
        "added": len(added),
        "changed": len(changed),
        "removed": len(before.keys() - now.keys() - kept.keys()),
        "unchanged": len(now) - len(added) - len(changed),
        "left_out": dict(sorted(Counter(why for _, why in left_out(base, kind)).items())),
    }


def _is_below(path: str, unseen: Sequence[str]) -> bool:
    """Whether a document is one of those that could not be looked at, or lies in a folder that could not."""
    return any(one in (".", path) or path.startswith(f"{one}/") for one in unseen)
