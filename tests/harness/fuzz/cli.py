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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import duckkb
from duckkb.cli.main import run
from duckkb.cli.verb_list import VERBS
from tests.conftest import NOTES, commit, git
from tests.harness import oracle
from tests.harness.fuzz.codec import valid_line
from tests.harness.fuzz.mutate import Mutator

BEYOND_TRUTH = {"init", "index", "export", "recover", "repair", "col", "collection", "context", "merge", "resolve"}
"""Verbs that may change other files than those of truth, git's index among them."""
WRITING = {"put", "delete", "rename", "import", "fmt", "dedupe", "apply", *BEYOND_TRUTH}
"""Verbs that may change files."""
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
    "size BETWEEN 2 AND 4 AND NOT title LIKE '%3'",
    "title = 'RANKING 2' OR status = 'Draft'",
    "titel = 'ranking 2'",
    "1=1; DROP TABLE note",
    "(",
    "x.y = 1",
    "",
)
DOCUMENTS = {
    "ranking.md": "# Ranking\n\nRanked lists are fused. See [[other]].\n",
    "other.md": "# Other\n\nhash ids \u5185\u5b58 lists\n",
}
STATEMENTS = ("SELECT * FROM note", "SELECT count(*) AS n FROM cites", "SHOW TABLES", "DROP TABLE note", "SELECT 1", "")
NOTE_NAMES = (("Note", "n1"), ("Note", "n2"), ("note", "n3"), ("Note/n4",))
RECORDS = (
    *NOTE_NAMES,
    ("Person", '["CHE",1]'),
    ('Person/["CHE",2]',),
    ("cites", '["n1","n2"]'),
    ("wrote", '[["CHE",1],"n1"]'),
    ("docs", "ranking.md"),
    ("kv", "a"),
    ("facts", "a"),
    ("Note", "new"),
    ("cites", "n1"),
    ("about", "["),
)
_NOTHING: tuple[str, ...] = ()
DRAWN: Mapping[str, Sequence[str | tuple[str, ...]]] = {
    "TYPE": (*TYPES[:6], "Note", "docs", "kv", "facts"),
    "SEARCHED": ("Note", "Note", "Person", "docs", "all"),
    "RECORD": RECORDS,
    "NODE": (*NOTE_NAMES, ("Person", '["CHE",1]')),
    "NEW": ("n77", "\u65b0"),
    "TEXT": ("ranking", "lists -other", "rank*", '"hash ids"', *TEXTS),
    "MODE": (_NOTHING, ("-m",), ("-m",), ("-m",), ("-s",), ("-H",), ("-H",)),
    "WHERE": (*[_NOTHING] * 20, ("-w", "size > 3"), ("-w", "title LIKE '%2'"), *(("-w", text) for text in CONDITIONS)),
    "CONDITION": ("size > 1", "title LIKE '%2'", "size IN (1, 2) OR text IS NULL", *CONDITIONS[:6], *CONDITIONS),
    "LISTED": (
        ("Note", "-l", "3"),
        ("note", "-l", "1", "--after", "n2"),
        ("cites", "--after", '["n1","n2"]'),
        ("Note", "-l", "0"),
        ("Person", "--fields", "name,country"),
        ("Note", "--fields", "+__id"),
        ("docs", "--fields", "path,title"),
        ("kv", "--fields", "nope"),
        ("about", "--after", "n1"),
        *(*TYPES[:6], "kv", "facts"),
    ),
    "LIMIT": (_NOTHING, ("-l", "1")),
    "FIELDS": (_NOTHING, _NOTHING, ("--fields", "id,title"), ("--fields", "+_score,__id"), ("--full",)),
    "EXPLAIN": (_NOTHING, ("--explain",), ("--provenance",), ("--no-chunk",)),
    "AT": (*[_NOTHING] * 4, ("--at", "HEAD"), ("--at", "HEAD~1")),
    "RANGE": (_NOTHING, "HEAD", "HEAD~1..HEAD", "HEAD~1", "nowhere"),
    "WALK": (_NOTHING, _NOTHING, ("--depth", "2"), ("--label", "cites"), ("--direction", "out"), ("-l", "1")),
    "DIFF": (
        _NOTHING,
        ("--stat",),
        ("--full",),
        ("--staged",),
        ("--worktree",),
        ("--exit-code",),
        ("--op", "update"),
        ("-w", "size > 3"),
        ("--ignore", "title"),
        ("--budget", "300"),
    ),
    "DRY": (_NOTHING, _NOTHING, ("--dry-run",)),
    "CASCADE": (_NOTHING, ("--cascade",), ("--cascade", "--allow-shrink"), ("--dry-run",)),
    "WRITE": (*[_NOTHING] * 3, ("--merge",), ("--dry-run",), ("--no-embed",), ("--if-match", "0" * 16)),
    "FILE": (("Note", "lines.jsonl"), ("Person", "people.csv"), ("Note", "people.csv")),
    "STATEMENT": STATEMENTS,
    "COLLECTION": ("kv", "facts", "kv", "Note", "nope"),
    "POLICY": ("knowledge-base", "simple-kv", "structured-logs", "nope"),
    "FOUND": (_NOTHING, _NOTHING, ("-c", "docs"), ("--full",), ("--explain",), ("--files",), ("--xml",), ("--md",)),
    "CHECKED": (_NOTHING, ("--check",)),
    "EMBEDDED": (_NOTHING, ("--batch",)),
    "OUTPUT": (_NOTHING, _NOTHING, ("-o", "out.jsonl")),
    "JOB": ("status", "plan", "build"),
    "FOLDER": ("sub", "."),
    "SHOWN": (_NOTHING, ("--sql",), ("--settings",)),
}
"""What is drawn for a word of a form."""
FORMS = """\
put
put
put
import
import
import
delete RECORD CASCADE
delete RECORD CASCADE
rename Note n9 NEW DRY
rename Note n1 NEW DRY
get RECORD FIELDS AT
get RECORD FIELDS AT
list LISTED WHERE AT
list Note -w CONDITION LIMIT
count TYPE AT
count Note -w CONDITION
export TYPE OUTPUT
schema
schema TYPE SHOWN
find SEARCHED TEXT MODE WHERE LIMIT FIELDS
find SEARCHED TEXT MODE EXPLAIN AT
find Note -w CONDITION LIMIT FIELDS
find SEARCHED TEXT MODE WHERE EXPLAIN
find facts --vector - WHERE EXPLAIN
find all TEXT MODE
pack TEXT LIMIT
sql STATEMENT
embed TEXT EMBEDDED
why RECORD TEXT MODE WHERE
graph neighbors NODE WALK WALK FIELDS
graph path NODE NODE WALK
graph citing NODE LIMIT
graph near NODE
search TEXT FOUND AT
query TEXT FOUND
ls
ls docs
multi-get *.md FOUND
update
collection list
log RECORD
blame RECORD
diff RANGE DIFF
diff RANGE DIFF
review RANGE
impact RANGE
check
check --since HEAD
fmt CHECKED
dedupe DRY
growth AT
quality AT
branches
col show COLLECTION
col list
col init made --policy POLICY
col rm COLLECTION --yes
col rename COLLECTION made
col snapshot COLLECTION kv.snapshot
col restore one.snapshot --as made
index JOB
init FOLDER
recover --show
trust --show
config show
status
policy list
""".splitlines()
"""Command lines that make sense. Words in capitals stand for others (`DRAWN`); `put` and `import` take records."""
_WITH_RECORDS = ("put", "import")
_FORMATS = (("--json",),) * 4 + (("--format", "csv"), ("--format", "md"), ("--format", "table"), ("--format", "jsonl"))
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
        "duckkb/operations/*.py",
        "duckkb/app/*.py",
        "duckkb/engine/*.py",
        "duckkb/storage/render.py",
    )

    def __init__(self, folder: Path, entry: Entry = run) -> None:
        self._entry = entry
        self.root = folder / "a" / "b" / "c" / "d" / "kb"
        self._kept = folder / "kept"
        self._changes = 0
        self.writes = 0
        make_notes(self._kept)
        self._restore()
        self._grow()

    def inputs(self, chance: Random) -> Iterator[Command]:
        mutator = Mutator(chance, TOKENS)
        while True:
            one, other = (_packed(command(chance)) for _ in range(2))
            yield _unpacked(one)
            yield _unpacked(other)
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

    def _grow(self) -> None:
        """Give the base documents, collections, two commits of git, and files to import."""
        (self.root / "docs").mkdir()
        for name, text in DOCUMENTS.items():
            (self.root / "docs" / name).write_text(text, "utf-8")
        (self.root / "people.csv").write_text("country,number,name\nCHE,7,Ann\nFRA,8,\u5b89\n", "utf-8")
        for line in (
            "collection add docs",
            "col init facts --policy feature-store",
            "col init kv --policy simple-kv",
            'put facts {"id":"a","tensor":[1,0,0]}',
            'put facts {"id":"b","tensor":[0,1,0]}',
            'put kv {"key":"a","value":"x"}',
            "col snapshot kv one.snapshot",
        ):
            made = run_here(self.root, Command(tuple(line.split())))
            assert made.code == 0, made
        git(self.root, "init", "-q", "-b", "main", "--template=")
        commit(self.root, "first")
        made = run_here(self.root, Command(("put", "Note", '{"id":"n2","title":"ranking two"}', "--merge")))
        assert made.code == 0, made
        commit(self.root, "second")
        shutil.rmtree(self._kept)
        shutil.copytree(self.root, self._kept)

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
    assert not re.search("Traceback|E_INTERNAL|a bug in duckkb", ended.err), ended
    if "--help" in value.args or "-h" in value.args or "--version" in value.args:
        return
    if ended.code:
        assert ended.err or ended.out, ended
    options = value.args[: value.args.index("--")] if "--" in value.args else value.args
    if "--json" in options and (ended.code == 2 or (ended.code == 1 and not ended.out)):
        said = json.loads(ended.err.splitlines()[-1])
        assert {"error", "code", "suggestion"} <= said.keys() and said["error"], ended
    prints_lines = {"get", "list", "find", "put", "import", "export", "delete", "rename"} & set(value.args)
    others = {"--dry-run", "schema", "sql", "config", "csv", "md", "table"} & set(value.args)
    if ended.code == 0 and prints_lines and not others:
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
    """A command line that makes sense: mostly one of `FORMS`, else a verb alone."""
    pick = chance.choice
    form = pick(FORMS) if chance.random() < 0.9 else pick(VERBS).name
    if form in _WITH_RECORDS:
        args, stdin = _with_records(chance, form)
    else:
        args = tuple(chain.from_iterable(_words(chance, name) for name in form.split()))
        stdin = b"[1, 0, 0.5]" if "--vector" in args else b"ranking"
    if chance.random() < 0.4:
        shown = pick(_FORMATS)
        args = (*args, *shown) if chance.random() < 0.5 else (*shown, *args)
    return Command(args, stdin)


def _words(chance: Random, name: str) -> tuple[str, ...]:
    """Draw what stands on a command line for a word of a form."""
    if name not in DRAWN:
        return (name,)
    words = chance.choice(DRAWN[name])
    return (words,) if isinstance(words, str) else words


def _with_records(chance: Random, verb: str) -> tuple[tuple[str, ...], bytes]:
    """Make a command line that takes records of some type: as an argument, on stdin, or in a file of the base."""
    kind = chance.choice(TYPES[:6])
    options = _words(chance, "WRITE")
    if verb == "put" and chance.random() < 0.5:
        return (verb, kind, json.dumps(_record(chance, kind), ensure_ascii=False), *options), b""
    if verb == "put":
        return (verb, kind, *options), _lines(chance, kind)
    if chance.random() < 0.3:
        return (verb, *_words(chance, "FILE"), *options), b""
    return (verb, kind, "-", *options, *chance.choice([(), (), ("--map", "text=title")])), _lines(chance, kind)


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
