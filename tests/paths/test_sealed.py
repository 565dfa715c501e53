"""While a key is set nothing of a base lies on disk in the clear but its truth: by reading every byte of every file there."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duckkb.store import sealed_files
from duckkb.store.sealed_files import FRAME_BYTES, BrokenSeal, SealKey
from duckkb.types.errors import Unavailable
from tests.conftest import Ran, make_base, run_in
from tests.fake_endpoint import FakeEndpoint
from tests.fakes import HashEmbedder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a file system in memory here")

KEY, OTHER = "5f" * 32, "a passphrase of some length"
WORDS = [
    "zebrafish",
    "marmalade",
    "pistachio",
    "quokkas",
    "obsidian",
    "velociraptor",
    "kumquats",
    "thaumaturgy",
    "xylophonist",
    "银杏树",
]
CONFIG = """\
global:
  embedding_model: some-model
  embedding: {{base_url: "{url}", dimensions: 16, max_retries: 0}}
snapshot: {{min_bytes: 0}}
nodes:
  Note:
    identity: id
    schema: {{type: object, properties: {{id: {{type: string}}, text: {{type: string}}, size: {{type: integer}}}}}}
    search: {{full_text: [text], vectors: [text]}}
"""
RECORDS: list[dict[str, Any]] = [
    {"id": f"n{at}", "text": f"{word} beside {WORDS[at - 1]}", "size": at} for at, word in enumerate(WORDS)
]
QUESTIONS = (
    ["find", "Note", WORDS[1]],
    ["find", "Note", f"{WORDS[2]} {WORDS[9]}", "-m"],
    ["find", "Note", WORDS[3], "-s"],
    ["find", "Note", "--where", "length(text) > 20 and size % 2 = 1"],
    ["sql", "select id, text from note order by text"],
    ["get", "Note", "n4"],
)
KILLED = """
import importlib, os, signal, sys
module, *names, last = sys.argv.pop(1).split(":")
target = importlib.import_module(module)
for name in names:
    target = getattr(target, name)
assert callable(getattr(target, last)), "the product has no such function"
setattr(target, last, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
from duckkb.__main__ import main
main()
"""


class Sealed:
    """A base with its own state, cache and temporary folder, and how commands run on it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.root = make_base(folder / "kb", CONFIG.format(url=url))
        self.env = {
            "XDG_STATE_HOME": f"{folder}/state",
            "DUCKKB_CACHE_HOME": f"{folder}/cache",
            "TMPDIR": f"{folder}/tmp",
        }
        (folder / "tmp").mkdir()
        self.run("trust", key=None)

    def run(self, *args: str, key: str | None = KEY, stdin: str = "", **env: str) -> Ran:
        around = self.env | ({"DUCKKB_ENCRYPTION_KEY": key} if key else {}) | env
        return run_in(self.root, args, stdin=stdin, env=around)

    def fill(self, key: str | None = KEY) -> None:
        lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
        assert self.run("put", "Note", "-", key=key, stdin=lines).code == 0
        assert self.run("index", "build", key=key).code == 0

    def answers(self, key: str | None = KEY, **env: str) -> list[str]:
        ran = [self.run(*question, key=key, **env) for question in QUESTIONS]
        assert [one.code for one in ran] == [0] * len(ran), [one.err for one in ran]
        return [one.out for one in ran]

    def killed(self, where: str, *args: str, stdin: str = "") -> None:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, where, *args],
            cwd=self.root, input=stdin.encode(), capture_output=True, check=False,
            env={**os.environ, **self.env, "DUCKKB_ENCRYPTION_KEY": KEY},
        )  # fmt: skip
        assert done.returncode == -9, (where, done.stderr)

    def found(self) -> set[bytes]:
        """Which words and vectors stand on disk outside of truth and of git. What the journal stages is truth."""
        vectors = [vector.tobytes() for vector in HashEmbedder(16).embed_passages([one["text"] for one in RECORDS])]
        needles = [word.encode(form) for word in WORDS for form in ("utf-8", "utf-16-le", "utf-16-be")] + vectors
        seen: set[bytes] = set()
        for path in self.folder.rglob("*"):
            inside = path.relative_to(self.folder).parts
            if path.is_file() and inside[:2] not in (("kb", "data"), ("kb", ".git")) and "txn" not in inside:
                content = path.read_bytes()
                seen |= {needle for needle in needles if needle in content}
        return seen

    def memory(self) -> Path:
        """The folder in which it is opened."""
        return Path(self.run("status").line["store"]["path"]).parents[2]

    @property
    def files(self) -> dict[str, Path]:
        folder = self.folder / "cache" / "sealed"
        names = {path.name for path in folder.iterdir()}
        return {"key": folder / "key", "shared": folder / "shared", "base": folder / (names - {"key", "shared"}).pop()}


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Sealed]:
    with FakeEndpoint() as endpoint:
        yield Sealed(tmp_path, str(endpoint.settings().base_url))


