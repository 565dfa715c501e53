"""Checks of the base: configuration and trust, stored records, local state of this clone, and caches.

The findings of records themselves belong to `duckkb check`.

A check: one thing that must hold for a base to work here.

It yields problems, each with the command that repairs it, and returns the message for a sound state."""

import os
import random
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct

from duckkb.engine import repair
from duckkb.engine.base import Base, Wiring
from duckkb.engine.boot import observe, refuse_missing_truth
from duckkb.engine.index_status import survey
from duckkb.engine.meaning import unsearchable
from duckkb.index.cache_database import KINDS, Kind, Stored, same_direction, tokens_of, vector_of
from duckkb.index.embedding_cache import SAMPLE
from duckkb.index.index_entries import Needs
from duckkb.ports import Clock, Embedder
from duckkb.review import change_findings
from duckkb.review.report_markup import many
from duckkb.storage import base_lock, clone_state, commit_protocol, journal, layout, repository
from duckkb.store.cache_dirs import Place
from duckkb.types.errors import DuckkbError, Finding, Unavailable
from duckkb.types.settings import Environment

Status = Literal["ok", "warning", "error", "skipped"]


class Problem(Struct, frozen=True):
    """A fault, and the command or edit that repairs it."""

    status: Literal["warning", "error"]
    message: str
    remedy: str


class Check(Struct, frozen=True):
    """A line of `doctor`: a check's name and verdict. `remedy` is empty where nothing is wrong."""

    check: str
    status: Status
    message: str
    remedy: str = ""


class Skipped(Exception):
    """Raised by a check that cannot run, with the reason."""


class Surroundings(Struct, dict=True):
    """The state that the checks inspect.

    Each part is made when a check asks for it, and inspecting changes nothing.
    `wire` loads the configuration and chooses the parts (`errors.OntologyError` where it does not load).
    `demands` returns what the configuration demands of this machine and whether that is accepted.
    `self_tests` are those of the engines, by the name of their check: each raises `AssertionError` with the fault.
    """

    root: Path
    env: Environment
    clock: Clock
    wire: Callable[[], Wiring]
    demands: Callable[[], tuple[Mapping[str, str], bool]]
    self_tests: Mapping[str, Callable[[], None]]

    @cached_property
    def wiring(self) -> Wiring:
        try:
            return self.wire()
        except DuckkbError as problem:
            raise Skipped("the configuration does not load") from problem

    @cached_property
    def base(self) -> Base:
        """The base with truth and caches as they are on disk."""
        wiring = self.wiring
        try:
            return observe(wiring)
        except DuckkbError as problem:
            raise Skipped(f"the files were not read: {problem.message}") from problem

    @cached_property
    def report(self) -> change_findings.CheckReport:
        """The report of `duckkb check`."""
        return change_findings.check(self.base)

    @cached_property
    def repository(self) -> repository.RepositoryState | None:
        return repository.shape(self.root)

    @property
    def has_readable_repository(self) -> bool:
        return self.repository is not None and self.repository.readable

    def need_repository(self) -> None:
        if not self.has_readable_repository:
            raise Skipped("git can read no repository here")

    def need_state(self) -> None:
        """Raise where git tracks `.duckkb/`: nothing in it is read then."""
        if repository.tracks_state(self.root):
            raise Skipped("git tracks files in .duckkb/, so nothing in it is read")


Verdict = Generator[Problem, None, str]
Look = Callable[[Surroundings], Verdict]


def make_warning(message: str, remedy: str) -> Problem:
    return Problem("warning", message, remedy)


def error(message: str, remedy: str) -> Problem:
    return Problem("error", message, remedy)


def join_problems(name: str, look: Look, ground: Surroundings) -> Check:
    """Join several problems into one verdict: the gravest status, all messages and remedies.

    A check that raises is an error.
    """
    problems: list[Problem] = []
    try:
        verdict = look(ground)
        while True:
            problems.append(next(verdict))
    except StopIteration as end:
        if not problems:
            return Check(name, "ok", end.value)
    except Skipped as reason:
        return Check(name, "skipped", str(reason))
    except DuckkbError as problem:
        problems = [
            error(problem.message, problem.suggestion or "correct the problem in the message, then run it again")
        ]
    except OSError as problem:
        problems = [
            error(f"the system refused: {problem.strerror or problem}", "repair the disk or correct its permissions")
        ]
    except Exception as problem:  # a defect of one check must not hide the results of others
        problems = [error(f"the check itself failed: {type(problem).__name__}: {problem}", "report it")]
    grave: Status = "error" if any(problem.status == "error" for problem in problems) else "warning"
    remedies = dict.fromkeys(problem.remedy for problem in problems)
    return Check(name, grave, "; ".join(problem.message for problem in problems), "; ".join(remedies))


