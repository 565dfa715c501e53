"""Fuzzing of the command line: argument vectors and stdin, run in this process on a small real base.

After each command the files are held against what they were: a command that reads changes nothing, one that fails
changes nothing, and one that writes leaves canonical truth that differs as its receipt says.
"""

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import duckkb
from duckkb.cli.main import VERBS, run
from tests.conftest import NOTES
from tests.harness import oracle
from tests.harness.fuzz.codec import valid_line
from tests.harness.fuzz.mutate import Mutator

WRITING = {"put", "delete", "rename", "import", "fmt", "dedupe", "init", "index", "recover", "export", "repair"}
"""Verbs that may change files; the last few of them also others than those of truth."""
BEYOND_TRUTH = {"init", "index", "export", "recover", "repair"}
OFTEN = ("put", "import", "delete", "rename", "get", "list", "find", "graph", "put", "put", "import") * 2
"""Verbs to try more often than those that take long, as SQL does, whose engine is a process of its own."""
SEPARATOR, END = "\x1f", "\x1e"
FLAGS = (
    *(
        "--json",
        "--kb",
        ".",
        "--lenient",
        "--lock-timeout",
        "0",
        "--dry-run",
        "--merge",
        "--if-match",
        "--no-embed",
        "-m",
    ),
    *(
        "--allow-shrink",
        "--cascade",
        "-s",
        "-H",
        "-w",
        "-l",
        "--limit",
        "--explain",
        "--after",
        "--sql",
        "-o",
        "--force",
    ),
    *("--check", "--reassign", "--show", "--fail-on", "warning", "--format", "json", "text", "--label", "--direction"),
    *(
        "both",
        "--depth",
        "--map",
        "title=text",
        "--batch",
        "--passage",
        "--input-file",
        "--help",
        "--version",
        "--",
        "-",
    ),
)
TYPES = ("Note", "note", "Person", "cites", "wrote", "about", "all", "Nope", "")
IDENTITIES = (
    "n1",
    "n2",
    "n3",
    "new",
    '["CHE",1]',
    '["n1","n2"]',
    '["CHE",2]',
    "",
    "\u5185\u5b58",
    "[",
    "-rf",
    "con",
    "\u202e",
    "x" * 1_025,
)
TEXTS = (
    "ranking lists",
    "\u5185\u5b58\u6570\u636e\u5e93",
    '"hash ids" -random trunc*',
    "",
    "*",
    '"',
    "\U0001f9ea",
    "-",
    "a" * 3_000,
)
CONDITIONS = (
    "size > 3",
    "title LIKE 'r%'",
    "status = 'final' OR 1=1",
    "tags = 'a'",
    "1=1; DROP TABLE note",
    "(",
    "x.y = 1",
    "",
)
STATEMENTS = ("SELECT * FROM note", "SELECT count(*) AS n FROM cites", "SHOW TABLES", "DROP TABLE note", "SELECT 1", "")
TOKENS = tuple(
    token.encode()
    for token in (*(f"{SEPARATOR}{flag}{SEPARATOR}" for flag in FLAGS), *TYPES, *IDENTITIES, *TEXTS, *CONDITIONS, SEPARATOR, END,
                  "{", "}", '"id":"n1"', '"_etag":"x",', '"__id":1,', '"id":null,', '"size":1e400,', "\n", "[]", "null")
)  # fmt: skip


Entry = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Command:
    args: tuple[str, ...]
    stdin: bytes = b""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


class CliTarget:
    """`duckkb` in a base of notes that is put back as it was once it has changed enough. `entry` runs a command line."""

    name = "command line"
    modules = (
        "duckkb/cli/*.py",
        "duckkb/actions/*.py",
        "duckkb/app/*.py",
        "duckkb/engine/*.py",
        "duckkb/truth/files/render.py",
    )

    def __init__(self, folder: Path, entry: Entry = run) -> None:
        self._entry = entry
        self.root = folder / "a" / "b" / "c" / "d" / "kb"
        self._kept = folder / "kept"
        self._changes = 0
        self.writes = 0
        make_notes(self._kept)
        self._restore()

    def inputs(self, chance: Random) -> Iterator[Command]:
        mutator = Mutator(chance, TOKENS)
        while True:
            one, other = (_packed(command(chance)) for _ in range(2))
            yield _unpacked(one)
            for _ in range(3):
                yield _unpacked(mutator.mutate(one, other))

    def check(self, value: Command) -> bool:
        value = replace(value, args=tuple(map(_harmless, value.args)))
        before, records = _files(self.root), None
        if WRITING & set(value.args):
            records = oracle.records(self.root)
        ended = run_here(self.root, value, self._entry)
        after = _files(self.root)
        try:
            _check_words(value, ended)
            self._check_files(value, ended, before != after, records)
        finally:
            if before != after:
                self._changed(before, after)
        return ended.code != 2

    def _check_files(self, value: Command, ended: Ended, changed: bool, records: Any) -> None:
        verbs = WRITING & set(value.args)
        assert not changed or (ended.code == 0 and verbs) or verbs & {"index", "init"}, ended
        if not changed or verbs & BEYOND_TRUTH:
            return
        assert not {"--dry-run", "--check"} & set(value.args), ended
        self.writes += 1
        assert not oracle.leftovers(self.root), oracle.leftovers(self.root)
        now = oracle.records(self.root)
        receipt = json.loads(ended.out.splitlines()[0]) if ended.out.startswith('{"inserted"') else None
        if receipt:
            assert receipt["inserted"] == len(now.keys() - records.keys()), (receipt, ended)
            assert receipt["deleted"] == len(records.keys() - now.keys()), (receipt, ended)
            updated = sum(records[key] != now[key] for key in records.keys() & now.keys())
            # A later line of one identity replaces the earlier one, or equals it.
            names = [json.dumps(name) for name in receipt.get("identities", _read_identities(value))]
            repeated = len(names) - len({*names})
            assert updated <= receipt["updated"] <= updated + repeated, receipt

    def _changed(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        self._changes += 1
        beyond = {
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path) and not _is_truth(path)
        }
        if beyond or self._changes % 20 == 0:
            self._restore()

    def _restore(self) -> None:
        top = self.root.parents[3]
        shutil.rmtree(top, ignore_errors=True)
        self.root.parent.mkdir(parents=True)
        shutil.copytree(self._kept, self.root)


