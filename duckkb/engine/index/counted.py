"""What was counted of the index, written down so that `status` need not count again.

A count holds while everything that it was made from is as it was: the parts of the type, how they are cut and by what
they are embedded, and, of what is pending, the files of the caches. Where that changed it is not known any more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Any, Literal

from duckkb.engine.base import Base
from duckkb.ontology.model import RecordType
from duckkb.records import Change, Changeset, Record
from duckkb.values import dataclass

NAME = "counted"
_FORMAT = 1
_SMALL = 4 * 1024 * 1024
"""Bytes of parts and caches up to which counting takes no longer than asking whether it must be done."""
_SLAB = 1_000

TeamState = Literal["absent", "stale", "current"]


@dataclass(frozen=True, slots=True)
class Count:
    """Of one type: its index entries, and the different texts among them that lack a vector."""

    chunks: int
    pending: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What is known of the index, by type; `None` where it is not."""

    types: Mapping[str, Count] | None = None
    team: TeamState | None = None

    @property
    def pending(self) -> int | None:
        """Over all types."""
        return None if self.types is None else sum(count.pending for count in self.types.values())

    @property
    def chunks(self) -> int:
        """Over all types; 0 where it is not known."""
        return sum(count.chunks for count in (self.types or {}).values())

    @property
    def is_fresh(self) -> bool | None:
        """Whether no vector is missing and the team's cache holds all that is needed."""
        if self.pending is None or self.team is None:
            return False if self.pending or self.team in ("absent", "stale") else None
        return not self.pending and self.team == "current"


def indexed(base: Base) -> list[RecordType]:
    """The types that have index entries."""
    return [kind for kind in base.ontology if kind.full_text or kind.vectors]


def slabs(base: Base, kind: RecordType) -> Iterator[list[Record]]:
    """All records of a type, some at a time."""
    slab: list[Record] = []
    for row in base.tree.rows(kind):
        slab.append(row.record)
        if len(slab) == _SLAB:
            yield slab
            slab = []
    if slab:
        yield slab


def live_keys(base: Base) -> set[bytes]:
    """The keys of every token and vector row that the records as they are now have use for."""
    keys: set[bytes] = set()
    for kind in indexed(base):
        for records in slabs(base, kind):
            needs = base.builder.needs(kind, records)
            keys |= needs.tokens.keys() | needs.vectors.keys()
    return keys


def recall(base: Base) -> Counts:
    """What was counted and still holds. Reads no cache and no record."""
    told = _read(base)
    if told is None:
        return Counts()
    grounds, before, now = _grounds(base), told["caches"], base.cache.stamp()
    team = told["team"]["state"] if told["team"]["ground"] == _team_ground(grounds, now) else None
    counts = {name: Count(**one) for name, one in told["types"].items()}
    if not any(count.pending for count in counts.values()):
        before = before | {"added": now.get("added")}  # nothing was missing, so what was added since fills no gap
    return Counts(counts if told["grounds"] == grounds and before == now else None, team)


def remember(base: Base, counts: Counts, caches: Mapping[str, Any]) -> None:
    """Write down what was counted just now, with what the caches' stamp was before; where it cannot be written it is
    counted again."""
    if counts.types is None:
        return
    grounds = _grounds(base)
    told = {
        "format": _FORMAT,
        "grounds": grounds,
        "caches": dict(caches),
        "types": {name: asdict(count) for name, count in counts.types.items()},
        "team": {"ground": _team_ground(grounds, caches), "state": counts.team},
    }
    base.notes.keep(NAME, told)


@dataclass(frozen=True, slots=True)
class Before:
    """What was known of a base before a write, and of which state of it."""

    counts: Counts
    grounds: Mapping[str, str]

    @classmethod
    def of(cls, base: Base) -> "Before | None":
        """None where a write leads to nothing that could be known: vectors were missing, or nobody had counted."""
        counts = recall(base)
        return None if counts.pending != 0 else cls(counts, _grounds(base))

    def holds(self, base: Base) -> bool:
        """Whether the base, read again under the lock, is still the one that was counted."""
        return self.grounds == _grounds(base)

    def carry(self, base: Base, changeset: Changeset) -> None:
        """Write down what is known after a small change: as no vector was missing before, none but those of the new records
        can be. What the team's cache lacks now is not asked."""
        if len(changeset.changes) > _SLAB or self.counts.types is None:
            return
        types = dict(self.counts.types)
        for kind in indexed(base):
            own = [change for change in changeset.changes if kind.name in _types_of(change)]
            old = base.builder.needs(kind, [change.old for change in own if change.old])
            new = base.builder.needs(kind, [change.new for change in own if change.new])
            model = base.fingerprint(kind)
            pending = len(base.cache.lacking("vector", new.vectors, model)) if model else 0
            chunks = types[kind.name].chunks + new.entries - old.entries
            types[kind.name] = Count(chunks, pending)
        remember(base, Counts(types, "absent" if self.counts.team == "absent" else None), base.cache.stamp())


def _types_of(change: Change) -> set[str]:
    return {record.type for record in (change.old, change.new) if record is not None}


def is_small(base: Base) -> bool:
    """Whether the base can be counted in no time."""
    parts = sum(part.stamp.size for kind in indexed(base) for part in base.tree.parts_of(kind))
    return parts + base.cache.team_bytes_on_disk <= _SMALL


def _read(base: Base) -> dict[str, Any] | None:
    """What was written down, if it is ours and whole."""
    try:
        told: Any = base.notes.note(NAME)
        if told["format"] != _FORMAT or told["grounds"].keys() != told["types"].keys():
            return None
        counts = [Count(**one) for one in told["types"].values()]
        sound = all(type(number) is int for count in counts for number in (count.chunks, count.pending))
        known = told["team"]["state"] in ("absent", "stale", "current", None) and "ground" in told["team"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return told if sound and known and isinstance(told["caches"], dict) else None


def _grounds(base: Base) -> dict[str, str]:
    """By type what its entries depend on, as one digest."""
    return {kind.name: _ground(base, kind) for kind in indexed(base)}


def _ground(base: Base, kind: RecordType) -> str:
    shape: Sequence[object] = (
        kind.identity_fields,
        base.cut_by(kind),
        str(base.wiring.tokenizer.fingerprint),
        str(base.fingerprint(kind)),
        base.wiring.lenient,
    )
    parts = "\n".join(f"{part.digest} {part.path}" for part in base.tree.parts_of(kind))
    return sha256(f"{shape!r}\n{parts}".encode("utf-8", "surrogatepass")).hexdigest()


def _team_ground(grounds: Mapping[str, str], caches: Mapping[str, Any]) -> str:
    return sha256(json.dumps([grounds, caches["team"]]).encode()).hexdigest()
