"""What a merge of records must give, in the words of dictionaries. Shares no code with the merge that it judges.

A state is what one commit holds: `{(table, id): Rec}`. Values are compared as values, lines are written by `json`.
"""

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Key = tuple[str, int]
IDENTITY = {"note": ("id",), "cites": ("from", "to")}
TYPES = {"note": "Note", "cites": "cites"}
FOLDERS = {"note": "nodes", "cites": "edges"}
SETS = {"tags"}
GREATEST = {"size"}
LATEST = {"text"}


@dataclass(frozen=True)
class Rec:
    """One record: its fields with id and times, as a tuple of names and JSON texts, and its part."""

    fields: tuple[tuple[str, str], ...]
    path: str

    @property
    def values(self) -> dict[str, str]:
        return dict(self.fields)

    def get(self, name: str) -> Any:
        text = self.values.get(name)
        return None if text is None else json.loads(text)


State = dict[Key, Rec]


@dataclass(frozen=True)
class Expected:
    """The clean part of a merge, and for each record in conflict its names of fields (empty: the record as a whole), and
    what it is on either side where a side is taken."""

    clean: State
    torn: dict[Key, tuple[frozenset[str], Rec | None, Rec | None, str]]

    def names(self) -> set[str]:
        return {name for names in self.by_record().values() for name in names}

    def by_record(self) -> dict[Key, dict[str, str]]:
        """The names that `resolve` prints, with the field of each."""
        found = {}
        for key, (fields, ours, theirs, _) in self.torn.items():
            rec = ours or theirs
            assert rec is not None
            head = f"{TYPES[key[0]]}:{named(key[0], rec)}"
            found[key] = {f"{head} {field}".rstrip(): field for field in fields}
        return found

    def settled(self, choose: Callable[[str], str]) -> State:
        """The state once each conflict is settled as `choose` (ours or theirs by name) says."""
        state = dict(self.clean)
        for key, names in self.by_record().items():
            _, ours, theirs, path = self.torn[key]
            rec = ours or theirs
            assert rec is not None
            fields: dict[str, str] | None = rec.values
            for name, field in names.items():
                side = ours if choose(name) == "ours" else theirs
                if not field:
                    fields = side.values if side else None
                elif fields is not None and side is not None:
                    fields.pop(field, None)
                    if field in side.values:
                        fields[field] = side.values[field]
            if fields is not None:
                state[key] = Rec(tuple(sorted(fields.items())), path)
        return state


def text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def named(table: str, rec: Rec) -> str:
    """The identity as the command line writes it."""
    values = [rec.get(name) for name in IDENTITY[table]]
    return values[0] if len(values) == 1 else text(values)


def new_id(table: str, identity: list[Any], taken: Iterable[int]) -> int:
    kind = {"note": "node", "cites": "edge"}[table]
    held, salt = set(taken), 0
    while True:
        told = text(["duckkb/1", kind, table, identity, salt])
        number = int.from_bytes(hashlib.sha256(told.encode()).digest()[:8], "big") >> 11
        if number and number not in held:
            return number
        salt += 1


def files(state: State) -> dict[str, bytes]:
    """The parts of a state: lines by identity, then id."""
    parts: dict[str, list[tuple[Any, bytes]]] = {}
    for (table, number), rec in state.items():
        order = (*(rec.get(name) for name in IDENTITY[table]), number)
        parts.setdefault(rec.path, []).append((order, _line(table, rec)))
    return {path: b"".join(line + b"\n" for _, line in sorted(lines)) for path, lines in sorted(parts.items())}


def _line(table: str, rec: Rec) -> bytes:
    head, tail = ("__id", *IDENTITY[table]), ("__created_at", "__updated_at")
    names = [*head, *sorted(set(rec.values) - {*head, *tail}), *tail]
    return ("{" + ",".join(f'"{name}":{rec.values[name]}' for name in names) + "}").encode()


def parse(parts: dict[str, bytes]) -> State:
    """A state out of the bytes of parts. A record that stands twice is an error."""
    state: State = {}
    for path, data in parts.items():
        for line in data.decode().split("\n"):
            if line:
                values = json.loads(line)
                key = (path.split("/")[2], values["__id"])
                assert key not in state, f"{key} stands twice"
                state[key] = Rec(tuple(sorted((name, text(value)) for name, value in values.items())), path)
    return state