def make_notes(root: Path) -> None:
    """A base of ten notes, two people and six edges."""
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(NOTES, "utf-8")
    with duckkb.open(root) as kb:
        notes = [
            {
                "id": f"n{number}",
                "title": f"ranking {number}",
                "text": "hash ids \u5185\u5b58 lists",
                "size": number,
                "tags": ["a"],
            }
            for number in range(1, 11)
        ]
        kb.put("Note", notes)
        kb.put("Person", [{"country": "CHE", "number": number, "name": "Ann \u5b89"} for number in (1, 2)])
        kb.put("cites", [{"from": f"n{number}", "to": f"n{number + 1}", "why": "so"} for number in range(1, 5)])
        kb.put("wrote", [{"from": ["CHE", number], "to": "n1"} for number in (1, 2)])
    shutil.rmtree(root / ".duckkb", ignore_errors=True)
    lines = (json.dumps({"id": f"i{number}", "title": "imported"}) for number in range(3))
    (root / "lines.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


def run_here(root: Path, value: Command, entry: Entry = run) -> Ended:
    """The command line in this process, with streams as a pipe gives them."""
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(held, "utf-8", "backslashreplace", write_through=True) for held in (out, err)]
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(value.stdin), "utf-8", "surrogateescape")
    try:
        with chdir(root), redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = entry(value.args)
    finally:
        sys.stdin = before
    return Ended(code, *(held.getvalue().decode("utf-8") for held in (out, err)))


def _check_words(value: Command, ended: Ended) -> None:
    """Exit codes are the documented ones, nothing is a defect, and what should be JSON is."""
    assert ended.code in (0, 1, 2), ended
    assert not re.search("Traceback|E_INTERNAL|a defect in duckkb", ended.err), ended
    if "--help" in value.args or "-h" in value.args or "--version" in value.args:
        return
    if ended.code:
        assert ended.err or ended.out, ended
    options = value.args[: value.args.index("--")] if "--" in value.args else value.args
    if "--json" in options and (ended.code == 2 or (ended.code == 1 and not ended.out)):
        said = json.loads(ended.err.splitlines()[-1])
        assert {"error", "code", "suggestion"} <= said.keys() and said["error"], ended
    prints_lines = {"get", "list", "find", "put", "import", "export", "delete", "rename"} & set(value.args)
    if ended.code == 0 and prints_lines and not {"--dry-run", "schema", "sql", "config"} & set(value.args):
        for line in ended.out.split("\n")[:-1]:
            json.loads(line)


def _read_identities(value: Command) -> list[list[Any]]:
    """The identities of what an import read from its input, whose receipt does not name them; lines that are not JSON have none."""
    if "-" not in value.args:
        return []
    try:
        records = [json.loads(line) for line in value.stdin.split(b"\n") if line.strip()]
    except ValueError:
        records = [{} for line in value.stdin.splitlines()]
    return [[record.get(field) for field in ("id", "country", "number", "from", "to")] for record in records]


def _files(root: Path) -> dict[str, bytes]:
    """Every file around the base and in it, but for its local state."""
    found: dict[str, bytes] = {}
    top = root.parents[3]
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != ".duckkb"]
        for name in names:
            path = Path(folder) / name
            found[os.path.relpath(path, root).replace(os.sep, "/")] = path.read_bytes()
    return found


def _is_truth(path: str) -> bool:
    return path.startswith(("data/nodes/", "data/edges/", "data/FORMAT.json"))


_UNENDING = ("watch", "mcp", "serve")


