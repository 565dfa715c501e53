"""`duckkb watch` as a process: what becomes of files reaches the index, whatever happens in between."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import commit, make_base, run_in
from tests.fake_endpoint import FakeEndpoint
from tests.harness.waiting import HANG_S

pytest.importorskip("watchfiles", reason="watching needs the extra `documents`")

NOTE = '{"__id":1,"id":"a","text":"t","__created_at":"2026-01-01T00:00:00.000000Z","__updated_at":"2026-01-01T00:00:00.000000Z"}\n'


class Watcher:
    """A watching process: what it told, and how it ended."""

    def __init__(self, root: Path, *names: str) -> None:
        self._out, self._err = root.parent / f"out{time.time_ns()}", root.parent / f"err{time.time_ns()}"
        command = [sys.executable, "-m", "duckkb", "watch", *names]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(command, cwd=root, stdout=out, stderr=err)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text("utf-8").splitlines(keepends=True) if line[-1] == "\n"]

    @property
    def said(self) -> str:
        return self._err.read_text("utf-8")

    def told(self, name: str, **wanted: int) -> bool:
        return any(line["name"] == name and wanted.items() <= line.items() for line in self.lines)

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + HANG_S
        while not holds():
            assert self._process.poll() is None, self.said
            assert time.monotonic() < deadline, (self.lines[-5:], self.said)
            time.sleep(0.02)

    def end(self, number: int = signal.SIGINT) -> int:
        self._process.send_signal(number)
        return self._process.wait(timeout=HANG_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def _watching(root: Path, *names: str) -> Iterator[Watcher]:
    watcher = Watcher(root, *names)
    try:
        yield watcher
    finally:
        watcher.kill()
        assert "Traceback" not in watcher.said, watcher.said


@pytest.fixture
def base(tmp_path: Path, endpoint: FakeEndpoint) -> Path:
    place = f"{{base_url: '{endpoint.url}', dimensions: 16, max_retries: 0}}"
    note = (
        "nodes: {Note: {identity: id, schema: {type: object, properties: {id: {type: string}, text: {type: string}}}}}"
    )
    root = make_base(tmp_path / "kb", f"global: {{embedding_model: far, embedding: {place}}}\n{note}\n")
    for number in range(10):
        _write(root / f"docs/{number}.md", f"# Document {number}\n\nabout number{number}\n")
    assert run_in(root, ["trust"]).code == 0
    assert run_in(root, ["collection", "add", "docs"]).code == 0
    assert run_in(root, ["update"]).code == 0
    commit(root)
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _edit(rng: random.Random, docs: Path, turn: int) -> None:
    """One thing that an editor, a script or git does to files."""
    files = sorted(docs.rglob("*.md"))
    one = rng.choice(files)
    text = f"# Title {turn}\n\nabout turn{turn}\n\n## More\n\nsaid in turn {rng.random()}\n"
    match rng.randrange(8):
        case 0:
            _write(docs / rng.choice(["", "sub/", "sub/deep/", "子/"]) / f"new {turn}.md", text)
        case 1:
            _write(one, text)
        case 2 if len(files) > 5:
            one.unlink()
        case 3:
            one.rename(one.with_name(f"renamed{turn}.md"))
        case 4:  # an editor's save
            _write(swap := one.with_name(f".{one.name}.swp"), text)
            swap.replace(one)
        case 5:  # in pieces
            with one.open("w", encoding="utf-8") as file:
                for piece in (text[:9], text[9:30], text[30:]):
                    file.write(piece)
                    file.flush()
        case 6:
            _write(docs / f"ignored{turn}.txt", text)
        case _ if (docs / "sub").is_dir():  # a folder as a whole
            shutil.move(docs / "sub", docs / f"moved{turn}")


@pytest.mark.long
def test_kx_01_watch_takes_in_whatever_is_done_to_files(base: Path, endpoint: FakeEndpoint, tmp_path: Path) -> None:
    rng, docs = random.Random(20261123), base / "docs"
    _write(docs / "0.md", "# Changed\n\nwhile nobody watched\n")
    with _watching(base) as watcher:
        watcher.until(lambda: watcher.told("docs", changed=1, documents=10))
        for turn in range(200):
            _edit(rng, docs, turn)
            if not turn % 40:  # in the middle of what is being done
                seen = len(watcher.lines)
                _write(docs / f"turn{turn}.md", f"# {turn}\n")
                watcher.until(lambda seen=seen: len(watcher.lines) > seen)
        for number in range(50):
            _write(docs / f"burst/{number}.md", f"# Burst {number}\n\nabout burst{number}\n")
        expected = len([*docs.rglob("*.md")])
        watcher.until(lambda: watcher.lines[-1]["documents"] == expected and "burst49" in str(endpoint.texts))
        before = len(watcher.lines)
        for number in range(50):
            _write(docs / f"second/{number}.md", f"# Second {number}\n\nabout second{number}\n")
        watcher.until(lambda: watcher.lines[-1]["documents"] == expected + 50)
        assert [line["added"] for line in watcher.lines[before:]] == [50], "a burst is one update"
        assert watcher.end() == 0
    asked = len(endpoint.texts)
    (left,) = run_in(base, ["update"]).lines
    assert (left["added"], left["changed"], left["removed"]) == (0, 0, 0), "the watcher saw everything"
    assert len(endpoint.texts) == asked, "and embedded it"
    fresh = tmp_path / "fresh"
    shutil.copytree(base, fresh, ignore=shutil.ignore_patterns(".duckkb"))
    env = {"XDG_CACHE_HOME": str(tmp_path / "other")}
    assert run_in(fresh, ["trust"], env=env).code == 0
    assert run_in(fresh, ["update"], env=env).code == 0
    for args in (["ls", "docs"], ["search", "about", "--all"], ["vsearch", "about burst7", "-n", "9"]):
        assert run_in(base, args).lines == run_in(fresh, args, env=env).lines != [], args


@pytest.mark.long
def test_kx_01_watch_ends_as_asked_and_another_one_takes_over(base: Path, endpoint: FakeEndpoint) -> None:
    with _watching(base) as first, _watching(base, "docs") as second:
        both = (first, second)
        first.until(lambda: any("watched already" in one.said for one in both))
        first, second = sorted(both, key=lambda one: "watched already" in one.said)
        _write(base / "docs/new.md", "# New\n\nonly one embeds this\n")
        first.until(lambda: first.told("docs", added=1))
        assert not second.told("docs", added=1)
        assert first.end(signal.SIGTERM) == 0
        _write(base / "docs/later.md", "# Later\n\nembedded by the other one\n")
        second.until(lambda: second.told("docs", added=1, documents=12))
        assert second.end(signal.SIGINT) == 0
    assert len(endpoint.texts) == len(set(endpoint.texts)), "nothing was embedded twice"
    assert not [*(base / ".duckkb/txn").iterdir()] and run_in(base, ["check"]).code == 0


@pytest.mark.long
def test_kx_01_watch_goes_on_when_folders_definitions_and_truth_change(base: Path) -> None:
    part = base / "data/nodes/note/20260101/part_000.jsonl"
    config = base / "config.yaml"
    sound = config.read_text("utf-8")
    with _watching(base) as watcher:
        watcher.until(lambda: watcher.lines)
        _write(part, NOTE + "broken\n")
        _write(base / "docs/one.md", "# One\n")
        watcher.until(lambda: "E_UNREADABLE" in watcher.said and "part_000.jsonl:2" in watcher.said)
        part.write_text(NOTE, "utf-8")
        watcher.until(lambda: watcher.told("docs", added=1, documents=11))

        config.write_text(sound + "nonsense: [\n", "utf-8")
        watcher.until(lambda: "config.yaml:" in watcher.said)
        config.write_text(sound, "utf-8")
        _write(base / "docs/two.md", "# Two\n")
        watcher.until(lambda: watcher.told("docs", added=1, documents=12))

        shutil.rmtree(base / "docs")
        watcher.until(lambda: "E_SOURCE_MISSING" in watcher.said)
        assert not any(line["removed"] for line in watcher.lines), "nothing counts as deleted"
        _write(base / "docs/back/three.md", "# Three\n")
        watcher.until(lambda: watcher.told("docs", added=1, removed=12, documents=1))
        _write(base / "docs/back/three.md", "# Three\n\nand seen to be another\n")
        watcher.until(lambda: watcher.told("docs", changed=1, documents=1))

        _write(base / "more/four.md", "# Four\n")
        assert run_in(base, ["collection", "add", "more"]).code == 0
        watcher.until(lambda: watcher.told("more", added=1))
        _write(base / "more/five.md", "# Five\n")
        watcher.until(lambda: watcher.told("more", added=1, documents=2))
        assert watcher.end() == 0
    assert run_in(base, ["watch", "nothing"]).code == 1
