"""Many at once: processes, threads, forks and worktrees on one base. Nothing is lost, and nobody sees half of a write."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import duckkb
from duckkb.storage import base_lock, clone_state
from duckkb.storage.layout import base_number
from duckkb.types.errors import Conflict, Unavailable
from tests.conftest import Run, commit, git
from tests.harness import oracle
from tests.harness.campaign import Campaign
from tests.harness.crowd import scripts
from tests.harness.crowd.scripts import ended, start
from tests.harness.crowd.workers import Forge
from tests.harness.forks import weakened
from tests.harness.waiting import HANG_S


def _ids(root: Path, table: str = "note") -> list[str]:
    return sorted(record["id"] for (name, _), record in oracle.records(root).items() if name == table)


def test_dk_17_processes_that_upsert_at_once_lose_nothing(notes: Path, campaign: Campaign) -> None:
    processes, each = campaign.pick(6, 20), campaign.pick(6, 20)
    running = [start(scripts.PUT, notes, f"p{number:02}", each) for number in range(processes)]
    for process in running:
        ended(process)
    assert _ids(notes) == [f"p{process:02}-{number:03}" for process in range(processes) for number in range(each)]
    assert oracle.leftovers(notes) == []
    assert duckkb.check(notes).findings == ()
    campaign.count("upserts by processes at once", processes * each)


def test_dk_17_compare_and_swap_counts_every_increment(notes: Path, campaign: Campaign) -> None:
    """Each process reads, adds one and writes under --if-match until it has won its share: none is counted twice."""
    processes, each = campaign.pick(4, 8), campaign.pick(5, 25)
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "counter", "size": 0})
        for process in [start(scripts.COUNT_UP, notes, each) for _ in range(processes)]:
            ended(process)
        assert kb.get("Note", "counter")["size"] == processes * each
    campaign.count("compare-and-swap writes by processes at once", processes * each)


def test_writers_without_compare_and_swap_are_caught(notes: Path, tmp_path: Path) -> None:
    """The control: the precondition taken out, the same count comes short."""
    looked = "if problem := _check_precondition(request.kind, entry, state.tree):\n"
    sources = weakened(
        tmp_path / "weak",
        {"engine/write_draft": (looked, looked.replace("if ", "if False and (", 1).replace("):", ")):", 1))},
    )
    with duckkb.open(notes) as kb:
        kb.put("Note", {"id": "counter", "size": 0})
        for process in [start(scripts.COUNT_UP, notes, 25, sources=sources) for _ in range(4)]:
            ended(process)
        assert kb.get("Note", "counter")["size"] < 100


def _generations(root: Path) -> None:
    """Records of three types on twelve days, so that one generation is in many files."""
    days = [f"2026-01-{day:02}T00:00:00.000000Z" for day in range(1, 13)]
    lines = [{"id": f"n{n}", "title": "0", "__created_at": day, "__updated_at": day} for n, day in enumerate(days)]
    (root / "days.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with duckkb.open(root) as kb:
        kb.import_files("Note", root / "days.jsonl")
        kb.put("Person", [{"country": "CH", "number": number, "name": "0"} for number in range(5)])
        kb.put("cites", [{"from": "n0", "to": f"n{number}", "why": "0"} for number in range(5)])


def test_dk_17_readers_see_one_generation_of_many_files(notes: Path, campaign: Campaign) -> None:
    rounds = campaign.pick(12, 120)
    _generations(notes)
    readers = [start(scripts.READ_FILES, notes, rounds), start(scripts.READ_OPEN, notes, rounds)]
    ended(start(scripts.GENERATIONS, notes, rounds))
    reads = [int(ended(reader)) for reader in readers]
    assert {record.get("title", "0") for record in oracle.records(notes).values()} >= {str(rounds)}
    campaign.count("generations written in 14 files each", rounds)
    campaign.count("whole reads while generations were written", sum(reads))


def test_a_reader_without_the_lock_is_caught(notes: Path, campaign: Campaign) -> None:
    """The control: the same reader, reading files as they come."""
    _generations(notes)
    program = scripts.READ_FILES.replace("with protocol.lock_for_reading(root, 600)", "if True")
    reader = start(program, notes, 400)
    writer = start(scripts.GENERATIONS, notes, 400)
    _, said = reader.communicate(timeout=HANG_S)
    writer.kill()
    writer.communicate()
    assert reader.returncode == 1 and "mixed" in said, said


def test_threads_share_one_open_base(notes: Path, campaign: Campaign) -> None:
    """Every kind of call from 20 threads at once: no exception, no update lost, no answer from half of a write."""
    threads, each = campaign.pick(8, 20), campaign.pick(10, 40)
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": f"t{number}", "text": "fox", "size": 0} for number in range(threads)])
        kb.put("Note", {"id": "counter", "size": 0})

        def work(number: int) -> None:
            asks = _questions(kb, number)
            for turn in range(each):
                kb.put("Note", {"id": f"t{number}", "text": f"fox v{turn}", "size": turn})
                asks[(number + turn) % len(asks)]()
                _increment(kb)
                assert kb.get("Note", f"t{number}")["size"] == turn

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        assert kb.get("Note", "counter")["size"] == threads * each
        assert kb.check().findings == ()
        assert len(kb.find("Note", "fox", mode="match", limit=1000)) == threads
    assert len(_ids(notes)) == threads + 1
    campaign.count("calls from threads at once", threads * each * 4)


def _questions(kb: duckkb.KnowledgeBase, number: int) -> list[Callable[[], Any]]:
    return [
        lambda: kb.find("Note", "fox", mode="match", limit=5),
        lambda: kb.find("Note", where=f"size >= {number}", limit=5),
        lambda: kb.sql("SELECT count(*) FROM note"),
        lambda: kb.list("Note", limit=3),
        lambda: [row["id"] for row in kb.export("Note")],
        lambda: kb.notices,
        lambda: kb.neighbors("Note", "counter"),
        kb.types,
        kb.status,
        kb.check,
    ]


def _increment(kb: duckkb.KnowledgeBase) -> None:
    while True:
        seen = kb.get("Note", "counter")
        try:
            kb.put("Note", {"id": "counter", "size": seen["size"] + 1}, if_match=seen["_etag"])
        except Conflict:
            continue
        return


def test_an_export_is_of_the_moment_of_the_call(notes: Path) -> None:
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": f"n{number}"} for number in range(30)])
        rows = kb.export("Note")
        kb.delete("Note", "n0", "n1")
        kb.put("Note", {"id": "later"})
        assert len(list(rows)) == 30


def test_two_open_bases_in_one_process_see_each_other(notes: Path, campaign: Campaign) -> None:
    each = campaign.pick(15, 100)
    with duckkb.open(notes) as one, duckkb.open(notes) as two:

        def work(kb: duckkb.KnowledgeBase, name: str) -> None:
            for number in range(each):
                kb.put("Note", [{"id": f"{name}{number}", "text": "fox"}, {"id": "both", "text": f"{name} {number}"}])

        writers = [threading.Thread(target=work, args=pair) for pair in ((one, "a"), (two, "b"))]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        for kb in (one, two):
            assert len(kb.find("Note", "fox", mode="match", limit=1000)) == 2 * each
            assert kb.get("Note", "both")["text"] in (f"a {each - 1}", f"b {each - 1}")
    assert len(_ids(notes)) == 2 * each + 1
    campaign.count("writes by two open bases of one process", 2 * each)


FORK = """
import duckkb, os, sys
with duckkb.open(sys.argv[1]) as kb:
    kb.put('Note', {'id': 'before', 'text': 'fox'})
    kb.find('Note', 'fox', mode='match')
    kb.sql('SELECT count(*) FROM note')
    children = []
    for number in range(3):
        pid = os.fork()
        if pid == 0:
            kb.put('Note', {'id': f'child{number}', 'text': 'fox'})
            found = kb.find('Note', 'fox', mode='match')
            rows = kb.sql('SELECT count(*) FROM note').rows
            os._exit(0 if len(found) >= 2 and rows[0][0] >= 2 else 3)
        children.append(pid)
    kb.put('Note', {'id': 'parent', 'text': 'fox'})
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0, 0, 0], codes
    assert len(kb.find('Note', 'fox', mode='match')) == 5
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork, and has no child that could share a base")
def test_an_open_base_goes_on_in_forked_children(notes: Path) -> None:
    process = start(FORK, notes)
    try:
        ended(process)
    finally:
        process.kill()
    assert _ids(notes) == ["before", "child0", "child1", "child2", "parent"]


