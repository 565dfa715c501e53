"""Fuzzing of stored truth: one part with damaged bytes, and every command that reads or writes it.

By the book a line is a record or it is not. What is not must be named with its place and stops every write; what is must
survive every write, whatever else stands in the file.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import duckkb
from duckkb.app.knowledge import KnowledgeBase
from duckkb.storage.line import Limits
from tests.harness import oracle
from tests.harness.fuzz.book import canonical_line, judged, same
from tests.harness.fuzz.cli import Command, Ended, make_notes, run_here
from tests.harness.fuzz.codec import TOKENS
from tests.harness.fuzz.mutate import Mutator

IDENTITY = ("id",)
_LINE_TOKENS = (
    b"\n", b"\n\n", b"\r\n", b" \n", b"<<<<<<< ours\n", b"=======\n", b">>>>>>> theirs\n", b"||||||| base\n", b"\xef\xbb\xbf",
    b'{"id":"n3"}\n', b'{"id":"by hand","title":"x"}\n', b'{"id":5}\n', b'"unknown":[1.0,{"b":1,"a":2}],', b'"size":"five",',
)  # fmt: skip


class PartTarget:
    """The part of the notes in a base of its own, mended after each input."""

    name = "parts"
    modules = (
        "duckkb/storage/part.py",
        "duckkb/storage/read.py",
        "duckkb/storage/render.py",
        "duckkb/storage/record_table.py",
        "duckkb/storage/tree.py",
    )

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a" / "b" / "c" / "d" / "kb"
        make_notes(self.root)
        self.part = next((self.root / "data/nodes/note").rglob("*.jsonl"))
        self.good = self.part.read_bytes()
        self.written = 0

    def inputs(self, chance: Random) -> Iterator[bytes]:
        mutator = Mutator(chance, (*TOKENS, *_LINE_TOKENS, *_LINE_TOKENS))
        while True:
            lines = self.good.splitlines(keepends=True)
            chosen = [chance.choice(lines) for _ in range(2)] if chance.random() < 0.2 else []
            yield mutator.mutate(b"".join([*lines, *chosen]), self.good)

    def check(self, value: bytes) -> bool:
        self._check_open_base(value)
        self.part.write_bytes(value)
        whole = oracle.tree(self.root)
        records, refused = by_the_book(value)
        self._check_reading(value, records, refused)
        assert oracle.tree(self.root) == whole
        self._check_writing(value, records, refused, whole)
        self._mend()
        return bool(records)

    def _run(self, *args: str) -> Ended:
        ended = run_here(self.root, Command(args))
        assert ended.code in (0, 1, 2) and "E_INTERNAL" not in ended.err and "Traceback" not in ended.err, (args, ended)
        return ended

    def _check_reading(self, value: bytes, records: list[dict[str, Any]], refused: list[int]) -> None:
        path = self.part.relative_to(self.root).as_posix()
        checked = self._run("check", "--format", "json")
        findings = json.loads(checked.out)["findings"]
        named = {one.get("line", 0) for one in findings if one.get("path") == path}
        assert set(refused) <= named and max(named, default=0) <= value.count(b"\n") + 1, (refused, findings)
        listed = self._run("list", "Note", "-l", "1000")
        if refused:
            assert listed.code == 1 and f"{path}:{refused[0]}" in listed.err, (refused, listed)
            listed = self._run("list", "Note", "-l", "1000", "--lenient")
        assert listed.code == 0, listed
        shown = {_name(json.loads(line)) for line in listed.out.split("\n")[:-1]}
        assert shown == {_name(record) for record in records}, (shown, records)

    def _check_open_base(self, value: bytes) -> None:
        """A base that is open while its part is damaged, and mended, has the records of the book each time."""
        with duckkb.open(self.root, lenient=True) as kb:
            for number, data in enumerate((self.good, value, self.good)):
                self.part.write_bytes(data)
                os.utime(self.part, ns=(number, number))  # an edit within one tick of the clock is another matter
                names = {_name(record) for record in by_the_book(data)[0]}
                assert kb.run("count", {"type": "Note"})["count"] == len(names)
                assert _names_in_pages(kb) == names
                for name in sorted(names)[:2]:
                    note = {"type": "Note", "identity": json.loads(name)}
                    assert _name(kb.run("get", note)) == name
                    around = kb.run("neighbors", {**note, "label": "cites", "direction": "out"})["records"]
                    assert len(around) == sum(_name(record) in names for record in around)

    def _check_writing(
        self, value: bytes, records: list[dict[str, Any]], refused: list[int], whole: dict[str, bytes]
    ) -> None:
        for args in (("put", "Note", '{"id":"n2","size":77}', "--merge"), ("fmt",), ("dedupe", "--reassign")):
            ended = self._run(*args)
            if refused:
                assert ended.code == 1 and oracle.tree(self.root) == whole, (args, ended)
                continue
            assert ended.code == 0 or args[0] == "put", (args, ended)
            self._check_kept(records, args[0])
            if args[0] != "put":
                _check_canonical(self.part.read_bytes() if self.part.exists() else b"")
        if not refused:
            self.written += 1
            assert self._run("fmt", "--check").code == 0 and not oracle.leftovers(self.root)
            oracle.records(self.root)

    def _check_kept(self, records: list[dict[str, Any]], verb: str) -> None:
        """Every record but the one put is there as it was, of doubles each line, until `dedupe` has made them one."""
        now, refused = by_the_book(self.part.read_bytes() if self.part.exists() else b"")
        assert not refused, refused
        names = Counter(map(_name, records))
        for record in records:
            if record["id"] != "n2" and (verb != "dedupe" or names[_name(record)] == 1):
                fields = {name: value for name, value in record.items() if not name.startswith("__")}
                alike = [one for one in now if all(name in one and same(one[name], fields[name]) for name in fields)]
                assert alike, (record, now)
        assert {_name(one) for one in now} | {'"n2"'} == names.keys() | {'"n2"'}, (records, now)

    def _mend(self) -> None:
        for path in (self.root / "data/nodes/note").rglob("*.jsonl"):
            path.unlink()
        self.part.parent.mkdir(parents=True, exist_ok=True)
        self.part.write_bytes(self.good)
        shutil.rmtree(self.root / ".duckkb", ignore_errors=True)


def _names_in_pages(kb: KnowledgeBase) -> set[str]:
    """The names of all notes, read a few at a time in the order of their identities."""
    names: set[str] = set()
    after: dict[str, Any] = {}
    while True:
        page = kb.run("list", {"type": "Note", "limit": 4, **after})
        page_names = {_name(record) for record in page["records"]}
        assert not names & page_names, "a record comes on one page"
        names |= page_names
        if page["next"] is None:
            return names
        after = {"after": page["next"]}


def by_the_book(data: bytes) -> tuple[list[dict[str, Any]], list[int]]:
    """The records of a part, and the numbers of the lines that are none. What stands in a conflict counts as neither."""
    if data.startswith(b"version https://git-lfs"):
        return [], [1]
    records: list[dict[str, Any]] = []
    refused: list[int] = []
    in_conflict = False
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip(b" \t"):
            continue
        record = judged(line, IDENTITY, Limits()).record
        if line.startswith((b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")) and line[7:8] in (b"", b" ", b"\r"):
            in_conflict = not line.startswith(b">")
        if record is None:
            refused.append(number)
        elif not in_conflict:
            records.append(record)
    return records, refused


def _name(record: dict[str, Any]) -> str:
    return json.dumps(record["id"])


def _check_canonical(data: bytes) -> None:
    for line in data.split(b"\n")[:-1]:
        record = judged(line, IDENTITY, Limits()).record
        assert record is not None and canonical_line(record, IDENTITY) == line, line
        assert {"__id", "__created_at", "__updated_at"} <= record.keys(), line
