"""Random histories of a base in a real git repository: two branches that edit, merge, cross, pick and rebase."""

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import NOTES, Ran, git, make_base, run_in
from tests.harness.merges import oracle
from tests.harness.merges.oracle import Commits, Expected, Rec, State, text

NAMES = ["a", "b", "c", "d", "e", "f", "g", "中", "国", "z"]
CONFIG = NOTES.replace("size: {type: integer}", "size: {type: integer, x-merge: max}").replace(
    "text: {type: string}", "text: {type: string, x-merge: latest}"
)
DAYS = ["20260101", "20260102", "20260103"]
BRANCHES = ("one", "two")


class World:
    """One history. `chance` decides everything; `figures` counts what came up."""

    def __init__(self, root: Path, chance: random.Random, figures: "Counter[str]") -> None:
        self.root, self.chance, self.figures = make_base(root, CONFIG), chance, figures
        self.commits = Commits(root)
        self.salt = str(chance.random())
        self._ticks = 0
        self._settings: dict[bool, bytes] = {}
        (root / "data").mkdir()
        (root / "data/FORMAT.json").write_text('{"format":1}\n', "utf-8")
        (root / ".gitignore").write_text(".duckkb/\n", "utf-8")
        state: State = {}
        for name in NAMES[: chance.randint(3, 6)]:
            self._add(state, "note", {"id": name, "title": "t", "text": "x", "tags": ["p", "q"]}, chance.choice("01"))
        for _ in range(2):
            self._edit(state, "0")
        self.commit(state, "base")
        for branch in BRANCHES:
            git(root, "branch", branch)

    # what is done on a branch

    def grow(self, branch: str) -> None:
        """Some edits on a branch, in one commit."""
        git(self.root, "checkout", "-q", branch)
        state = dict(self.commits.of(self.head()))
        part = self.chance.choice(["0", "0", str(1 + BRANCHES.index(branch))])
        for _ in range(self.chance.randint(1, 4)):
            self._edit(state, part)
        self.commit(state, f"on {branch}")

    def commit(self, state: State, message: str) -> None:
        parts = oracle.files(state)
        for path in self.parts():
            if path not in parts:
                (self.root / path).unlink()
        for path, data in parts.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(data)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", message)

    def _edit(self, state: State, part: str) -> None:
        chance = self.chance
        ops = [
            "add",
            "add",
            "edit",
            "edit",
            "edit",
            "edit",
            "tags",
            "delete",
            "rename",
            "edge",
            "edge",
            "forget",
            "move",
        ]
        op = chance.choice(ops)
        self.figures[f"{op} on a branch"] += 1
        notes = [key for key in state if key[0] == "note"]
        if op == "add" or not notes:
            name = chance.choice(NAMES)
            if all(state[key].get("id") != name for key in notes):
                self._add(state, "note", {"id": name, "title": chance.choice("uvw"), "tags": ["p"]}, part)
        elif op == "edge":
            ends = [state[chance.choice(notes)].get("id") for _ in range(2)]
            if all([rec.get("from"), rec.get("to")] != ends for (table, _), rec in state.items() if table == "cites"):
                self._add(state, "cites", {"from": ends[0], "to": ends[1], "why": "y"}, part)
        elif op == "move":
            self._move(state, chance.choice(DAYS))
        else:
            known = sorted(state if op != "rename" else notes)
            self._change(state, op, chance.choice(known[:2] if chance.random() < 0.4 else known))

    def _change(self, state: State, op: str, key: oracle.Key) -> None:
        chance, rec = self.chance, state[key]
        if op == "delete":
            del state[key]
            name = rec.get("id")
            if key[0] == "note" and chance.random() < 0.7:  # else its edges dangle, as where two branches did it
                for other in [k for k, r in state.items() if k[0] == "cites" and name in (r.get("from"), r.get("to"))]:
                    del state[other]
            return
        changed: dict[str, Any] = {}
        if op == "rename":
            new = chance.choice([*NAMES, "new"])
            if any(one.get("id") == new for (table, _), one in state.items() if table == "note"):
                return
            self._carry(state, rec.get("id"), new)
            changed = {"id": new}
        elif op == "tags" and key[0] == "note":
            changed = {"tags": sorted({*(rec.get("tags") or []), chance.choice("pqrs")} - {chance.choice("pqrs")})}
        elif op == "forget":
            changed = {chance.choice(["title", "text", "size", "why"]): None}
        elif key[0] == "note":
            name = chance.choice(["title", "text", "size", "note 注"])
            changed = {name: chance.randint(1, 9) if name == "size" else chance.choice(["x", "yy", "中文", "日本"])}
        else:
            changed = {"why": chance.choice(["y", "yy", "z"])}
        state[key] = self._updated(state[key], changed)

    def _carry(self, state: State, old: str, new: str) -> None:
        for key, rec in list(state.items()):
            if key[0] == "cites" and old in (rec.get("from"), rec.get("to")):
                ends = {name: new for name in ("from", "to") if rec.get(name) == old}
                state[key] = self._updated(rec, ends)

    def _move(self, state: State, day: str) -> None:
        """As compacting does it: all of a table and day into one part."""
        paths = sorted({rec.path for key, rec in state.items() if key[0] == "note" and f"/{day}/" in rec.path})
        for key, rec in list(state.items()):
            if rec.path in paths[1:]:
                state[key] = Rec(rec.fields, paths[0])

    def _add(self, state: State, table: str, values: dict[str, Any], part: str) -> None:
        number = oracle.new_id(
            table, [values[n] for n in oracle.IDENTITY[table]], (k[1] for k in state if k[0] == table)
        )
        day = self.chance.choice(DAYS)
        time = f"{day[:4]}-{day[4:6]}-{day[6:]}T{self._clock()}Z"
        told = {"__id": number, **values, "__created_at": time, "__updated_at": time}
        path = f"data/{oracle.FOLDERS[table]}/{table}/{day}/part_00{part}.jsonl"
        state[table, number] = Rec(tuple(sorted((name, text(value)) for name, value in told.items())), path)

    def _updated(self, rec: Rec, changed: dict[str, Any]) -> Rec:
        values = rec.values
        for name, value in changed.items():
            values.pop(name, None)
            if value is not None:
                values[name] = text(value)
        if values != rec.values:
            values["__updated_at"] = text(f"2026-02-01T{self._clock()}Z")
        return Rec(tuple(sorted(values.items())), rec.path)

    def _clock(self) -> str:
        self._ticks += 1
        return f"{self._ticks // 3600:02d}:{self._ticks // 60 % 60:02d}:{self._ticks % 60:02d}.000001"

    # how it is looked at

    def head(self, name: str = "HEAD") -> str:
        return git(self.root, "rev-parse", name).strip()

    def parts(self) -> dict[str, bytes]:
        found = sorted((self.root / "data").rglob("part_*.jsonl"))
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in found}

    def choose(self, name: str) -> str:
        """The side that is taken of a conflict: by its name, the same in every way of merging."""
        return ("ours", "theirs")[hashlib.sha256(f"{self.salt}{name}".encode()).digest()[0] % 2]

    def duckkb(self, *args: str) -> Ran:
        return run_in(self.root, args)

    def settle(self, expected: Expected) -> None:
        """Name what is open, choose, and leave nothing open."""
        args = ["resolve", "--stage"]
        if expected.torn:
            listed = self.duckkb("resolve", "--list", "--format", "jsonl")
            assert {line["name"] for line in listed.lines} == expected.names(), (listed.err, expected.names())
            assert listed.code == 1
            for line in listed.lines:
                name = ":".join(filter(None, (line["type"], _named(line["identity"]), line["field"])))
                args += [f"--{self.choose(line['name'])}", name]
        done = self.duckkb(*args, "--json")
        told = json.loads(done.out)
        assert told["conflicts"] == [] and told["unstaged"] == [] and told["rescued"] == [], told
        assert git(self.root, "ls-files", "-u") == ""

    def use_driver(self, wanted: bool) -> None:
        """Have git merge with the driver or without, as `git install` and `git uninstall` leave its settings."""
        config, attributes = self.root / ".git/config", self.root / ".git/info/attributes"
        if not self._settings:
            without = config.read_bytes()
            assert self.duckkb("git", "install").code == 0
            git(self.root, "checkout", "-q", "--", ".gitattributes")
            self._settings = {False: without, True: config.read_bytes()}
        config.write_bytes(self._settings[wanted])
        attributes.write_text("data/**/*.jsonl merge=duckkb diff=duckkb\n" if wanted else "", "utf-8")

    def is_as(self, state: State) -> bool:
        return self.parts() == oracle.files(state)

    def must_be(self, state: State, way: str) -> None:
        assert self.parts() == oracle.files(state), way
        assert git(self.root, "status", "--porcelain", "--", "data") == "" or way == "before the commit"

    def has_finding(self) -> bool:
        return bool(self.duckkb("check").out)


def _named(identity: object) -> str:
    """An identity as a selector has it: of an edge a list in JSON."""
    return identity if isinstance(identity, str) else json.dumps(identity, ensure_ascii=False, separators=(",", ":"))