def test_of_two_racing_preconditions_exactly_one_wins(notes: Path, workers: Forge, campaign: Campaign) -> None:
    """Whole commands with one etag: one writes, the others end with 1 and E_STALE."""
    for _ in range(campaign.pick(4, 40)):
        with duckkb.open(notes) as kb:
            etag = kb.put("Note", {"id": "a", "text": str(time.time_ns())}).etags[0]
        line = ["put", "Note", "--json", "--if-match", etag]
        racing = [workers.worker(notes, *line, f'{{"id": "a", "title": "{number}"}}') for number in range(2)]
        codes = [worker.wait() for worker in racing]
        assert sorted(codes) == [0, 1], [worker.err for worker in racing]
        assert json.loads(racing[codes.index(1)].err.splitlines()[-1])["code"] == "E_STALE"
        (record,) = oracle.records(notes).values()
        assert record["title"] == str(codes.index(0))
        campaign.count("races for one etag")


HOLD = """
import sys
from pathlib import Path
from duckkb.storage import base_lock as lock
from duckkb.storage.layout import base_number
with lock.exclusive(Path(sys.argv[2]), 10):
    print('held', flush=True)
    sys.stdin.read()
"""


def _holder(root: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLD, "import", str(root)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_a_lock_that_does_not_come_is_an_error_that_names_its_holder(notes: Path, workers: Forge, run: Run) -> None:
    run("put", "Note", '{"id": "a"}')
    child = _holder(notes)
    for args in (
        ("put", "Note", '{"id": "b"}'),
        ("list", "Note"),
        ("fmt",),
        ("index", "build"),
        ("delete", "Note", "a"),
    ):
        ran = workers.worker(notes, *args, "--lock-timeout", "0", "--json")
        assert ran.wait() == 1, args
        error = json.loads(ran.err.splitlines()[-1])
        assert error["code"] == "E_LOCKED" and f"process {child.pid} on " in error["error"]
        assert error["details"]["holder"]["pid"] == child.pid
    child.kill()
    child.communicate()
    assert (clone_state.folder_of(notes) / clone_state.LOCK).read_bytes(), (
        "the name of the killed holder is still there"
    )
    assert run("put", "Note", '{"id": "b"}', "--lock-timeout", "0").code == 0
    assert _ids(notes) == ["a", "b"]


def test_a_lock_file_that_is_removed_excludes_again(notes: Path) -> None:
    """`git clean` may take local state away while somebody waits for it: who gets the old file's lock begins anew."""
    got: list[str] = []

    def wait() -> None:
        with base_lock.exclusive(notes, 30):
            got.append("second")
            with pytest.raises(Unavailable), base_lock.hold_shared(notes, 0):
                pass

    with base_lock.exclusive(notes, 0):
        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.1)
        (clone_state.folder_of(notes) / clone_state.LOCK).unlink()
        got.append("first")
    waiter.join(HANG_S)
    assert got == ["first", "second"] or got == ["second", "first"]
    assert not waiter.is_alive()