def merge(base: State, ours: State, theirs: State) -> Expected:
    clean: State = {}
    torn = {}
    for key in {**base, **ours, **theirs}:
        b, o, t = base.get(key), ours.get(key), theirs.get(key)
        fields, sides = _content(b and b.fields, o and o.fields, t and t.fields)
        path = _path(b, o, t)
        if sides is not None:
            mine, other = (None if side is None else Rec(tuple(sorted(side.items())), path) for side in sides)
            torn[key] = (frozenset(fields or {""}), mine, other, path)
        elif fields is not None:
            clean[key] = Rec(tuple(sorted(fields.items())), path)
    return Expected(clean, torn)


def as_base(base: State, ours: State, theirs: State) -> State:
    """The merge of two merge bases: what conflicts stays as it was in their own base."""
    expected = merge(base, ours, theirs)
    state = dict(expected.clean)
    for key, (fields, mine, _, path) in expected.torn.items():
        old = base[key].values if key in base else {}
        if "" in fields:
            if key in base:
                state[key] = Rec(base[key].fields, path)
            continue
        assert mine is not None
        kept = {name: value for name, value in mine.values.items() if name not in fields}
        kept |= {name: old[name] for name in fields if name in old}
        state[key] = Rec(tuple(sorted(kept.items())), path)
    return state


_Fields = tuple[tuple[str, str], ...] | None


def _content(base: _Fields, ours: _Fields, theirs: _Fields) -> Any:
    """(the fields or None, None), or (the names in conflict, (ours, theirs))."""
    if ours == theirs or theirs == base:
        return (None if ours is None else dict(ours)), None
    if ours == base:
        return (None if theirs is None else dict(theirs)), None
    if ours is None or theirs is None:
        return None, (None if ours is None else dict(ours), None if theirs is None else dict(theirs))
    b, o, t = dict(base or ()), dict(ours), dict(theirs)
    clean, torn = {}, set()
    for name in {**b, **o, **t}:
        was, mine, other = b.get(name), o.get(name), t.get(name)
        if mine == other or other == was:
            value = mine
        elif mine == was:
            value = other
        elif name in LATEST and o["__updated_at"] != t["__updated_at"]:
            value = mine if o["__updated_at"] > t["__updated_at"] else other
        elif mine is None or other is None:
            torn.add(name)
            continue
        elif name in GREATEST:
            value = str(max(int(mine), int(other)))
        elif name == "__updated_at":
            value = max(mine, other)
        elif name == "__created_at":
            value = min(mine, other)
        elif name in SETS:
            value = _set(json.loads(was or "[]"), json.loads(mine), json.loads(other))
        else:
            torn.add(name)
            continue
        if value is not None:
            clean[name] = value
    if not torn:
        return clean, None
    return torn, tuple(clean | {name: side[name] for name in torn if name in side} for side in (o, t))


def _set(was: list[Any], mine: list[Any], other: list[Any]) -> str:
    kept = [one for one in was if one in mine and one in other]
    added = sorted(text(one) for one in {*mine, *other} if one not in was)
    return "[" + ",".join([*map(text, kept), *added]) + "]"


def _path(base: Rec | None, ours: Rec | None, theirs: Rec | None) -> str:
    there = [side for side in (ours, theirs) if side is not None]
    if len(there) == 1:
        return there[0].path
    if not there:
        return base.path if base else ""
    mine, other = ours.path if ours else "", theirs.path if theirs else ""
    if base is not None and base.path in (mine, other):
        return other if mine == base.path else mine
    return min(mine, other)


class Commits:
    """The states of a repository's commits, and the base of two of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.of = cache(self._of)

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(["git", "-C", str(self._root), *args], input=stdin, capture_output=True, check=True)
        return done.stdout

    def parts(self, tree: str) -> dict[str, bytes]:
        listed = [line.split(b"\t") for line in self.git("ls-tree", "-r", "-z", tree, "data/").split(b"\0") if line]
        named = {name.decode(): head.split(b" ")[2] for head, name in listed if name.endswith(b".jsonl")}
        told = self.git("cat-file", "--batch", stdin=b"".join(blob + b"\n" for blob in named.values()))
        found = {}
        for path in named:
            head, _, rest = told.partition(b"\n")
            size = int(head.split(b" ")[2])
            found[path], told = rest[:size], rest[size + 1 :]
        return found

    def _of(self, commit: str) -> State:
        return parse(self.parts(commit))

    def base(self, one: str, *others: str) -> State:
        done = subprocess.run(
            ["git", "-C", str(self._root), "merge-base", "--all", one, *others], capture_output=True, check=False
        )
        bases = done.stdout.decode().split()[::-1]
        if not bases:
            return {}
        state = self.of(bases[0])
        for number in range(1, len(bases)):
            older = self.base(bases[number], *bases[:number])
            state = as_base(older, state, self.of(bases[number]))
        return state
