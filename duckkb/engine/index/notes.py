"""Notes that index jobs keep beside the lines, so that others need not compute them again: counts, rates and
progress.

A count holds while its grounds are unchanged: the parts of the type, its chunker and model and, for pending
texts, the files of the caches. After a change it counts as unknown.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from duckkb.engine.base import Base
from duckkb.entries import Fingerprint
from duckkb.errors import DuckkbError
from duckkb.ontology.model import RecordType
from duckkb.records import Change, Changeset, Record
from duckkb.store.base_store import BaseStore
from duckkb.truth.commit import lock

COUNTS, RATES, JOB = "counted", "rates", "job"
_FORMAT = 3
_SMALL = 4 * 1024 * 1024
"""Bytes of parts and caches up to which counting is as fast as checking the notes."""
_SLAB = 1_000
_FEWEST = 32
"""Texts from which on a rate measures the model more than its start."""
_PAUSE = 1.0
"""Seconds between two notes of a running job."""
_JOB = {"verb": str, "pid": int, "started": str, "updated": str, "done": int, "total": int, "tokens": int}
_JOB |= {"ended": str, "code": str, "reason": str}

TeamState = Literal["absent", "stale", "current"]


class Counts(Struct, frozen=True):
    """The known counts of the index; `None` where one is unknown.

    By type: `chunks` counts index entries. `texts` counts the different texts that have or need a vector (None
    after a write to a large base).
    `missing` counts texts whose vector no cache has, `unverified` those with a vector from elsewhere that was
    not checked. A text that several types have counts once.
    """

    types: Mapping[str, tuple[int, int | None, int, int]] | None = None
    team: TeamState | None = None

    @property
    def missing(self) -> int | None:
        """The sum over all types."""
        return None if self.types is None else sum(missing for _, _, missing, _ in self.types.values())

    @property
    def unverified(self) -> int | None:
        """The sum over all types."""
        return None if self.types is None else sum(count for *_, count in self.types.values())

    @property
    def texts(self) -> int | None:
        """The sum over all types."""
        text_counts = [None] if self.types is None else [texts for _, texts, *_ in self.types.values()]
        known_counts = [texts for texts in text_counts if texts is not None]
        return sum(known_counts) if len(known_counts) == len(text_counts) else None

    @property
    def is_fresh(self) -> bool | None:
        """Return whether no vector is missing and the team's cache holds all that is needed; None where unknown."""
        if self.missing is None or self.team is None:
            return False if self.missing or self.team in ("absent", "stale") else None
        return not self.missing and self.team == "current"


def list_indexed_types(base: Base) -> list[RecordType]:
    """Return the types that have index entries."""
    return [kind for kind in base.ontology if kind.full_text or kind.vectors]


def slabs(base: Base, kind: RecordType) -> Iterator[list[Record]]:
    """Yield all records of a type in slices."""
    slab: list[Record] = []
    for row in base.tree.rows(kind):
        slab.append(row.record)
        if len(slab) == _SLAB:
            yield slab
            slab = []
    if slab:
        yield slab


def make_tokens(base: Base, kind: RecordType) -> int:
    """Make the token rows of a type that no cache has, and return their number."""
    count = 0
    for records in slabs(base, kind):
        if missing := len(base.cache.list_missing_keys("tokens", base.builder.needs(kind, records).tokens)):
            base.builder.make_tokens(kind, records)
            count += missing
    return count


def is_small(base: Base) -> bool:
    """Return whether the base is small enough to be counted at once."""
    parts = sum(part.stamp.size for kind in list_indexed_types(base) for part in base.tree.parts_of(kind))
    return parts + base.cache.team_bytes_on_disk <= _SMALL


def recall(base: Base) -> Counts:
    """Return the stored counts that still hold. Reads no cache and no record."""
    try:
        entry: Any = base.notes.note(COUNTS)
        if entry["format"] != _FORMAT:
            return Counts()
        before, now, grounds = entry["caches"], base.cache.stamp(), _compute_grounds(base)
        types = {
            str(name): (int(chunks), None if texts is None else int(texts), int(missing), 0)
            for name, (chunks, texts, missing) in entry["types"].items()
        }
        if "added" in now and not any(missing for _, _, missing, _ in types.values()):
            before = {**before, "added": now["added"]}  # nothing was missing, so rows added since fill no gap
        team = entry["team"]["state"] if entry["team"]["ground"] == _compute_team_ground(grounds, now) else None
        return Counts(types if entry["grounds"] == grounds and before == now else None, team)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # a foreign or damaged note
        return Counts()


def remember(base: Base, counts: Counts, caches: Mapping[str, Any]) -> None:
    """Store the counts that were just made, with the stamp that the caches had before.

    Where they cannot be stored, they are counted again next time.
    """
    grounds = _compute_grounds(base)
    team = {"ground": _compute_team_ground(grounds, caches), "state": counts.team}
    types = {name: type_counts[:3] for name, type_counts in (counts.types or {}).items()}
    entry = {"format": _FORMAT, "grounds": grounds, "caches": dict(caches), "types": types, "team": team}
    base.notes.keep(COUNTS, entry)


