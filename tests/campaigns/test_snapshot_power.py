"""A power cut while a snapshot is written: of what no fsync has covered the disk may keep all, nothing, or zeros, file by
file. Files are told by their bytes alone here, as their times may well come back as they were.
"""

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from random import Random

import pytest

from tests.campaigns.snapshot_ground import SNAPSHOT, Place
from tests.harness.campaign import Campaign

Kept = dict[str, bytes]
LEDGERS = ("manifest.json", "meta.json")
"""What is replaced by a rename, so that it is the old or the new one."""


@pytest.fixture
def blind(place: Place) -> Iterator[Place]:
    """The base, told by bytes alone."""
    place.weak = "no facts"
    yield place
    place.weak, place.boot = "", "first"


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


def cut(place: Place, before: Kept, after: Kept, synced: set[str], choose: "dict[str, str] | Random") -> list[str]:
    """Leave what a power cut could; which files lost what. `choose`: a way by the end of a path, or chance."""
    done = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new or path.endswith("lock"):
            continue
        if isinstance(choose, Random):
            way = choose.choice(
                ("new", "old") if path.endswith(LEDGERS) else ("new", "new", "zeros", "half", "empty", "old")
            )
        else:
            way = next((way for end, way in choose.items() if path.endswith(end)), "new")
        if new is None:  # it was removed; that may not have come to the disk
            data = old if way == "old" else None
        else:
            data = new if path in synced and way != "old" else lost(old, new, way)
        if data is None:
            (place.snapshot / path).unlink(missing_ok=True)
        else:
            write(place.snapshot / path, data)
        done.append(f"{path}: {way}")
    return done


def begin(place: Place) -> tuple[Kept, Kept, set[str]]:
    """Let everything be durable, then change truth and have everything follow: files before and after, those synced."""
    place.judge("before")
    before = files(place)
    place.turn()
    done = place.run((), session="answers", plan={"under": SNAPSHOT})
    synced = {path.removeprefix(f"{SNAPSHOT}/") for kind, path in done.calls if kind == "fsync"}
    return before, files(place), synced


WAYS: list[dict[str, str]] = [
    {"manifest.json": "old"},
    {"manifest.json": "old", "meta.json": "old"},
    {"meta.json": "old"},
    {"manifest.json": "zeros"},
    {"lexical/meta.json": "empty"},
    {".arrow": "zeros"},
    {"matrix": "zeros", "dead": "zeros"},
    {".idx": "zeros", ".term": "half", ".fast": "old"},
]


@pytest.mark.parametrize("later", ["stays", "moves on", "is as before"])
def test_a_power_cut_changes_no_answer(later: str, campaign: Campaign, blind: Place) -> None:
    """`later`: what truth is once the machine runs again: what was acknowledged, what git made of it before the next
    question, or what it was before, where git had written it."""
    rng = campaign.random(later)
    ways: list[dict[str, str] | Random] = [*WAYS, *[rng] * campaign.pick(1, 150)]
    chosen = ways if campaign.full else [ways[0], *rng.sample(ways[1:], 1)]
    for number, choose in enumerate(chosen):
        before, after, synced = begin(blind)
        said = cut(blind, before, after, synced, choose)
        blind.boot = f"{later} {number}"
        if later == "moves on":
            blind.turn()
        elif later == "is as before":
            blind.turn((blind.state - 1) % 3)
        blind.judge((later, choose, said))
        campaign.count("power cuts while a snapshot is written")