@pytest.mark.long
def test_kx_16_no_word_and_no_vector_lies_on_disk_and_the_answers_are_the_same_bytes(sealed: Sealed) -> None:
    sealed.fill(key=None)
    plain = sealed.answers(key=None)
    seen = sealed.found()
    assert {word.encode() for word in WORDS} < seen and any(len(one) == 64 for one in seen), (
        "the scan sees what is there"
    )
    old = sealed.root / ".duckkb" / "snapshot" / "lines"
    old.parent.mkdir()
    old.write_text(RECORDS[0]["text"])
    first = sealed.run(*QUESTIONS[0])
    assert first.err.count("W_SEALED") == 2 and "in the clear" in first.err and not old.parent.exists()
    sealed.run("index", "build")
    assert sealed.answers() == plain and sealed.found() == set()
    assert not sealed.memory().exists()
    assert sealed.answers(DUCKKB_CACHE_HOME=f"{sealed.folder}/another") == plain, "from nothing"
    assert sealed.found() == set()


@pytest.mark.long
def test_kx_16_whoever_is_killed_leaves_nothing_on_disk_and_the_next_one_clears_memory(sealed: Sealed) -> None:
    sealed.fill()
    assert not (sealed.root / "data" / "indices").exists(), "the team's cache would be plain"
    memory, drafts = sealed.memory(), 0
    for where, args in (
        ("duckkb.store.sealed_files:unpack", ("find", "Note", WORDS[0])),
        ("duckkb.engine.find:find", ("find", "Note", WORDS[0])),
        ("duckkb.store.mirrored_files:LaneFiles:seal", ("find", "Note", "velociraptor", "-m")),
        ("duckkb.storage.commit_protocol:_carry_out", ("put", "Note", '{"id": "n4", "text": "obsidian again"}')),
        ("duckkb.store.sealed_files:pack", ("put", "Note", json.dumps(RECORDS[4]))),
        ("duckkb.store.sealed_files:_pack_file", ("put", "Note", json.dumps(RECORDS[4] | {"size": 0}))),
        ("duckkb.store.sealed_files:_bind_frame", ("index", "build")),
    ):
        if "LaneFiles" in where:
            sealed.run("repair", "--all")
        sealed.killed(where, *args)
        assert sealed.found() == set(), where
        assert memory.exists(), "it was killed while it worked"
        drafts += any((sealed.folder / "cache" / "sealed").glob(".*.tmp"))
        sealed.run("recover")
        sealed.run(*QUESTIONS[0])
        assert not memory.exists(), where
    assert drafts and not any((sealed.folder / "cache" / "sealed").glob(".*.tmp"))
    assert sealed.answers() == sealed.answers(key=None, DUCKKB_CACHE_HOME=f"{sealed.folder}/another")