OVERLAP = """
import sys, time
from pathlib import Path
from duckkb.storage import base_lock as lock
from duckkb.storage.layout import base_number
print('reads', flush=True)
while True:
    with lock.hold_shared(Path(sys.argv[1]), 600):
        time.sleep(0.05)
"""


def test_readers_that_overlap_without_end_keep_no_writer_out(notes: Path, campaign: Campaign) -> None:
    readers = [start(OVERLAP, notes) for _ in range(6)]
    try:
        for reader in readers:
            assert reader.stdout is not None and reader.stdout.readline()
        with duckkb.open(notes, lock_timeout=30) as kb:
            for number in range(campaign.pick(5, 40)):
                kb.put("Note", {"id": f"n{number}"})
                campaign.count("writes among overlapping readers")
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


def test_readers_get_in_among_writers_that_never_rest(notes: Path, campaign: Campaign) -> None:
    writers = [start(OVERLAP.replace("shared", "exclusive"), notes) for _ in range(4)]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline()
        for _ in range(campaign.pick(4, 30)):
            with base_lock.hold_shared(notes, 60):
                campaign.count("reads among writers that never rest")
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_a_lock_without_turns_starves_its_writer(notes: Path, tmp_path: Path) -> None:
    """The control: without the turn the same readers keep a writer out for as long as it cares to wait."""
    sources = weakened(
        tmp_path / "weak",
        {"storage/base_lock": ("with _turn(root, mode, deadline) as is_ours:", "if is_ours := True:")},
    )
    readers = [start(OVERLAP, notes, sources=sources) for _ in range(8)]
    try:
        for reader in readers:
            assert reader.stdout is not None and reader.stdout.readline()
        program = "import sys; from pathlib import Path; from duckkb.storage import base_lock as lock\nwith lock.exclusive(Path(sys.argv[1]), 2): pass"
        _, said = start(program, notes, sources=sources).communicate(timeout=HANG_S)
        assert "E_LOCKED" in said or "The lock is held" in said
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