def recall_counts(base: Base) -> Counts | None:
    """Return the counts of a large base before a small write, if they lead to the counts after it.

    They do where no vector is missing and none is unverified.
    """
    counts = Counts() if is_small(base) else recall(base)
    return counts if counts.missing == 0 and counts.unverified == 0 else None


def carry(base: Base, before: Counts, changeset: Changeset) -> None:
    """Store the counts after a small change: since no vector was missing before, only new records can lack some.

    The state of the team's cache becomes unknown; texts that other records have too are not looked for.
    """
    if len(changeset.changes) > _SLAB or before.types is None:
        return
    types = dict(before.types)
    for kind in list_indexed_types(base):
        changes = [change for change in changeset.changes if kind.name in _collect_types(change)]
        old = base.builder.needs(kind, [change.old for change in changes if change.old])
        new = base.builder.needs(kind, [change.new for change in changes if change.new])
        model = base.fingerprint(kind)
        missing = len(base.cache.list_missing_keys("vector", new.vectors, model)) if model else 0
        types[kind.name] = types[kind.name][0] + new.entries - old.entries, None, missing, 0
    remember(base, Counts(types, "absent" if before.team == "absent" else None), base.cache.stamp())


def _collect_types(change: Change) -> set[str]:
    return {record.type for record in (change.old, change.new) if record is not None}


def _compute_grounds(base: Base) -> dict[str, str]:
    """Return by type a digest of what its entries depend on."""
    return {kind.name: ground_of(base, kind) for kind in list_indexed_types(base)}


def ground_of(base: Base, kind: RecordType) -> str:
    """Return a digest of what the entries of a type depend on."""
    models = str(base.wiring.tokenizer.fingerprint), str(base.fingerprint(kind))
    shape = kind.identity_fields, base.builder.cut_by(kind), *models, base.wiring.lenient
    parts = "\n".join(f"{part.digest} {part.path}" for part in base.tree.parts_of(kind))
    return sha256(f"{shape!r}\n{parts}".encode("utf-8", "surrogatepass")).hexdigest()


def _compute_team_ground(grounds: Mapping[str, str], caches: Mapping[str, Any]) -> str:
    return sha256(json.dumps([grounds, caches["team"]]).encode()).hexdigest()


def rate_of(base: Base, model: Fingerprint) -> float | None:
    """Return the tokens a second of the model in its last job on this machine; None where none was measured."""
    rates = base.notes.note(RATES)
    rate = rates.get(str(model)) if isinstance(rates, dict) else None
    return rate if isinstance(rate, float) and rate > 0 else None


def remember_rate(base: Base, model: Fingerprint, texts: int, tokens: int, seconds: float) -> None:
    """Store the measured rate, if the job was long enough to measure it."""
    if texts >= _FEWEST and seconds > 0:
        rates = base.notes.note(RATES)
        known_rates = rates if isinstance(rates, dict) else {}
        base.notes.keep(RATES, known_rates | {str(model): round(tokens / seconds, 1)})


class JobNote:
    """The progress of a job as other processes see it, stored no more often than somebody would look.

    Times are UTC, `YYYY-MM-DDTHH:MM:SS.ffffffZ`; `done`, `total` and `tokens` count embedded texts. `ended` is
    empty while the job runs, then `fresh`, `partial` or `failed`; `code` and `reason` say why it is one of the
    last two.
    """

    def __init__(self, base: Base, verb: str) -> None:
        self._base = base
        defaults: dict[str, Any] = {name: of() for name, of in _JOB.items()}
        self._told = defaults | {"verb": verb, "pid": os.getpid(), "started": base.wiring.clock.now()}
        self._noted = 0.0

    def note(self, *, now_at_all: bool = False, **changes: Any) -> None:
        """Apply changes; store them if it is time to, or with `now_at_all`."""
        self._told |= changes
        if now_at_all or time.monotonic() - self._noted >= _PAUSE:
            self._told["updated"] = self._base.wiring.clock.now()
            self._base.notes.keep(JOB, self._told)
            self._noted = time.monotonic()


@contextmanager
def note_job(base: Base, verb: str) -> Iterator[JobNote]:
    """Keep the note of a job while the block runs; an error that ends the job is stored, a kill is not."""
    book = JobNote(base, verb)
    book.note(now_at_all=True)
    try:
        yield book
    except DuckkbError as problem:
        book.note(now_at_all=True, ended="failed", code=problem.code, reason=problem.message)
        raise


def job_report(root: Path, notes: BaseStore) -> dict[str, Any] | None:
    """Return the job that runs or ran last, with `running`; None where none ran.

    A job that ended without a final state is `interrupted`.
    """
    entry = notes.note(JOB)
    if not isinstance(entry, dict) or {name: type(value) for name, value in entry.items()} != _JOB:
        return None
    running = not entry["ended"] and lock.is_job_running(root)
    report = {name: value for name, value in entry.items() if value != ""}
    return report | {"running": running, "ended": entry["ended"] or (None if running else "interrupted")}