BAD_FIT = frozenset({"E_SCHEMA", "E_MISPLACED", "E_TIME"})
FORM = frozenset({"E_NOT_CANONICAL", "E_INCOMPLETE"})
IDENTITIES = frozenset({"E_DUP_IDENTITY", "E_DUP_ID"})
DOCUMENTS = frozenset({"E_SOURCE_MISSING", "E_IO"})
EDGES = frozenset({"E_DANGLING_EDGE", "E_AMBIGUOUS_END", "E_CARDINALITY"})
STRANGERS = frozenset({"E_UNEXPECTED_FILE", "E_SYMLINK", "E_NOT_REGULAR"})
_SHOWN = 3

Texts = Mapping[bytes, str]


def configuration(ground: Surroundings) -> Verdict:
    try:
        ontology = ground.wire().ontology
    except DuckkbError as problem:
        places = [_place(finding) for finding in problem.findings]
        yield error("; ".join([problem.message, *places[:_SHOWN]]), problem.suggestion)
        return ""
    return f"{many(len(ontology.nodes), 'node type')}, {many(len(ontology.edges), 'edge type')}"


def trust(ground: Surroundings) -> Verdict:
    try:
        demands, has_trust = ground.demands()
    except DuckkbError:
        raise Skipped("the configuration does not load") from None
    summary = ", ".join(f"{key} {value}" for key, value in sorted(demands.items()))
    if demands and not has_trust:
        yield make_warning(f"not accepted on this machine: {summary}", "`duckkb trust --show`, then `duckkb trust`")
    return (
        f"accepted on this machine: {summary}" if demands else "the configuration names no hosts and no key variables"
    )


def data_format(ground: Surroundings) -> Verdict:
    yield from ()
    number = layout.read_format(ground.root)
    return f"format {number}" if (ground.root / layout.FORMAT_PATH).exists() else "no FORMAT.json yet: format 1"


def data_present(ground: Surroundings) -> Verdict:
    yield from ()
    tree = ground.base.tree
    refuse_missing_truth(ground.root, tree)
    if not tree.parts:
        return "no records yet"
    return f"{many(ground.report.records, 'record')} in {many(len(tree.parts), 'part')}"


def readable(ground: Surroundings) -> Verdict:
    tree = ground.base.tree
    yield from _summarize_findings(tree.unreadable)
    return f"{many(len(tree.parts), 'part')} can be read"


def none_of(codes: Collection[str], otherwise: str) -> Look:
    """Return the check that `duckkb check` has no finding with one of these codes."""

    def look(ground: Surroundings) -> Verdict:
        unreadable = set(ground.base.tree.unreadable)
        yield from _summarize_findings(
            [finding for finding in ground.report.findings if finding.code in codes and finding not in unreadable]
        )
        return otherwise

    return look


def _summarize_findings(findings: Sequence[Finding]) -> Iterator[Problem]:
    """Yield one problem with the number of findings, the first of them, and all remedies."""
    if findings:
        remedies = dict.fromkeys(finding.remedy for finding in findings if finding.remedy)
        message = f"{many(len(findings), 'finding')}, the first: {_place(findings[0])} (`duckkb check` lists all)"
        yield error(message, "; ".join(list(remedies)[:_SHOWN]) or "duckkb check")


def _place(finding: Finding) -> str:
    return f"{finding.place} {finding.code}: {finding.message}".strip()


def writable(ground: Surroundings) -> Verdict:
    root = ground.root
    folders = [root, clone_state.folder_of(root), clone_state.folder_of(root) / clone_state.TXN]
    folders += sorted(Path(folder) for folder, _, _ in os.walk(root / "data"))
    shut = [folder for folder in folders if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK)]
    if shut:
        folder_name = "the base" if shut[0] == root else shut[0].relative_to(root).as_posix()
        message = f"{folder_name} cannot be written, so the base is read without lock and local caches"
        yield make_warning(message, "chmod -R u+w . , or work in a checkout that you own")
    return "the base can be written"