def test_worktrees_write_at_once_and_git_merges_them_without_loss(
    notes: Path, tmp_path: Path, campaign: Campaign
) -> None:
    each = campaign.pick(6, 30)
    with duckkb.open(notes) as kb:
        kb.put("Note", [{"id": f"n{number}", "text": "old"} for number in range(10)])
    commit(notes)
    trees = [notes, tmp_path / "second", tmp_path / "third"]
    for tree in trees[1:]:
        git(notes, "worktree", "add", "-q", "-b", tree.name, str(tree))
    for process in [start(scripts.PUT, tree, tree.name, each) for tree in trees]:
        ended(process)
    clones = [(tree / ".duckkb" / "clone_id").read_text() for tree in trees]
    assert len(set(clones)) == len(trees), "each worktree has its own state"
    parts = Counter(path for tree in trees for path in oracle.tree(tree) if oracle.PART.fullmatch(path))
    # the first part is in all of them; one clone in a thousand draws the number of another
    names = [git(tree, "branch", "--show-current").strip() for tree in trees]
    numbers = [base_number(clone.strip(), name) for clone, name in zip(clones, names, strict=True)]
    others = Counter(number for number in numbers[1:] if number != numbers[0])
    assert sorted(parts.values()) == sorted([*others.values(), len(trees)])
    for tree in trees:
        commit(tree)
    for tree in trees[1:]:
        git(notes, "merge", "-q", "--no-edit", tree.name)
    assert _ids(notes) == sorted(
        [f"n{number}" for number in range(10)]
        + [f"{tree.name}-{number:03}" for tree in trees for number in range(each)]
    )
    assert duckkb.check(notes).findings == ()
    campaign.count("writes in worktrees at once, merged", each * len(trees))


THREADS = """
import os
import duckkb.index.cache_parquet as cache
row = (b'k' * 16, b'h' * 16, 'made', b'some tokens')
data = cache.encode([row], ())
before = set(os.listdir('/proc/self/task'))
assert [*cache.decode(data)]
print(len(set(os.listdir('/proc/self/task')) - before))
"""


@pytest.mark.skipif(
    not Path("/proc/self/task").exists(),
    reason="this system does not list a process's threads; one that aborts at its end fails the tests that run commands",
)
def test_reading_a_cache_starts_no_thread_that_could_outlive_python() -> None:
    """A thread of Arrow that lets go of Python's memory while Python ends aborts the process: exit code -6 for a program
    that had done its work."""
    assert ended(start(THREADS)).strip() == "0"