@pytest.mark.long
def test_kx_16_a_server_seals_while_it_serves(tmp_path: Path) -> None:
    """What it computed is not computed again once it was killed, and what others write meanwhile is sealed as one state."""
    script = """
import json, os, signal, sys
import duckkb
from duckkb.store import sealed_files as sealed_home
sealed_home.CHECKPOINT_S = 0.0
with duckkb.open(sys.argv[1]) as kb:
    for record in json.loads(sys.argv[2]):
        kb.put("Note", record)
        assert kb.find("Note", record["text"]).hits[0].identity == record["id"]
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with FakeEndpoint() as endpoint:
        sealed = Sealed(tmp_path, str(endpoint.settings().base_url))
        env = {**os.environ, **sealed.env, "DUCKKB_ENCRYPTION_KEY": KEY}
        done = subprocess.run(
            [sys.executable, "-c", script, str(sealed.root), json.dumps(RECORDS)], env=env, check=False
        )
        assert done.returncode == -9 and sealed.found() == set()
        asked = len(endpoint.asked)
        assert asked >= len(RECORDS)
        assert sealed.run("index", "refresh").code == 0
        assert len(endpoint.asked) == asked, "all vectors were sealed"
        assert sealed.answers() == sealed.answers(key=None, DUCKKB_CACHE_HOME=f"{tmp_path}/another")


@pytest.mark.long
def test_kx_16_what_is_damaged_is_told_dropped_and_made_again(sealed: Sealed) -> None:
    sealed.fill()
    expected = sealed.answers()
    for harm in (_flipped(20), _flipped(60), _flipped(-1), lambda raw: raw[:-1], lambda raw: raw[:30], lambda _: b""):
        path = sealed.files["base"]
        path.write_bytes(harm(path.read_bytes()))
        told = sealed.run(*QUESTIONS[0])
        assert told.out == expected[0] and "damaged" in told.err and "W_SEALED" in told.err
        assert "W_SEALED" not in sealed.run(*QUESTIONS[0]).err
    files = sealed.files
    shared, base = files["shared"].read_bytes(), files["base"].read_bytes()
    files["shared"].write_bytes(base)
    files["base"].write_bytes(shared)
    told = sealed.run(*QUESTIONS[1])
    assert told.err.count("was damaged") == 2, "each file opens under its own name alone"
    assert sealed.answers() == expected


@pytest.mark.long
def test_kx_16_another_key_and_no_key_are_refused_and_nothing_changes(sealed: Sealed, tmp_path: Path) -> None:
    sealed.fill()
    before = {path: path.read_bytes() for path in sealed.files.values()}
    key_file = tmp_path / "key"
    key_file.write_text(f"{KEY}\n")
    for given in ({"key": "60" * 32}, {"key": OTHER}, {"key": None}, {"key": "short"}, {"key": " "}, {"DUCKKB_ENCRYPTION_KEY_FILE": "/nowhere"},
                  {"key": None, "DUCKKB_ENCRYPTION_KEY_FILE": str(key_file)}):  # fmt: skip
        for args in (
            QUESTIONS[0],
            QUESTIONS[1],
            QUESTIONS[5],
            ["list", "Note"],
            ["put", "Note", '{"id": "x"}'],
            ["status"],
            ["index", "build"],
            ["cleanup"],
        ):
            ran = sealed.run(*args, "--json", **given)
            told = [ran.error["code"], ran.error["suggestion"] != "", ran.code]
            assert told == ["E_KEY", True, 1], (given, args, ran.err)
            assert KEY not in ran.err and "short" not in ran.err.replace("shorter", "")
        key_file.chmod(0o604)
    assert {path: path.read_bytes() for path in sealed.files.values()} == before
    key_file.chmod(0o600)
    opened = sealed.run(*QUESTIONS[0], key=None, DUCKKB_ENCRYPTION_KEY_FILE=str(key_file))
    assert opened.code == 0 and opened.out == sealed.run(*QUESTIONS[0]).out
    dropped = sealed.run("cleanup", "--sealed", key=None).line
    assert dropped["freed"] > 1000 and not (sealed.folder / "cache" / "sealed").exists()
    assert sealed.answers(key=OTHER) == sealed.answers(key=OTHER), "rotated"
    assert sealed.run(*QUESTIONS[0]).code == 1


@pytest.mark.long
def test_kx_16_no_child_is_given_the_key_and_nothing_tells_it(sealed: Sealed) -> None:
    sealed.fill()
    script = """
import os, subprocess, sys
from pathlib import Path
import duckkb
from duckkb.operations import code_graph as commands
from duckkb.storage import git_process as run
with duckkb.open(sys.argv[1]) as kb:
    kb.sql("select count(*) from note")
    kids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print(len(kids), [Path(f"/proc/{kid}/environ").read_bytes() for kid in kids])
    commands.run('test -z "$DUCKKB_ENCRYPTION_KEY"', Path("/tmp"), "it", 9, "none")
    print(run.answer(kb.root, ["-c", "alias.e=!env", "e"]).output.decode())
    print(kb.status(), kb.notices, repr(kb.__dict__))