def lock_file(ground: Surroundings) -> Verdict:
    ground.need_state()
    if not os.path.lexists(clone_state.folder_of(ground.root) / clone_state.LOCK):
        return "not needed yet"
    try:
        with base_lock.hold_lock_shared(ground.root):
            return "free"
    except Unavailable as problem:
        if problem.code != "E_LOCKED":
            yield error(problem.message, f"rm -r {clone_state.FOLDER}/lock")
            return ""
    holder = base_lock.holder(ground.root)
    who = f"{holder.command} (process {holder.pid} on {holder.host})" if holder else "an unknown process"
    yield make_warning(f"held by {who}", "wait until it is done, or end that process; the lock is released with it")
    return ""


def check_journal(ground: Surroundings) -> Verdict:
    """Check the journal."""
    ground.need_state()
    try:
        with base_lock.hold_lock_shared(ground.root):
            status = commit_protocol.show(ground.root)
    except Unavailable:
        raise Skipped("a writer is at work") from None
    third = [file["path"] for file in status["files"] if file["standing"] == "third"]
    if status["state"] == "staged":
        yield make_warning("a write was interrupted before it was sealed; nothing of it counts", "duckkb recover")
    elif third:
        message = f"an interrupted write cannot be finished: changed since by something else: {', '.join(third[:3])}"
        yield error(message, "`duckkb recover --show`, then `duckkb recover --forward` or `--abort`")
    elif status["state"] != "none":
        yield error(f"a sealed write over {many(len(status['files']), 'file')} is not finished", "duckkb recover")
    return "no interrupted write"


def local_state(ground: Surroundings) -> Verdict:
    """Check everything in `.duckkb/` that `repair` covers, except rows of the cache."""
    ground.need_state()
    folder = clone_state.folder_of(ground.root)
    ignore, txn = folder / ".gitignore", folder / clone_state.TXN
    if not os.path.lexists(folder):
        return "nothing local yet"
    if not clone_state.is_folder(folder):
        yield error(f"{clone_state.FOLDER} is a link or a file", f"rm {clone_state.FOLDER}")
    elif journal.list_sealed_stages(ground.root):
        raise Skipped("an interrupted write comes first: duckkb recover")
    elif ignore.is_symlink() or (ignore.exists() and not ignore.is_file()):
        yield error(f"{clone_state.FOLDER}/.gitignore is not a regular file", f"rm -r {clone_state.FOLDER}/.gitignore")
    elif os.path.lexists(txn) and not clone_state.is_folder(txn):
        yield error(
            f"{clone_state.FOLDER}/txn is a link or a file, so nothing can be written", f"rm {clone_state.FOLDER}/txn"
        )
    else:
        for need in repair.state_needs(Place.locate(ground.env.cache_home, ground.root)):
            if need.what != repair.UNSEALED:
                yield make_warning(f"{need.path}: {need.what}", "duckkb repair")
    return "nothing left over"


def check_rescued(ground: Surroundings) -> Verdict:
    ground.need_state()
    home = clone_state.folder_of(ground.root) / clone_state.RESCUED
    files = [path for path in home.rglob("*") if path.is_file()] if clone_state.is_folder(home) else []
    if files:
        message = f"`duckkb recover` kept {many(len(files), 'file')} aside in {clone_state.FOLDER}/rescued"
        yield make_warning(message, f"take over what you need, then rm -r {clone_state.FOLDER}/rescued")
    return "no files were kept aside"


def team_cache(ground: Surroundings) -> Verdict:
    cache = ground.base.cache
    if not cache.team_paths():
        return "none, which costs a fresh clone the time to compute tokens and vectors"
    forged_paths, has_withheld_rows = _find_forged_files(ground)
    yield from (make_warning(f"{finding.path}: {finding.message}", finding.remedy) for finding in cache.findings)
    for path in forged_paths:
        message, remedy = f"{path}: its rows differ from recomputed ones", "find out who changed it"
        yield make_warning(message, f"{remedy}, then duckkb index build")
    return "sound; a search believes it once a sample has been recomputed" if has_withheld_rows else "sound"


def local_cache(ground: Surroundings) -> Verdict:
    """Check the tokens and vectors that this machine stores for all bases."""
    store = ground.base.cache.store
    if (problem := store.problem()) is not None:
        yield make_warning(f"{store.path}: {problem}", "duckkb repair")
    return "sound"


def coverage(ground: Surroundings) -> Verdict:
    """Check how many texts have tokens and vectors in the caches, as `duckkb index status` and `index plan` count
    them.

    Missing tokens are made on demand, missing vectors are not.
    """
    types = survey(ground.base).types
    texts, pending = sum(each.texts for each in types), sum(each.pending for each in types)
    token_texts, unverified_count = sum(each.token_texts for each in types), sum(len(each.withheld) for each in types)
    tokens = token_texts - sum(each.tokens for each in types)
    missing = sum(each.missing for each in types)
    counts = f"tokens for {tokens} of {token_texts} texts; vectors: {texts - pending} verified, {unverified_count} unverified, {missing} missing"
    if missing:
        yield make_warning(counts, "duckkb index build")
    return counts


