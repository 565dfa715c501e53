"""The writes that are made to die and to fail: a base each, the command, and what a second run of it may end with."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import NOTES, commit, git
from tests.harness.faults.run import MOMENT, Ended, Files, Zygote, taken

WRITER = {"DUCKKB_WRITER": "campaign"}
NEXT_DAY = "2026-03-02T00:00:00.000000Z"


@dataclass(frozen=True)
class Write:
    """One writing command over one base. `again`: the exit code of the same command on the state that it made."""

    name: str
    base: str
    args: tuple[str, ...]
    stdin: str = ""
    again: int = 0
    env: tuple[tuple[str, str], ...] = ()

    def run(self, zygote: Zygote, folder: Path, **job: Any) -> Ended:
        return zygote.run(folder, self.args, stdin=self.stdin, env=dict(self.env), **job)


def lines(*records: object) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def note(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "title": f"笔记 {name}", "text": "alpha beta 内存数据库 " * 8, "tags": ["x", "y"], **more}


class Ground:
    """Makes the bases, each once."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._bases: dict[str, Files] = {}

    def base(self, name: str) -> Files:
        if name not in self._bases:
            make: Callable[[], Files] = getattr(self, f"_{name}")
            self._bases[name] = make()
        return self._bases[name]

    def _empty(self) -> Files:
        """A folder and nothing in it."""
        return {"kb": (0o755, None), "state": (0o755, None)}

    def _fresh(self) -> Files:
        """A configuration in a git repository, not one record yet."""
        with self._zygote.case(self._empty()) as folder:
            root = folder / "kb"
            (root / "config.yaml").write_text(NOTES, "utf-8")
            (root / ".gitattributes").write_text("data/**/*.jsonl text eol=lf\n", "utf-8")
            git(root, "init", "-q", "-b", "main", "--template=")
            commit(root)
            return taken(folder)

    def _full(self) -> Files:
        """Notes, people and three kinds of edges in parts of two days."""
        with self._zygote.case(self.base("fresh")) as folder:
            notes = [note(name) for name in "abcdef"]
            self._take(folder, "Note", notes, "2026-01-01T08:00:00.000000Z")
            people = [{"country": "CHE", "number": number, "name": f"Öz {number}"} for number in (1, 2, 3)]
            self._take(folder, "Person", people, MOMENT)
            self._take(folder, "Note", [note("g"), note("h", status="draft")], MOMENT)
            self._take(folder, "cites", [{"from": "a", "to": "b", "why": "y"}, {"from": "c", "to": "a"}], MOMENT)
            self._take(folder, "cites", [{"from": "d", "to": "e"}], NEXT_DAY)
            self._take(folder, "wrote", [{"from": ["CHE", 1], "to": "a"}], MOMENT)
            self._take(folder, "about", [{"from": "a", "to": {"type": "Note", "id": "h"}}], MOMENT)
            commit(folder / "kb")
            return taken(folder)

    def _collected(self) -> Files:
        """As `full`, with a collection of records in two days."""
        with self._zygote.case(self.base("full")) as folder:
            assert self._zygote.run(folder, ["col", "init", "bits", "--policy", "simple-kv"]).code == 0
            self._take(folder, "bits", [{"key": f"k{at}", "value": at} for at in range(5)], MOMENT)
            self._take(folder, "bits", [{"key": "键", "value": {"a": [1]}}], NEXT_DAY)
            commit(folder / "kb")
            return taken(folder)

    def _packed(self) -> Files:
        """As `full`, with the snapshot of a collection that is no more."""
        with self._zygote.case(self.base("collected")) as folder:
            for line in (["col", "snapshot", "bits", "bits.snapshot"], ["col", "rm", "bits", "--yes"]):
                assert self._zygote.run(folder, line).code == 0
            commit(folder / "kb")
            return taken(folder)

    def _indexed(self) -> Files:
        """As `full`, with a team cache that lacks what was written since."""
        with self._zygote.case(self.base("full")) as folder:
            assert self._zygote.run(folder, ["index", "build"]).code == 0
            self._take(folder, "Note", [note("a", text="gamma 内存 delta")], NEXT_DAY)
            return taken(folder)

    def _rough(self) -> Files:
        """As `full`, with lines by hand: out of order, with spaces, without id and times."""
        files = dict(self.base("full"))
        for path, (mode, data) in list(files.items()):
            if data is not None and "/note/" in path and path.endswith(".jsonl"):
                rough = b"".join(reversed(data.replace(b'","text"', b'", "text"').splitlines(keepends=True)))
                files[path] = (mode, rough + lines({"id": f"hand {path[20:28]}", "text": "写"}).encode())
        return files

    def _doubled(self) -> Files:
        """As `full`, with two records that stand twice, as a merge of two branches leaves them."""
        files = dict(self.base("full"))
        for path, (mode, data) in list(files.items()):
            if data is not None and ("/note/20260101/" in path or "/cites/20260301/" in path):
                first, *_ = data.splitlines(keepends=True)
                other = first.replace(b'"__updated_at":"2026', b'"__updated_at":"2027').replace(b"alpha", b"omega")
                files[f"{path[: path.rindex('/')]}/part_998.jsonl"] = (mode, other)
        return files

    def _take(self, folder: Path, kind: str, records: Sequence[object], moment: str) -> None:
        done = self._zygote.run(folder, ["put", kind, "-"], stdin=lines(*records), moment=moment, env=WRITER)
        assert done.code == 0, done.err


_SEVERAL = lines(note("a", text="new 新"), note("b"), note("new 1"), note("新 2", size=3))
_EDGES = lines({"from": "a", "to": "c"}, {"from": "a", "to": "b", "why": "changed"}, {"from": "g", "to": "h"})
_PEOPLE = lines(*({"country": "FRA", "number": number, "name": "n"} for number in range(30)))
_ENV = tuple(WRITER.items())
WRITES = (
    Write("put, the first of a base", "fresh", ("put", "Note", json.dumps(note("a")))),
    Write("put, one insert", "full", ("put", "Note", json.dumps(note("z"))), env=_ENV),
    Write("put, one update", "full", ("put", "Note", json.dumps(note("a", text="neu"))), env=_ENV),
    Write("put, several", "full", ("put", "Note", "-"), _SEVERAL, env=_ENV),
    Write("delete", "full", ("delete", "Note", "g"), again=1),
    Write("delete --cascade", "full", ("delete", "Note", "a", "--cascade"), again=1),
    Write("rename", "full", ("rename", "Note", "a", "renamed 改名"), again=1),
    Write("import of edges", "full", ("import", "cites", "-"), _EDGES, env=_ENV),
    Write("import of people", "full", ("import", "Person", "-"), _PEOPLE, env=_ENV),
    Write("fmt", "rough", ("fmt",)),
    Write("dedupe", "doubled", ("dedupe",)),
    Write("index build, the first", "full", ("index", "build")),
    Write("index build, a change", "indexed", ("index", "build")),
    Write("init", "empty", ("init",), again=1),
    Write("col init", "full", ("col", "init", "bits", "--policy", "simple-kv"), again=1),
    Write("col rm", "collected", ("col", "rm", "bits", "--yes"), again=1),
    Write("col rename", "collected", ("col", "rename", "bits", "pieces"), again=1),
    Write("col restore", "packed", ("col", "restore", "bits.snapshot"), again=1),
)
NAMED = {write.name: write for write in WRITES}