"""
    env = {**os.environ, **sealed.env, "DUCKKB_ENCRYPTION_KEY": KEY}
    told = subprocess.run(
        [sys.executable, "-c", script, str(sealed.root)], env=env, capture_output=True, check=False, text=True
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout[0] != "0" and "GIT_TERMINAL_PROMPT" in told.stdout and KEY not in told.stdout + told.stderr
    health = sealed.run("doctor", "--json")
    (where,) = [one for one in health.line["checks"] if one["check"] == "derived_state"]
    assert "sealed in" in where["message"] and "(0700)" in where["message"] and KEY not in health.out
    assert not any(KEY.encode() in path.read_bytes() for path in sealed.folder.rglob("*") if path.is_file())


@pytest.mark.long
def test_kx_16_processes_side_by_side_share_what_is_opened_and_the_last_one_seals(sealed: Sealed) -> None:
    sealed.fill()
    memory = sealed.memory()
    env = {**os.environ, **sealed.env, "DUCKKB_ENCRYPTION_KEY": KEY}
    given = [["put", "Note", json.dumps({"id": f"m{at}", "text": f"thaumaturgy {at}"})] for at in range(4)]
    started = [
        subprocess.Popen([sys.executable, "-m", "duckkb", *args], cwd=sealed.root, env=env, stdout=subprocess.DEVNULL)
        for args in given
    ]
    assert [one.wait() for one in started] == [0] * 4
    assert not [*memory.parent.glob(f"{memory.name}*")] and sealed.found() == set()
    assert {line["id"] for line in sealed.run("find", "Note", "thaumaturgy", "-m").lines} >= {
        f"m{at}" for at in range(4)
    }


def test_kx_16_without_a_key_nothing_of_it_is_imported(sealed: Sealed) -> None:
    script = "import sys, duckkb\nwith duckkb.open(sys.argv[1]) as kb: kb.find('Note', 'x', mode='match')\nprint(*sys.modules)"
    env = {**os.environ, **sealed.env}
    told = subprocess.run(
        [sys.executable, "-c", script, str(sealed.root)], env=env, capture_output=True, check=True, text=True
    )
    loaded = {name.partition(".")[0] if name.startswith("crypt") else name for name in told.stdout.split()}
    assert "duckkb.store.cache_dirs" in loaded
    assert not loaded & {
        "cryptography",
        "duckkb.config.encryption_key",
        "duckkb.store.sealed_files",
    }


def _flipped(at: int) -> Callable[[bytes], bytes]:
    def harm(raw: bytes) -> bytes:
        changed = bytearray(raw)
        changed[at] ^= 1
        return bytes(changed)

    return harm


@pytest.mark.parametrize("size", [0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES])
def test_kx_16_frames_open_whole_in_their_order_and_under_their_name_alone(tmp_path: Path, size: int) -> None:
    key, path, content = SealKey(KEY, b""), tmp_path / "file", os.urandom(size)
    sealed_files.write(path, [content[: size // 3], content[size // 3 :]], key, "base")
    raw = path.read_bytes()
    assert b"".join(sealed_files.read(path, key, "base")) == content and (size < 16 or content[:16] not in raw)
    head, step = 48, FRAME_BYTES + 16
    frames = [raw[at : at + step] for at in range(head, len(raw), step)]
    harmed = [raw[: head + step * count] for count in range(len(frames))] + [raw + b"x", raw + frames[-1]]
    if len(frames) > 1:
        harmed += [raw[:head] + b"".join(order) for order in (frames[::-1], frames[1:], frames[:1] + frames[2:])]
    for one in harmed:
        path.write_bytes(one)
        with pytest.raises(BrokenSeal):
            b"".join(sealed_files.read(path, key, "base"))
    path.write_bytes(raw)
    for other, name in ((SealKey("60" * 32, b""), "base"), (key, "other")):
        with pytest.raises(BrokenSeal):
            b"".join(sealed_files.read(path, other, name))
    sealed_files.write(path, [content], key, "base")
    assert path.read_bytes() != raw, "each time another key"


def test_kx_16_where_nothing_lies_in_memory_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="tmpfs") as caught:
        sealed_files.find_memory_folder([tmp_path, tmp_path / "none"], lambda _: "ext4")
    assert caught.value.code == "E_KEY" and str(tmp_path) in caught.value.message


@pytest.mark.long
def test_kx_16_who_began_with_a_key_that_was_dropped_seals_nothing_with_it(sealed: Sealed) -> None:
    sealed.fill()
    script = """
import sys
import duckkb
with duckkb.open(sys.argv[1]) as kb:
    print("open", flush=True)
    sys.stdin.readline()
    kb.put("Note", {"id": "late", "text": "written by who began before"})
"""
    env = {**os.environ, **sealed.env, "DUCKKB_ENCRYPTION_KEY": KEY}
    command = [sys.executable, "-c", script, str(sealed.root)]
    before = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
    assert before.stdout is not None and before.stdout.readline() == "open\n"
    assert sealed.run("cleanup", "--sealed", key=None).code == 0
    sealed.answers(key=OTHER)
    before.communicate("\n")
    assert before.returncode == 0
    told = sealed.run("get", "Note", "late", key=OTHER)
    assert told.code == 0 and "damaged" not in told.err
    assert sealed.answers(key=OTHER) == sealed.answers(key=None, DUCKKB_CACHE_HOME=f"{sealed.folder}/another")