def check_meaning(ground: Surroundings) -> Verdict:
    """Check that each type that is compared by meaning has text in those fields."""
    for notice in unsearchable(ground.base, ground.base.ontology):
        yield make_warning(notice.message, notice.remedy)
    return "every type that is compared by meaning has text for it"


def fingerprint(ground: Surroundings) -> Verdict:
    """Check that the cached vectors are of the models that the configuration and its policies name."""
    settings = ground.wiring.settings
    kinds = [kind for kind in ground.base.ontology if kind.has_text_vectors]
    model_names = {str(model) for kind in kinds if (model := ground.base.fingerprint(kind)) is not None}
    if settings.embedding.model == "none" and not model_names:
        raise Skipped("no embedding model (embedding_model: none)")
    model_names = model_names or {str(ground.wiring.embedder.fingerprint)}
    store = ground.base.cache.store
    team = store.fingerprints(tuple(ground.base.cache.team_numbers().values()))
    models = " and ".join(sorted(model_names))
    if foreign_count := sum(count for name, count in team.items() if name not in model_names):
        vectors = "1 vector" if foreign_count == 1 else f"{foreign_count} vectors"
        yield make_warning(f"{vectors} in the team's cache are of another model than {models}", "duckkb index build")
    has_some = team or store.lengths("vector", _collect_texts(ground)["vector"])
    return f"vectors of {models}" if has_some else "no vectors cached yet"


def _collect_texts(ground: Surroundings) -> dict[Kind, dict[bytes, str]]:
    """Return the texts that need token rows and vector rows, by key."""
    texts: dict[Kind, dict[bytes, str]] = {kind: {} for kind in KINDS}
    for needs, _ in _iter_needs(ground):
        texts["tokens"] |= needs.tokens
        texts["vector"] |= needs.vectors
    return texts


def _iter_needs(ground: Surroundings) -> Iterator[tuple[Needs, Embedder]]:
    """Yield the needs of each searched type, and its model."""
    base = ground.base
    for kind in base.ontology:
        if kind.full_text or kind.vectors:
            yield base.builder.needs(kind, [row.record for row in base.tree.rows(kind)]), base.embedder(kind)


def _find_forged_files(ground: Surroundings) -> tuple[list[str], bool]:
    """Return the files whose rows do not agree with what is recomputed now, and whether rows are withheld.

    Only files that this machine has neither made nor checked count. All tokens are recomputed, and as many
    vectors as a search would take, where there is a model.
    """
    cache, texts = ground.base.cache, _collect_texts(ground)
    paths, has_withheld_rows = [], False
    for file, number in cache.team_numbers().items():
        for kind in KINDS:
            rows = sorted(
                cache.store.iter_unverified_rows(kind, texts[kind], number), key=lambda stored_row: stored_row.row[0]
            )
            has_withheld_rows = has_withheld_rows or bool(rows)
            if kind == "vector" and len(rows) > SAMPLE:
                # Fixed for one file on one machine, so that two checks agree; a search draws an unpredictable sample.
                rows = random.Random(f"{ground.root}\0{file.path}\0{file.stamp}").sample(rows, SAMPLE)
            if rows and not _can_reproduce(ground, kind, rows, texts[kind]):
                paths.append(file.path)
    return list(dict.fromkeys(paths)), has_withheld_rows


def _can_reproduce(ground: Surroundings, kind: Kind, rows: Sequence[Stored], texts: Texts) -> bool:
    """Return whether recomputing these texts gives the same rows."""
    rows_by_key = {item.row[0]: item.row[3] for item in rows}
    if kind == "tokens":
        fresh_tokens = ground.wiring.tokenizer.tokenize([texts[key] for key in rows_by_key])
        return all(tokens_of(row) == item for row, item in zip(rows_by_key.values(), fresh_tokens, strict=True))
    try:
        for needs, model in _iter_needs(ground):
            keys = [key for key in rows_by_key if key in needs.vectors]
            fresh = model.embed_passages([texts[key] for key in keys]) if keys else ()
            if not all(
                same_direction(vector_of(rows_by_key[key]), item) for key, item in zip(keys, fresh, strict=True)
            ):
                return False
    except DuckkbError:  # no model to recompute with: a search would not use the rows either
        pass
    return True
