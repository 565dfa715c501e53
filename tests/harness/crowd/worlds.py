"""Two open bases, editors and git on one folder, with what must be in its files in plain Python."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import duckkb
from duckkb.types.errors import Conflict
from tests.conftest import commit, git
from tests.harness import oracle


def status(path: Path) -> os.stat_result:
    return path.stat()


def put_times_back(path: Path, before: os.stat_result) -> None:
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def in_place(path: Path, data: bytes) -> None:
    """The same inode, written over."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def by_renaming(path: Path, data: bytes) -> None:
    beside = path.with_name("edited")
    beside.write_bytes(data)
    beside.replace(path)


def anew(path: Path, data: bytes) -> None:
    """Removed and made again: file systems often give the same inode number."""
    path.unlink()
    path.write_bytes(data)


class World:
    """Two open bases and the outside, with what must be in the files in plain Python."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng, self.step = root, rng, 0
        self.texts: dict[str, str | None] = {}
        self.saved: list[dict[str, str | None]] = []
        self.branches: dict[str, dict[str, str | None]] = {}
        self.branch = "main"
        self.bases = [duckkb.open(root), duckkb.open(root)]
        self._put(self.bases[0], "first", "x")
        self.commit()

    def turn(self) -> str:
        """One random thing; its name."""
        self.step += 1
        actions: list[Callable[[], None]] = [self.write, self.write, self.write, self.read, self.delete, self.edit]
        actions += [self.edit, self.hand, self.commit, self.checkout, self.reset, self.remove_file, self.stale]
        action = self.rng.choice(actions)
        action()
        return action.__name__

    def _put(self, kb: duckkb.KnowledgeBase, name: str, text: str) -> None:
        kb.put("Note", {"id": name, "text": text})
        self.texts[name] = text

    def _name(self) -> str:
        return self.rng.choice([*self.texts, f"n{self.step}", f"n{self.step}"])

    def _base(self) -> duckkb.KnowledgeBase:
        return self.rng.choice(self.bases)

    def write(self) -> None:
        self._put(self._base(), self._name(), self._text())

    def _text(self) -> str:
        return self.rng.choice("abcdefgh") * self.rng.choice((3, 3, 3, 40))

    def read(self) -> None:
        kb = self._base()
        found = {row["id"]: row.get("text") for row in kb.list("Note", limit=1000)}
        assert found == self.texts, (found, self.texts)
        words = {hit.identity for hit in kb.find("Note", "aaa", mode="match", limit=1000)}
        assert words == {name for name, text in self.texts.items() if text == "aaa"}

    def delete(self) -> None:
        if len(self.texts) > 2:
            name = self.rng.choice(list(self.texts))
            self._base().delete("Note", name)
            del self.texts[name]

    def _parts(self) -> list[Path]:
        return sorted((self.root / "data" / "nodes" / "note").rglob("part_*.jsonl"))

    def edit(self) -> None:
        """A person changes a text to one of the same length, in one of the ways that editors save."""
        part = self.rng.choice(self._parts())
        lines = [json.loads(line) for line in part.read_text("utf-8").splitlines()]
        chosen = self.rng.choice(lines)
        text = self.rng.choice("qrstuv") * len(chosen.get("text") or "")
        before, data = status(part), part.read_bytes()
        old = json.dumps({"id": chosen["id"], "text": chosen.get("text")}, separators=(",", ":"))[1:-1].encode()
        assert data.count(old) == 1, (old, data)
        new = old.replace(json.dumps(chosen["text"]).encode(), json.dumps(text).encode())
        self.rng.choice([in_place, by_renaming, anew])(part, data.replace(old, new))
        if self.rng.random() < 0.5:
            put_times_back(part, before)
        self.texts[chosen["id"]] = text

    def hand(self) -> None:
        """A person adds a line without id and times, in no order."""
        part, name = self.rng.choice(self._parts()), f"hand{self.step}"
        with part.open("ab") as file:
            file.write(json.dumps({"id": name, "text": "by hand"}, separators=(",", ":")).encode() + b"\n")
        self.texts[name] = "by hand"
        if self.rng.random() < 0.5:
            self._base().fmt()

    def commit(self) -> None:
        commit(self.root)
        self.branches[self.branch] = dict(self.texts)

    def checkout(self) -> None:
        self.commit()
        name = self.rng.choice(["main", "topic", "other"])
        known = name in self.branches
        git(self.root, "checkout", "-q", *([] if known else ["-b"]), name)
        self.branch = name
        self.texts = dict(self.branches.setdefault(name, dict(self.texts)))

    def reset(self) -> None:
        git(self.root, "stash", "-q", "-u") if self.rng.random() < 0.5 else git(self.root, "reset", "-q", "--hard")
        git(self.root, "clean", "-q", "-fd", "data")
        self.texts = dict(self.branches[self.branch])

    def remove_file(self) -> None:
        parts = self._parts()
        if len(parts) > 1:
            part = self.rng.choice(parts)
            for line in part.read_text("utf-8").splitlines():
                del self.texts[json.loads(line)["id"]]
            part.unlink()

    def stale(self) -> None:
        """An etag that one base read, an edit from elsewhere, a write under that etag: always refused."""
        kb, other = self.rng.sample(self.bases, 2)
        name = self.rng.choice(list(self.texts))
        etag = kb.get("Note", name)["_etag"]
        self._put(other, name, f"{self.step} came first")
        with pytest.raises(Conflict):
            kb.put("Note", {"id": name, "text": "too late"}, if_match=etag)

    def judge(self) -> None:
        found = {}
        for part in self._parts():  # hand-written lines have no id yet, which the oracle of whole records refuses
            for line in part.read_text("utf-8").splitlines():
                record = json.loads(line)
                assert record["id"] not in found, record
                found[record["id"]] = record.get("text")
        assert found == self.texts, {
            name for name in found.keys() | self.texts if found.get(name) != self.texts.get(name)
        }
        assert oracle.leftovers(self.root) == []

    def close(self) -> None:
        for kb in self.bases:
            kb.fmt()
            assert kb.check().findings == ()
            kb.close()
        oracle.records(self.root)
