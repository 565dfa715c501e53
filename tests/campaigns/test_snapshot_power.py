"""A power cut while what is derived is written: of what no fsync has covered the disk may keep all, nothing, or zeros.

The store's log is what SQLite leaves unsynced: whatever its end becomes, the store is what it was before or after. Lanes
are files of their own, and may be later or earlier than the store.
"""

import os
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from tests.campaigns.snapshot_ground import SNAPSHOT, Place
from tests.harness.campaign import Campaign

Kept = dict[str, bytes]
LEDGERS = ("meta.json",)
"""What is replaced by a rename, so that it is the old or the new one."""
_HEADER = 32
"""Bytes of the log's header, which a log that goes on has had on the disk for long."""


def files(place: Place) -> Kept:
    found = (path for path in place.snapshot.rglob("*") if path.is_file())
    return {path.relative_to(place.snapshot).as_posix(): path.read_bytes() for path in found}


def write(path: Path, data: bytes) -> None:
    """Into the file that is there, which stays the one that it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
        file.write(data)
        file.truncate()


def lost(old: bytes | None, new: bytes, way: str) -> bytes | None:
    """What is left of a file's new content."""
    pairs = zip(old or b"", new, strict=False)
    kept = new[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
    rest = len(new) - len(kept)
    match way:
        case "zeros":
            return kept + bytes(rest)
        case "half":
            return kept + new[len(kept) : len(kept) + rest // 2]
        case "empty":
            return kept
        case "old":
            return old
    return new


def cut(place: Place, before: Kept, after: Kept, synced: set[str], rng: Random) -> list[str]:
    """Leave what a power cut could; which files lost what."""
    done = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new or path.endswith(("lock", "-shm")):
            continue
        way = rng.choice(("new", "old") if path.endswith(LEDGERS) else ("new", "new", "zeros", "half", "empty", "old"))
        if path.endswith(".sqlite"):
            way = "new"  # the log is synced before any of it comes here
        if new is None:  # it was removed; that may not have come to the disk
            data = old if way == "old" else None
        elif path.endswith("-wal"):
            at = rng.randrange(_HEADER, max(_HEADER + 1, len(new)))
            data = {"zeros": new[:at] + bytes(len(new) - at), "half": new[:at], "empty": b"", "old": old}.get(way, new)
        else:
            data = new if path in synced and way != "old" else lost(old, new, way)
        if data is None:
            (place.snapshot / path).unlink(missing_ok=True)
        else:
            write(place.snapshot / path, data)
        done.append(f"{path}: {way}")
    return done


def begin(place: Place) -> tuple[Kept, Kept, set[str]]:
    """Let everything be durable, then change truth and have everything follow: files before and after, those synced. The
    process ends without closing the store, so that its log is there."""
    place.judge("before")
    before = files(place)
    place.turn()
    done = place.run((), session="answers_and_dies", plan={"under": SNAPSHOT})
    synced = {path.removeprefix(f"{SNAPSHOT}/") for kind, path in done.calls if kind == "fsync"}
    return before, files(place), synced


@pytest.mark.parametrize("later", ["stays", "moves on", "is as before"])
def test_a_power_cut_changes_no_answer(later: str, campaign: Campaign, place: Place) -> None:
    """`later`: what truth is once the machine runs again: what was acknowledged, what git made of it before the next
    question, or what it was before, where git had written it."""
    rng = campaign.random(later)
    for _ in range(campaign.pick(3, 150)):
        before, after, synced = begin(place)
        said = cut(place, before, after, synced, rng)
        if later == "moves on":
            place.turn()
        elif later == "is as before":
            place.turn((place.state - 1) % 3)
        place.judge((later, said), may_need=True)
        campaign.count("power cuts while what is derived is written")