def _harmless(arg: str) -> str:
    """The same argument as one that cannot lead out of the test's own folder, that a process could be given, and that names no
    verb which goes on until it is interrupted."""
    if arg in _UNENDING:
        return "status"
    arg = re.sub(r"(^|=|^-\w+)(?=[/~])", r"\1.", arg.replace("\0", ""))
    return arg.replace("..", ".") if arg.count("..") > 3 else arg


def _packed(value: Command) -> bytes:
    return SEPARATOR.join(value.args).encode("utf-8", "surrogateescape") + END.encode() + value.stdin


def _unpacked(data: bytes) -> Command:
    args, _, stdin = data.partition(END.encode())
    return Command(tuple(args.decode("utf-8", "surrogateescape").split(SEPARATOR)), stdin)


def command(chance: Random) -> Command:
    """A command line that makes sense."""
    pick = chance.choice
    kind, identity = pick(TYPES[:6]), pick(IDENTITIES[:7])
    args, stdin = _form(chance, pick([*(verb.name for verb in VERBS), *OFTEN]), kind, identity)
    if chance.random() < 0.3:
        args = (*args, "--json") if chance.random() < 0.5 else ("--json", *args)
    return Command(args, stdin)


def _form(chance: Random, verb: str, kind: str, identity: str) -> tuple[tuple[str, ...], bytes]:
    pick = chance.choice
    match verb:
        case "put":
            return _put(chance, kind)
        case "import":
            return (
                "import",
                kind,
                pick(["lines.jsonl", "-"]),
                *pick([(), ("--dry-run",), ("--map", "text=title")]),
            ), _lines(chance)
        case "get" | "delete":
            return (
                verb,
                kind,
                identity,
                *(pick([(), ("--cascade",), ("--dry-run",)]) if verb == "delete" else ()),
            ), b""
        case "rename":
            return ("rename", "Note", pick(IDENTITIES[:3]), pick(["n77", "\u65b0"])), b""
        case "list":
            return ("list", kind, *pick([(), ("-l", "3"), ("--after", identity)])), b""
        case "find":
            return (
                "find",
                pick(["Note", "Person", "all"]),
                pick(TEXTS),
                *pick([*[("-m",)] * 5, *[(), ("-s",), ("-H",), ("-m", "--explain")] * 2, ("-w", pick(CONDITIONS))]),
            ), b"ranking"
        case "sql":
            return ("sql", pick(STATEMENTS)), b""
        case "graph":
            ends = (
                ("path", "Note", "n1", "Note", "n3")
                if chance.random() < 0.4
                else ("neighbors", "Note", pick(IDENTITIES[:3]))
            )
            return ("graph", *ends, *pick([(), ("--depth", "2"), ("--label", "cites"), ("--direction", "out")])), b""
        case "export":
            return ("export", kind, *pick([(), (), ("-o", "out.jsonl")])), b""
        case "index":
            return ("index", pick(["status", "status", "build"])), b""
        case "init":
            return ("init", pick(["sub", "."])), b""
        case "recover" | "trust":
            return (verb, "--show"), b""
        case "config":
            return ("config", "show"), b""
        case "embed":
            return ("embed", pick(TEXTS), *pick([(), ("--batch",)])), b""
        case "schema":
            return ("schema", *pick([(), (kind,), ("--sql",)])), b""
        case _:
            return (verb, *pick([(), ("--check",)] if verb == "fmt" else [()])), b""


def _put(chance: Random, kind: str) -> tuple[tuple[str, ...], bytes]:
    extra: Sequence[str] = chance.choice([(), ("--merge",), ("--dry-run",), ("--no-embed",)])
    if chance.random() < 0.5:
        return ("put", kind, json.dumps(_record(chance, kind), ensure_ascii=False), *extra), b""
    return ("put", kind, *extra), _lines(chance, kind)


def _lines(chance: Random, kind: str = "Note") -> bytes:
    lines = [json.dumps(_record(chance, kind), ensure_ascii=False).encode() for _ in range(chance.randint(1, 4))]
    return b"\n".join([*lines, valid_line(chance)] if chance.random() < 0.1 else lines) + b"\n"


def _record(chance: Random, kind: str) -> dict[str, Any]:
    number = chance.randint(1, 14)
    match kind:
        case "Person":
            return {"country": chance.choice(["CHE", "FRA"]), "number": number, "name": chance.choice(TEXTS[:2])}
        case "cites":
            return {"from": f"n{number}", "to": f"n{chance.randint(1, 10)}", "why": "because"}
        case "wrote":
            return {"from": ["CHE", chance.randint(1, 2)], "to": f"n{chance.randint(1, 10)}"}
        case "about":
            return {"from": f"n{number}", "to": chance.choice(["n1", ["CHE", 1], {"type": "Note", "id": "n2"}])}
        case _:
            return {
                "id": f"n{number}",
                "title": chance.choice(TEXTS[:3]),
                "size": number,
                "status": chance.choice(["draft", "final"]),
            }
