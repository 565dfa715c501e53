"""The judge of a campaign of faults: after whatever happened, exactly old or exactly new, and nothing left over."""

import os
import re
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from tests.harness import oracle
from tests.harness.faults.bases import Ground, Write
from tests.harness.faults.run import Ended, Files, Zygote, left_over, name_of, taken, truth

_DAY = re.compile(r"/\d{8}/")
_TIME = re.compile(rb'("__(?:created|updated)_at":)"[^"]*"')
READERS = (
    ("list", "Note"),
    ("recover",),
    ("find", "Note", "alpha"),
    ("status",),
    ("get", "Note", "b"),
    ("export", "Note"),
    ("check",),
)


@dataclass(frozen=True)
class End:
    """One of the two ends that a write may come to: the bytes of the truth, and what `check` says of them."""

    truth: dict[str, bytes]
    check: tuple[int, str]


@dataclass
class Judge:
    """Holds states against the two ends of one write, which a run without a fault has shown. `masked`: but for the times
    of records and the day of new parts, where the clock does not stand still. `job`: how the second run is started."""

    zygote: Zygote
    write: Write
    files: Files
    old: End
    new: End
    after: Files
    calls: list[list[str]]
    masked: bool = False
    verdicts: dict[str, str] = field(default_factory=dict)
    job: dict[str, str] = field(default_factory=dict)
    _readers: "cycle[tuple[str, ...]]" = field(default_factory=lambda: cycle(READERS))

    def verdict(self, files: Files) -> str:
        """ "old" or "new", for a state that a fault left; AssertionError for anything else. Each state is judged once."""
        name = name_of(files)
        if name not in self.verdicts:
            self.verdicts[name] = self._judged(files)
        return self.verdicts[name]

    def glance(self, files: Files) -> str:
        """As `verdict`, by `check` and the files alone, without the second run: for states by the hundred."""
        name = name_of(files)
        if name not in self.verdicts:
            with self.zygote.case(files) as folder:
                check = checked(self.zygote, folder)
                side = self.side(taken(folder))
                assert check == (self.old if side == "old" else self.new).check, (side, check)
                _assert_nothing_left(folder)
            self.verdicts[name] = side
        return self.verdicts[name]

    def side(self, files: Files) -> str:
        """ "old" or "new" by the bytes alone."""
        now, old, new = truth(files), self.old.truth, self.new.truth
        if self.masked:
            now, old, new = masked(now, old), masked(old, old), masked(new, old)
        if self.write.base == "empty" and "config.yaml" not in now:  # no base yet: the next init begins anew
            now = {path: data for path, data in now.items() if self.new.truth.get(path) != data and ".new" not in path}
        assert now in (old, new), difference(now, old, new)
        return "old" if now == old else "new"

    def _judged(self, files: Files) -> str:
        with self.zygote.case(files) as folder:
            read = self.zygote.run(folder, ["--json", *next(self._readers)], role=5)
            assert read.code == 0 or read.out or read.error["code"].startswith("E_"), read
            check = checked(self.zygote, folder)
            now = taken(folder)
            side = self.side(now)
            assert check == (self.old if side == "old" else self.new).check, (side, check)
            _assert_nothing_left(folder)
            if side == "new" or self.write.base not in ("rough", "doubled"):
                oracle.records(folder / "kb")
            age_drafts(folder)
            again = self.write.run(self.zygote, folder, role=6, **self.job)
            assert again.code == (0 if side == "old" else self.write.again), again
            assert self.side(taken(folder)) == "new"
            assert not left_over(folder), f"left over after the second run: {left_over(folder)}"
        return side


_KNOWN: dict[str, Judge] = {}


def judge_of(ground: Ground, zygote: Zygote, write: Write) -> Judge:
    """The judge of a write, one for a test process: what it has judged once it knows."""
    if write.name not in _KNOWN:
        _KNOWN[write.name] = _judge_of(ground, zygote, write)
    return _KNOWN[write.name]


def _judge_of(ground: Ground, zygote: Zygote, write: Write) -> Judge:
    """Run the write without a fault, and hold that against what is expected of every write."""
    files = ground.base(write.base)
    with zygote.case(files) as folder:
        old = End(truth(files), checked(zygote, folder))
        before = taken(folder)
    with zygote.case(files) as folder:
        done: Ended = write.run(zygote, folder, plan={}, role=1)
        assert done.code == 0, done
        assert left_over(folder) == []
        after = taken(folder)
        new = End(truth(after), checked(zygote, folder))
    assert old.truth == truth(before) != new.truth
    assert new.check[0] == 0
    return Judge(zygote, write, files, old, new, after, done.calls)


def masked(files: dict[str, bytes], old: dict[str, bytes]) -> dict[str, bytes]:
    """Without times, and without the day of parts that were not there before."""
    return {
        path if path in old else _DAY.sub("/DAY/", path): _TIME.sub(rb"\1", data) if path.endswith(".jsonl") else data
        for path, data in files.items()
    }


def _is_draft(path: str) -> bool:
    """What a reader lets be and the next write clears away: drafts of derived state, and of an init that died."""
    return ".tmp" in path or path == "data/.FORMAT.json.new"


def _assert_nothing_left(folder: Path) -> None:
    left = [path for path in left_over(folder) if not _is_draft(path)]
    assert not left, f"left over: {left}"


def age_drafts(folder: Path) -> None:
    """Drafts of the cache are let be while their writer may still be at work."""
    for path in folder.rglob(".tmp-*"):
        os.utime(path, (0, 0))


def checked(zygote: Zygote, folder: Path) -> tuple[int, str]:
    """What `check` says, but for the local cache: nobody makes that durable, and torn it is a warning and a miss."""
    done = zygote.run(folder, ["check"], role=5)
    lines = done.out.splitlines(keepends=True)
    return done.code, "".join(line for line in lines if not line.startswith(".duckkb/cache/"))


def difference(now: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> str:
    """Which files are old, new, or neither: what a failure says."""
    said = []
    for path in sorted({*now, *old, *new}):
        have, was, will = now.get(path), old.get(path), new.get(path)
        if was != will or have != was:
            standing = "old" if have == was else "new" if have == will else f"third {have!r}"
            said.append(f"{path}: {standing}")
    return "neither old nor new:\n" + "\n".join(said)
