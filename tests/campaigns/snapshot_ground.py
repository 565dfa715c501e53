"""A base with a snapshot and components, in one folder that is hurt again and again: what it answers then, and what the
same files answer without a snapshot.

The snapshot holds only for the very files that were written, so nothing is copied into place: commands make it. Truth goes
round a few states, which an editor could have written, so that what each of them must answer is asked once.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import git
from tests.harness import oracle
from tests.harness.faults.run import LATER, MOMENT, Ended, Zygote

CONFIG = """\
global: {{embedding_model: none}}
snapshot: {{min_bytes: {min_bytes}}}
nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties: {{id: {{type: string}}, text: {{type: string}}, size: {{type: integer}}}}
      required: [id]
    search: {{full_text: [text]}}
edges:
  cites: {{from: Note, to: Note}}
"""
SNAPSHOT = "cache/bases"
ALWAYS, NEVER = 0, 1 << 40
NOTES = 60
STATES = 3


def note(name: str, number: int, words: str = "") -> dict[str, Any]:
    return {"id": name, "text": f"common alpha w{number} 内存数据库 {words}".strip(), "size": number}


def lines(records: Sequence[object]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


@dataclass
class Place:
    """One base in one folder. `run` runs a command line that uses the snapshot, `aside` one that does not know of it.
    The user's cache folder is `cache`."""

    zygote: Zygote
    folder: Path
    state: int = 0
    _role: int = 100
    _states: list[dict[str, bytes]] = field(default_factory=list)
    _known: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "kb"

    @property
    def snapshot(self) -> Path:
        return self.folder / SNAPSHOT

    def run(self, args: Sequence[str], stdin: str = "", **job: Any) -> Ended:
        self._role += 1  # seeds the names of files, which no two processes share
        job = {"role": self._role, "env": {"DUCKKB_CACHE_HOME": str(self.folder / "cache")}, **job}
        return self.zygote.run(self.folder, args, stdin=stdin, **job)

    def aside(self, args: Sequence[str], stdin: str = "", **job: Any) -> Ended:
        """Run a command as of a base without a snapshot."""
        self._configure(NEVER)
        try:
            done = self.run(args, stdin, **job)
            assert done.code == 0, done
            return done
        finally:
            self._configure(ALWAYS)

    def ids(self, args: Sequence[str], stdin: str) -> list[int]:
        """Of the records that a find without a snapshot gives."""
        name = f"{oracle.digest(self.root)} {args}"
        if name not in self._known:
            self._known[name] = ids(self.aside(args, stdin))
        found: list[int] = self._known[name]
        return found

    def turn(self, state: int | None = None) -> None:
        """Have truth be another one, or a certain one, as an editor or git would."""
        self.state = (self.state + 1) % STATES if state is None else state
        wanted = self._states[self.state]
        for path, data in oracle.tree(self.root).items():
            if wanted.get(path) != data:
                (self.root / path).unlink()
        for path, data in wanted.items():
            target = self.root / path
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

    def drop(self) -> None:
        """Have no snapshot, whatever stands in its place."""
        if self.snapshot.is_symlink() or self.snapshot.is_file():
            self.snapshot.unlink()
        else:
            shutil.rmtree(self.snapshot, ignore_errors=True)

    def answers(self, **job: Any) -> Any:
        """What every kind of question gives, out of the snapshot; None where the process died on the way."""
        done = self.run((), session="answers", **job)
        return None if done.died else _value(done)

    def expected(self) -> Any:
        """What the same files give without one."""
        name = oracle.digest(self.root)
        if name not in self._known:
            self._known[name] = _value(self.aside((), session="answers"))
        return self._known[name]

    def judge(self, told: object, *, may_need: bool = False, **job: Any) -> None:
        """The next questions are answered as those of a base without a snapshot, and then nothing is damaged.
        `may_need`: `repair` may be needed, and is enough."""
        found = self.answers(**job)
        self.compare(found, told)
        if may_need and found["needs"]:
            assert self.run(("repair",), **job).code == 0, (told, found["needs"])
            found = self.answers(**job)
            self.compare(found, told)
        assert found["needs"] == [], (told, found["needs"])

    def compare(self, found: Any, told: object) -> None:
        """Hold answers against those that the same files give without a snapshot."""
        assert "error" not in found, (told, found)
        for name, value in self.expected().items():
            assert name == "needs" or found[name] == value, (told, name, found[name], value)

    def _configure(self, min_bytes: int) -> None:
        (self.root / "config.yaml").write_text(CONFIG.format(min_bytes=min_bytes), "utf-8")

    def fill(self) -> None:
        """The records, in parts of two days, and the states that truth goes round."""
        self._configure(ALWAYS)
        git(self.root, "init", "-q", "-b", "main", "--template=")
        self.aside(("col", "init", "vecs", "--policy", "feature-store", "--params", '{"dimension": 3}'))
        notes = [note(f"n{at}", at) for at in range(NOTES)]
        self.aside(("import", "Note", "-"), lines(notes[:20]), moment=MOMENT)
        self.aside(("import", "Note", "-"), lines(notes[20:]), moment=LATER)
        self.aside(("import", "vecs", "-"), lines([{"id": f"v{at}", "tensor": [at, 3, -at]} for at in range(1, 20)]))
        self.aside(("import", "cites", "-"), lines([{"from": f"n{at}", "to": f"n{at + 1}"} for at in range(9)]))
        self._states = [oracle.tree(self.root)]
        for number in range(1, STATES):
            changes = [note(f"new {number}", 100 + number, "fresh"), note("n7", number, "changed")]
            self.aside(("import", "Note", "-"), lines(changes))
            changed = [{"id": f"v{number + 1}", "tensor": [1, 2, 3]}, {"id": "v9", "tensor": [3 - number, 2, 1]}]
            self.aside(("import", "vecs", "-"), lines(changed))
            self.aside(("import", "cites", "-"), lines([{"from": f"new {number}", "to": "n7"}]))
            self.aside(("delete", "Note", f"n{50 + number}"))
            self._states.append(oracle.tree(self.root))
        self.turn(0)


def ids(done: Ended) -> list[int]:
    """Of the records that a find gave."""
    return sorted(json.loads(line)["__id"] for line in done.out.splitlines())


def _value(done: Ended) -> Any:
    assert done.code == 0, done
    return json.loads(done.out.splitlines()[-1])


@pytest.fixture(scope="session")
def place(zygote: Zygote) -> Iterator[Place]:
    """A base with everything in place; whoever hurts it has it judged, which mends it."""
    with zygote.case({"kb": (0o755, None), "state": (0o755, None)}) as folder:
        made = Place(zygote, folder)
        made.fill()
        made.judge("as it is made")
        yield made
